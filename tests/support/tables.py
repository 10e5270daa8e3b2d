"""Small tables for tests of kernels: participants that speak of keys, faults to look for, the audit at every end."""

import contextlib

import numpy as np
import operations
from operations import Operation
from zonetrack.kernels import audit as audit_kernel
from zonetrack.kernels import delete_list, flush, shrink, sweep
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.service import audit
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import (
    DELETE,
    DELETE_LIST_MAX,
    ENTRY,
    EXTENSION,
    GLOBAL,
    NO_RECORD,
    QUOTA,
    SEGMENT,
    SLOTS,
    STEP_BITS,
    ZONE,
    ZONE_DEPTH_BITS,
    ZONE_OFFSET_BITS,
    ZONE_VERSION_SHIFT,
    ZONES_MAX,
    Kind,
    Region,
    Setting,
    Slab,
    Step,
)
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

SECRET = bytes(range(1, 33))
"""Hashes are the same in each run, so a test that aims keys at a line finds them."""
NONE = NO_RECORD
BUSY = NO_RECORD - 1
FULL_LIST = DELETE_LIST_MAX - int(delete_list.ROOM_NEEDED) + 1
"""Lines with which a delete list has no room for what one packet may need."""
LATER = 1 << 35
"""An expiry that no test reaches."""
ZONES = ZONES_MAX if JIT else 1024
"""Zones that an audit looks at: the interpreter would take seconds for all, so tests stay below."""


def small(connections=2000, zones=8, extension_share=125, secret=SECRET):
    """Return a new table."""
    return segment.anonymous(Geometry(connections, zones, extension_share), secret=secret)


def refuse(table):
    """Have limits refuse new connections in every zone, as ``on_full=reject`` does, so that nobody is driven out."""
    zones(table)["settings"] &= 0xFFFF & ~int(Setting.EARLY_DROP)


def keys(count, zone=0, first=1, low=1):
    """Return ``count`` different keys of a zone, u64[count, 5]; ``low`` and ``first`` keep sets of them apart."""
    made = np.zeros((count, 5), "u8")
    made[:, 1] = low
    made[:, 3] = np.arange(first, first + count)
    made[:, 4] = zone << 16 | 17 << 8 | 4
    return made


