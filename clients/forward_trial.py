"""One row of `load forward`: packets of some flows from a source, through a gateway that tracks them, to a sink.

    p      a wire, the gateway: packets are taken and tracked, and go nowhere
    pp     a wire, the gateway, a wire
    pv     a wire, the gateway, a client in shared memory
    pvp    a wire, the gateway, a client that sends back what it gets, the gateway, a wire
    vv     a client, the gateway, a client
    vn     a client, the gateway, an interface that drops what is sent by it

The gateway, the loop of a worker of the service, is a process, and all else is another (clients/forward_ends).  Wires are
pairs of virtual interfaces between namespaces that are gone when the last process is: what is sent into one is received at
its other end by the system at once, at the sender's cost.  An interface that drops is what sending itself costs.

A row is two runs: as fast as the source can, for throughput and what it costs the gateway; then at a share of that rate, for
the time that packets are on their way.  Each packet that was sent must have come, or be counted as lost somewhere.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
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
from ..shm.layout import TIMESPEC, Kind
from ..shm.loop import Loop
from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.sizing import Geometry
from . import forward_traffic
from .driver import CheckFailed
from .forward_ends import BATCH, Ends, stay
from .forward_traffic import COUNTS
from .namespaces import Interfaces, Namespace, add_void, wire

RULES = {
    "p": "",
    "pp": "in_port=in,ip actions=ct(commit),output:out",
    "pv": "in_port=in,ip actions=ct(commit),output:lab",
    "pvp": "in_port=in,ip actions=ct(commit,zone=1),output:lab\nin_port=lab,ip actions=ct(commit,zone=2),output:out",
    "vv": "in_port=first,ip actions=ct(commit),output:lab",
    "vn": "in_port=first,ip actions=ct(commit),output:out",
}
"""Of none all packets are tracked."""
TOPOLOGIES = tuple(RULES)
SHARED = {"pv": ("lab",), "pvp": ("lab",), "vv": ("first", "lab"), "vn": ("first",)}
FROM_A_WIRE, TO_A_WIRE = ("p", "pp", "pv", "pvp"), ("pp", "pvp")
PORT_KINDS: dict[str, Callable[[str, int], Any]] = {
    "blocks": lambda device, ring_mb: PacketPort(device, ring_mb=ring_mb),
    "low": lambda device, ring_mb: PromptPort(device, ring_mb=ring_mb),
    "xdp": lambda device, ring_mb: XdpPort(device, ring=min(1 << 14, ring_mb << 9)),
}
"""Packet sockets, such of low latency, sockets of AF_XDP: each opens an end of a wire, with memory of so many MiB."""
SLOTS = 1024
LOOK_MS = 100
ROUNDS = u64(128 if jit.JIT else 2)
PACED_SHARE = 0.5
"""Of the rate of the first run, at which times are taken."""
CONTROL = np.dtype([("sent", "u8"), ("over", "u8"), ("cpu_ns", "u8"), ("elapsed_ns", "u8")])


@dataclass(frozen=True)
class Row:
    """What a row is about."""

    flows: int
    batching: bool
    flush_interval_us: int = 0


class Stage:
    """The ports, the wires and the table of a topology."""

    def __init__(
        self,
        topology: str,
        size: int,
        house: contextlib.ExitStack,
        port_kind: str = "blocks",
        has_gateway: bool = True,
        has_sink: bool = True,
        sink_mb: int = 64,
    ) -> None:
        """Set it up.

        Args:
            topology: of TOPOLOGIES.
            size: of a frame on the wire, with its frame check sequence.
            house: everything is open until its end.
            port_kind: of PORT_KINDS, by which the gateway has its ends of the wires.
            has_gateway: whether our ports are at the ends of the wires; else somebody else's gateway is.
            has_sink: whether somebody listens beyond it.
            sink_mb: of his ring.
        """
        self.topology, self.frame_bytes = topology, size - 4
        self.instance = f"forward-{os.getpid()}"
        self.table = segment.anonymous(Geometry(connections=1 << 14))
        self.source: PacketPort | None = None
        self.sink: PacketPort | None = None
        self.is_taken_by_a_client = topology in ("pv", "vv")
        self.bounces = topology == "pvp"
        self.spaces: list[Namespace] = []
        self._interfaces: Interfaces | None = None
        by, made = PORT_KINDS[port_kind], []
        if topology != "vv":
            self.spaces = [Namespace() for _ in range(3)]
            for one in self.spaces:
                house.callback(one.close)
        if topology in FROM_A_WIRE:
            outside, gateway, _ = self.spaces
            wire(outside, "source", gateway, "in")
            with outside.entered():
                self.source = house.enter_context(PacketPort("source", ring_mb=1))
            if has_gateway:
                with gateway.entered():
                    made.append(house.enter_context(by("in", 64)))
        if topology in TO_A_WIRE:
            _, gateway, beyond = self.spaces
            wire(gateway, "out", beyond, "sink")
            if has_gateway:
                with gateway.entered():
                    made.append(house.enter_context(by("out", 1)))
            if has_sink:
                # who waits for a block himself cannot tell how soon a packet came
                kind = PacketPort if port_kind == "blocks" else PromptPort
                with beyond.entered():
                    self.sink = house.enter_context(kind("sink", ring_mb=sink_mb))
        for name in SHARED.get(topology, ()):
            made.append(house.enter_context(port.create(self.instance, name, slots=SLOTS)))
        if topology == "vn":
            gateway = self.spaces[1]
            add_void(gateway, "out")
            self._interfaces = house.enter_context(Interfaces(gateway))
            with gateway.entered():
                made.append(house.enter_context(by("out", 1)))
        self.queues = Queues(made)
        # where source and sink stand in their rings is known to the processes of all runs
        self.source_queues = Queues([self.source] if self.source else [])
        self.sink_queues = Queues([self.sink] if self.sink else [])
        self.rules = Rulebook(1)
        names = Names({one.name: number for number, one in enumerate(made, 1)})
        if has_gateway and RULES[topology]:
            self.rules.publish(rules_compile.compile_rules(rules_text.read(RULES[topology], names)))
        self.control = crew.shared(CONTROL, 1).view(np.recarray)[0]
        self.counts = crew.shared(COUNTS, 1)

    # ------------------------------------------------------------------------------------------------ processes
    def gateway(self, row: Row) -> None:
        """Be the worker until it is over."""
        stay(alone=True)
        me = roster.join(self.table, Kind.WORKER)
        views = self.table.views(me)
        self.queues.batch_max = BATCH if row.batching else 1
        self.queues.flush_interval_us = row.flush_interval_us
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

    def ends(self, flows: int, seconds: float, rate: float) -> None:
        """Be all that is not the gateway."""
        stay(alone=False)
        Ends(self, flows).run(seconds, rate)

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
        lost, arrived = self._lost(), self._arrived()
        busy_ns, packets = self._busy()
        jobs: list[Callable[[], None]] = [partial(self.gateway, row), partial(self.ends, row.flows, seconds, rate)]
        made = crew.Crew(len(jobs), lambda number: jobs[number]())
        made.run(self._watch(made))
        if made.deaths:
            raise CheckFailed("; ".join(map(str, made.deaths)))
        figures = self._figures(lost, arrived)
        busy_after_ns, packets_after = self._busy()
        if packets_after > packets:
            figures["ns_per_packet_busy"] = (busy_after_ns - busy_ns) / (packets_after - packets)
            figures["packets_per_busy_second"] = 1e9 / figures["ns_per_packet_busy"]
        return figures

    def _watch(self, made: crew.Crew) -> Callable[[], None]:
        def look() -> None:
            if made.deaths:
                self.control["over"] = 1

        return look

    def gone(self) -> int:
        """Return how many packets have arrived, or are lost and counted, since there is this stage."""
        return self._arrived() + sum(self._lost().values())

    def _arrived(self) -> int:
        if self.topology == "p":
            return int(self.queues.records["rx_packets"][0])
        if self._interfaces is not None:
            return self._interfaces.received("out")
        return int(self.counts["packets"][0])

    def _lost(self) -> dict[str, int]:
        records = self.queues.records
        names = ("rx_dropped", "rx_truncated", "tx_full", "tx_too_long", "bad_slots", "bad_lengths")
        lost = {name: int(records[name].sum()) for name in names}
        return lost | {"sink_dropped": int(self.sink_queues.records["rx_dropped"].sum())}

    def _busy(self) -> tuple[int, int]:
        """Return what bursts that were measured took, one in MEASURED_EVERY, and how many packets they had."""
        perf = self.queues.perf[0]
        return int(perf["parts_ns"].sum()), int(perf["packets"])

    def _figures(self, lost_before: dict[str, int], arrived_before: int) -> dict[str, float]:
        control = self.control
        sent, came = int(control["sent"]), self._arrived() - arrived_before
        lost = {name: count - lost_before[name] for name, count in self._lost().items()}
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
        return figures | forward_traffic.ages_of(self.counts[0])


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
    flush_intervals_us: Sequence[int] = (0,),
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
        paced_share: of the highest rate, of the slower way of sending, at which times and losses are taken of both.
        flush_intervals_us: that frames may wait, where they wait for each other.
    """
    with contextlib.ExitStack() as house:
        stage = Stage(topology, size, house, port_kind)
        for number in flows:
            rows = [Row(number, on, us) for on in batching for us in (flush_intervals_us if on else (0,))]
            full = []
            for row in rows:
                say(f"{topology}: {number} flows, {told(row)}")
                full.append(stage.run(row, seconds))
            rate = paced_share * min(one["packets_per_second"] for one in full)
            for row, one in zip(rows, full, strict=True):
                say(f"{topology}: {number} flows, {told(row)}, {rate:,.0f} packets/s")
                paced = stage.run(row, seconds, rate)
                times = {name: value for name, value in paced.items() if name.endswith("_us")}
                kept = {name: value for name, value in one.items() if not name.endswith("_us")}
                yield (
                    {"flows": number, "batching": "on" if row.batching else "off"}
                    | {"tx_flush_interval_us": row.flush_interval_us}
                    | kept
                    | times
                    | {
                        "paced_per_second": paced["offered_per_second"],
                        "paced_lost": paced["sent"] - paced["received"],
                        "paced_unaccounted": paced["unaccounted"],
                    }
                )


def told(row: Row) -> str:
    """Return how a row sends."""
    if not row.batching:
        return "batching off"
    return f"batching on, {row.flush_interval_us} us" if row.flush_interval_us else "batching on"
