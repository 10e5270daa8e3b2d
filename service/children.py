"""A child of the keeper: forked where everything is mapped and loaded, watched through descriptors, asked by signals.

A child inherits what the keeper opened and the kernels that it loaded, so it begins in milliseconds.  It says that it is
ready through a pipe; its end shows on a pidfd, whatever ended it.  Nothing here waits.  A child goes on when the keeper
dies; the next one adopts it, and sees its end in the same way, but not how it ended.

    SIGTERM      end when what is under way is done
    SIGUSR1      leave what is under way, and end now
    others       ignored: a terminal sends SIGINT to the keeper too, and what HUP and USR2 mean is for the keeper to say
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..clients.errors import Exit
from . import log, privileges
from .crew import FAILED
from .lives import Act, Course, Life

Handler = Callable[[int, object], None]
URGENCY = 10
"""By how much the keeper, and a child until it is ready, come before others: packets wait for them."""
HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
READY = b"\1"


@contextlib.contextmanager
def hastened() -> Iterator[None]:
    """Let this process, and children until they are ready, come before others, if it may decide that."""
    global _ordinary
    ordinary = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, ordinary - URGENCY)
    except PermissionError:
        yield
        return
    _ordinary = ordinary
    try:
        yield
    finally:
        _ordinary = None
        os.setpriority(os.PRIO_PROCESS, 0, ordinary)


_ordinary: int | None = None
"""The niceness of children that are ready, where theirs is another until then."""


def ease() -> None:
    """Be no more urgent than other processes, in a child that has nothing to hurry for any more."""
    if _ordinary is not None:
        os.setpriority(os.PRIO_PROCESS, 0, _ordinary)


@dataclass
class Child:
    """One place among the keeper's children, and who fills it at the moment."""

    kind: str
    """``worker`` or ``control``."""
    number: int
    job: Callable[[Callable[[], None]], None]
    """What it does, from start to end; it is given what to call when it is ready."""
    on_stop: Handler | None = None
    """The handler of SIGTERM in the child; None where the job sets up its own."""
    on_hurry: Handler | None = None
    """The handler of SIGUSR1; None where it is ignored."""
    enter: Callable[[], None] = lambda: None
    """What it does first, in its process: there it takes its place."""
    keeps: tuple[int, ...] = ()
    """Capabilities that it goes on to have."""
    course: Course = field(default_factory=Course)
    pid: int = 0
    pidfd: int = -1
    ready: int = -1
    """The end of the pipe through which it says so, until it has."""
    born_s: float = 0.0
    inherited: bool = False
    """Whether another keeper has started it."""

    @property
    def name(self) -> str:
        """What people call it."""
        return f"worker {self.number}" if self.kind == "worker" else self.kind

    @property
    def lives(self) -> bool:
        """Whether there is a process."""
        return self.pid != 0

    def fork(self, now_s: float) -> None:
        """Start it."""
        self.course.take(Act.FORK, now_s)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        # what stands in a buffer now would be written by the child too
        sys.stdout.flush()
        sys.stderr.flush()
        # no signal may find the child with the handlers of its parent
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                self._live(writer)
            self.pid, self.born_s, self.ready, self.inherited = pid, now_s, reader, False
            self.pidfd = os.pidfd_open(pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            os.close(writer)

    def _live(self, ready: int) -> None:
        """Be the child: do the job and exit, whatever happens."""
        code = FAILED
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, self.on_stop or signal.SIG_DFL)
            signal.signal(signal.SIGUSR1, self.on_hurry or signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)
            self.enter()
            privileges.keep_only(self.keeps)
            self.job(lambda: self._say_ready(ready))
            code = Exit.OK
        except Exception as error:
            # what carries an exit code is a message for a person, any other is a mistake of ours
            told = hasattr(error, "exit_code")
            log.logger(self.kind).error("%s: %s", self.name, error, exc_info=None if told else error)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _say_ready(self, ready: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the keeper has died: the next one sees that we are there
            os.write(ready, READY)
        os.close(ready)
        ease()

    def adopt(self, pid: int, now_s: float) -> None:
        """Keep a process that another keeper left in this place; it is known to live.

        Raises:
            ProcessLookupError: it does not any more; nothing was changed.
        """
        self.pidfd = os.pidfd_open(pid)
        self.course.take(Act.ADOPT, now_s)
        self.pid, self.born_s, self.inherited = pid, now_s, True

    def replace(self, now_s: float) -> None:
        """Ask it to end at once, so that a successor goes on with what it had."""
        self.course.take(Act.REPLACE, now_s)
        os.kill(self.pid, signal.SIGTERM if self.on_hurry is None else signal.SIGUSR1)

    def hear(self, now_s: float) -> bool:
        """Read its pipe, which has something; return whether it is ready now, not when it died instead."""
        said = os.read(self.ready, 1)
        os.close(self.ready)
        self.ready = -1
        if said:
            self.course.take(Act.READY, now_s)
        return bool(said)

    def ask_to_stop(self, now_s: float) -> None:
        """Ask it to end."""
        if self.course.take(Act.STOP, now_s) is Life.STOPPING:
            os.kill(self.pid, signal.SIGTERM)

    def hurry(self, now_s: float) -> None:
        """Ask it to leave what it is at, after it was asked to end."""
        self.course.take(Act.HURRY, now_s)
        os.kill(self.pid, signal.SIGUSR1)

    def kill(self, now_s: float) -> None:
        """End it, for it has not ended in time."""
        self.course.take(Act.OVERDUE, now_s)
        os.kill(self.pid, signal.SIGKILL)

    def end_hanging(self, now_s: float) -> None:
        """End it, for it runs and does nothing; it will be followed like any that dies."""
        self.course.take(Act.HANG, now_s)
        os.kill(self.pid, signal.SIGKILL)

    def bury(self, now_s: float) -> int | None:
        """Take leave of a child that has ended; return its exit code, negative for a signal, None where nobody knows."""
        code = None
        with contextlib.suppress(ChildProcessError):  # another keeper's child
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        for descriptor in (self.pidfd, self.ready):
            if descriptor >= 0:
                os.close(descriptor)
        self.pid, self.pidfd, self.ready = 0, -1, -1
        self.course.take(Act.DIE, now_s)
        return code
