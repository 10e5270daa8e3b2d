"""A table with something of everything, and every way to break it that the audit must name."""

import ctypes

import foretelling
import numpy as np
import tables
from hashing import hash_keys
from tables import Participant
from zonetrack.kernels import entries
from zonetrack.kernels.audit import Finding
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    CHAINS,
    DATAGRAM,
    DUE_UNIT_MS,
    EXPECTATION,
    EXPECTATIONS_MAX,
    FRAGMENT,
    FRAGMENT_HOLDER_SHIFT,
    FRAGMENTS_MAX,
    HOLDER,
    LINE_SLOTS,
    POOL_COUNT_SHIFT,
    STORE,
    USED,
    ZONES_MAX,
    Assembly,
    Kind,
    Life,
    Region,
    Slab,
    Wait,
)

ENTRIES, EXTENSIONS = Slab.ENTRIES, Slab.EXTENSIONS
SPLIT, PAIRED, SINGLE, EMPTIED = 1, 2, 3, 4
"""Zones of the scene: of many segments, of connections with two keys, of one connection, of none any more."""
HALF = np.uint64(32)


class Scene:
    """A table with something of everything, put back to how it was before each test."""

    def __init__(self):
        self.table = tables.small(1000, zones=6, extension_share=256)
        self.me = Participant(self.table)
        self.auditor = Participant(self.table, Kind.TOOL)
        self.me.made(tables.keys(300, zone=SPLIT))
        self.paired = self.me.made(tables.keys(3, zone=PAIRED), tables.keys(3, zone=PAIRED, low=2))
        [self.single] = self.me.made(tables.keys(1, zone=SINGLE)).astype("i8")
        self.me.made(tables.keys(1, zone=EMPTIED))
        self.free = int(self.me.remove(tables.keys(1, zone=EMPTIED))[0])
        self.saved = {region: bytes(buffer) for region, buffer in self.table.regions.items()}

    def restore(self):
        for region, content in self.saved.items():
            ctypes.memmove(self.table.base[region], content, len(content))

    @property
    def directory(self):
        """The directory of the zone with many segments."""
        return tables.directory_of(self.table, SPLIT)

    @property
    def entries(self):
        return tables.entries(self.table)

    def segment(self, zone):
        """The one segment of a small zone."""
        return int(tables.directory_of(self.table, zone)[0]) - 1

    def slot_of(self, record, low=1):
        """Where a slot of a record is: segment, number in it, and the slots of the segment."""
        segment, place = np.argwhere(tables.slots(self.table) % np.uint64(2**32) == record + 1)[low - 1]
        return int(segment), int(place), tables.slots(self.table)[segment]

    def whole(self, depth):
        """Return the first entry that names a segment as deep as the directory, or one less deep."""
        depths = tables.segments(self.table)["depth"][self.directory.astype("i8") - 1]
        return int(np.flatnonzero(depths == tables.depth_of(self.table, SPLIT) - depth)[0])


# ------------------------------------------------------------------------------------------------ faults
FAULTS = {}
"""What plants a fault and says the three numbers to be found, by name: Finding and variant."""


def fault(finding, variant="", live=False):
    """Register a way to break the table; ``live``: it is found beside others too."""

    def register(plant):
        FAULTS[f"{finding.name} {variant}".strip()] = (finding, plant, live)
        return plant

    return register


@fault(Finding.LOCK_HELD, "record")
def _(scene):
    scene.entries["lock"][9] = 7
    return 0, 9, 7


@fault(Finding.LOCK_HELD, "segment")
def _(scene):
    tables.segments(scene.table)["lock"][3] = 7
    return 1, 3, 7


@fault(Finding.LOCK_HELD, "zone")
def _(scene):
    tables.quotas(scene.table)["zone_lock"][SPLIT] = 7
    return 2, SPLIT, 7


@fault(Finding.LOCK_HELD, "count")
def _(scene):
    tables.quotas(scene.table)["count_lock"][tables.ZONES - 1] = 7
    return 2, tables.ZONES - 1, 7


@fault(Finding.LOCK_HELD, "total")
def _(scene):
    tables.totals(scene.table)["count_lock"] = 7
    return 3, 0, 7


@fault(Finding.LOCK_HELD, "expectations")
def _(scene):
    foretelling.header(scene.table)["lock"] = 7
    return 4, 0, 7


@fault(Finding.CREDIT)
def _(scene):
    scene.me.place["intent"]["credit"] = 3
    return scene.me.me, 3, 0


