"""Compiling the kernels before they are needed, with progress.

Kernels compile when they are first called, and that takes half a minute.  So whoever starts workers calls ``ensure``
first: where the cache is cold it says so on stderr and calls each entry kernel once, on a table of a few records and a
burst of nothing, which compiles it and all that it calls.  A file lock lets one process do so, and the others wait.  Where
there is a second processor, a second process fills the same cache from the other end.

A page beside the compiled kernels, WARM, says for which sources and processor they were compiled, which pieces were
called, and the seconds that each kernel took.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

import click
import numpy as np
from numba import typeof
from numba.core.event import Event, Listener, register, unregister

from ..kernels import (
    capture,
    carry,
    checksum,
    classify,
    commit,
    delete_list,
    draws,
    event_reader,
    expecting,
    flush,
    helpers,
    jit,
    late,
    linking,
    poll,
    preview,
    repair,
    replay,
    ring,
    saving,
    shrink,
    sources,
    sweep,
    tally,
    walk,
)
from ..kernels.words import ONE, ZERO
from ..shm import roster, segment
from ..shm.layout import CAPTURE, CLOCK, END, FILTER, FRAME, PARSED, REPLAY, Kind
from ..shm.loop import Loop
from ..shm.queues import Queues
from ..shm.sizing import Geometry
from . import audit

SPINE = ("preview.judge", "poll.poll")
"""The pieces that packets go through, without the last: half of all work, and most of it on one kernel after the other."""
WARM = "warm.json"
LOCK = "lock"
NOTICE = "compiling kernels: this takes half a minute, once on this machine"


class Stage:
    """What kernels are called on to be compiled: a table of a few records, and a burst of nothing."""

    def __init__(self) -> None:
        self.table = segment.anonymous(Geometry(connections=1, zones_in_use=1, extension_share=0))
        self.me = roster.join(self.table, Kind.TOOL)
        self.views = self.table.views(self.me)
        self.capture, self.clock, self.replay, self.frame = map(_record, (CAPTURE, CLOCK, REPLAY, FRAME))
        self.parsed = _record(PARSED)
        self.end = _record(END)
        self.loop = Loop(Queues([]), [], self.me)
        self.filter, self.cursor = _record(FILTER), np.zeros(1, np.uint64)
        self.at_cursor = np.uint64(self.cursor.ctypes.data)


def _record(dtype: np.dtype) -> np.record:
    return np.zeros(1, dtype).view(np.recarray)[0]


PIECES: dict[str, Callable[[Stage], object]] = {
    "sweep.sweep": lambda on: sweep.sweep(on.views, ZERO, ONE),
    "delete_list.run": lambda on: delete_list.run(on.views),
    "delete_list.delete": lambda on: delete_list.delete(on.views, ZERO, ZERO, ONE),
    "late.abandon": lambda on: late.abandon(on.views),
    "repair.repair": lambda on: repair.repair(on.views),
    "sources.recount": lambda on: sources.recount(on.views),
    "flush.detach": lambda on: flush.detach(on.views, ZERO),
    "flush.reclaim": lambda on: only_compile(flush.reclaim, on.views, ZERO, ZERO, ZERO, ONE),
    "shrink.shrink": lambda on: shrink.shrink(on.views, ZERO, ONE),
    "walk.collect": lambda on: walk.collect(on.views, on.filter, ZERO, ZERO, ZERO, on.at_cursor, ZERO, ZERO),
    "walk.count": lambda on: walk.count(on.views, on.filter, ZERO, ZERO, on.at_cursor),
    "walk.delete": lambda on: walk.delete(on.views, on.filter, ZERO, ZERO, on.at_cursor),
    "saving.collect": lambda on: only_compile(saving.collect, on.views, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO),
    "saving.put": lambda on: only_compile(saving.put, on.views, ZERO, ZERO, ZERO, ZERO),
    "expecting.add": lambda on: only_compile(expecting.add, on.views, ZERO, ZERO, ZERO),
    "tally.count": lambda on: tally.count(on.views, ZERO, ZERO, on.at_cursor, ZERO, ZERO),
    "audit.at_rest": lambda on: audit.at_rest(on.table),
    "audit.live": lambda on: audit.live(on.table, on.me),
    "ring.put": lambda on: only_compile(ring.put, on.end, ZERO, ZERO, ZERO),
    "ring.take": lambda on: only_compile(ring.take, on.end, ZERO, ZERO, ZERO),
    "ring.rest": lambda on: only_compile(ring.rest, on.end, ZERO, ZERO),
    # what only kernels of clients call
    "checksum.complement": lambda on: only_compile(checksum.complement, ZERO),
    "draws.after": lambda on: only_compile(draws.after, ONE),
    "draws.below": lambda on: only_compile(draws.below, ONE, ONE),
    "carry.carry_burst": lambda on: only_compile(carry.carry_burst, ZERO, ZERO, ZERO, ZERO),
    "event_reader.survey": lambda on: only_compile(event_reader.survey, ZERO, ZERO, ZERO),
    "event_reader.gather": lambda on: only_compile(event_reader.gather, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO),
    "preview.judge": lambda on: only_compile(preview.judge, on.views, ZERO, ZERO, ZERO, ZERO, ZERO),
    "preview.play": lambda on: only_compile(preview.play, on.views, ZERO, ZERO, ZERO, ZERO),
    "classify.classify": lambda on: only_compile(classify.classify, ZERO, ZERO, ZERO, ZERO),
    "poll.poll": lambda on: poll.poll(on.views, on.loop.record, ZERO, ONE, ZERO),
    "capture.begin": lambda on: capture.begin(on.capture),
    "capture.next_frames": lambda on: capture.next_frames(on.capture, ZERO, ZERO, ZERO, ZERO),
    "replay.read": lambda on: only_compile(replay.read, ZERO, ZERO, ZERO, ZERO),
    "replay.count": lambda on: replay.count(on.capture, on.clock, on.frame, ZERO),
    "replay.run": lambda on: replay.run(on.views, on.capture, on.clock, on.replay, ZERO),
}
"""Each kernel that is called from Python, called as it is called there: other types would be another compilation."""


AHEAD: dict[str, Any] = {"helpers.follow": helpers.follow, "commit.make": commit.make}
"""Kernels far down in the spine: the second process begins with them, and the first finds them in the cache."""


def only_part(kernel: Any, on: Stage) -> None:
    """Compile a kernel as kernels call it: what its parameters are, their names say."""
    records = {"views": on.views, "frame": on.frame, "parsed": on.parsed}
    kernel.part(tuple(typeof(records.get(name, ZERO)) for name in signature(kernel.py_func).parameters))


def only_compile(kernel: Any, *arguments: Any) -> None:
    """Compile a kernel that has nothing to do on a stage."""
    if jit.JIT:
        kernel.compile(tuple(map(typeof, arguments)))


@dataclass
class Stopwatch(Listener):
    """The seconds that numba takes over each kernel, without those it takes over the kernels it calls."""

    first: Callable[[], object] = lambda: None
    """Called before the first of them."""
    clock: Callable[[], float] = time.perf_counter
    seconds: dict[str, float] = field(default_factory=dict)
    _running: list[tuple[float, float]] = field(default_factory=list)

    def on_start(self, event: Event) -> None:
        """Note that a kernel begins to compile."""
        if not self._running and not self.seconds:
            self.first()
        self._running.append((self.clock(), 0.0))

    def on_end(self, event: Event) -> None:
        """Note that it is compiled."""
        began, inner = self._running.pop()
        took = self.clock() - began
        assert event.data
        name = kernel_name(event.data["dispatcher"])
        self.seconds[name] = self.seconds.get(name, 0.0) + took - inner
        if self._running:
            outer_began, outer_inner = self._running[-1]
            self._running[-1] = (outer_began, outer_inner + took)


def kernel_name(dispatcher: linking.Kernel) -> str:
    """Return a kernel's name, as in ``index.find``."""
    function = dispatcher.py_func
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def cache() -> Path:
    """Return where this process keeps kernels: chosen when it imported them, whatever their sources have become since."""
    return Path(os.environ["NUMBA_CACHE_DIR"])


