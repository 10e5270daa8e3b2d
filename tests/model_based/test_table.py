"""Index, zones, limits, delete lists, sweep and flush against plain dicts, operation by operation."""

import functools

import hypothesis.strategies as st
import naive_audit
import numpy as np
import tables
import tiny
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, multiple, precondition, rule
from reference import Reference
from zonetrack.kernels import delete_list, entries, flush, intents
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import BLOCK_RECORDS, UNLIMITED
from zonetrack.shm.reasons import Reason

PARTICIPANTS = 3
MOMENTS = st.sampled_from([16, 100, 5_000, 5_017, 90_000])
KEYS = np.concatenate([tiny.aimed(30), tiny.aimed(6, pair=3), tiny.aimed(6, zone=1)])
ZONES = {key: int(KEYS[key][4]) >> 16 & 0xFFFF for key in range(len(KEYS))}
KEY = st.integers(0, len(KEYS) - 1)
ME = st.integers(0, PARTICIPANTS - 1)


@functools.cache
def stage():
    """An empty table, with an extension for each record, and directories for two zones flushed again and again."""
    made = tiny.Stage(PARTICIPANTS, zones=6, extension_share=1000)
    made.save()
    return made


class TableMachine(RuleBasedStateMachine):
    """Three participants, one at a time."""

    handles = Bundle("handles")

    @initialize(filled=st.integers(0, tiny.PAIR_SLOTS))
    def begin(self, filled):
        """A pair of lines with up to all of its slots taken."""
        stage().restore()
        self.table, self.participants = stage().table, stage().participants
        self.reference = Reference(ZONES)
        self.flushes = {}
        for key in range(filled):
            self.reference.made((key,), tiny.LATER, int(self.participants[0].made(KEYS[key], None, tiny.LATER)[0]))

    def idle(self, me):
        """Return the first participant from ``me`` on that is not in a flush: it has one intent line."""
        order = [(me + i) % PARTICIPANTS for i in range(PARTICIPANTS)]
        return next((other for other in order if other not in self.flushes), None)

    # ---------------------------------------------------------------------------------------- making and finding
    @rule(target=handles, me=ME, wanted=st.lists(KEY, min_size=1, max_size=20, unique=True), expiry_ms=MOMENTS)
    def make(self, me, wanted, expiry_ms):
        """Make several connections, with credit for all."""
        me = self.idle(me)
        if me is None:
            return multiple()
        reasons, records = self.participants[me].make(KEYS[wanted], None, expiry_ms, len(wanted))
        for key, reason, record in zip(wanted, reasons, records, strict=True):
            assert Reason(int(reason)) in self.reference.make((key,))
            if reason == Reason.NONE:
                self.reference.made((key,), expiry_ms, int(record))
        self.check()
        return multiple(*(self.handle(key) for key in wanted if self.reference.live(key)))

    @rule(target=handles, me=ME, key=KEY, reply=KEY, expiry_ms=MOMENTS)
    def make_two_keys(self, me, key, reply, expiry_ms):
        """Make a connection whose reply has another key."""
        me = self.idle(me)
        if me is None or key == reply or ZONES[key] != ZONES[reply]:
            return multiple()
        reasons, records = self.participants[me].make(KEYS[[key]], KEYS[[reply]], expiry_ms)
        assert Reason(int(reasons[0])) in self.reference.make((key, reply))
        if reasons[0] == Reason.NONE:
            self.reference.made((key, reply), expiry_ms, int(records[0]))
        self.check()
        return multiple(self.handle(key)) if reasons[0] == Reason.NONE else multiple()

    def handle(self, key):
        """Return what a client would keep of a connection."""
        connection = self.reference.live(key)
        incarnation = int(tables.entries(self.table)[connection.record]["life"]) >> 32
        return connection, connection.record, incarnation

    @rule(me=ME, key=KEY, expiry_ms=MOMENTS)
    def refresh(self, me, key, expiry_ms):
        """A packet changes the expiry."""
        me = self.idle(me)
        if me is None:
            return
        connection = self.reference.live(key)
        assert self.participants[me].refresh(KEYS[key], expiry_ms)[0] == (
            connection.record if connection else tables.NONE
        )
        if connection:
            connection.expiry_ms = expiry_ms

    # ---------------------------------------------------------------------------------------- deleting
    @rule(me=ME, keys=st.lists(KEY, min_size=1, max_size=8))
    def mark(self, me, keys):
        """Delete by key, later."""
        me = self.idle(me)
        if me is None:
            return
        for key in keys:
            connection = self.reference.live(key)
            if self.reference.is_crowded(me):
                self.reference.run(me)
            record = self.participants[me].mark(KEYS[key])[0]
            assert record == (connection.record if connection else tables.NONE)
            if connection:
                self.reference.mark(me, connection)
        self.check()

    @rule(me=ME, handle=consumes(handles))
    def delete(self, me, handle):
        """Delete by record and incarnation, which may be long gone."""
        me = self.idle(me)
        connection, record, incarnation = handle
        if me is None or connection.state == "detached":
            return
        if self.reference.is_crowded(me):
            self.reference.run(me)
        deleted = delete_list.delete(self.participants[me].views, u64(record), u64(0), u64(incarnation))
        assert bool(deleted) == (connection.state == "live")
        if deleted:
            self.reference.mark(me, connection)
        self.check()

    @rule(me=ME)
    def run(self, me):
        """Run a delete list."""
        me = self.idle(me)
        if me is None:
            return
        assert self.participants[me].run() == 0
        self.reference.run(me)
        self.check()

    @rule(me=ME, now_ms=MOMENTS)
    def sweep(self, me, now_ms):
        """Sweep the own blocks."""
        me = self.idle(me)
        if me is None:
            return
        own = np.flatnonzero(tables.blocks(self.table) == self.participants[me].me)
        records = {int(block) * BLOCK_RECORDS + i for block in own for i in range(BLOCK_RECORDS)}
        assert self.participants[me].sweep(now_ms) in self.reference.sweep(me, records, now_ms)
        self.check()

    # ---------------------------------------------------------------------------------------- flushing
    @rule(me=ME, zone=st.integers(0, 1))
    def detach(self, me, zone):
        """Begin to flush a zone."""
        me = self.idle(me)
        if me is None:
            return
        word = self.participants[me].detach(zone)
        assert word != flush.DONE
        if word:
            self.flushes[me] = (zone, word, u64(0))
            self.reference.detach(me, zone)
        self.check()

    @precondition(lambda self: self.flushes)
    @rule(data=st.data(), budget=st.integers(1, 8))
    def reclaim(self, data, budget):
        """Go on with a flush."""
        me = data.draw(st.sampled_from(sorted(self.flushes)))
        zone, word, cursor = self.flushes[me]
        cursor = self.participants[me].reclaim(zone, word, cursor, budget)
        if cursor == flush.DONE:
            del self.flushes[me]
            self.reference.reclaimed(me)
        else:
            self.flushes[me] = (zone, word, cursor)
        self.check()

    # ---------------------------------------------------------------------------------------- limits
    @rule(zone=st.integers(0, 1), limit=st.integers(0, 20) | st.just(UNLIMITED))
    def limit_zone(self, zone, limit):
        """Give a zone another limit."""
        tables.set_limit(self.table, zone, limit)
        self.reference.limits[zone] = limit

    @rule(limit=st.integers(0, 30) | st.just(UNLIMITED))
    def limit_all(self, limit):
        """Give the table another limit."""
        tables.totals(self.table)["limit"] = limit
        self.reference.limit = limit

    # ---------------------------------------------------------------------------------------- what must hold
    def check(self):
        """Each key is found or not, as it should; counts are exact."""
        looker = self.idle(0)
        if looker is not None:
            found = self.participants[looker].find(KEYS)
            live = [self.reference.live(key) for key in range(len(KEYS))]
            assert found.tolist() == [connection.record if connection else tables.NONE for connection in live]
        flushed = set(self.reference.detached.values())
        counts = tables.quotas(self.table)["count"]
        for zone in {0, 1} - flushed:
            assert counts[zone] == self.reference.count(zone)
        if not flushed:
            assert tables.totals(self.table)["count"] == self.reference.count()

    def teardown(self):
        """Finish all that is under way; then everything is in its place."""
        if not hasattr(self, "flushes"):
            return
        for me, (zone, word, cursor) in self.flushes.items():
            assert self.participants[me].reclaim(zone, word, cursor) == flush.DONE
            self.reference.reclaimed(me)
        for me in range(PARTICIPANTS):
            self.participants[me].run()
            self.reference.run(me)
        self.flushes = {}
        self.check()
        assert naive_audit.faults(self.table) == []


