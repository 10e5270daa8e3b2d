"""Exports that a service keeps: each is `zonetrack export` in a process of its own, started again when it ends.

They are started when packets can flow, told to end when the workers have, and end with the keeper whatever ends that.  An
exporter is a client like any other: it inherits nothing of the service, has no capability, and what it says is in the log.
What it has told stands in a file beside the control socket, and events that exports want are written whether one reads at
the moment or not.  So one that has died, or whose control or keeper has, is followed by another that tells what is left.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..shm.layout import EventKind
from . import children, log, privileges
from .config import Config, IpfixExport, SyslogExport
from .crew import ending, follow_parent
from .lives import Act, Course, Life

GRACE_S = 5.0
"""What an exporter has to end."""
LINE_BYTES_MAX = 4_096
_log = log.logger("export")


def commands(config: Config, socket: str) -> dict[str, list[str]]:
    """Return the command line of each export that a configuration wants, by its name.

    Args:
        config: of the service.
        socket: path of its control socket.
    """
    found = {}
    for name, wanted in (("ipfix", config.export.ipfix), ("syslog", config.export.syslog)):
        if wanted.collector is not None:
            words = [sys.executable, "-m", "zonetrack.service", "export", name, "--socket", socket]
            words += ["--collector", wanted.collector, "--transport", wanted.transport]
            words += ["--resume", str(Path(socket).with_suffix(f".{name}"))]
            found[name] = words + _flags(wanted)
    return found


def kinds(config: Config) -> int:
    """Return the events that the exports of a configuration want, EventKind bits."""
    found = 0
    if config.export.ipfix.collector is not None:
        found |= EventKind.DESTROY | (EventKind.NEW if config.export.ipfix.begins else 0)
    if config.export.syslog.collector is not None:
        found |= EventKind.NEW | EventKind.DESTROY | (EventKind.UPDATE if config.export.syslog.updates else 0)
    return found


def _flags(wanted: IpfixExport | SyslogExport) -> list[str]:
    flags = [] if wanted.zone is None else ["--zone", str(wanted.zone)]
    if isinstance(wanted, SyslogExport):
        return [*flags, "--facility", wanted.facility, *(["--updates"] if wanted.updates else [])]
    for flag, length_ms in (("--active-timeout", wanted.active_timeout_ms), ("--idle-timeout", wanted.idle_timeout_ms)):
        flags += [flag, str(length_ms / 1000)]
    return [*flags, "--domain", str(wanted.domain), *(["--begins"] if wanted.begins else [])]


class Exporter:
    """One export, and the process that does it at the moment."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self.name, self.words = name, list(words)
        self.course = Course()
        self.pidfd = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    @property
    def pid(self) -> int:
        """Its process id, 0 while there is none."""
        return 0 if self._process is None else self._process.pid

    @property
    def said(self) -> int:
        """The descriptor from which what it says is read, -1 while there is none."""
        stream = None if self._process is None else self._process.stderr
        return -1 if stream is None or stream.closed else stream.fileno()

    def start(self, now_s: float) -> None:
        """Start it."""
        self.course.take(Act.FORK, now_s)
        self._process = subprocess.Popen(
            self.words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # what a terminal sends is for the keeper
            preexec_fn=_begin,
        )
        os.set_blocking(self.said, False)
        self.pidfd = os.pidfd_open(self._process.pid)
        self.course.take(Act.READY, now_s)

    def hear(self) -> None:
        """Log what it has said."""
        assert self._process is not None and self._process.stderr is not None
        data = self._process.stderr.read(LINE_BYTES_MAX)
        if data is None:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data or len(self._rest) >= LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                _log.info("%s: %s", self.name, line.decode(errors="replace"), extra=log.facts(child=self.pid))
        if not data:
            self._process.stderr.close()

    def ask_to_stop(self, now_s: float) -> None:
        """Ask it to end, and start it no more."""
        if self.course.life in (Life.WAITING, Life.RUNNING) and self.course.take(Act.STOP, now_s) is Life.STOPPING:
            os.kill(self.pid, signal.SIGTERM)

    def bury(self, now_s: float) -> None:
        """Take leave of a process that has ended."""
        assert self._process is not None
        while self.said >= 0:
            self.hear()
        code, pid = self._process.wait(), self.pid
        os.close(self.pidfd)
        self._process, self.pidfd = None, -1
        if self.course.take(Act.DIE, now_s) is Life.WAITING:
            how = ending(code) if code else "ended by itself"
            _log.warning("%s (pid %d) %s; it is started again", self.name, pid, how, extra=log.facts(code=code))