def built_for() -> str:
    """Return what the machine code in a cache depends on: the sources, and the processor as LLVM sees it."""
    context: Any = linking.target.target_context
    return f"{jit.source_digest()} {context.codegen().magic_tuple()}"


@dataclass
class Warm:
    """What a cache holds."""

    built_for: str
    pieces: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """Return the pieces that are not in the cache."""
        return [name for name in PIECES if name not in self.pieces]


def read_warm(directory: Path) -> Warm:
    """Return what the WARM page of a cache says; nothing is there if it is missing, unreadable or of other sources."""
    wanted = Warm(built_for())
    try:
        warm = Warm(**json.loads((directory / WARM).read_text()))
    except (OSError, ValueError, TypeError):
        return wanted
    return warm if warm.built_for == wanted.built_for else wanted


def write_warm(directory: Path, warm: Warm) -> None:
    """Write the WARM page of a cache, whole or not at all."""
    page = directory / f"{WARM}.{os.getpid()}"
    page.write_text(json.dumps(asdict(warm)))
    page.replace(directory / WARM)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the lock of a cache; who has to wait is told so."""
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            click.echo("waiting for another process that compiles the kernels", err=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def say_progress(text: str) -> None:
    """Show a person how far it is: one line that is written over; nothing where stderr is not a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


