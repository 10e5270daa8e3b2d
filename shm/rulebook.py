"""Where rules are published: two places for a generation, and a word that says which of them holds.

The keeper makes them before it forks; they live as long as anybody it forks (shm/unnamed).

Who may             while                               sees
    publish, withdraw   one at a time: a lock on the file   the generation that holds, unchanged
    pick_up             any worker, for itself              a whole generation (kernels/rulebook)

Invariants
    I1  A slot that `published` names, or that a worker's acknowledged word names, is not written.
    I2  `published` changes after its slot is whole.

Ordering
    R1  release store of `published`          pairs with A1, a worker's load of it: the slot before its name
    F1  between R1 and the look at the acknowledged words, by way of the next publication's lock
    F2  full fence between a worker's store of what it has picked up and its second look at `published` (kernels/rulebook)
        So either the worker sees the newer word and lets go, or who publishes sees what the worker holds.

A worker that died leaves its word as it was, until its successor says its own; who publishes waits for it that long.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from . import file_locks
from .layout import (
    GENERATION,
    GENERATION_BYTES_MAX,
    HIT,
    LEARNED_BYTES,
    LEARNED_MAX,
    LINE_BYTES,
    PAGE_BYTES,
    QUARANTINE_LINES,
    RULEBOOK,
)
from .unnamed import Unnamed

WAIT_S = 5.0
"""How long a worker has to let go of the rules before the last: it looks every 30 ms at least, and is started again soon."""
LOOK_S = 0.002


class StillInUseError(Exception):
    """A worker has not let go of the rules before the last in time; its number is in the text."""


class Rulebook(Unnamed):
    """The rules of a service, and what its workers have learned about who is where."""

    def __init__(self, workers: int, descriptor: int | None = None) -> None:
        """Make an empty one, no rules; or take one up as it is.

        Args:
            workers: who will go by it, numbered from 0.
            descriptor: of the memory of one that was made for as many workers; it belongs to this object from now on.
        """
        self.workers = workers
        learned = LINE_BYTES * (1 + workers)
        self._slots = -(-(learned + LEARNED_MAX * LEARNED_BYTES) // PAGE_BYTES) * PAGE_BYTES
        self._quarantine = self._slots + 2 * GENERATION_BYTES_MAX
        size = self._quarantine + QUARANTINE_LINES * LINE_BYTES
        super().__init__("rules", size, descriptor)
        if descriptor is None:
            os.posix_fallocate(self.descriptor, 0, self._slots)  # slots get their pages when they are written
        self._bytes = np.frombuffer(self.memory, "u1")
        self._head = self._bytes[:LINE_BYTES].view(RULEBOOK)[0]
        self._acknowledged = self._bytes[LINE_BYTES:learned].view("u8").reshape(workers, LINE_BYTES // 8)[:, 0]
        self.published_address = self.base
        self.learned_address = self.base + learned
        self.slots_address = self.base + self._slots
        self.quarantine_address = self.base + self._quarantine
        """Tuples that connections have left (kernels/quarantine); it gets its pages with the first rules that translate."""

    def acknowledged_address(self, worker: int) -> int:
        """Return the address of the word in which a worker says what it goes by."""
        return self.published_address + LINE_BYTES * (1 + worker)

    @property
    def published(self) -> int:
        """The word that names the generation that holds, 0 for none."""
        return int(self._head["published"])

    @property
    def current(self) -> np.ndarray | None:
        """The generation that holds, u1[bytes]; None where there are no rules.  Counters in it go on."""
        word = self.published
        return self._slot(word & 1) if word else None

    @property
    def number(self) -> int:
        """Number of the generation that holds, 0 for none."""
        return self.published >> 1

    def _slot(self, slot: int) -> np.ndarray:
        first = self._slots + slot * GENERATION_BYTES_MAX
        size = int(self._bytes[first : first + GENERATION.itemsize].view(GENERATION)["bytes"][0])
        return self._bytes[first : first + size]

    def hits(self) -> np.ndarray:
        """Return what has met each rule of the generation that holds, HIT[rules], of all workers together."""
        generation = self.current
        if generation is None:
            return np.zeros(0, HIT)
        return total(generation)

    # -------------------------------------------------------------------------------------------- publishing
    def publish(self, generation: np.ndarray, wait_s: float = WAIT_S) -> int:
        """Let a generation hold from now on.

        Args:
            generation: u1[bytes], as service/rules_compile makes it.
            wait_s: for workers to let go of the one before the last.

        Returns:
            Its number.

        Raises:
            StillInUseError: a worker has not; nothing was changed.
            OSError: there is no memory for it; nothing was changed.
        """
        with self._alone():
            slot = 1 - (self.published & 1) if self.published else self._free_slot()
            self._wait(lambda word: word != 0 and word & 1 == slot, wait_s)
            first = self._slots + slot * GENERATION_BYTES_MAX
            os.posix_fallocate(self.descriptor, first, len(generation))
            if generation[: GENERATION.itemsize].view(GENERATION)["translates"][0]:
                os.posix_fallocate(self.descriptor, self._quarantine, QUARANTINE_LINES * LINE_BYTES)
            number = int(self._head["number"]) + 1
            self._bytes[first : first + len(generation)] = generation
            self._bytes[first : first + GENERATION.itemsize].view(GENERATION)["number"] = number
            self._head["number"] = number
            self._head["published"] = number << 1 | slot  # R1
            return number

    def withdraw(self) -> None:
        """Let no rules hold from now on."""
        with self._alone():
            self._head["published"] = 0

    def _free_slot(self) -> int:
        """Return the slot to write when no rules hold: the one that no worker has in hand, if there is one."""
        held = {int(word) & 1 for word in self._acknowledged if word}
        return min({0, 1} - held, default=0)

    def picked_up(self, wait_s: float = WAIT_S) -> bool:
        """Wait until all workers go by what holds now; returns whether they do."""
        word = self.published
        try:
            self._wait(lambda one: one not in (0, word), wait_s)
        except StillInUseError:
            return False
        return True

    def _wait(self, in_the_way: Callable[[int], bool], wait_s: float) -> None:
        end_s = time.monotonic() + wait_s
        while True:
            late = [worker for worker, word in enumerate(self._acknowledged.tolist()) if in_the_way(word)]
            if not late:
                return
            if time.monotonic() >= end_s:
                raise StillInUseError(f"worker {late[0]} still goes by older rules")
            time.sleep(LOOK_S)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude others who publish, in this process or another."""
        own = file_locks.reopen(self.descriptor)
        try:
            file_locks.wait_for(own, 0, 1)
            yield
        finally:
            os.close(own)

    def let_go(self, worker: int) -> None:
        """Say that a worker goes by nothing any more, for it ends."""
        self._acknowledged[worker] = 0


def counters(generation: np.ndarray) -> np.ndarray:
    """Return the counters of a generation, HIT[rows, rules]: a row for each who counts."""
    head = generation[: GENERATION.itemsize].view(GENERATION)[0]
    first, shape = int(head["hits"]), (int(head["workers"]), int(head["rule_count"]))
    return generation[first : first + shape[0] * shape[1] * HIT.itemsize].view(HIT).reshape(shape)


def total(generation: np.ndarray) -> np.ndarray:
    """Return what has met each rule of a generation, HIT[rules], of all who count together."""
    counts = counters(generation)
    added = np.zeros(counts.shape[1], HIT)
    for name in ("packets", "bytes"):
        added[name] = counts[name].sum(axis=0)
    return added
