"""Replay: captures tracked without a service, by worker processes on one table, with capture time as the clock.

Every file is walked once to count its packets and let the clock run; so faults are known, and the table's size.  Then
the workers are forked; each walks all files again, in order, and tracks the packets of its shard.  What they say of each
packet stands in one array by the packet's place, so that it can be told in order.

Labels do not depend on the number of workers: all of them read the same clock off the same packets, a connection's
packets go to one of them, and what has expired is swept only by the time of the slowest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ..kernels import replay, sweep
from ..kernels.clock import BEGIN_MS
from ..shm import layout, roster, segment
from ..shm.layout import (
    BLOCK_RECORDS,
    CLOCK,
    FRAME,
    GLOBAL,
    HEADER,
    PARSED,
    PARTICIPANT,
    REPLAY,
    REPLAY_BURST_PACKETS,
    SETTINGS_DEFAULT,
    STORE,
    VERDICT,
    ZONE,
    FrameFlag,
    Kind,
    Region,
    Setting,
    Slab,
)
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import burial, helper_rules, leaving, warmup
from .captures import Capture, CaptureError
from .crew import Crew, Death, shared
from .helper_rules import HelperRules, Rules
from .labels import NETFILTER, OVS

RUN_RECORDS = 1 << 15
"""Records that a worker looks at in one call: about 10 ms when every packet is its own."""
RUN_RECORDS_MIN = 32
SWEEP_SLOTS = 1 << 17
"""Slots that are swept after each call: 0.1 ms where nothing is due."""
WAIT_S = 0.001
CONNECTIONS_MIN = 1_024
CONNECTIONS_MAX = 1 << 20
"""Without ``--max-connections`` there is room for a connection of each packet, within these; the upper is 250 MB."""
HELPED_SHARE = 1_000
"""Extension records per 1,000 connections where helpers are wanted: any connection may be one of theirs."""
ENDED_MS = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class Options:
    """How captures are replayed."""

    zone: int = 0
    profile: str = NETFILTER
    verify: bool = True
    liberal: bool = False
    seq_check: bool = True
    expiry: bool = True
    workers: int = 1
    max_connections: int | None = None
    verdicts: bool = False
    helpers: tuple[tuple[str, int], ...] = ()
    """Names of helpers and ports of their control channels."""

    @property
    def shards(self) -> int:
        """Workers that there are: one where anybody may come as foretold, for packets are shared by their two addresses."""
        return 1 if any(name in helper_rules.OF_ANYBODY for name, _ in self.helpers) else self.workers

    @property
    def settings(self) -> int:
        """Setting bits of the zone."""
        settings = int(SETTINGS_DEFAULT)
        for setting, wanted in (
            (Setting.CHECKSUM, self.verify),
            (Setting.BE_LIBERAL, self.liberal),
            (Setting.SEQ_CHECK, self.seq_check),
            (Setting.NO_EXPIRY, not self.expiry),
            (Setting.OVS, self.profile == OVS),
            (Setting.EARLY_DROP, False),  # what is said of packets must not depend on the size of a table
        ):
            settings = settings | setting if wanted else settings & ~setting
        return settings


@dataclass
class Source:
    """A capture that has been walked once."""

    path: str
    packets: int = 0
    fault: CaptureError | None = None
    opens: bool = False


@dataclass
class Survey:
    """What the first walk over some captures has found."""

    sources: list[Source]
    clock: np.ndarray
    """CLOCK after the last packet."""

    @property
    def packets(self) -> int:
        """Packets of all of them."""
        return sum(source.packets for source in self.sources)

    def placed(self) -> Iterator[tuple[Source, int]]:
        """Yield each capture that can be walked, with the place of its first packet."""
        place = 0
        for source in self.sources:
            if source.opens:
                yield source, place
            place += source.packets


def survey(paths: Iterable[str]) -> Survey:
    """Walk over captures, in order, on one clock; what is wrong with them is noted, not raised."""
    clock, sources = record(CLOCK), []
    frame = record(FRAME)
    for path in paths:
        source = Source(path)
        sources.append(source)
        try:
            with Capture(path) as capture:
                source.opens = True
                while not capture.ended:
                    source.packets += int(replay.count(capture.walk, clock[0], frame[0], np.uint64(RUN_RECORDS)))
                capture.check()
        except CaptureError as error:
            source.fault = error
    return Survey(sources, clock)


def record(dtype: np.dtype, count: int = 1) -> np.ndarray:
    """Return private records that kernels can be given, zero."""
    return np.zeros(count, dtype).view(np.recarray)


@dataclass
class Replay:
    """One replay of some captures through one table."""

    survey: Survey
    options: Options
    table: Table = field(init=False)
    verdicts: np.ndarray = field(init=False)
    progress: np.ndarray = field(init=False)
    deaths: list[Death] = field(init=False, default_factory=list)
    _globals: np.void = field(init=False)

    def __post_init__(self) -> None:
        options, packets = self.options, self.survey.packets
        connections = options.max_connections or min(max(packets, CONNECTIONS_MIN), CONNECTIONS_MAX)
        # each worker may keep two chains of free records to itself, and none must go without for that
        kept = 2 * BLOCK_RECORDS * options.shards
        size = min(connections + kept, layout.CONNECTIONS_MAX)
        share = HELPED_SHARE if options.helpers else 0
        self.table = segment.anonymous(Geometry(size, zones_in_use=1, extension_share=share))
        self.table.array(Region.CONTROL, "zones", ZONE)["settings"][options.zone] = options.settings
        ports: Rules = {}
        for name, port in options.helpers:
            ports.setdefault(name, []).append(port)
        HelperRules(self.table).set(options.zone, ports)
        # a datagram expires by its own worker's clock, however far the others' are
        self.table.array(Region.FRAGMENTS, "store", STORE)["purge_ms"] = np.iinfo("u4").max
        self._globals = self.table.array(Region.CONTROL, "globals", GLOBAL)[0]
        self._globals["limit"] = connections
        header = np.frombuffer(self.table.regions[Region.CONTROL], HEADER, 1)
        header["wall_offset_ms"] = int(self.survey.clock["first_ns"][0]) // 1_000_000 - BEGIN_MS
        self.verdicts = shared(VERDICT, packets if options.verdicts else 0)
        self.progress = shared(
            np.dtype([("packets", "u8"), ("now_ms", "u8"), ("reserved", "u8", (6,))]), options.shards
        )

    @property
    def records_at_once(self) -> int:
        """Records of a capture between two sweeps: no more packets than a fraction of the table."""
        return min(RUN_RECORDS, max(RUN_RECORDS_MIN, int(self._globals["limit"]) // 8))

    @property
    def now_ms(self) -> int:
        """The clock after the last packet."""
        return max(BEGIN_MS, int(self.survey.clock["now_ms"][0]))

    @property
    def counters(self) -> np.ndarray:
        """All workers' counters together, u64[COUNTERS_MAX], by Reason."""
        return self.table.array(Region.CONTROL, "participants", PARTICIPANT)["counters"].sum(axis=0)

    def run(self, look: Callable[[int], None] = lambda packets: None) -> None:
        """Track all packets.

        Args:
            look: called now and then with the packets that all workers have passed.
        """
        _load_kernels()
        crew = Crew(self.options.shards, self.work)

        def watch() -> None:
            for death in crew.deaths[len(self.deaths) :]:
                self._pass(death.number, self.survey.packets, ENDED_MS)  # nobody need wait for the dead
                burial.bury_dead(self.table)
                self.deaths.append(death)
            look(int(self.progress["packets"].min()))

        crew.run(watch)

    def clock(self) -> np.ndarray:
        """Return the clock of a worker before the first packet."""
        return record(CLOCK)

    def work(self, shard: int) -> None:
        """The whole life of one worker."""
        me = roster.join(self.table, Kind.WORKER)
        views = self.table.views(me)
        clock, state, scratch = self.clock(), record(REPLAY), Scratch()
        scratch.lend(state)
        state["results"] = self.verdicts.ctypes.data
        state["shard"], state["shards"] = shard, self.options.shards
        records = np.uint64(self.records_at_once)
        for source, place in self.survey.placed():
            state["packets"] = place
            state["results_count"] = place + source.packets if self.options.verdicts else 0
            with Capture(source.path, self.options.zone, FrameFlag.COMMIT) as capture:
                while not capture.ended:
                    now_ms = int(replay.run(views, capture.walk, clock[0], state[0], records))
                    self._pass(shard, int(state["packets"][0]), now_ms)
                    if self.options.expiry:
                        self._sweep(views, now_ms)
        self._pass(shard, self.survey.packets, ENDED_MS)
        leaving.leave(self.table, me, views)

    def _pass(self, shard: int, packets: int, now_ms: int) -> None:
        """Say how far a worker has come."""
        self.progress[shard]["packets"] = packets
        self.progress[shard]["now_ms"] = now_ms

    def _sweep(self, views: np.record, now_ms: int) -> None:
        """Free what has expired by the time of the slowest worker, and wait for that one where room gets short."""
        crowded = self._globals["count"] > self._globals["limit"] // 2
        while crowded and self.progress["now_ms"].min() < now_ms:
            time.sleep(WAIT_S)
        slots = self.table.geometry.records(Slab.ENTRIES) if crowded else SWEEP_SLOTS
        sweep.sweep(views, self.progress["now_ms"].min(), np.uint64(slots))


@cache
def _load_kernels() -> None:
    warmup.load("replay.run", "sweep.sweep", "late.abandon")


class Scratch:
    """The private memory of a worker's loop."""

    def __init__(self) -> None:
        self._arrays = {
            "incoming": record(FRAME),
            "frames": record(FRAME, REPLAY_BURST_PACKETS),
            "places": np.zeros(REPLAY_BURST_PACKETS, "u8"),
            "verdicts": record(VERDICT, REPLAY_BURST_PACKETS),
            "parsed": record(PARSED),
        }

    def lend(self, state: np.ndarray) -> None:
        """Put the addresses of this memory, which the caller keeps, into a REPLAY."""
        for name, array in self._arrays.items():
            state[name] = array.ctypes.data