# directories and segments
def _word(scene, zone, depth, offset):
    words = tables.zones(scene.table)["word"]
    version = tables.version_of(scene.table, zone)
    words[zone] = version << tables.ZONE_VERSION_SHIFT | depth << tables.ZONE_OFFSET_BITS | offset
    return zone, offset, depth


@fault(Finding.DIRECTORY_OUTSIDE, "of another depth", live=True)
def _(scene):
    return _word(scene, SINGLE, 0, scene.table.geometry.directory_offset[1])


@fault(Finding.DIRECTORY_OUTSIDE, "in the middle of one", live=True)
def _(scene):
    return _word(scene, SPLIT, 2, scene.table.geometry.directory_offset[2] + 2)


@fault(Finding.DIRECTORY_OUTSIDE, "impossible depth", live=True)
def _(scene):
    return _word(scene, SPLIT, 31, 64)


@fault(Finding.DIRECTORY_OUTSIDE, "beyond the end", live=True)
def _(scene):
    return _word(scene, SPLIT, 0, 2**tables.ZONE_OFFSET_BITS - 1)


@fault(Finding.DIRECTORY_OWNER)
def _(scene):
    number = tables.directory_number(scene.table, SPLIT)
    tables.directory_owners(scene.table)[number] = scene.me.me
    depth = tables.depth_of(scene.table, SPLIT)
    geometry = scene.table.geometry
    return SPLIT, geometry.directory_offset[depth] + (number - geometry.directory_first[depth] << depth), scene.me.me


@fault(Finding.ENTRY_OUTSIDE, "0")
def _(scene):
    scene.directory[2] = 0
    return SPLIT, 2, 0


@fault(Finding.ENTRY_OUTSIDE, "too high")
def _(scene):
    scene.directory[0] = scene.table.geometry.segments + 1
    return SPLIT, 0, scene.table.geometry.segments + 1


@fault(Finding.SEGMENT_OWNER)
def _(scene):
    segment = int(scene.directory[0]) - 1
    tables.segments(scene.table)["owner"][segment] = 5
    return segment, 5, SPLIT


@fault(Finding.SEGMENT_DEPTH)
def _(scene):
    segment = scene.segment(SINGLE)
    tables.segments(scene.table)["depth"][segment] = 1
    return segment, 1, SINGLE


@fault(Finding.SEGMENT_SPAN, "named too seldom")
def _(scene):
    entry = scene.whole(1)
    scene.directory[entry + 1] = scene.directory[scene.whole(0)]
    return int(scene.directory[entry]) - 1, entry + 1, SPLIT


@fault(Finding.SEGMENT_SPAN, "begins in the middle")
def _(scene):
    entry = scene.whole(0) | 1
    segment = int(scene.directory[entry]) - 1
    tables.segments(scene.table)["depth"][segment] -= 1
    return segment, entry, SPLIT


@fault(Finding.SEGMENT_SHARED, "by two zones")
def _(scene):
    segment = scene.segment(PAIRED)
    tables.directory_of(scene.table, SINGLE)[0] = segment + 1
    return segment, SINGLE, 0


@fault(Finding.SEGMENT_SHARED, "in one directory")
def _(scene):
    first = scene.whole(0)
    depths = tables.segments(scene.table)["depth"][scene.directory.astype("i8") - 1]
    other = int(np.flatnonzero(depths == depths[first])[-1])
    assert other > first
    scene.directory[other] = scene.directory[first]
    return int(scene.directory[first]) - 1, SPLIT, 0


@fault(Finding.SEGMENT_LOST)
def _(scene):
    [segment, *_] = np.flatnonzero(tables.segments(scene.table)["owner"] == 0)
    tables.segments(scene.table)["owner"][segment] = scene.me.me
    return int(segment), scene.me.me, 0


@fault(Finding.SEGMENT_LOST, "of a zone without a directory")
def _(scene):
    segment = scene.segment(EMPTIED)
    tables.directory_owners(scene.table)[tables.directory_number(scene.table, EMPTIED)] = 0
    tables.zones(scene.table)["word"][EMPTIED] = 0
    return segment, USED, 0


@fault(Finding.SEGMENT_DIRTY)
def _(scene):
    [segment, *_] = np.flatnonzero(tables.segments(scene.table)["owner"] == 0)
    tables.slots(scene.table)[segment, 77] = 1
    return int(segment), 77, 0