@kernel
def done(views):
    """Nothing is under way."""
    intents.done(views)


@kernel
def give(views, record):
    """Free a record that was never made a connection."""
    entries.release(views, record)
    intents.done(views)


class SlabMachine(RuleBasedStateMachine):
    """Records are handed out once, by whomever they come home to, and refused only when there are none."""

    @initialize()
    def begin(self):
        stage().restore()
        self.table, self.participants = stage().table, stage().participants
        self.held = set()

    @rule(me=ME, count=st.integers(1, 400))
    def take(self, me, count):
        """Take records."""
        views, place = self.participants[me].views, self.participants[me].place
        for _ in range(count):
            record = int(entries.take(views))
            if record == tables.NONE:
                assert not place["front"][0]
                assert not place["back"][0]
                assert not tables.pool(self.table).any()
                break
            assert record not in self.held
            self.held.add(record)
        done(views)

    @rule(me=ME, count=st.integers(1, 400))
    def give(self, me, count):
        """Free records, whoever took them."""
        for record in list(self.held)[:count]:
            give(self.participants[me].views, u64(record))
            self.held.remove(record)

    def teardown(self):
        """Free what is left; then each record is on one list."""
        if hasattr(self, "held"):
            self.give(0, len(self.held))
            assert naive_audit.faults(self.table) == []


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestSlab = SlabMachine.TestCase
TestSlab.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
