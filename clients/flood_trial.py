"""One trial of a flood: SYNs of ever new tuples at full rate, beside connections in use and others that are being opened.

The table has room for the connections in use and some more, which the flood fills at once; from then on each SYN drives
another connection out.  One process

    uses      connections that are established, drawn at random: each packet must find its own, and at the end all are there
    opens     others, a batch now and then: SYN, half a round trip later SYN-ACK, then ACK, and a reset at once
    sweeps    as all do

while each of the others sends SYNs that nobody answers, as fast as it can.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from ..kernels.words import u64
from ..service import crew
from ..shm import roster, segment
from ..shm.layout import BLOCK_RECORDS, GLOBAL, Region
from ..shm.reasons import Reason
from ..shm.sizing import Geometry
from ..shm.views import Table
from .driver import BUDGET_PACKETS, SWEEP_SLOTS, CheckFailed, Driver, now_ms, streams
from .scenarios import ELSEWHERE, Plan, Run, draws
from .sender import Sender
from .traffic import Packet, drive
from .trial import Meet, aim, together
from .trials import Tick, Trial

OPENED = 1 << 36
"""First number of the connections that are opened meanwhile."""
BATCH = 32
BATCH_MS = 32
"""So many are begun at once, and so often: 1,000 a second."""
HALF_TRIP_MS = 10
USED_PACKETS, FLOOD_PACKETS = 1_024, 4_096
"""Of connections in use, and of the flood, in a call."""
STEPS = (Packet.SYN, Packet.SYN_ACK, Packet.ACK)


@dataclass(frozen=True)
class FloodPlan(Plan):
    """What was asked for; of ``threads``, one is no part of the flood."""

    threads: int = 2
    connections: int = 100_000
    room: int = 65_536
    seconds: int = 60


RESULT = np.dtype([(name, "u8") for name in ("used", "opened", "completed", "lost", "elapsed_ns")])
"""What the process did that is no part of the flood."""


def geometry(plan: FloodPlan) -> Geometry:
    """Return the sizes of the table.

    Raises:
        ValueError: there is no such table.
    """
    return Geometry(plan.connections + plan.room + 4 * BLOCK_RECORDS * (plan.threads + 1), 1, 0)


class Caller:
    """Who opens connections, and counts how many were completed."""

    def __init__(self, plan: FloodPlan, driver: Driver) -> None:
        """Open them in a driver's name."""
        self.driver, self.sender = driver, Sender(plan.seed, BATCH)
        self.opened = self.completed = 0
        self._begun_ms = 0
        self._waiting: deque[tuple[int, int, np.ndarray]] = deque()  # moment, step, numbers: the earliest first

    def go_on(self, moment_ms: int) -> None:
        """Send what is due."""
        if moment_ms - self._begun_ms >= BATCH_MS:
            self._begun_ms = moment_ms
            numbers = np.arange(OPENED + self.opened, OPENED + self.opened + BATCH, dtype=np.uint64)
            self.opened += BATCH
            self._step(moment_ms, 0, numbers)
        while self._waiting and self._waiting[0][0] <= moment_ms:
            self._step(moment_ms, *self._waiting.popleft()[1:])

    def _step(self, moment_ms: int, step: int, numbers: np.ndarray) -> None:
        passed = self._send(moment_ms, STEPS[step], numbers)
        if step + 1 < len(STEPS):
            if len(passed):
                self._waiting.append((moment_ms + HALF_TRIP_MS, step + 1, passed))
            return
        self.completed += len(passed)
        self._send(moment_ms, Packet.RST, passed)

    def _send(self, moment_ms: int, packet: Packet, numbers: np.ndarray) -> np.ndarray:
        """Send a packet of each; returns those that got the verdict that they should."""
        sender = self.sender
        sender.send_to(numbers, packet)
        sender.set(errors=0)
        drive(self.driver.views, sender.stream, u64(moment_ms))
        passed = int(sender.stream["finished"])
        sender.set(waiting=0)  # what was refused is not sent again
        return sender.lists[1][:passed].copy()

    @property
    def under_way(self) -> int:
        """Connections that are being opened."""
        return sum(len(numbers) for _, _, numbers in self._waiting)