@fault(Finding.DIRECTORY_LOST)
def _(scene):
    number = len(tables.directory_owners(scene.table)) - 1
    tables.directory_owners(scene.table)[number] = USED
    return number, USED, 0


# slots
@fault(Finding.SLOT_OUTSIDE, "no record", live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.single)
    slots[place] = slots[place] >> HALF << HALF
    return segment, place, 2**64 - 1


@fault(Finding.SLOT_OUTSIDE, "beyond the slab", live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.single)
    beyond = scene.table.geometry.records(ENTRIES)
    slots[place] = slots[place] >> HALF << HALF | np.uint64(beyond + 1)
    return segment, place, beyond


@fault(Finding.SLOT_FREE, live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.single)
    slots[place] = slots[place] >> HALF << HALF | np.uint64(scene.free + 1)
    return segment, place, scene.free


@fault(Finding.SLOT_TAG, "of no key of the record", live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.single)
    slots[place] ^= np.uint64(1 << 63)
    return segment, place, scene.single


@fault(Finding.SLOT_TAG, "of no key of a record with two", live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.paired[0])
    slots[place] ^= np.uint64(1 << 40)
    return segment, place, int(scene.paired[0])


@fault(Finding.SLOT_TAG, "in another pair of lines", live=True)
def _(scene):
    segment, place, slots = scene.slot_of(scene.single)
    other = (place + 2 * LINE_SLOTS) % len(slots)
    slots[other], slots[place] = slots[place], 0
    return segment, other, scene.single


@fault(Finding.SLOT_PREFIX, live=True)
def _(scene):
    segment = int(scene.directory[-1]) - 1
    slots = tables.slots(scene.table)
    other = int(scene.directory[0]) - 1
    [place, *_] = np.flatnonzero((slots[segment] != 0) & (slots[other] == 0))
    slots[other, place], slots[segment, place] = slots[segment, place], 0
    return other, int(place), int(slots[other, place] % np.uint64(2**32)) - 1


@fault(Finding.DUPLICATE, live=True)
def _(scene):
    key = tables.keys(1, zone=SINGLE)
    scene.me.mark(key)
    [other] = scene.me.made(key)
    scene.entries["life"][scene.single] = 1 << 32 | Life.LIVE
    first, second = sorted((scene.single, int(other)), key=lambda record: scene.slot_of(record)[1])
    return first, second, SINGLE


@fault(Finding.DUPLICATE, "of a reply key", live=True)
def _(scene):
    record, reply = int(scene.paired[1]), tables.keys(3, zone=PAIRED, low=2)[1]
    scene.me.mark(reply)
    [other] = scene.me.made(reply)
    scene.entries["life"][record] = 1 << 32 | Life.LIVE
    _, place, slots = scene.slot_of(other)
    tag = slots[place] >> HALF
    [mine] = np.flatnonzero(slots == (tag << HALF | np.uint64(record + 1)))
    first, second = (record, int(other)) if mine < place else (int(other), record)
    return first, second, PAIRED


@fault(Finding.SLOTS_MISSING)
def _(scene):
    _, place, slots = scene.slot_of(scene.single)
    slots[place] = 0
    return scene.single, 0, 1


@fault(Finding.SLOTS_MISSING, "of two keys")
def _(scene):
    record = int(scene.paired[2])
    _, place, slots = scene.slot_of(record, low=2)
    slots[place] = 0
    return record, 1, 2


@fault(Finding.SLOTS_MISSING, "one too many")
def _(scene):
    _, place, slots = scene.slot_of(scene.single)
    slots[place ^ 1] = slots[place]
    return scene.single, 2, 1


# records
@fault(Finding.RECORD_UNFINISHED, "new")
def _(scene):
    record = int(entries.take(scene.me.views))
    return record, Life.NEW, scene.me.me


@fault(Finding.RECORD_UNFINISHED, "dead")
def _(scene):
    scene.auditor.mark(tables.keys(1, zone=SINGLE))
    return scene.single, Life.DEAD, scene.auditor.me


@fault(Finding.HINT, "of a free record")
def _(scene):
    tables.due(scene.table)[scene.free] = 4
    return scene.free, 4, 0


@fault(Finding.HINT, "missing")
def _(scene):
    tables.due(scene.table)[scene.single] = scene.entries["hint"][scene.single] = 0
    return scene.single, 0, tables.LATER // DUE_UNIT_MS