def compile_pieces(names: list[str]) -> dict[str, float]:
    """Call some pieces once; where that has to compile something, say so before.

    Returns:
        Seconds of each kernel that was compiled; those that were loaded from the cache are not among them.
    """
    stopwatch = Stopwatch(first=lambda: click.echo(NOTICE, err=True))
    stage = Stage()
    register("numba:compile", stopwatch)
    try:
        for done, name in enumerate(names):
            say_progress(f"kernels: {done} of {len(names)}, {name} ")
            if name in AHEAD:
                only_part(AHEAD[name], stage)
            else:
                PIECES[name](stage)
    finally:
        unregister("numba:compile", stopwatch)
        say_progress("")
    return stopwatch.seconds


@contextmanager
def compiled_beside(names: list[str]) -> Iterator[dict[str, float]]:
    """Have a second process fill the same cache meanwhile; what it cannot do remains to be done.

    Yields:
        The seconds of each kernel that it has compiled, filled in at the end.
    """
    seconds: dict[str, float] = {}
    if not names or len(os.sched_getaffinity(0)) == 1:
        yield seconds
        return
    command = [sys.executable, "-m", "zonetrack.service.warmup", *names]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield seconds
            said, _ = process.communicate()
        finally:
            process.kill()
    if process.returncode == 0:
        seconds.update(json.loads(said))


def ensure() -> dict[str, float]:
    """See that all kernels are compiled; quick where the cache has them.

    Call it before workers start.  Where there is no cache the kernels are compiled in this process, and children that
    are forked inherit them.

    Returns:
        Seconds of each kernel that had to be compiled now.
    """
    if not jit.JIT:
        return {}
    directory = cache()
    if not jit.CACHED:
        click.echo(f"warning: {directory} cannot be written: kernels are compiled at every start", err=True)
        return compile_pieces(list(PIECES))
    if not read_warm(directory).missing():
        return {}
    with alone(directory):
        warm = read_warm(directory)
        missing = warm.missing()
        if not missing:
            return {}
        began = time.perf_counter()
        spine = [name for name in missing if name in SPINE]
        others = [name for name in missing if name not in SPINE]
        with compiled_beside([*AHEAD, *others] if spine else []) as beside:
            seconds = compile_pieces(spine or missing)
        seconds = beside | seconds | compile_pieces(missing)
        if seconds:
            click.echo(f"compiled {len(seconds)} kernels in {time.perf_counter() - began:.1f} s", err=True)
        write_warm(directory, Warm(warm.built_for, list(PIECES), warm.seconds | seconds))
        return seconds


def load(*names: str) -> None:
    """Call some pieces once, so that children that this process forks inherit them, and need not load each for itself."""
    stage = Stage()
    for name in names:
        PIECES[name](stage)


def forget(directory: Path) -> None:
    """Throw away what a cache holds."""
    with alone(directory):
        (directory / WARM).unlink(missing_ok=True)
        for pattern in ("**/*.nbi", "**/*.nbc", f"{linking.PARTS}/*"):
            for path in directory.glob(pattern):
                path.unlink(missing_ok=True)


@click.command()
@click.option("--again", is_flag=True, help="Throw the cache away first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(again: bool, as_json: bool) -> None:
    """Compile all kernels that are not in the cache yet, and show the seconds each one took."""
    directory = cache()
    if again and jit.CACHED:
        forget(directory)
    began = time.perf_counter()
    compiled = ensure()
    elapsed_s = time.perf_counter() - began
    seconds = read_warm(directory).seconds if jit.CACHED else compiled
    ordered = dict(sorted(seconds.items(), key=lambda item: -item[1]))
    if as_json:
        report = {
            "cache": str(directory) if jit.CACHED else None,
            "compiled": len(compiled),
            "elapsed_s": round(elapsed_s, 3),
            "total_s": round(sum(ordered.values()), 3),
            "kernels": {name: round(took, 3) for name, took in ordered.items()},
        }
        click.echo(json.dumps(report))
        return
    for name, took in ordered.items():
        click.echo(f"{took:7.2f} s  {name}")
    click.echo(f"{sum(ordered.values()):7.2f} s  {len(ordered)} kernels", err=True)
    click.echo(f"compiled now: {len(compiled)}; cache: {directory if jit.CACHED else 'none'}", err=True)


if __name__ == "__main__":
    json.dump(compile_pieces(sys.argv[1:]), sys.stdout)
