"""One trial of rules: what a packet costs that goes through many of them, of a known flow and of one never seen before.

A table of rules with all kinds of masks, which end in a ct, is followed by one that asks what was found.  The frames of
clients/traffic go through the pipeline of a worker, all but its rings: read, looked up, tracked, looked up again, dropped.
The same is measured with fewer rules, down to one, in rounds in which all take their turns: so they tell what rules cost,
whatever else the machine did meanwhile.  Of established connections each flow has met its rule before anything is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels import burst, memory, pipeline
from ..kernels.jit import kernel
from ..kernels.words import ONE, ZERO, u64
from ..service import rules_compile
from ..service.rules import Ct, Masked, Rule, Span
from ..shm.layout import (
    BURST_PACKETS_MAX,
    FRAME_BYTES,
    GENERATION,
    POLL_BURST_PACKETS,
    QUEUE,
    VERDICT,
    VERDICT_BYTES,
    CtState,
    PortKind,
)
from ..shm.loop import Loop
from ..shm.queues import Queues
from ..shm.rulebook import total
from . import trial
from .driver import CheckFailed, Driver, now_ms
from .scenarios import ELSEWHERE, Hit, Plan
from .sender import Sender
from .traffic import Packet, write_burst
from .trials import Tick, Trial

ROUNDS_MAX = 20
FEWER = (1, 10, 100)
"""Numbers of rules beside which as many as were asked for are measured."""
_BURST = u64(POLL_BURST_PACKETS)
_FRAME, _VERDICT = u64(FRAME_BYTES), u64(VERDICT_BYTES)
_verdict_at = memory.record_at(VERDICT)
_queue_at = memory.record_at(QUEUE)

IP = {"eth_type": Masked(0x0800, 0xFFFF)}
TCP = IP | {"protocol": Masked(6, 0xFF)}
_SRC, _DST = 10 << 24, 0xC6120000
_ALL = (1 << 128) - 1


@dataclass(frozen=True)
class RulesPlan:
    """What was asked for."""

    rules: int = 1000
    connections: int = 4000
    iterations: int = 100
    seed: int = 1

    @property
    def counts(self) -> list[int]:
        """Numbers of rules that are measured, the one asked for last."""
        return [*(count for count in FEWER if count < self.rules), self.rules]

    @property
    def rounds(self) -> int:
        """Rounds of established packets, and of new ones."""
        return min(self.iterations, ROUNDS_MAX)

    @property
    def round_packets(self) -> int:
        """Packets of a round for each number of rules."""
        return self.connections * self.iterations // self.rounds

    @property
    def packets_count(self) -> int:
        """Packets that are measured."""
        return 2 * len(self.counts) * self.rounds * self.round_packets


def acl(count: int, seed: int) -> list[Rule]:
    """Return rules with many different masks over the addresses and ports of clients/traffic; the last is for all of IP."""
    random = np.random.default_rng(seed)
    track = (Ct(zone=0, next_table=1),)
    made: list[Rule] = []
    while len(made) < count - 1:
        match: dict[str, Any] = dict(TCP)
        for field, base, bits in (("src", _SRC, 24), ("dst", _DST, 17)):
            free = int(random.integers(0, bits + 3))
            if free <= bits:
                mask = _ALL & ~((1 << free) - 1)
                match[field] = Masked((base | int(random.integers(0, 1 << bits))) & mask, mask)
        for field, low, high in (("sport", 0x8000, 0xFFFF), ("dport", 8192, 8447)):
            if random.random() < 0.5:
                first = int(random.integers(low, high + 1))
                match[field] = Span(first, min(high, first + int(random.integers(0, 1 << int(random.integers(0, 12))))))
        made.append(Rule(0, 1 + len(made), 0, match, track))
    return [*made, Rule(0, 0, 0, IP, track), Rule(1, 0, 0, {}, ())]


@kernel
def pass_through(views, loop, address, frames, count, now_ms, wanted):
    """Send frames through the pipeline, a worker's burst at a time.

    Args:
        views: VIEWS of a participant.
        loop: POLL of a Loop that goes by rules.
        address: of the QUEUE that they are from.
        frames: address of FRAME[count].
        count: u64.
        now_ms: u64.
        wanted: u64, bits of ct_state that each shall have in the end.

    Returns:
        How many had them.
    """
    pipe = pipeline.pipe_at(loop.pipe)
    queue = _queue_at(address)
    right = first = ZERO
    while first < count:
        n = min(_BURST, count - first)
        memory.copy(loop.frames, frames + first * _FRAME, n * _FRAME)
        pipeline.begin(pipe, loop, queue, n)
        pipe.queue = address
        waiting = pipeline.advance(views, pipe, loop, queue, n, now_ms)
        for _ in range(pipeline.TURNS_MAX):
            if waiting == ZERO:
                break
            burst.track_burst(views, pipe.frames, waiting, now_ms, pipe.verdicts)
            waiting = pipeline.advance(views, pipe, loop, queue, n, now_ms)
        pipeline.finish(views, pipe, loop, address, n)
        for i in range(n):
            if u64(_verdict_at(loop.verdicts + u64(i) * _VERDICT).ct_state) & wanted == wanted:
                right += ONE
        first += n
    return right


class Ruled:
    """A worker's pipeline, its rules, and a queue that nobody waits at."""

    def __init__(self, rules: list[Rule]) -> None:
        """Take up rules."""
        self.loop = Loop(Queues([]), [])
        self.queue = np.zeros(1, QUEUE)
        self.queue["kind"] = PortKind.PACKET  # of which nobody wants an answer
        self.generation = rules_compile.compile_rules(rules)
        base = self.generation.ctypes.data
        self.loop.pipe["generation"], self.loop.pipe["word"] = base, 2
        self.loop.pipe["hits"] = base + int(self.generation[: GENERATION.itemsize].view(GENERATION)["hits"][0])

    def send(self, driver: Driver, sender: Sender, count: int, wanted: int) -> None:
        """Send what a sender has written; raises CheckFailed where some verdict is not as it should be."""
        at = u64(self.queue.ctypes.data), u64(sender.frames.ctypes.data), u64(count), u64(now_ms()), u64(wanted)
        right = int(pass_through(driver.views, self.loop.record, *at))
        if right != count:
            raise CheckFailed(f"{count - right} of {count} packets were not {CtState(wanted).name}")

    @property
    def packets(self) -> tuple[int, int]:
        """Packets that the rules of each of the two tables have met."""
        hits = total(self.generation)["packets"]
        return int(hits[:-1].sum()), int(hits[-1])