def use(plan: FloodPlan, table: Table, stream: np.record, result: np.void, meet: Meet) -> None:
    """Be the process that is no part of the flood."""
    driver, count = Driver(table, plan.seed, plan.burst, stream), plan.connections
    for packets in ((Packet.SYN, Packet.ACK), (Packet.DATA, Packet.ANSWER_ACK)):
        aim(driver.sender, Run(packets, 0, count, count))
        driver.run()
    aim(driver.sender, Run((Packet.EITHER, Packet.EITHER), 0, count, 1 << 62, random=draws(plan, 0)))
    driver.sender.set(budget=USED_PACKETS)
    before = int(driver.sender.stream["packets"])
    caller = Caller(plan, driver)
    meet()
    begun = time.monotonic_ns()
    while time.monotonic_ns() - begun < plan.seconds * 1_000_000_000:
        moment = now_ms()
        drive(driver.views, driver.sender.stream, u64(moment))
        caller.go_on(moment)
        driver.sweep(SWEEP_SLOTS)
    result["elapsed_ns"] = time.monotonic_ns() - begun
    meet()
    result["used"] = int(driver.sender.stream["packets"]) - before
    result["opened"], result["completed"] = caller.opened - caller.under_way, caller.completed
    aim(driver.sender, Run((Packet.EITHER, Packet.EITHER), 0, count, count))
    driver.sender.set(budget=BUDGET_PACKETS)
    driver.run()  # once more all of them
    result["lost"] = driver.sender.stream["errors"]
    driver.leave()


def flood(plan: FloodPlan, table: Table, stream: np.record, index: int, meet: Meet) -> None:
    """Be a part of the flood."""
    driver = Driver(table, plan.seed, plan.burst, stream)
    first = ELSEWHERE + (index << 32)
    aim(driver.sender, Run((Packet.SYN, Packet.SYN), first, 1 << 32, 1 << 32))
    driver.sender.set(budget=FLOOD_PACKETS)
    meet()
    until_ns = time.monotonic_ns() + plan.seconds * 1_000_000_000
    while time.monotonic_ns() < until_ns:
        drive(driver.views, driver.sender.stream, u64(now_ms()))
        driver.sender.set(waiting=0)  # it does not care
        driver.sweep(SWEEP_SLOTS)
    meet()
    driver.leave()


def checked(plan: FloodPlan) -> Geometry:
    """Return the sizes of the table.

    Raises:
        ValueError: there is no such table, or nobody to flood it.
    """
    if plan.threads < 2:
        raise ValueError("--threads: one is no part of the flood, so there are two at least")
    return geometry(plan)


def conduct(plan: FloodPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``."""
    table = segment.anonymous(geometry(plan))
    limit = plan.connections + plan.room
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = limit
    watched, results = streams(plan.threads), crew.shared(RESULT, 1)

    def work(index: int, meet: Meet) -> None:
        if index == 0:
            use(plan, table, watched[0], results[0], meet)
        else:
            flood(plan, table, watched[index], index, meet)

    together(plan.threads, work, lambda: tick(int(watched["packets"].sum())))
    one = results[0]
    if one["lost"]:
        raise CheckFailed(f"{int(one['lost'])} packets of connections in use did not find them")
    held = int(table.array(Region.CONTROL, "globals", GLOBAL)["count"][0])
    if held > limit:
        raise CheckFailed(f"there are {held} connections, the limit is {limit}")
    seconds = float(one["elapsed_ns"]) / 1e9
    counters = roster.participants(table)["counters"].sum(axis=0)
    return {
        "elapsed_s": seconds,
        "flood_packets_per_second": int(watched["packets"][1:].sum()) / seconds,
        "used_packets_per_second": int(one["used"]) / seconds,
        "handshakes": int(one["opened"]),
        "handshakes_completed": int(one["completed"]),
        "handshakes_completed_percent": 100 * int(one["completed"]) / max(1, int(one["opened"])),
        "established_lost": int(one["lost"]),
        "evicted": int(counters[Reason.EVICTED]),
        "held": held,
    }


TRIAL = Trial(FloodPlan, lambda plan: plan.seconds * plan.threads * 1_000_000, checked, conduct)
