"""The worlds: tiny tables in states where something is about to happen, and what may be done to each.

A world is a play of tests/interleave with a choice of operations.  In some connections expire when the clock jumps, in some
the pools are nearly empty: what is put aside for that comes back before anybody audits.
"""

from __future__ import annotations

import functools

import datagrams
import foretelling
import kills
import naive_audit
import numpy as np
import tables
import tiny
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm import roster
from zonetrack.shm.events import EVERYTHING, Events
from zonetrack.shm.layout import BLOCK_RECORDS, FILTER, POOL_COUNT_SHIFT, Life, Slab
from zonetrack.shm.seats import Seats
from zonetrack.shm.sources import Sources

from ..interleave.plays import NOW, SHORT, Play

WORKERS = 3
ASIDE = 9
"""A place that nobody has: it keeps the records that a world is to be short of."""
RESERVED = 77
"""The owner of segments that a world is to be short of."""
EARLY = 1_000
"""A moment before anything has expired."""
DAY = 1 << 27
"""A jump of the clock, in milliseconds, after which all that packets have made has expired."""

LIST = [("run_list",)]
FLUSH = 3 * [("flush",)]
CLOCK = 2 * [("jump", NOW), ("jump", DAY)]


def on(keys, *names):
    """Return each operation with each key."""
    return [(name, key) for name in names for key in range(keys)]


def stage(watched=False, per_source=0, half_open=0, **sizes):
    """Return a new table with participants that have records at hand, and quick views.

    Args:
        watched: events are read.
        per_source, half_open: budgets of zone 0, where not 0.
        sizes: of the table.
    """
    made = tiny.Stage(WORKERS, **sizes)
    kills.cut_store(made.table)
    if per_source:
        made.table.sources = Sources(1)
    if half_open:
        made.table.seats = Seats()
    if watched:
        made.table.events = Events()
        made.table.events.want(EVERYTHING, np.zeros(1, FILTER))  # which means all, and is looked at
    for participant in made.participants:
        if watched:
            made.table.events.enter(participant.me, participant.views)
        for name in ("sources", "source_cells", "seats"):
            participant.views[name] = made.table.views(0)[name]
        keys = tiny.aimed(1, pair=7, skip=participant.me)
        participant.made(keys, None, tiny.LATER)
        participant.remove(keys)
        participant.views = Views(participant.views)
    made.participants[-1].place["intent"]["record"] = 0  # one who has never named a record
    budgets = {name: wanted for name, wanted in (("per_source", per_source), ("half_open", half_open)) if wanted}
    if budgets:
        ZoneSettings(made.table).set(0, budgets)
    return made


class Views:
    """A record of views as the interpreter reads it quickly: each field an attribute."""

    def __init__(self, record):
        self.record = record  # owns the scratch memory
        for name in record.dtype.names:
            value = record[name]
            setattr(self, name, tuple(value) if isinstance(value, np.ndarray) and value.shape else value)

    def __getitem__(self, name):
        return getattr(self, name)