@fault(Finding.HINT, "later than the expiry")
def _(scene):
    scene.entries["expiry_ms"][scene.single] = 99 * DUE_UNIT_MS
    return scene.single, tables.LATER // DUE_UNIT_MS, 99


@fault(Finding.HINT, "not what the record says")
def _(scene):
    tables.due(scene.table)[scene.single] -= 1
    return scene.single, tables.LATER // DUE_UNIT_MS - 1, tables.LATER // DUE_UNIT_MS


# counts
@fault(Finding.ZONE_COUNT, "too high")
def _(scene):
    tables.quotas(scene.table)["count"][PAIRED] += 1
    return PAIRED, 4, 3


@fault(Finding.ZONE_COUNT, "of a zone that is empty")
def _(scene):
    tables.quotas(scene.table)["count"][tables.ZONES - 1] = 1
    return tables.ZONES - 1, 1, 0


@fault(Finding.GLOBAL_COUNT)
def _(scene):
    tables.totals(scene.table)["count"] -= 1
    return 303, 304, 0


# free lists
def _chain(scene, slab=ENTRIES):
    """Return the number of a word of the pool that has a chain, and its first record."""
    pool = tables.pool(scene.table, slab)
    word = int(np.flatnonzero(pool)[0])
    return pool, word, int(pool[word]) % 2**32 - 1


@fault(Finding.LIST, "on two")
def _(scene):
    pool, word, first = _chain(scene)
    [empty, *_] = np.flatnonzero(pool == 0)
    pool[empty] = pool[word]
    return ENTRIES, first, max(empty, word)


@fault(Finding.LIST, "in a circle")
def _(scene):
    _, word, first = _chain(scene)
    scene.entries["next"][first + 5] = first + 1
    return ENTRIES, first, word


@fault(Finding.LIST, "of no record")
def _(scene):
    scene.entries["next"][scene.free] = 2**31
    return ENTRIES, 2**31 - 1, scene.me.me


@fault(Finding.LIST, "of one that is not free")
def _(scene):
    place = scene.auditor.place
    place["back"][ENTRIES], place["back_count"][ENTRIES] = scene.single + 1, 1
    return ENTRIES, scene.single, scene.auditor.me


@fault(Finding.LIST, "extension of two records")
def _(scene):
    scene.entries["extension"][scene.single] = scene.entries["extension"][int(scene.paired[0])]
    tables.extensions(scene.table)["reply_key"][:, 4] = 0  # no second key, so that nothing else is wrong
    slots = tables.slots(scene.table)[scene.segment(PAIRED)]
    for record in scene.paired:
        key = scene.entries["key"][int(record)]
        tag = hash_keys(tables.SECRET, key)[0] >> HALF
        slots[(slots % np.uint64(2**32) == record + 1) & (slots >> HALF != tag)] = 0
    extension = int(scene.entries["extension"][scene.single]) - 1
    return EXTENSIONS, extension, max(scene.single, int(scene.paired[0]))


@fault(Finding.LIST, "extension that is none", live=True)
def _(scene):
    scene.entries["extension"][scene.single] = 2**31
    return EXTENSIONS, 2**31 - 1, scene.single


@fault(Finding.LIST_COUNT, "of a participant")
def _(scene):
    scene.me.place["front_count"][ENTRIES] += 1
    return ENTRIES, scene.me.me, int(scene.me.place["front_count"][ENTRIES])


@fault(Finding.LIST_COUNT, "in the pool")
def _(scene):
    pool, word, _ = _chain(scene, EXTENSIONS)
    pool[word] -= np.uint64(1 << POOL_COUNT_SHIFT)
    return EXTENSIONS, word, BLOCK_RECORDS - 1


@fault(Finding.LOST, "chain")
def _(scene):
    pool, word, first = _chain(scene)
    pool[word] = 0
    return ENTRIES, first, 0


@fault(Finding.LOST, "end of a list")
def _(scene):
    pool, word, first = _chain(scene, ENTRIES)
    scene.entries["next"][first + 9] = 0
    pool[word] = 10 << POOL_COUNT_SHIFT | first + 1
    return ENTRIES, first + 10, 0


@fault(Finding.LOST, "extension")
def _(scene):
    extension = int(scene.entries["extension"][int(scene.paired[0])]) - 1
    scene.entries["extension"][int(scene.paired[0])] = 0
    slots = tables.slots(scene.table)[scene.segment(PAIRED)]
    tag = hash_keys(tables.SECRET, scene.entries["key"][int(scene.paired[0])])[0] >> HALF
    slots[(slots % np.uint64(2**32) == scene.paired[0] + 1) & (slots >> HALF != tag)] = 0
    return EXTENSIONS, extension, 0