def warm() -> None:
    """Load all kernels, in this process, before anything is measured."""
    driver, sender = Driver(trial.new_table(Hit(Plan(connections=1))), 1, 1), Sender(1, 1)
    sender.commits(False)
    numbers = np.zeros(1, "u8")
    write_burst(sender.stream, u64(numbers.ctypes.data), u64(1), u64(Packet.PROBE))
    Ruled(acl(1, 1)).send(driver, sender, 1, CtState.NEW)
    driver.leave()


def numbers_of(plan: RulesPlan, established: bool, number: int) -> np.ndarray:
    """Return the connections whose packets are sent in a round, in order; those that are new come once each."""
    if established:
        return np.random.default_rng((plan.seed, number)).integers(0, plan.connections, plan.round_packets, dtype="u8")
    first = ELSEWHERE + number * plan.round_packets
    return np.arange(first, first + plan.round_packets, dtype="u8")


def measure(driver: Driver, ruled: Ruled, plan: RulesPlan, established: bool, number: int) -> float:
    """Return what a packet of a round takes, in nanoseconds, without what making it takes."""
    sender = Sender(plan.seed, BURST_PACKETS_MAX)
    sender.commits(False)
    packet, wanted = (Packet.EITHER, CtState.EST) if established else (Packet.PROBE, CtState.NEW)
    numbers = numbers_of(plan, established, number)
    times = {}
    for alone in (True, False):
        begun = time.process_time_ns()
        for first in range(0, len(numbers), BURST_PACKETS_MAX):
            count = min(BURST_PACKETS_MAX, len(numbers) - first)
            at = u64(numbers.ctypes.data + 8 * first)
            write_burst(sender.stream, at, u64(count), u64(packet))
            sender.stream["packets"] += count
            if not alone:
                ruled.send(driver, sender, count, wanted)
        times[alone] = time.process_time_ns() - begun
    return (times[False] - times[True]) / len(numbers)


def suffix(count: int, asked: int) -> str:
    """Return what the names of figures end in that are of so many rules."""
    if count == asked:
        return ""
    return "_one_rule" if count == 1 else f"_{count}_rules"


def scenario_of(plan: RulesPlan) -> Hit:
    """Return the scenario that makes the connections."""
    return Hit(Plan(connections=plan.connections, seed=plan.seed))


def conduct(plan: RulesPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``.

    Returns:
        The figures, by name: of packets of established connections, of new tuples, each also with fewer rules; medians of
        all rounds, as is the ratio of two that were measured in one round.
    """
    scenario = scenario_of(plan)
    driver = Driver(trial.new_table(scenario), plan.seed, 32)
    for run in scenario.prepare(0):
        trial.aim(driver.sender, run)
        driver.run()
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)
    found: dict[str, float] = {}
    sent = 0
    all_ruled = [Ruled(acl(count, plan.seed)) for count in plan.counts]
    for ruled in all_ruled:
        measure(driver, ruled, plan, True, plan.rounds)
    for name, established in (("packet", True), ("new_packet", False)):
        took = np.zeros((plan.rounds, len(all_ruled)))
        for number in range(plan.rounds):
            for column, ruled in enumerate(all_ruled):
                took[number, column] = measure(driver, ruled, plan, established, number)
                sent += plan.round_packets
                tick(sent)
        for count, ns in zip(plan.counts, np.median(took, axis=0).tolist(), strict=True):
            found[f"ns_per_{name}{suffix(count, plan.rules)}"] = ns
        if established:
            found["ratio_to_one_rule"] = float(np.median(took[:, -1] / took[:, 0]))
    met = (1 + 2 * plan.rounds) * plan.round_packets
    for ruled in all_ruled:
        if ruled.packets != (met, met):
            raise CheckFailed(f"rules met {ruled.packets} packets, expected {met} in each table")
    held = driver.connections
    driver.leave()
    if held != plan.connections:
        raise CheckFailed(f"{held} connections, expected {plan.connections}")
    return found | {"packets": sent}


TRIAL = Trial(RulesPlan, lambda plan: plan.packets_count, lambda plan: trial.geometry(scenario_of(plan)), conduct)
