"""A crew: forked processes that each do one job to its end, and the report of who did not.

Forked, because everything they share is mapped already and every kernel is loaded: a member begins in milliseconds and
inherits what its parent opened.  A member never returns into its parent's code: it exits, 0 when its job is done.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

import click
import numpy as np

from ..clients.errors import Exit, ZonetrackError

FAILED = 1
INTERRUPTED = 130  # as shells count: 128 + SIGINT
LOOK_INTERVAL_MS = 100
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Death:
    """A member that did not do its job."""

    number: int
    pid: int
    code: int

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self.pid}) {ending(self.code)}"


def ending(code: int) -> str:
    """Return how a process ended, in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def follow_parent(number: signal.Signals) -> None:
    """Have the kernel send this process a signal when the one that forked it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


@dataclass
class Crew:
    """Processes of one job, numbered from 0."""

    size: int
    job: Callable[[int], None]
    deaths: list[Death] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    """By pid, of those that run."""

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Do the job to its end, and note in ``deaths`` who did not; whatever interrupts this ends all members.

        Args:
            look: called after every interval, and when a member has gone.
        """
        # what stands in a buffer now would be written by every member
        sys.stdout.flush()
        sys.stderr.flush()
        poller, watched = select.poll(), {}
        try:
            for number in range(self.size):
                pid = os.fork()
                if pid == 0:
                    _member(self.job, number)
                self._numbers[pid] = number
                watched[pid] = os.pidfd_open(pid)
                poller.register(watched[pid], select.POLLIN)
            while self._numbers:
                poller.poll(LOOK_INTERVAL_MS)
                for pid in list(self._numbers):
                    gone, status = os.waitpid(pid, os.WNOHANG)
                    if gone:
                        poller.unregister(watched[pid])
                        self._bury(pid, status)
                look()
        finally:
            for descriptor in watched.values():
                os.close(descriptor)
            for pid in list(self._numbers):
                os.kill(pid, signal.SIGKILL)
                self._bury(pid, os.waitpid(pid, 0)[1])

    def _bury(self, pid: int, status: int) -> None:
        number = self._numbers.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code:
            self.deaths.append(Death(number, pid, code))


def _member(job: Callable[[int], None], number: int) -> None:
    """Do the job and exit, whatever happens."""
    code = FAILED
    try:
        # without this, members of a crew whose parent was killed would go on for nobody
        follow_parent(signal.SIGKILL)
        job(number)
        code = Exit.OK
    except KeyboardInterrupt:
        code = INTERRUPTED
    except ZonetrackError as error:
        click.echo(f"Error: worker {number}: {error}", err=True)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def shared(dtype: np.dtype, count: int) -> np.ndarray:
    """Return records, zero, that forked children share with us."""
    size = max(1, count * dtype.itemsize)
    return np.frombuffer(mmap.mmap(-1, size, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS), dtype, count)