class World(Play):
    """A play with the choices that its programs are drawn from.

    Args:
        choices: (operation, arguments) that a worker may be given.
        segments, records: how many are left; None: all.
        aging: connections expire when the clock jumps.
        now_ms: the moment at which a run begins; None: before anything has expired where connections expire, else NOW.
    """

    def __init__(self, *arguments, choices, segments=None, records=None, aging=False, now_ms=None, **more):
        self.begins_ms = now_ms or (EARLY if aging else NOW)
        super().__init__(*arguments, now_ms=self.begins_ms, **more)
        self.choices = choices
        self.aging = aging
        if aging:
            self.expired = tuple(range(len(self.keys)))
        if segments is not None:
            self._take_segments(segments)
        if records is not None:
            self._take_records(records)
        self.bounds = {}  # limits change, and then a count may be over one
        self.stage.save()

    def begin(self):
        """Put the table and the clock back to how they were."""
        self.stage.restore()
        self.now_ms = self.begins_ms

    def left(self):
        """Say what is there though all zones were flushed and all expectations pruned: nothing should be."""
        table = self.stage.table
        counted = {
            "connections": np.count_nonzero(naive_audit.states(table)),
            "counted": int(tables.totals(table)["count"]) + int(tables.quotas(table)["count"].sum()),
            "segments": np.count_nonzero(tables.segments(table)["owner"]),
            "directories": np.count_nonzero(tables.directory_owners(table)),
            "expectations": int(foretelling.header(table)["count"]),
        }
        return [f"{count} {what} are left where nothing should be" for what, count in counted.items() if count]

    def bring_back(self):
        """Give back what was put aside, so that an audit finds all of it."""
        owners = tables.segments(self.stage.table)["owner"]
        owners[owners == RESERVED] = 0

    def take_away(self):
        """Put it aside again."""
        if hasattr(self, "_reserved"):
            owners = tables.segments(self.stage.table)["owner"]
            owners[self._reserved[owners[self._reserved] == 0]] = RESERVED

    def _take_segments(self, left):
        owners = tables.segments(self.stage.table)["owner"]
        self._reserved = np.flatnonzero(owners == 0)[left:]
        owners[self._reserved] = RESERVED

    def _take_records(self, left):
        """Leave each participant a few records, and one short chain in the pool."""
        table = self.stage.table
        places, entries = roster.participants(table), tables.entries(table)
        pool = tables.pool(table, Slab.ENTRIES)
        spare = []
        for participant in self.stage.participants:
            place = participant.place
            for name in ("front", "back"):
                spare += chain(entries, int(place[name][Slab.ENTRIES]))
                place[name][Slab.ENTRIES] = place[f"{name}_count"][Slab.ENTRIES] = 0
            place["front"][Slab.ENTRIES], place["front_count"][Slab.ENTRIES] = link(entries, spare[:left]), left
            del spare[:left]
        for word in np.flatnonzero(pool):
            spare += chain(entries, int(pool[word]) & 0xFFFFFFFF)
            pool[word] = 0
        pool[0] = 2 << POOL_COUNT_SHIFT | link(entries, spare[:2])
        del spare[:2]
        places[ASIDE]["front"][Slab.ENTRIES] = link(entries, spare)
        places[ASIDE]["front_count"][Slab.ENTRIES] = len(spare)


def chain(entries, first):
    """Return the records of a chain that begins with ``first`` (index + 1)."""
    found = []
    while first:
        found.append(first - 1)
        first = int(entries["next"][first - 1])
    return found


def link(entries, records):
    """Chain records; returns the first, index + 1."""
    for record, following in zip(records, [*records[1:], -1], strict=True):
        assert entries["life"][record] & np.uint64(0xFF) == Life.FREE
        entries["next"][record] = following + 1
    return records[0] + 1 if records else 0


# ------------------------------------------------------------------------------------------------ the worlds
LOOKS = ("find", "refresh")
CHANGES = ("make", "remove", "mark")
PAIRED = [("make", 0), ("make", 1), ("make", 4), ("make", 5)]
PAIRED += [(what, key) for what in ("remove", "mark") for key in (0, 2, 3, 5)]  # keys that one connection only may have
LIMITS = [("limit", 3), ("limit", 1), ("limit", 100), ("limit", None)]


def burst(*keys, commit=True):
    """Return an operation: a burst of datagrams."""
    return ("burst", *((key, commit) for key in keys))


@functools.cache
def roomy():
    """Four keys of one pair of lines, two present, plenty of room; all that an operator may do."""
    choices = on(4, *LOOKS, *CHANGES) + LIST + FLUSH + [("wipe",), ("walk",), ("make", 2, 3), ("make", 3, 2, 0)]
    return World(stage(), tiny.aimed(4), before=(0, 1), choices=choices)