class Participant:
    """One who works on a table: kernels by key and by array, and what stands in its place on the roster."""

    def __init__(self, table, kind=Kind.WORKER):
        self.table = table
        self.me = roster.join(table, kind)
        self.views = table.views(self.me)

    def many(self, operation, keys, reply_keys=None, expiry_ms=LATER, wanted=1):
        """Do an operation with each key; returns u64[n]."""
        keys = np.ascontiguousarray(keys, "u8").reshape(-1, 5)
        replies = None if reply_keys is None else np.ascontiguousarray(reply_keys, "u8").reshape(-1, 5)
        results = np.zeros(len(keys), "u8")
        operations.many(
            self.views,
            u64(operation),
            operations.at(keys),
            operations.at(replies),
            u64(len(keys)),
            u64(expiry_ms),
            u64(wanted),
            operations.at(results),
        )
        return results

    def make(self, keys, reply_keys=None, expiry_ms=LATER, wanted=1):
        """Make connections; returns the Reason of each and the record of each."""
        results = self.many(Operation.MAKE, keys, reply_keys, expiry_ms, wanted)
        return results >> u64(32), results & u64(NO_RECORD)

    def made(self, keys, reply_keys=None, expiry_ms=LATER, wanted=1):
        """Make connections, all of which must succeed; returns their records."""
        reasons, records = self.make(keys, reply_keys, expiry_ms, wanted)
        assert set(reasons.tolist()) <= {Reason.NONE}, {Reason(int(reason)).name for reason in reasons}
        return records

    def make_one(self, key, reply_key=None, expiry_ms=LATER):
        """Make one connection; returns its Reason."""
        return Reason(int(self.make(key, reply_key, expiry_ms)[0][0]))

    def find(self, keys):
        """Return the record of each key, NONE or BUSY."""
        return self.many(Operation.FIND, keys)

    def refresh(self, keys, expiry_ms):
        """Set the expiry of the connections of keys; returns their records."""
        return self.many(Operation.REFRESH, keys, expiry_ms=expiry_ms)

    def mark(self, keys):
        """Put the connections of keys on the own delete list; returns their records."""
        return self.many(Operation.MARK, keys)

    def mark_unasked(self, keys):
        """Put the connections of keys on the own delete list even if it is crowded; all of them exist."""
        keys = np.ascontiguousarray(keys, "u8").reshape(-1, 5)
        operations.mark_unasked(self.views, operations.at(keys), u64(len(keys)))

    def remove(self, keys):
        """Delete the connections of keys; returns their records."""
        return self.many(Operation.REMOVE, keys)

    def delete(self, record, key=None, incarnation=1):
        """Delete a record found some time ago, if it still is what it was; whether this call did."""
        key = None if key is None else np.ascontiguousarray(key, "u8")
        did = bool(delete_list.delete(self.views, u64(record), operations.at(key), u64(incarnation)))
        assert self.step is Step.NONE
        return did

    def run(self):
        """Run the own delete list; returns the lines that are left."""
        left = int(delete_list.run(self.views))
        assert self.step is Step.NONE
        return left

    def sweep(self, now_ms, budget=1 << 30):
        """Sweep; returns how many went to the delete list."""
        swept = int(sweep.sweep(self.views, u64(now_ms), u64(budget)))
        assert self.step is Step.NONE
        return swept

    def detach(self, zone):
        """Detach a zone's directory; returns the word it had, 0 or flush.DONE."""
        return u64(flush.detach(self.views, u64(zone)))

    def reclaim(self, zone, word, cursor=0, budget=1 << 30):
        """Bring home a slice of a detached directory; returns the cursor to go on at, or flush.DONE."""
        return u64(flush.reclaim(self.views, u64(zone), word, u64(cursor), u64(budget)))

    def flush(self, zone):
        """Detach a zone and bring all of it home."""
        word = self.detach(zone)
        if word != 0:
            assert self.reclaim(zone, word) == flush.DONE

    def shrink(self, zone, merges_max=1 << 20):
        """Bring home what a zone does not need of the index; returns how many segments were merged."""
        merged = int(shrink.shrink(self.views, u64(zone), u64(merges_max)))
        assert self.step is Step.NONE
        return merged

    def relieve(self, zone, hash_):
        """Bring home a few segments of a zone that needs one; returns how many."""
        merged = int(shrink.relieve(self.views, u64(zone), u64(hash_)))
        assert self.step is Step.NONE
        return merged

    @property
    def place(self):
        """The own PARTICIPANT; writes go to the table."""
        return roster.participants(self.table)[self.me - 1]

    @property
    def step(self):
        """The Step of the own intent."""
        return Step(int(self.place["intent"]["step"]) & (1 << STEP_BITS) - 1)

    def counter(self, reason):
        """The own counter of a Reason."""
        return int(self.place["counters"][reason])

    @property
    def deletes(self):
        """The lines of the own delete list."""
        lines = self.table.array(Region.CONTROL, "delete_lists", DELETE)
        first = (self.me - 1) * DELETE_LIST_MAX
        return lines[first : first + int(self.place["deletes"])]


# ------------------------------------------------------------------------------------------------ what stands in a table
def entries(table):
    """Return all records, ENTRY[n]."""
    return table.array(Region.ENTRIES, "entries", ENTRY)


def extensions(table):
    """Return all extension records, EXTENSION[n]."""
    return table.array(Region.EXTENSIONS, "extensions", EXTENSION)


def due(table):
    """Return the hints, u32[n]."""
    return table.array(Region.DUE, "due", "u4")


def segments(table):
    """Return the headers of all segments, SEGMENT[n]."""
    return table.array(Region.INDEX, "segments", SEGMENT)


def slots(table):
    """Return all slots, u64[segments, SLOTS]."""
    return table.array(Region.INDEX, "slots", "u8").reshape(-1, SLOTS)


def directories(table):
    """Return all directories, u32[words]."""
    return table.array(Region.INDEX, "directories", "u4")


