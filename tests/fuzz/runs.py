"""Worlds of nonsense from seeds, each in a process of its own: one that crashes, hangs, leaks or raises is a finding.

A world makes so many cases from its seed and nothing else, so it goes the same way again; a finding says how.  Only a world
whose processes race (``rings``) may need more than one try.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from forked import Child
from zonetrack.service.crew import shared

HANG_S, BEGIN_S = 120.0, 1_800.0
"""Without a case done; without the first, for which kernels may have to be compiled."""
LEAK_BYTES = 48 << 20
"""What a world may grow by between a third of its cases and the last: caches fill, arenas are not given back."""
SHARED_MEMORY = Path("/dev/shm")
PROGRESS = np.dtype([("cases", "u8"), ("reserved", "u8", (7,))])


@dataclass(frozen=True)
class Target:
    """What is given nonsense."""

    name: str
    world: Callable[[int, int, Tick], str]
    """Makes so many cases from a seed, and returns in a few words what they came to."""
    cases_max: int
    """Of one world."""


class Tick:
    """Counts the cases of a world, and what it has grown by."""

    def __init__(self, progress, cases):
        self.progress, self.cases, self._bytes = progress, cases, 0

    def __call__(self, done=1):
        """So many cases more are done."""
        before = int(self.progress["cases"])
        self.progress["cases"] = before + done
        if before < self.cases // 3 <= before + done:
            gc.collect()
            self._bytes = resident_bytes()

    @property
    def grown_bytes(self):
        """What the process has grown by since the first third."""
        gc.collect()
        return resident_bytes() - self._bytes if self._bytes else 0


@dataclass
class Report:
    """What the worlds of a target came to."""

    target: str
    cases: int = 0
    seconds: float = 0.0
    told: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def __str__(self):
        found = f"{len(self.findings)} findings" if self.findings else "nothing found"
        last = f"; {self.told[-1]}" if self.told else ""
        return f"{self.target}: {self.cases:,} cases in {self.seconds:,.0f} s, {found}{last}"


def resident_bytes(pid="self"):
    """Return the memory that is a process's own."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def run(target, cases, seed):
    """Run worlds of a target until there were so many cases; the first is of ``seed``, the next of the one after it."""
    report, began = Report(target.name), time.monotonic()
    for number in range(-(-cases // target.cases_max)):
        wanted = min(target.cases_max, cases - number * target.cases_max)
        _watch(target, wanted, seed + number, report)
    report.seconds = time.monotonic() - began
    return report


def _watch(target, cases, seed, report):
    """Run one world, and see how it ends."""
    progress = shared(PROGRESS, 1)[0]
    tick = Tick(progress, cases)
    left = set(os.listdir(SHARED_MEMORY))

    def live(child):
        files = len(os.listdir("/proc/self/fd"))
        try:
            told = target.world(seed, cases, tick)
        except Exception:
            child.say((None, traceback.format_exc()))
            return
        grown = tick.grown_bytes
        if grown > LEAK_BYTES:
            child.say((told, f"its memory grew by {grown:,} bytes"))
        elif len(os.listdir("/proc/self/fd")) > files + 8:
            child.say((told, f"{len(os.listdir('/proc/self/fd')) - files} files stay open"))
        else:
            child.say((told, None))

    with Child(live) as child:
        told, wrong = _hear(child, progress)
        status = child.kill() if wrong == "hangs" else child.wait()
    report.cases += int(progress["cases"])
    if told:
        report.told.append(told)
    if wrong is None and status:
        wrong = f"ended with {status}"
    stays = {name for name in set(os.listdir(SHARED_MEMORY)) - left if f"-{child.pid}-" in name}
    for name in stays:
        (SHARED_MEMORY / name).unlink()
    if wrong is None and stays:
        wrong = f"left in shared memory: {sorted(stays)}"
    if wrong is not None:
        after = int(progress["cases"])
        again = f"python -m tests.fuzz {target.name} {cases} {seed}"
        finding = f"{target.name}, seed {seed}, after {after:,} cases: {wrong}\n    again: {again}"
        print(finding, flush=True)  # it may be long until the report
        report.findings.append(finding)


def _hear(child, progress):
    """Return what a world says at its end, and what is wrong with it: it hangs, for example."""
    poller, seen, moved_s = select.poll(), -1, time.monotonic()
    poller.register(child._reader, select.POLLIN)
    while not poller.poll(1_000):
        if progress["cases"] != seen:
            seen, moved_s = int(progress["cases"]), time.monotonic()
        elif time.monotonic() > moved_s + (HANG_S if seen else BEGIN_S):
            return None, "hangs"
    with contextlib.suppress(EOFError):
        return child.hear()
    return None, None
