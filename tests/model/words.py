"""The words of the model's table: where each stands, how it is encoded, and the accesses an actor can make.

A word is one byte, but for an intent's step word, which is three: step, and two values before it (or a cursor), that
change together in one store.  An actor is a generator that yields one access and is sent back what it got.
"""

from __future__ import annotations

from enum import IntEnum

LOAD, STORE, SWAP, LOCK, OWN_STORE, OWN_STEP, OWN_LOAD, BEGIN, END, WAIT = range(10)
"""(LOAD, word), (STORE, word, value), (SWAP, word, expected, desired), (LOCK, word, owner): waits until the word is 0.

OWN_* go to the actor's own intent line, which nobody reads before its death: they interleave with nobody.  (OWN_STORE,
word, value), (OWN_STEP, word, three bytes), (OWN_LOAD, word).  BEGIN and END tell the checker what an operation claims;
(WAIT, participant) waits until that participant is known to be dead.
"""

FREE, NEW, LIVE, DEAD = range(4)
SLOTS = 2
"""Slots of a segment."""
USED = 9
"""Owner word of a segment or directory that a zone names."""

KEYS = ((0, 0), (0, 0), (0, 1), (0, 2), (1, 0), (0, 3))
"""Zone and hash (two bits) of each key: 0 and 1 share all bits, 2 differs in the second, 3 and 5 in the first, 4 is of
another zone."""
FAR = 64
"""In a key word: who replies by the second key is at its far end, so that another connection may have it as its own."""
OWN_SHIFT = 8
"""Of the keys in the index: from this bit on, those that are there as somebody's own."""
DIRECTORIES = {1: (1, 2), 2: (3, 5)}
"""The pool of directories: offsets of two with one entry and two with two (or, in wide tables, one of four at 3)."""
DIRECTORY_WORDS = 7
SOURCE_SHIFT = 3
"""In the word of a source's cell: from this bit on the source, below it how many connections it has."""


class Step(IntEnum):
    """How far the one operation of a participant has come."""

    NONE = 0
    UPDATE = 1
    REOPEN = 2
    ALLOC = 3
    LOCKS = 4
    CREATE = 5
    SPLIT = 6
    RESERVE = 7
    RESERVE_WRITING = 8
    RESERVED = 9
    MARK = 10
    FIND = 11
    CLEAR = 12
    CLEARED = 13
    UNCOUNT = 14
    UNCOUNT_WRITING = 15
    UNCOUNTED = 16
    DETACH = 17
    RECLAIM = 18
    SEGFREE = 19
    BATCH_CLEAR = 20
    BATCH_UNCOUNT = 21
    BATCH_UNCOUNT_WRITING = 22
    BATCH_FREE = 23
    CREDIT_WRITING = 24
    SPEND = 25
    CREDIT_BACK_WRITING = 26
    MERGE = 29
    HALVE = 30
    LAST = 31
    SOURCE_ENTER = 34
    SOURCE_LEAVE = 35


INSERTING = frozenset(
    (
        Step.ALLOC,
        Step.LOCKS,
        Step.CREATE,
        Step.SPLIT,
        Step.RESERVE,
        Step.RESERVE_WRITING,
        Step.RESERVED,
        Step.CREDIT_WRITING,
        Step.CREDIT_BACK_WRITING,
        Step.SPEND,
        Step.SOURCE_ENTER,
    )
)
"""Steps in which the intent's record may be NEW and not yet committed."""


class Entry(IntEnum):
    """How far an entry of a delete list has come; GONE: freed, or somebody else's."""

    GONE = 0
    MARKED = 1
    CLEAR = 2
    CLEARED = 3
    UNCOUNTED = 4


INTENT = (
    "step",
    "before",
    "before_total",
    "record",
    "incarnation",
    "second",
    "low",
    "high",
    "split",
    "zone_word",
    "cursor",
)
CREDIT = ("credit", "credit_zone")
DELETE = ("record", "incarnation", "zone", "step")