# expectations
def _foretold(scene):
    """Return the two expectations there are made, their indices, and the words of all chains, by destination and parent."""
    parent = foretelling.parent_of(scene.me, tables.keys(1, zone=SINGLE))
    for port in (1, 2):
        foretelling.add(scene.me, parent, foretelling.Wanted(port=port, zone=SINGLE))
    records = scene.table.array(Region.CONTROL, "expectations", EXPECTATION)
    chains = scene.table.array(Region.CONTROL, "expectation_chains", "u4").reshape(2, CHAINS)
    return records, np.flatnonzero(records["flags"]).tolist(), chains


@fault(Finding.EXPECTATION_CHAIN, "not in use")
def _(scene):
    records, (first, _), chains = _foretold(scene)
    records["flags"][first] = 0
    return first, np.flatnonzero(chains[0] == first + 1)[0], 0


@fault(Finding.EXPECTATION_CHAIN, "wrong")
def _(scene):
    records, (first, second), chains = _foretold(scene)
    [chain] = np.flatnonzero(chains[0] == second + 1)
    records["next"][second, 0] = first + 1
    chains[0][chains[0] == first + 1] = 0
    return first, chain, 0


@fault(Finding.EXPECTATION_CHAIN, "outside")
def _(scene):
    chains = _foretold(scene)[2]
    [chain] = np.flatnonzero(chains[1])
    chains[1][chain] = EXPECTATIONS_MAX + 1
    return EXPECTATIONS_MAX, chain, 1


@fault(Finding.EXPECTATION_LOST)
def _(scene):
    _, (first, _), chains = _foretold(scene)
    chains[0][chains[0] == first + 1] = 0
    return first, 2, 0


@fault(Finding.EXPECTATION_COUNT, "all")
def _(scene):
    _foretold(scene)
    foretelling.header(scene.table)["count"] = 3
    return ZONES_MAX, 3, 2


@fault(Finding.EXPECTATION_COUNT, "zone")
def _(scene):
    _foretold(scene)
    tables.zones(scene.table)["expectations"][SPLIT] = 1
    return SPLIT, 1, 0


# ------------------------------------------------------------------------------------------------ fragments
def _store(scene):
    """Return the store, its fragments and its datagrams."""
    array = scene.table.array
    return (
        array(Region.FRAGMENTS, "store", STORE),
        array(Region.FRAGMENTS, "fragments", FRAGMENT),
        array(Region.FRAGMENTS, "datagrams", DATAGRAM),
    )


@fault(Finding.LOCK_HELD, "fragments")
def _(scene):
    _store(scene)[0]["lock"] = 9
    return 5, 0, 9


@fault(Finding.FRAGMENT_LIST, "state")
def _(scene):
    _store(scene)[1]["word"][7] = 1 << FRAGMENT_HOLDER_SHIFT | Wait.HELD
    return 7, 0, Wait.FREE


@fault(Finding.FRAGMENT_LIST, "outside")
def _(scene):
    _store(scene)[1]["next"][7] = FRAGMENTS_MAX + 5
    return FRAGMENTS_MAX + 4, 0, Wait.FREE


@fault(Finding.FRAGMENT_LIST, "holder")
def _(scene):
    scene.table.array(Region.FRAGMENTS, "holders", HOLDER)["ready"][3] = 8
    return 7, 2, Wait.READY


@fault(Finding.FRAGMENT_COUNT, "all")
def _(scene):
    _store(scene)[0]["count"] = 3
    return 0, 3, 0


@fault(Finding.FRAGMENT_COUNT, "holder")
def _(scene):
    scene.table.array(Region.FRAGMENTS, "holders", HOLDER)["held"][3] = 2
    return 4, 2, 0


@fault(Finding.FRAGMENT_LOST)
def _(scene):
    _store(scene)[1]["next"][FRAGMENTS_MAX - 2] = 0
    return FRAGMENTS_MAX - 1, 0, 0


@fault(Finding.DATAGRAM_LOST, "bucket")
def _(scene):
    _store(scene)[2]["state"][5] = Assembly.OPEN
    return 5, Assembly.OPEN, 0


@fault(Finding.DATAGRAM_LOST, "free")
def _(scene):
    _store(scene)[2]["next"][FRAGMENTS_MAX - 2] = 0
    return 1, Assembly.FREE, 0
