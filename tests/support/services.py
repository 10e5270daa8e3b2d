"""A real service in processes of its own: started as its users start it, watched through its log, and taken away again.

No call here waits for time to pass: all wait for a line of the service, or for the end of a process.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys

from zonetrack.shm import port, roster, segment
from zonetrack.shm.errors import SegmentError
from zonetrack.shm.layout import Kind

PATIENCE_MS = 300_000
"""The first start on a machine compiles all kernels."""
_numbers = itertools.count(1)


class Service:
    """``zonetrack serve``, with a name and a socket of its own."""

    def __init__(self, directory, *flags, instance=None, environment=None):
        """Start it.

        Args:
            directory: for its socket.
            flags: of ``serve``.
            instance: its name; a new one when None.
            environment: variables beside those of this process.
        """
        self.instance = instance or f"test-{os.getpid()}-{next(_numbers)}"
        self.socket = str(directory / f"{self.instance}.sock")
        self.log = []
        """Lines that were read from it so far."""
        self.about = None
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "zonetrack.service", "serve", "--json", "--log-json"),
                *("--instance", self.instance, "--socket", self.socket),
                *map(str, flags),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self._rest = b""

    @property
    def pid(self):
        """Process id of the keeper."""
        return self.process.pid

    @property
    def table(self):
        """Its table, attached to without a claim."""
        return segment.attach(self.instance, sealed=True).table

    def until_ready(self):
        """Wait until packets can flow; returns this service."""
        line = self.process.stdout.readline()
        assert line, f"the service ended with {self.process.wait()}:\n{self._all_of_the_log()}"
        self.about = json.loads(line)
        return self

    def hear(self, text):
        """Wait until it logs a line with ``text``, and return that line."""
        while True:
            line = self._line()
            assert line, f"the service ended without saying {text!r}"
            if text in line["text"]:
                return line

    def _line(self):
        """Return the next line of its log, None when there will be no more; what else stands on stderr has no level."""
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                try:
                    self.log.append(json.loads(line))
                except ValueError:
                    self.log.append({"level": None, "text": line.decode()})
                return self.log[-1]
            poller = select.poll()
            poller.register(self.process.stderr, select.POLLIN)
            assert poller.poll(PATIENCE_MS), "the service says nothing"
            part = os.read(self.process.stderr.fileno(), 1 << 16)
            if not part:
                return None
            self._rest += part

    def _all_of_the_log(self):
        while self._line():
            pass
        return "\n".join(line["text"] for line in self.log)

    def workers(self):
        """Return the process ids of its workers, as the roster has them."""
        return [place.pid for place in roster.present(self.table) if place.kind is Kind.WORKER and place.alive]

    def send(self, number):
        """Send the keeper a signal."""
        os.kill(self.pid, number)

    def wait(self):
        """Wait for its end; returns its exit code, with all of its log read."""
        self._all_of_the_log()
        return self.process.wait()

    def stop(self):
        """Ask it to end, and wait until it has; returns its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self):
        """Take away all that is left of it."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        for name in port.names(self.instance):
            port.remove(self.instance, name)
        with contextlib.suppress(SegmentError):
            segment.discard(self.instance)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