class Table:
    """Sizes of a table, the addresses of its words, and what is switched off in it."""

    def __init__(
        self,
        segments=3,
        records=2,
        zones=1,
        actors=3,
        limit=9,
        total_limit=0,
        credits=0,
        deletes=0,
        hints=False,
        cells=0,
        budget=0,
        flusher=0,
        never=(),
        flaws=(),
    ):
        """Lay out a table.

        Args:
            segments, records, zones, actors: how many of each.
            limit: most connections of each zone.
            total_limit: most connections of all zones; 0 leaves the global count out of the model.
            credits: connections that a participant reserves at once; 0 leaves credits out.
            deletes: length of each participant's delete list; 0 leaves delete lists out.
            hints: whether expiry and hints are modelled.
            cells: cells of counts of sources; 0 leaves these out.
            budget: most connections of each source.
            flusher: the participant that flushes, 0 when none does.
            never: answers of an insert that must not be heard.
            flaws: cures that are switched off.
        """
        self.segments, self.records, self.zones, self.actors = segments, records, zones, actors
        self.limit, self.total_limit, self.credits, self.deletes = limit, total_limit, credits, deletes
        self.hints, self.flusher, self.never, self.flaws = hints, flusher, never, frozenset(flaws)
        self.cells, self.budget = cells, budget
        self.names: list[str] = []
        self.zone, self.zone_lock = self._words("zone", zones), self._words("zone_lock", zones)
        self.count, self.count_lock = self._words("count", zones), self._words("count_lock", zones)
        self.total, self.total_lock = self._words("total", 1), self._words("total_lock", 1)
        self.directory = self._words("directory", DIRECTORY_WORDS)
        self.directory_owner = self._words("directory_owner", DIRECTORY_WORDS)
        self.segment_lock, self.slot = self._words("segment_lock", segments), self._words("slot", segments * SLOTS)
        self.segment_owner, self.segment_depth = self._words("segment_owner", segments), self._words("depth", segments)
        self.life, self.key = self._words("life", records), self._words("key", records)
        self.record_lock = self._words("record_lock", records)
        self.expiry, self.due = self._words("expiry", records), self._words("due", records)
        self.cell, self.counted = self._words("cell", cells), self._words("counted", records if cells else 0)
        self.fields = INTENT + (CREDIT if credits else ()) + (("deletes",) if deletes else ())
        self.line = len(self.fields) + deletes * len(DELETE)
        self.intents = len(self.names)
        for actor in range(1, actors + 1):
            self.names += [f"intent[{actor}].{field}" for field in self.fields]
            self.names += [f"list[{actor}][{i}].{field}" for i in range(deletes) for field in DELETE]

    def _words(self, name, count):
        first = len(self.names)
        self.names += [f"{name}[{i}]" for i in range(count)]
        return first

    def intent(self, me, field):
        """Return the address of a field of a participant's intent line."""
        return self.intents + (me - 1) * self.line + self.fields.index(field)

    def delete(self, me, i, field):
        """Return the address of a field of entry ``i`` of a participant's delete list."""
        return self.intents + (me - 1) * self.line + len(self.fields) + i * len(DELETE) + DELETE.index(field)


def step_word(step, before=0, before_total=0):
    """Return the three bytes of a step word."""
    return bytes((step, before, before_total))


def life(state, who, incarnation):
    """Return a life word."""
    return (incarnation & 3) * 32 + who * 4 + state


def state_of(word):
    """Return the state of a life word."""
    return word & 3


def owner_of(word):
    """Return the owner of a life word."""
    return word >> 2 & 7


def incarnation_of(word):
    """Return the incarnation of a life word."""
    return word >> 5


def zone_word(version, depth, offset):
    """Return a zone word: its version wraps at 8, which no scenario reaches."""
    return (version & 7) * 32 + depth * 8 + offset


def version_of(word):
    """Return the version of a zone word."""
    return word >> 5


def where(word):
    """Return depth and directory offset of a zone word."""
    return word >> 3 & 3, word & 7


def zone_of(key):
    """Return the zone of a key."""
    return KEYS[key][0]


def hash_of(key):
    """Return the hash of a key."""
    return KEYS[key][1]


def source_of(key):
    """Return the source of a key: 0, 1 and 2 have one, 3 and 5 another; never 0."""
    zone, hash_ = KEYS[key]
    return 1 + 2 * zone + (hash_ >> 1)


def cell_word(source, count):
    """Return the word of a source's cell, 0 when it has none."""
    return (source << SOURCE_SHIFT) | count if count else 0


def slot_word(key, record):
    """Return the slot that names ``record`` under ``key``."""
    return hash_of(key) * 8 + record + 1


def tag_of(slot):
    """Return the hash bits in a slot."""
    return slot >> 3


def record_of(slot):
    """Return the record that a slot names."""
    return slot % 8 - 1


def moves(slot):
    """Return whether a slot's own hash bit sends it to the new segment of a split: its first bit."""
    return slot >> 4 != 0


def index_of(key, depth):
    """Return the directory entry of a key."""
    return hash_of(key) >> (2 - depth) if depth else 0


def keys_of(word):
    """Return the keys in a record's key word: one, or original and reply."""
    reply = word // 8 % 8
    return (word % 8 - 1,) + ((reply - 1,) if reply else ())


def is_far(word):
    """Return whether the replies of a key word come from the far end; openers send from the near one."""
    return word >= FAR


def key_word(keys, far=False):
    """Return the word that holds one or two keys."""
    return keys[0] + 1 + ((keys[1] + 1) * 8 if len(keys) > 1 else 0) + (FAR if far else 0)