def _begin() -> None:
    """Be an exporter, before its program begins: it goes with the keeper, and has no rights that it does not need."""
    follow_parent(signal.SIGTERM)
    for number in children.HANDLED:
        signal.signal(number, signal.SIG_DFL)
    children.ease()
    privileges.keep_only(())


class Exporters:
    """All exports of a service."""

    def __init__(self) -> None:
        self._wanted: dict[str, Exporter] = {}
        self._leaving: list[Exporter] = []
        self.until_s = 0.0
        """When those that were asked to end have had their time; 0: they were not, less: they have."""

    def __iter__(self) -> Iterator[Exporter]:
        return iter([*self._wanted.values(), *self._leaving])

    def want(self, commands: Mapping[str, Sequence[str]], now_s: float) -> None:
        """Have these exports from now on: one that is not among them ends, one that is another now is replaced."""
        for name, exporter in list(self._wanted.items()):
            if commands.get(name) != exporter.words:
                exporter.ask_to_stop(now_s)
                self._leaving.append(self._wanted.pop(name))
        for name, words in commands.items():
            if name not in self._wanted:
                self._wanted[name] = Exporter(name, words)
        self._forget()

    def start_due(self, now_s: float) -> None:
        """Start those whose moment has come."""
        for exporter in self._wanted.values():
            if exporter.course.life is Life.WAITING and exporter.course.due_s <= now_s:
                exporter.start(now_s)

    @property
    def descriptors(self) -> set[int]:
        """What there may be something to read from."""
        return {descriptor for one in self for descriptor in (one.pidfd, one.said)} - {-1}

    @property
    def due_s(self) -> list[float]:
        """When the next ones are to be started."""
        return [one.course.due_s for one in self._wanted.values() if one.course.life is Life.WAITING]

    def see_to(self, heard: set[int], now_s: float) -> None:
        """Log what was said, and take leave of who has ended.

        Args:
            heard: descriptors that have something to read.
            now_s: the moment.
        """
        for exporter in self:
            if exporter.said in heard:
                exporter.hear()
            if exporter.pidfd in heard:
                exporter.bury(now_s)
        self._forget()

    def _forget(self) -> None:
        self._leaving = [one for one in self._leaving if one.course.life is not Life.GONE]

    def have_ended(self, now_s: float) -> bool:
        """Have all of them end; return whether they have, or have had their time."""
        if not self.until_s:
            self.want({}, now_s)
            self.until_s = now_s + GRACE_S
        if self._leaving and now_s < self.until_s:
            return False
        self.until_s = -1.0
        return True

    def close(self) -> None:
        """Wait until all of them have ended; who takes too long is killed."""
        now_s = time.monotonic()
        self.want({}, now_s)
        until_s = now_s + GRACE_S
        while self._leaving:
            poller = select.poll()
            for descriptor in self.descriptors:
                poller.register(descriptor, select.POLLIN)
            now_s = time.monotonic()
            heard = {descriptor for descriptor, _ in poller.poll(max(0.0, until_s - now_s) * 1_000)}
            if not heard:
                for exporter in self._leaving:
                    _log.warning("%s (pid %d) does not end, and is killed", exporter.name, exporter.pid)
                    os.kill(exporter.pid, signal.SIGKILL)
                until_s = now_s + GRACE_S
            self.see_to(heard, now_s)
