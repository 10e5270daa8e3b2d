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

from zonetrack.clients.sync import connect
from zonetrack.shm import estate, port, roster, segment
from zonetrack.shm.errors import SegmentError
from zonetrack.shm.layout import Kind

PATIENCE_MS = 300_000
"""The first start on a machine compiles all kernels."""
_numbers = itertools.count(1)


class Service:
    """``zonetrack serve``, with a name and a socket of its own."""

    def __init__(self, directory, *flags, instance=None, environment=None, after=None, through=((), ())):
        """Start it.

        Args:
            directory: for its socket.
            flags: of ``serve``.
            instance: its name; a new one when None.
            environment: variables beside those of this process.
            after: a service whose keeper was killed and whose processes go on: this one has its name, and goes on with
                its log, into which they write.
            through: the beginning of the command line that starts it, and descriptors that it gets.
        """
        instance = after.instance if after else instance
        self.instance = instance or f"test-{os.getpid()}-{next(_numbers)}"
        self.socket = str(directory / f"{self.instance}.sock")
        self.log = after.log if after else []
        """Lines that were read from it so far."""
        self.about = None
        # another end of the pipe from which the log is read
        log = os.open(f"/proc/self/fd/{after._errors.fileno()}", os.O_WRONLY) if after else None
        self.process = subprocess.Popen(
            [
                *through[0],
                *(sys.executable, "-m", "zonetrack.service", "serve", "--json", "--log-json"),
                *("--instance", self.instance, "--socket", self.socket),
                *map(str, flags),
            ],
            stdout=subprocess.PIPE,
            stderr=log if after else subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            pass_fds=through[1],
        )
        self._rest, self._errors = b"", self.process.stderr
        if after:
            os.close(log)
            self._rest, self._errors = after._rest, after._errors
            after.process.stdout.close()
            after._errors = None

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
            poller.register(self._errors, select.POLLIN)
            assert poller.poll(PATIENCE_MS), "the service says nothing"
            part = os.read(self._errors.fileno(), 1 << 16)
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

    def kill_keeper(self):
        """Kill the keeper alone, and wait until it is dead; the others go on."""
        self.process.kill()
        self.process.wait()

    def wait(self):
        """Wait for its end; returns its exit code, with all of its log read."""
        self._all_of_the_log()
        return self.process.wait()

    def ask(self):
        """Return a client of it, to be closed."""
        return connect(socket=self.socket)

    def stop(self):
        """Ask it to end, and wait until it has; returns its exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self):
        """Take away all that is left of it."""
        if self._errors is None:
            return  # another service went on with what was left of this one
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in {member.pid for member in estate.members(self.instance)} - {os.getpid()}:
            os.kill(pid, signal.SIGKILL)
        self.wait()
        self.process.stdout.close()
        self._errors.close()
        for name in port.names(self.instance):
            port.remove(self.instance, name)
        with contextlib.suppress(SegmentError):
            segment.discard(self.instance)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