def directory_owners(table):
    """Return the owner words of all directories."""
    return table.array(Region.INDEX, "directory_owners", "u4")


def zones(table):
    """Return what packets read of zones, ZONE[ZONES]."""
    return table.array(Region.CONTROL, "zones", ZONE)[:ZONES]


def quotas(table):
    """Return what commits write of zones, QUOTA[ZONES]."""
    return table.array(Region.CONTROL, "quotas", QUOTA)[:ZONES]


def totals(table):
    """Return the GLOBAL record."""
    return table.array(Region.CONTROL, "globals", GLOBAL)[0]


def blocks(table):
    """Return who sweeps each block, u32[n]."""
    return table.array(Region.CONTROL, "blocks", "u4")


def pool(table, slab=Slab.ENTRIES):
    """Return the words of a slab's pool of chains."""
    return table.array(Region.CONTROL, f"pool_{slab.name.lower()}", "u8")


def version_of(table, zone):
    """Return how often a zone's word has been published."""
    return int(zones(table)["word"][zone]) >> ZONE_VERSION_SHIFT


def depth_of(table, zone):
    """Return the depth of a zone's directory."""
    return int(zones(table)["word"][zone]) >> ZONE_OFFSET_BITS & (1 << ZONE_DEPTH_BITS) - 1


def directory_of(table, zone):
    """Return the directory of a zone, u32[2**depth] of segment + 1; empty when it has none."""
    offset = int(zones(table)["word"][zone]) & (1 << ZONE_OFFSET_BITS) - 1
    return directories(table)[offset : offset + (1 << depth_of(table, zone))] if offset else directories(table)[:0]


def directory_number(table, zone):
    """Return the number of a zone's directory, the index of its owner word."""
    offset, depth = int(zones(table)["word"][zone]) & (1 << ZONE_OFFSET_BITS) - 1, depth_of(table, zone)
    return table.geometry.directory_first[depth] + (offset - table.geometry.directory_offset[depth] >> depth)


def segment_of(table, zone, hash_):
    """Return the segment that a zone's directory names for a hash."""
    return int(directory_of(table, zone)[int(hash_) >> 64 - depth_of(table, zone)]) - 1


def set_limit(table, zone, limit):
    """Give a zone a limit of its own."""
    quotas(table)["has_limit"][zone] = 1
    quotas(table)["limit"][zone] = limit


@contextlib.contextmanager
def held(record, field="lock", holder=255):
    """Hold the lock word of a record, as a participant would that is in the middle of something."""
    assert record[field] == 0
    record[field] = holder
    yield
    record[field] = 0


# ------------------------------------------------------------------------------------------------ audit
@contextlib.contextmanager
def zones_that_matter():
    """Let the interpreter audit fewer zones."""
    before, audit_kernel.ZONES_MAX = audit_kernel.ZONES_MAX, ZONES
    try:
        yield
    finally:
        audit_kernel.ZONES_MAX = before


def at_rest(table):
    """Audit a table that nobody works on; what is broken, or None."""
    with zones_that_matter():
        return audit.at_rest(table)


def live(table, me):
    """Audit a table beside others; what is broken, or None."""
    with zones_that_matter():
        return audit.live(table, me)


def assert_at_rest(table):
    """Every invariant holds, and nobody says that something is under way."""
    broken = at_rest(table)
    assert broken is None, str(broken)
    steps = roster.participants(table)["intent"]["step"]
    left = {int(index) + 1: Step(int(steps[index]) & (1 << STEP_BITS) - 1).name for index in np.flatnonzero(steps)}
    assert left == {}, f"still under way: {left}"


def shape(table, zone):
    """Return the depth of a zone's directory, and the depth of each of its segments in order."""
    directory = directory_of(table, zone).astype("i8") - 1
    named = directory[np.flatnonzero(np.diff(directory, prepend=-1))]
    return depth_of(table, zone), segments(table)["depth"][named].tolist()


def used(table):
    """Return how many segments and directories are in use."""
    owners = np.count_nonzero(segments(table)["owner"]), np.count_nonzero(directory_owners(table))
    return tuple(map(int, owners))
