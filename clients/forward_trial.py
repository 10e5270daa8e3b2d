"""One row of `load forward`: packets of some flows from a source, through a gateway that tracks them, to a sink.

    pp     a wire, the gateway, a wire
    pv     a wire, the gateway, a client in shared memory
    pvp    a wire, the gateway, a client that sends back what it gets, the gateway, a wire
    vv     a client, the gateway, a client

Source, gateway, client in between and sink are processes; the gateway is the loop of a worker of the service.  Wires are
pairs of virtual interfaces between namespaces that are gone when the last process is.

A row is two runs: as fast as the source can, for throughput and what it costs the gateway; then at a share of that rate, for
the time that packets are on their way.  Each packet that was sent must have come, or be counted as lost somewhere.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..kernels import jit, poll
from ..kernels.words import ZERO, u64
from ..service import crew, rules_compile, rules_text, warmup
from ..service.ports.packet import PacketPort
from ..service.ports.prompt import PromptPort
from ..service.ports.xdp import XdpPort
from ..service.rules import Names
from ..shm import port, roster, segment
from ..shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, TIMESPEC, VERDICT, FrameFlag, Kind
from ..shm.queues import Loop, Queues
from ..shm.rulebook import Rulebook
from ..shm.sizing import Geometry
from . import forward_traffic
from .driver import CheckFailed
from .forward_traffic import COUNTS
from .namespaces import Namespace, wire
from .port import Queue, frames_of

RULES = {
    "pp": "in_port=in,ip actions=ct(commit),output:out",
    "pv": "in_port=in,ip actions=ct(commit),output:lab",
    "pvp": "in_port=in,ip actions=ct(commit,zone=1),output:lab\nin_port=lab,ip actions=ct(commit,zone=2),output:out",
    "vv": "in_port=first,ip actions=ct(commit),output:lab",
}
TOPOLOGIES = tuple(RULES)
SHARED = {"pp": (), "pv": ("lab",), "pvp": ("lab",), "vv": ("first", "lab")}
PORT_KINDS: dict[str, Callable[[str, int], Any]] = {
    "blocks": lambda device, ring_mb: PacketPort(device, ring_mb=ring_mb),
    "low": lambda device, ring_mb: PromptPort(device, ring_mb=ring_mb),
    "xdp": lambda device, ring_mb: XdpPort(device, ring=min(1 << 14, ring_mb << 9)),
}
"""Packet sockets, such of low latency, sockets of AF_XDP: each opens an end of a wire, with memory of so many MiB."""
BATCH = 32
BATCH_CLIENT = 256
SLOTS = 1024
SETTLE_S = 3.0
"""Without a packet, after the last was sent, until the sink leaves: what is not here then is gone."""
LOOK_MS = 100
ROUNDS = u64(128 if jit.JIT else 2)
PACED_SHARE = 0.5
"""Of the rate of the first run, at which times are taken."""
CONTROL = np.dtype(
    [
        ("sent", "u8"),
        ("done", "u8"),
        ("over", "u8"),
        ("takes", "u8"),
        ("bounces", "u8"),
        ("cpu_ns", "u8"),
        ("elapsed_ns", "u8"),
    ]
)


@dataclass(frozen=True)
class Row:
    """What a row is about."""

    flows: int
    batching: bool


class Stage:
    """The ports, the wires and the table of a topology."""

    def __init__(
        self,
        topology: str,
        size: int,
        house: contextlib.ExitStack,
        port_kind: str = "blocks",
        has_gateway: bool = True,
    ) -> None:
        """Set it up.

        Args:
            topology: of TOPOLOGIES.
            size: of a frame on the wire, with its frame check sequence.
            house: everything is open until its end.
            port_kind: of PORT_KINDS, by which the gateway has its ends of the wires.
            has_gateway: whether our ports are at the ends of the wires; else somebody else's gateway is, and nobody listens
                beyond it.
        """
        self.topology, self.frame_bytes = topology, size - 4
        self.instance = f"forward-{os.getpid()}"
        self.table = segment.anonymous(Geometry(connections=1 << 14))
        self.source: PacketPort | None = None
        self.sink: PacketPort | None = None
        by = PORT_KINDS[port_kind]
        # who waits for a block himself cannot tell how soon a packet came
        sink = PacketPort if port_kind == "blocks" else PromptPort
        self.spaces: list[Namespace] = []
        made: list[Any] = []
        if topology != "vv":
            spaces = [Namespace() for _ in range(3)]
            for one in spaces:
                house.callback(one.close)
            self.spaces = spaces
            outside, gateway, beyond = spaces
            wire(outside, "source", gateway, "in")
            with outside.entered():
                self.source = house.enter_context(PacketPort("source", ring_mb=1))
            if has_gateway:
                with gateway.entered():
                    made.append(house.enter_context(by("in", 64)))
            if topology != "pv":
                wire(gateway, "out", beyond, "sink")
            if topology != "pv" and has_gateway:
                with gateway.entered():
                    made.append(house.enter_context(by("out", 1)))
                with beyond.entered():
                    self.sink = house.enter_context(sink("sink", ring_mb=64))
        for name in SHARED[topology]:
            made.append(house.enter_context(port.create(self.instance, name, slots=SLOTS)))
        self.queues = Queues(made)
        # where source and sink stand in their rings is known to the processes of all runs
        self.source_queues = Queues([self.source] if self.source else [])
        self.sink_queues = Queues([self.sink] if self.sink else [])
        self.rules = Rulebook(1)
        names = Names({one.name: number for number, one in enumerate(made, 1)})
        if has_gateway:
            self.rules.publish(rules_compile.compile_rules(rules_text.read(RULES[topology], names)))
        self.control = crew.shared(CONTROL, 1).view(np.recarray)[0]
        self.counts = crew.shared(COUNTS, 1)

    # ------------------------------------------------------------------------------------------------ processes
    def gateway(self, batching: bool) -> None:
        """Be the worker until the sink has left."""
        me = roster.join(self.table, Kind.WORKER)
        views = self.table.views(me)
        self.queues.batch_max = BATCH if batching else 1
        loop = Loop(self.queues, range(len(self.queues)), me, self.rules)
        began = _cpu_ns()
        looked_ms = 0
        while not self.control["over"]:
            now_ms = time.monotonic_ns() // 1_000_000
            poll.poll(views, loop.record, u64(now_ms), ROUNDS, ZERO)
            if now_ms - looked_ms >= LOOK_MS:
                looked_ms = now_ms
                loop.look()
        self.control["cpu_ns"] = _cpu_ns() - began
        loop.look()
        roster.leave(self.table, me)

    def offering(self, frames: np.ndarray, client: bool) -> Callable[[int, int], int]:
        """Return a function that sends some packets, from that number on; it returns how many there was room for."""
        spec = np.zeros(1, TIMESPEC)
        if client:
            queue = Queue("first", 0, self.instance)

            def give(first: int, count: int) -> int:
                start = first % len(frames)
                part = frames[start : start + count]
                forward_traffic.stamp(u64(part.ctypes.data), u64(len(part)), u64(spec.ctypes.data))
                return queue.send(part)

            return give
        assert self.source is not None
        queues, verdict = self.source_queues, np.zeros(1, VERDICT)
        self.source.resume(queues.records[0])

        def send(first: int, count: int) -> int:
            return int(
                forward_traffic.offer(
                    u64(queues.records.ctypes.data),
                    u64(frames.ctypes.data),
                    u64(len(frames)),
                    u64(first),
                    u64(count),
                    u64(spec.ctypes.data),
                    u64(verdict.ctypes.data),
                )
            )

        return send

    def generate(self, flows: int, seconds: float, rate: float) -> None:
        """Be the source, for some seconds, at a rate in packets/s; 0: as fast as may be."""
        frames, _kept = forward_traffic.flows_of(flows, self.frame_bytes)
        client = self.topology == "vv"
        send, most = self.offering(frames, client), BATCH_CLIENT if client else BATCH
        # a client sees nothing of what came before it did
        while not (self.control["takes"] and (self.control["bounces"] or self.topology != "pvp")):
            if self.control["over"]:
                return
            os.sched_yield()
        began = time.perf_counter()
        sent = 0
        while (passed := time.perf_counter() - began) < seconds:
            count = min(most, int(rate * passed) - sent) if rate else most
            went = send(sent, count) if count > 0 else 0
            sent += went
            if not went:
                os.sched_yield()
        self.control["elapsed_ns"] = int((time.perf_counter() - began) * 1e9)
        self.control["sent"] = sent
        self.control["done"] = 1

    def collecting(self) -> Callable[[], int]:
        """Return a function that takes what has come, and returns how many packets that were."""
        spec, counts = np.zeros(1, TIMESPEC), u64(self.counts.ctypes.data)
        at = u64(spec.ctypes.data)
        if self.sink is not None:
            loop = Loop(self.sink_queues, [0])
            address = u64(self.sink_queues.records.ctypes.data)
            keep = spec
            return lambda: int(forward_traffic.collect(loop.record, address, counts, u64(keep.ctypes.data)))
        queue = Queue("lab", 0, self.instance)
        answers = np.zeros(BATCH_CLIENT, DESCRIPTOR)
        slots = np.zeros((BATCH_CLIENT, FRAME_SLOT_BYTES), "u1")

        def take() -> int:
            keep = spec, slots
            came = queue.receive(answers, slots)
            if came:
                forward_traffic.note(u64(keep[1].ctypes.data), u64(came), counts, at)
            return came

        return take

    def receive(self) -> None:
        """Be the sink, until all has come that was sent and not lost, or nothing comes any more."""
        take, before = self.collecting(), sum(self._lost().values())
        self.control["takes"] = 1
        last = time.perf_counter()
        while not self.control["done"] or time.perf_counter() - last < SETTLE_S:
            if take():
                last = time.perf_counter()
                continue
            if self.control["done"]:
                gone = int(self.counts["packets"][0]) + sum(self._lost().values()) - before
                if gone >= self.control["sent"]:
                    break
            os.sched_yield()
        self.control["over"] = 1

    def bounce(self) -> None:
        """Be the client in between: send back what comes."""
        queue = Queue("lab", 0, self.instance)
        answers = np.zeros(BATCH_CLIENT, DESCRIPTOR)
        slots = np.zeros((BATCH_CLIENT, FRAME_SLOT_BYTES), "u1")
        frames, _kept = frames_of([bytes(self.frame_bytes)] * BATCH_CLIENT)
        frames["address"] = slots.ctypes.data + FRAME_SLOT_BYTES * np.arange(BATCH_CLIENT, dtype="u8")
        frames["flags"] |= np.uint8(FrameFlag.QUIET)
        self.control["bounces"] = 1
        while not self.control["over"]:
            came = queue.receive(answers, slots)
            sent = 0
            while sent < came and not self.control["over"]:
                went = queue.send(frames[sent:came])
                sent += went
                if not went:
                    os.sched_yield()
            if not came:
                os.sched_yield()

    # ------------------------------------------------------------------------------------------------ a run
    def run(self, row: Row, seconds: float, rate: float = 0.0) -> dict[str, float]:
        """Have packets go through for some seconds, and return what came of it.

        Raises:
            CheckFailed: a process failed, or packets are gone that nobody counted.
        """
        for name in CONTROL.names or ():
            self.control[name] = 0
        self.counts[:] = 0
        self.counts["min_ns"] = np.iinfo(np.uint64).max
        before = self._lost()
        jobs: list[Callable[[], None]] = [
            partial(self.gateway, row.batching),
            self.receive,
            partial(self.generate, row.flows, seconds, rate),
        ]
        if self.topology == "pvp":
            jobs.append(self.bounce)
        made = crew.Crew(len(jobs), lambda number: jobs[number]())
        made.run(self._watch(made))
        if made.deaths:
            raise CheckFailed("; ".join(map(str, made.deaths)))
        return self._figures(before)

    def _watch(self, made: crew.Crew) -> Callable[[], None]:
        def look() -> None:
            if made.deaths:
                self.control["done"] = self.control["over"] = 1

        return look

    def _lost(self) -> dict[str, int]:
        records = self.queues.records
        names = ("rx_dropped", "rx_truncated", "tx_full", "tx_too_long", "bad_slots", "bad_lengths")
        return {name: int(records[name].sum()) for name in names}

    def _figures(self, before: dict[str, int]) -> dict[str, float]:
        counts, control = self.counts[0], self.control
        sent, came = int(control["sent"]), int(counts["packets"])
        lost = {name: count - before[name] for name, count in self._lost().items()}
        elapsed_s, cpu_s = int(control["elapsed_ns"]) / 1e9, int(control["cpu_ns"]) / 1e9
        figures: dict[str, float] = {
            "packets_per_second": came / elapsed_s,
            "offered_per_second": sent / elapsed_s,
            "packets_per_cpu_second": came / cpu_s if cpu_s else 0.0,
            "sent": sent,
            "received": came,
            **{name: count for name, count in lost.items() if count},
            "unaccounted": sent - came - sum(lost.values()),
        }
        return figures | forward_traffic.ages_of(counts)


def warm() -> None:
    """Load the kernels that processes are born with; compile what is not in the cache."""
    warmup.load("poll.poll", "ring.put", "ring.take", "ring.rest")
    nothing, one = np.zeros(1, TIMESPEC), u64(1)
    at = u64(nothing.ctypes.data)
    loop = Loop(Queues([]), [])
    if not jit.JIT:
        return
    for kernel, arguments in (
        (forward_traffic.stamp, (at, one, at)),
        (forward_traffic.offer, (at, at, one, one, one, at, at)),
        (forward_traffic.collect, (loop.record, at, at, at)),
        (forward_traffic.note, (at, one, at, at)),
    ):
        warmup.only_compile(kernel, *arguments)


def _cpu_ns() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9)


def conduct(
    topology: str,
    size: int,
    flows: list[int],
    batching: tuple[bool, ...],
    seconds: float,
    say: Callable[[str], None],
    port_kind: str = "blocks",
    paced_share: float = PACED_SHARE,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of flows and each way of sending.

    Args:
        topology: of TOPOLOGIES.
        size: of a frame on the wire, in bytes.
        flows: numbers of flows.
        batching: whether frames wait for each other.
        seconds: of each run.
        say: told what is under way.
        port_kind: of PORT_KINDS.
        paced_share: of the highest rate, at which times and losses are taken.
    """
    with contextlib.ExitStack() as house:
        stage = Stage(topology, size, house, port_kind)
        for number in flows:
            for on in batching:
                row = Row(number, on)
                say(f"{topology}: {number} flows, batching {'on' if on else 'off'}")
                full = stage.run(row, seconds)
                paced = stage.run(row, seconds, full["packets_per_second"] * paced_share)
                times = {name: value for name, value in paced.items() if name.endswith("_us")}
                kept = {name: value for name, value in full.items() if not name.endswith("_us")}
                yield (
                    {"flows": number, "batching": "on" if on else "off"}
                    | kept
                    | times
                    | {
                        "paced_lost": paced["sent"] - paced["received"],
                        "paced_unaccounted": paced["unaccounted"],
                    }
                )