@functools.cache
def brimming():
    """A pair of lines with one slot left: the second insert splits the segment and doubles the directory."""
    made = stage()
    made.participants[0].made(np.concatenate([tiny.aimed(6, prefix="0"), tiny.aimed(6, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0", skip=6), tiny.aimed(3, prefix="1", skip=6)])
    choices = on(6, "find", *CHANGES, "make") + LIST + FLUSH
    return World(made, keys, before=(0, 1, 3), choices=choices)


@functools.cache
def lopsided():
    """A directory of eight entries, four of which name the segment that is about to split: its split is a plain one."""
    made = stage()
    maker = made.participants[0]
    maker.made(tiny.aimed(12, prefix="000", pair=1), None, tiny.LATER)
    maker.made(tiny.aimed(5, prefix="001", pair=1), None, tiny.LATER)  # 17 of one pair: 0 splits three times
    assert tables.depth_of(made.table, 0) == 3
    maker.made(np.concatenate([tiny.aimed(6, prefix="10"), tiny.aimed(6, prefix="11")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="10", skip=6), tiny.aimed(3, prefix="11", skip=6)])
    choices = [*on(6, "find", *CHANGES, "make", "make"), *4 * [("make", 2, 4, 5)], *LIST, ("flush",)]
    return World(made, keys, before=(0, 1, 3), choices=choices)


@functools.cache
def two_keys():
    """Connections with two keys in two segments; an opener of one is the reply of another."""
    made = stage(extension_share=1000)
    maker = made.participants[0]
    maker.made(np.concatenate([tiny.aimed(9, prefix="0", pair=1), tiny.aimed(8, prefix="1", pair=1)]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0"), tiny.aimed(3, prefix="1")])
    choices = PAIRED + on(6, "find", "find_other") + LIST + FLUSH
    return World(made, keys, before=(0,), replies={0: 3, 1: 4, 4: 2, 5: 1}, choices=choices)


@functools.cache
def two_zones():
    """Two zones; the segment that a flush gives back is the next that anybody takes."""
    made = stage()
    keys = np.concatenate([tiny.aimed(3), tiny.aimed(2, zone=1)])
    made.participants[0].made(tiny.aimed(1, pair=6), None, tiny.LATER)
    hint = tables.directory_of(made.table, 0)[0] - 1
    for participant in made.participants:
        participant.place["segment_hint"] = hint
    choices = on(5, "find", "make", "make", "remove") + FLUSH + 2 * [("flush", 1)] + LIST
    choices += [("make", 2, 3), ("make", 4, 3, 0)]
    return World(made, keys, before=(0, 1), choices=choices)


@functools.cache
def ageing():
    """Connections that expire when the clock jumps."""
    choices = [*on(4, "find", "refresh", "mark", "make_short"), *CLOCK, *LIST, ("flush",), ("walk",)]
    choices += [burst(0, 1, 2), burst(1, 2, commit=False), *8 * [("sweep",)]]
    return World(stage(), tiny.aimed(4), before=(0, 1, 2), expired=(0, 1), aging=True, choices=choices)


@functools.cache
def limited():
    """Room for one connection more, and limits that change."""
    choices = [("make", 2, 3), ("make", 3, 2, 0), *on(4, "make", "remove", "mark"), *LIST, *LIMITS, ("flush",)]
    choices += [burst(2, 3), burst(3, 2, 2)]
    made = stage()
    tables.refuse(made.table)  # nobody is driven out
    return World(made, tiny.aimed(4), before=(0, 1), limit=3, choices=choices)


@functools.cache
def few_segments():
    """One segment is left: what a split takes, another misses."""
    made = stage()
    made.participants[0].made(np.concatenate([tiny.aimed(6, prefix="0"), tiny.aimed(6, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0", skip=6), tiny.aimed(2, prefix="1", skip=6), tiny.aimed(2, zone=1)])
    choices = on(7, "find", *CHANGES, "make") + LIST + FLUSH + 2 * [("flush", 1)]
    return World(made, keys, before=(0, 1, 3), segments=1, choices=choices)


@functools.cache
def few_records():
    """One record for each, two in the pool: chains move between lists and the pool."""
    choices = on(5, "make", "remove", "make", "mark") + LIST + FLUSH + [burst(2, 3, 4), ("make", 2, 3, 4)]
    return World(stage(), tiny.aimed(5), before=(0,), records=1, choices=choices)


@functools.cache
def full_lists():
    """Lists of free records that are about to go to the pool."""
    made = stage()
    for participant in made.participants:
        keys = tables.keys(BLOCK_RECORDS + 3, first=10_000 * participant.me)
        participant.made(keys, None, tiny.LATER)
        participant.remove(keys)
    choices = on(6, "make", "remove", "remove") + LIST + FLUSH
    return World(made, tiny.aimed(6), before=(0, 1, 2), choices=choices)


@functools.cache
def bursts():
    """Bursts of datagrams where the second insert splits."""
    packets = [("burst", *((key, commit) for key in keys)) for keys in BURSTS for commit in (False, True)]
    made = stage()
    made.participants[0].made(np.concatenate([tiny.aimed(6, prefix="0"), tiny.aimed(6, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0", skip=6), tiny.aimed(3, prefix="1", skip=6)])
    choices = packets + on(6, "mark", "make") + FLUSH + LIST
    return World(made, keys, before=(0, 1, 3), choices=choices)


BURSTS = ((0, 4), (4, 4, 5), (1, 2, 1), (3, 5, 3, 4), (2, 2))


@functools.cache
def segments():
    """TCP: connections that were reset are deleted by a SYN and made anew."""
    play = World(stage(), tiny.aimed(3, protocol=datagrams.TCP), choices=[])
    opened = [(key, *how) for key in (0, 1) for how in (("S",), ("SA", True), ("A",))]
    play.prepare(lambda worker: worker.segments(*opened))
    choices = [
        ("segments", (key, *how)) for key in (0, 1, 2) for how in (("S",), ("S",), ("RA",), ("A",), ("SA", True))
    ]
    choices += [("segments", (0, "RA"), (0, "S"), (1, "S")), *on(3, "mark"), ("flush",), *LIST]
    play.choices = choices
    return play


@functools.cache
def conversations():
    """TCP in Ethernet: what opens, carries on and resets connections goes the short ways, and now and then the whole way."""
    play = World(stage(), tiny.aimed(4, protocol=datagrams.TCP), aging=True, choices=[])
    handshake = [(True, *how) for how in (("S",), ("SA", True), ("A",))]
    play.prepare(
        lambda worker: worker.converse(*((key, *how) for key in (0, 1) for how in handshake), (2, *handshake[0]))
    )
    data = [("A", False, 0, 0, 100), ("A", True, 0, 100, 60), ("A", False, 100, 60), ("A", True, 60, 100)]
    odd = [("A", False, 100, 60, 100), ("A", True, 60, 200), ("A", False, 1 << 20), ("FA", False, 100, 60)]
    resets = [("RA",), ("RA", True), ("RA", False, 100, 60), ("RA", True, 60, 100), ("R", False, 100)]
    said = [(True, *how) for how in (*data, *data, *odd, *resets)]
    choices = [("converse", (key, *how)) for key in range(4) for how in (*handshake, *said, (False, "S"))]
    choices += 6 * [("converse", *((key, *how) for how in handshake)) for key in range(4)]
    choices += 6 * [("converse", *((key, True, *how) for how in data)) for key in range(3)]
    choices += 6 * [("converse", (0, True, *data[0]), (1, True, *data[1]), (3, False, "S"), (2, *handshake[1]))]
    rest = [*on(4, "find", "remove", "mark"), *3 * [("sweep",)], ("flush",), ("walk",), *CLOCK, *LIST]
    play.choices = choices + 3 * rest
    return play


@functools.cache
def foretold():
    """Connections that foretell others, which come, are replaced, and go stale with their parents."""
    choices = [
        *on(6, "foretell", "claim"),
        *on(2, "call"),
        *3 * [("prune",)],
        *on(2, "find", "remove", "make"),
        *LIST,
        ("flush",),
    ]
    return World(stage(), tiny.aimed(2), before=(0, 1), choices=choices)


@functools.cache
def crowded():
    """A full zone whose connections drive each other out."""
    made = stage()
    choices = [("crowd", (key, True)) for key in range(5)] + [("crowd", (2, True), (3, True), (4, True))]
    choices += [*on(5, "find", "remove"), *LIST, ("flush",)]
    return World(made, tiny.aimed(5), before=(0, 1), limit=2, choices=choices)


@functools.cache
def pressed():
    """A full zone of which some have expired: sweeps, inserts, early drop and flushes beside each other, and it shrinks."""
    choices = [("crowd", (key, True)) for key in range(5)] + [("crowd", (2, True), (3, True), (4, True))]
    choices += [*on(5, "find", "mark"), *3 * [("sweep",), ("flush",)], *CLOCK, *LIST, ("shrink",)]
    return World(stage(), tiny.aimed(5), before=(0, 1, 2), expired=(0, 1), aging=True, limit=3, choices=choices)


@functools.cache
def labelled():
    """Connections that get labels, when they are made and later, where extensions are few."""
    made = stage(extension_share=1000)
    choices = [("label", (key, True)) for key in range(4)] + [("label", (key, False)) for key in range(4)]
    choices += [("label", (1, True), (2, True), (1, False)), *on(4, "mark", "remove"), *LIST, ("flush",), burst(0, 3)]
    return World(made, tiny.aimed(4), before=(0, 1), choices=choices)


@functools.cache
def translated():
    """Connections that get another source, with fewer ports than connections: two keys, chosen again on a clash."""
    choices = [("translate", (key, True)) for key in range(5)] + [("translate", (key, False)) for key in range(5)]
    choices += [("translate", (1, True), (2, True), (3, True)), *on(5, "mark"), *LIST, ("flush",)]
    return World(stage(extension_share=1000), tiny.aimed(5), choices=choices)


@functools.cache
def watched():
    """Somebody reads what happens to connections, so everybody writes it."""
    choices = [*on(4, *CHANGES, "make"), *LIST, *FLUSH, burst(0, 1, 2), burst(3, 2), *3 * [("hear",), ("tally",)]]
    return World(stage(watched=True), tiny.aimed(4), before=(0, 1, 2), choices=choices)


@functools.cache
def fragmentary():
    """Fragments of three datagrams, which come through different workers, again, overlapping, too late, or never all."""
    each = [("pieces", (datagram, piece)) for datagram in range(3) for piece in range(3)]
    choices = [*2 * each, ("pieces", (0, 2), (0, 1), (0, 0)), ("pieces", (1, 0), (2, 1)), ("pieces", (0, 3))]
    choices += [*6 * [("collect",)], ("give_up",), ("jump", DAY), *on(2, "make", "remove"), ("flush",), *LIST]
    return World(stage(), tiny.aimed(2), before=(0,), choices=choices)


def _crowd_and_leave(maker):
    """Split the index into four segments by a full pair of lines in each, of which one connection stays."""
    crowd = [tiny.aimed(9, prefix=prefix, pair=1) for prefix in ("00", "01", "10", "11")]
    for few in crowd:
        maker.made(few, None, tiny.LATER)
    for few in crowd:
        maker.remove(few[1:])


@functools.cache
def shrinking():
    """Four segments whose pair of lines was full and is nearly empty now; what comes may split them again."""
    made = stage(extension_share=1000)
    maker = made.participants[0]
    _crowd_and_leave(maker)
    assert tables.shape(made.table, 0) == (2, [2, 2, 2, 2])
    keys = np.concatenate([tiny.aimed(2, prefix="0"), tiny.aimed(2, prefix="10"), tiny.aimed(2, prefix="11")])
    choices = [*on(6, "find"), *on(4, "make", "remove", "mark"), *LIST, ("flush",)]
    choices += 10 * [("shrink",)]
    return World(made, keys, before=(0, 2), replies={0: 4, 1: 5}, choices=choices)


@functools.cache
def shrunk():
    """A directory of two entries with a segment each, some of whose lines are full: what is merged splits again at once."""
    made = stage()
    maker = made.participants[0]
    maker.made(np.concatenate([tiny.aimed(9, prefix="0", pair=1), tiny.aimed(8, prefix="1", pair=1)]), None, tiny.LATER)
    maker.remove(np.concatenate([tiny.aimed(9, prefix="0", pair=1), tiny.aimed(8, prefix="1", pair=1)]))
    maker.made(np.concatenate([tiny.aimed(5, prefix="0"), tiny.aimed(6, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0", skip=5), tiny.aimed(3, prefix="1", skip=6)])
    choices = [*on(6, "find", *CHANGES, "make"), *LIST, ("flush",), *6 * [("shrink",)], ("make", 0, 1, 2, 3, 4, 5)]
    return World(made, keys, before=(1,), choices=choices)


@functools.cache
def wanting():
    """No segment is left, a pair of lines has one slot left, and elsewhere two segments would fit into one."""
    made = stage()
    maker = made.participants[0]
    _crowd_and_leave(maker)
    maker.made(np.concatenate([tiny.aimed(8, prefix="000"), tiny.aimed(7, prefix="001")]), None, tiny.LATER)
    keys = np.concatenate(
        [tiny.aimed(2, prefix="000", skip=8), tiny.aimed(2, prefix="001", skip=7), tiny.aimed(1, prefix="11")]
    )
    packets = [burst(*few) for few in ((0, 2), (1, 3, 0), (2,), (3, 4, 1), (0, 1, 2, 3))]
    choices = [*6 * packets, *on(5, "find", "mark", "remove"), *LIST, ("flush",), ("shrink",)]
    return World(made, keys, before=(4,), segments=0, choices=choices)


@functools.cache
def emptying():
    """A zone in which there is nothing, or nearly so: its last segment goes back, and who comes needs one."""
    keys = np.concatenate([tiny.aimed(2), tiny.aimed(2, zone=1)])
    choices = [*on(4, *CHANGES, "make", "remove"), *LIST, ("flush",), ("flush", 1)]
    choices += [*4 * [("shrink",), ("shrink", 1)], burst(0, 2), burst(3)]
    made = stage()
    participant = made.participants[0]
    participant.remove(np.concatenate([tiny.aimed(1, pair=7, skip=one.me) for one in made.participants]))
    return World(made, keys, choices=choices)


@functools.cache
def sourced():
    """Keys of one source, which may have two connections; those that were there before the budget are not counted."""
    made = stage(per_source=2)
    keys = tiny.aimed(5)
    choices = [*on(5, *CHANGES, "make"), *LIST, *FLUSH, burst(0, 1, 2), burst(3, 4, 3), ("make", 2, 3), ("make", 4, 1)]
    return World(made, keys, choices=choices)


@functools.cache
def seated():
    """Two seats for connections that have seen no reply; who comes drives out another, or is refused."""
    packets = [((key, True),) for key in range(4)] + [((0, True), (1, True), (2, True)), ((3, True), (2, True))]
    choices = [*on(4, "find", "mark"), *LIST, *FLUSH, *2 * [("crowd", *few) for few in packets]]
    return World(stage(half_open=2), tiny.aimed(4), choices=choices)


WORLDS = {
    world.__name__: world
    for world in (
        *(roomy, brimming, lopsided, two_keys, two_zones, ageing, limited),
        *(
            few_segments,
            few_records,
            full_lists,
            bursts,
            segments,
            conversations,
            foretold,
            crowded,
            pressed,
            labelled,
            translated,
            watched,
            fragmentary,
            sourced,
            seated,
            shrinking,
            shrunk,
            wanting,
            emptying,
        ),
    )
}
DRAWN = tuple(WORLDS)
"""Worlds of seeds, which take turns; more may be registered for cases that are enumerated."""
SHORT_MS = SHORT
