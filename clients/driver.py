"""One worker of a load test: a participant of the table that drives its sender by the real clock.

Kernel calls are bounded to about 10 ms.  Between them the clock is read and whatever the scenario wants is done.  Where
a commit is refused the driver waits: it sweeps, as a worker of the service would, lets others have the core, and sends
again what was refused, until that has not helped for longer than it can have taken something to expire.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..kernels import sweep
from ..kernels.words import ZERO, u64
from ..shm import mapping, roster
from ..shm.layout import BURST_PACKETS_MAX, ENTRY, GLOBAL, PARTICIPANT, Kind, Region, Slab
from ..shm.reasons import Reason
from ..shm.views import Table
from .errors import ZonetrackError
from .sender import Sender
from .traffic import STREAM, Packet, drive

BUDGET_PACKETS = 16_384
"""Packets in a kernel call: 2 to 10 ms."""
SWEEP_SLOTS = 65_536
"""Hints read between two calls: 50 microseconds."""
WAIT_S = 0.001
PATIENCE_MS = 1_000
"""How long a driver waits beyond the time in which something must have expired."""
SETTLE_TRIES = 1_000


class CheckFailed(ZonetrackError):
    """The table does not hold, or a packet did not get, what it should."""


def now_ms() -> int:
    """Return the clock that expiries are in."""
    return time.monotonic_ns() // 1_000_000


def streams(count: int) -> np.recarray:
    """Return STREAM[count], which forked workers share with whoever watches them."""
    return np.frombuffer(mmap.mmap(-1, count * STREAM.itemsize), STREAM).view(np.recarray)


@dataclass
class Tally:
    """What a driver did beside sending."""

    waits: int = 0
    waited_ns: int = 0
    cleaned: int = 0
    peak_connections: int = 0
    looked_up: int = 0


class Driver:
    """A participant of a table, its senders, and what it did."""

    def __init__(self, table: Table, seed: int, burst_packets: int, stream: np.record | None = None) -> None:
        """Join the table.

        Args:
            table: made before this process was forked, or by it.
            seed: of all connections.
            burst_packets: packets in a call.
            stream: for the sender, one of ``streams`` if somebody watches.
        """
        for mapped in table.regions.values():
            mapping.populate(np.frombuffer(mapped, "u1"))
        self.table = table
        self.me = self.enter()
        self.views = table.views(self.me)
        self.sender = Sender(seed, burst_packets, stream)
        self.sender.set(budget=BUDGET_PACKETS)
        self.looker = Sender(seed, BURST_PACKETS_MAX)
        self.looker.commits(False)
        self.tally = Tally()
        self._counts = table.array(Region.CONTROL, "globals", GLOBAL)["count"]

    def enter(self) -> int:
        """Join the table; returns the own place on its roster."""
        return roster.join(self.table, Kind.TOOL)

    @property
    def connections(self) -> int:
        """Connections in the table at this moment."""
        return int(self._counts[0])

    def run(self, patience_ms: int = 0, between: Callable[[int], object] = lambda now: None) -> None:
        """Send what the sender has to send; the stream counts wrong verdicts.

        Args:
            patience_ms: the time in which something must have expired, if a commit is refused because of a limit.
            between: called between kernel calls, with the moment of the last one.

        Raises:
            CheckFailed: waiting did not help.
        """
        stream = self.sender.stream
        progress, since = -1, 0
        while not self.sender.done:
            now = now_ms()
            begun_ns = time.perf_counter_ns()
            waits = drive(self.views, stream, u64(now))
            stream["calls_ns"] += time.perf_counter_ns() - begun_ns
            self.tally.peak_connections = max(self.tally.peak_connections, self.connections)
            between(now)
            if not waits:
                continue
            if stream["finished"] != progress:
                progress, since = stream["finished"], now
            elif now - since > patience_ms + PATIENCE_MS:
                reason = Reason(int(stream["refusal"])).name.lower()
                raise CheckFailed(
                    f"{int(stream['waiting'])} connections were refused for {now - since} ms ({reason}), with "
                    f"{self.connections} in the table"
                )
            self.wait()

    def sweep(self, slots: int) -> int:
        """Sweep so many of the own slots; returns how many connections had expired."""
        expired = int(sweep.sweep(self.views, u64(now_ms()), u64(slots)))
        self.tally.cleaned += expired
        return expired

    def wait(self) -> None:
        """Let time pass, and make room."""
        self.tally.waits += 1
        if self.sweep(self.table.geometry.records(Slab.ENTRIES)) == 0:
            begun_ns = time.perf_counter_ns()
            time.sleep(WAIT_S)
            self.tally.waited_ns += time.perf_counter_ns() - begun_ns

    def look_up(self, numbers: np.ndarray, packet: Packet, moment_ms: int, sent_bytes: int = 0) -> np.ndarray:
        """Send one packet of each of some connections, which must be there, without making any.

        Args:
            numbers: u64[n], n <= BURST_PACKETS_MAX.
            packet: a packet that their state allows.
            moment_ms: when.
            sent_bytes: what the opener had sent before.

        Returns:
            VERDICT[n], until the next call.

        Raises:
            CheckFailed: one of them is not there, or the packet is not what it allows.
        """
        looker = self.looker
        looker.send_to(numbers, packet, sent_bytes)
        for _ in range(SETTLE_TRIES):
            drive(self.views, looker.stream, u64(moment_ms))
            if looker.stream["errors"]:
                raise CheckFailed(f"looked up again: {looker.complaint()}")
            if looker.done:
                self.tally.looked_up += len(numbers)
                return looker.verdicts[: len(numbers)]
            os.sched_yield()
        raise CheckFailed("looked up again: a lock was busy for too long")

    def look_up_just_before_expiry(self, numbers: np.ndarray, packet: Packet, sent_bytes: int = 0) -> None:
        """Look connections up now, and then at the last moment at which they are still there, which is yet to come."""
        entries = self.table.array(Region.ENTRIES, "entries", ENTRY)
        for part in np.array_split(numbers, -(-len(numbers) // BURST_PACKETS_MAX) or 1):
            records = self.look_up(part, packet, now_ms(), sent_bytes)[["record", "incarnation"]].copy()
            expiries = entries["expiry_ms"][records["record"]]
            for expiry in np.unique(expiries):
                last = np.flatnonzero(expiries == expiry)
                again = self.look_up(part[last], packet, int(expiry) - 1, sent_bytes)[["record", "incarnation"]]
                if not np.array_equal(again, records[last]):
                    raise CheckFailed(f"connections near {part[last[0]]} are in other records than before")

    def settle(self) -> None:
        """Free what is on the delete list."""
        places = self.table.array(Region.CONTROL, "participants", PARTICIPANT)
        for _ in range(SETTLE_TRIES):
            sweep.sweep(self.views, u64(now_ms()), ZERO)
            if places["deletes"][self.me - 1] == 0:
                return
            os.sched_yield()
        raise CheckFailed(f"{int(places['deletes'][self.me - 1])} deleted connections wait for locks that nobody drops")

    def leave(self) -> None:
        """Leave the table, at rest."""
        self.settle()
        roster.leave(self.table, self.me)
