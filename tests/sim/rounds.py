"""A case and its run: what each worker does, from which seed, who is killed and when; and what must hold after each round.

Workers live and die; who dies is repaired as the service does it: by a keeper, or by a worker that waited in vain for a lock
of the dead.  Either may die over that too.  Whoever died is followed by a successor in the same place, which goes on with
the program.  When a round is over nobody is dead, everything is brought to rest, and the table is audited; what each worker
was told must be explained by one order of the operations.  What an operation that was killed has done may be all that it
could have done, or nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import datagrams
import foretelling
import fragmented
import histories
import naive_audit
import naive_fragments
import numpy as np
import tables
from foretelling import Wanted
from simulation import Killed, Simulation
from zonetrack.kernels import (
    awaited,
    entries,
    expectations,
    flush,
    index,
    intents,
    late,
    locks,
    memory,
    repair,
    tally,
    tuples,
)
from zonetrack.kernels.words import u64
from zonetrack.service.event_merge import Merger
from zonetrack.shm.layout import (
    ACTION,
    EXPECTATIONS_MAX,
    GLOBAL,
    QUOTA,
    STEP_BITS,
    TALKER,
    TALLY,
    UNLIMITED,
    Nat,
    Region,
    Step,
    offset,
)

from ..interleave.plays import SLICE, Fault, Worker
from .worlds import SHORT_MS, WORKERS, WORLDS

ACCESSES_MIN = 200
"""A case goes on until so many shared accesses were made."""
KILLS_AT, STORES_AT = 1_000, 200
"""Kills are within so many accesses, or stores, of a life."""
LIVES_MAX = 3
PATIENT = 400
"""Tries for a lock with which only the locks of the dead are not had."""
TRIES_MAX = 2_000
LABELS = np.zeros(1, ACTION)
"""What a burst may ask of its connections."""
LABELS["mark"], LABELS["mark_mask"], LABELS["label"], LABELS["label_mask"] = 7, 0xFF, 5, 0xFF
TRANSLATIONS = np.zeros(1, ACTION)
TRANSLATIONS["nat"], TRANSLATIONS["nat_ports"] = Nat.APPLY | Nat.SOURCE, (4000, 4002)
TRANSLATIONS["nat_first"] = TRANSLATIONS["nat_last"] = (0, 0xC0000263)
PIECES = [
    fragmented.cut(fragmented.udp(3200, sport=1000 + datagram), 1480, 2960, id=7 + datagram) for datagram in range(3)
]
"""Three fragments of each of three datagrams; of the first one more, which overlaps."""
PIECES[0].append(fragmented.Piece(bytes(1480), 1472, True, id=7))
DRAINING = ((("drain",),), *((),) * (WORKERS - 1)), ((),) * (WORKERS + 1)
"""The last round of a drawn case: nobody dies any more, and all that there is goes home."""
EXPIRED_MS = 31_000
"""After which no datagram is waited for."""
FOREVER_MS = 1 << 33
"""When everything has expired."""
UNKNOWN = {
    "make": histories.MADE + histories.THERE,
    "mark": histories.REMOVED,
    "remove": histories.REMOVED,
    "flush": histories.GONE,
    "packet": histories.PERHAPS + histories.THERE + histories.MADE,
    "segment": histories.PERHAPS + histories.THERE + histories.MADE,
    "closed": histories.PERHAPS,
    "sweep": histories.PERHAPS,
    "wipe": histories.PERHAPS,
    "evicts": histories.PERHAPS,
}
"""What an operation may have done that was killed, beside nothing."""


@dataclass(frozen=True)
class Case:
    """One run, whole: its text is enough to do it again.

    Args:
        world: its name.
        seed: of the scheduler.
        rounds: of each round, of each worker, its operations: (name, arguments).
        kills: of each round, of each worker and then of all keepers, how long each of its lives lasts: in accesses, or where
            negative in stores.
        order: of the workers, one of ORDERS.
    """

    world: str
    seed: int
    rounds: tuple = ()
    kills: tuple = ()
    order: str = "any"


def lifetime(chance):
    """Draw how long a life lasts: short ones as likely as long ones, by orders of magnitude."""
    if chance.random() < 0.5:
        return int(KILLS_AT ** chance.random())
    return -int(STORES_AT ** chance.random())


def begin_life(worker, lives):
    """Let a simulated worker live as long as the next of these says."""
    lasts = lives.pop(0) if lives else 0
    worker.left, worker.stores_left = max(0, lasts), max(0, -lasts)


def end_life(worker):
    """It has outlived what could kill it."""
    worker.left = worker.stores_left = 0


def draw_round(world, chance):
    """Return the programs and kills of one more round."""
    workers = chance.choice((2, 3, 3))
    programs = tuple(
        tuple(chance.choice(world.choices) for _ in range(chance.randint(1, 4))) if i < workers else ()
        for i in range(WORKERS)
    )
    mortal = chance.random() < 0.85
    kills = tuple(
        tuple(lifetime(chance) for _ in range(chance.choice((0, 1, 1, 2, LIVES_MAX)))) if mortal else ()
        for _ in range(WORKERS + 1)
    )
    return programs, kills


class Run:
    """A case while it runs."""

    def __init__(self, world, seed, reach=None, tracing=False):
        self.name, self.world, self.seed = world, WORLDS[world](), seed
        self.reach, self.tracing = reach, tracing
        self.accesses = self.killed = 0
        self.rounds = []
        self.case = Case(world, seed)

    def one(self, case):
        """Go through a case."""
        self.case = case
        self.world.begin()
        for programs, kills in zip(case.rounds, case.kills, strict=True):
            self._go_on(programs, kills)
        return self

    def _go_on(self, programs, kills):
        """Go through one more round."""
        self.rounds.append(ORDERS[self.case.order](self, len(self.rounds), programs, kills))
        self.rounds[-1].run()

    def drawn(self, steps):
        """Draw and go through a case, round by round, until there were enough rounds and accesses; then let it drain."""
        chance = random.Random(f"program {self.seed}")
        self.world.begin()
        while len(self.rounds) < steps or self.accesses < ACCESSES_MIN:
            self._add(*draw_round(self.world, chance))
        self._add(*DRAINING)
        return self

    def _add(self, programs, kills):
        self.case = Case(self.name, self.seed, (*self.case.rounds, programs), (*self.case.kills, kills))
        self._go_on(programs, kills)


class Round:
    """Some programs, from a table at rest to a table at rest."""

    def __init__(self, run, number, programs, kills):
        self.run_, self.world = run, run.world
        chance = random.Random(f"{run.seed} {number}")
        self.simulation = Simulation(
            self.world.mapped,
            f"{run.seed} {number}",
            yields=chance.choice((1, 5, 40, PATIENT)),
            weak=chance.random() < 0.8,
            tracing=run.tracing,
        )
        self.delay = chance.choice((0, 0, 3, 30))
        self.actors = [
            Actor(self, participant, program, list(lives))
            for participant, program, lives in zip(self.world.stage.participants, programs, kills, strict=False)
        ]
        self.keeper_lives = list(kills[-1])
        self.dead = []
        self.repairer = None
        self.keepers = 0
        self.jumped = False

    def run(self):
        """Run all programs, then judge."""
        before = tuple(self.world.present())
        simulation = self.simulation
        simulation.run(*(actor.life for actor in self.actors))
        self.run_.accesses += simulation.accesses
        assert not self.dead and not self.keepers
        for actor in self.actors:
            actor.finish()
        self._collect_all()
        self.world.bring_back()
        faults = naive_audit.faults(self.world.stage.table)
        if any(("drain",) in actor.done for actor in self.actors):
            faults += self.world.left()
        operations = [operation for actor in self.actors for operation in actor.operations]
        faults = [*faults, *histories.faults(operations, before, self.world.present())]
        self.world.take_away()
        if faults:
            raise Fault(simulation.report(Fault("\n".join(faults))))

    def _collect_all(self):
        """Let everybody hear of all fragments that wait: none may be held for ever."""
        store = self.actors[0].hand.store
        for moment in (self.world.now_ms + EXPIRED_MS, FOREVER_MS):
            for actor in 2 * self.actors if store["count"] or any(actor.waits for actor in self.actors) else ():
                actor.told_late(actor.hand.late(moment))
        for actor in self.actors:
            late.abandon(actor.participant.views)  # pieces of the last datagram that it has completed
            actor.hand.forget()
        if store["count"]:
            raise Fault(f"{store['count']} fragments are held for ever")
        for actor in self.actors:
            if actor.waits and not (actor.deaths or self.jumped):
                raise Fault(f"worker {actor.participant.me} was never told of {len(actor.waits)} fragments")
            actor.waits.clear()

    # -------------------------------------------------------------------------------------------- death
    def died(self, actor):
        """A worker was killed: it waits for repair, and a keeper comes for it."""
        self.run_.killed += 1
        actor.deaths += 1
        self._note_steps([actor])
        self.dead.append(actor)
        if not self.keepers:
            self._call_keeper()

    def _note_steps(self, actors):
        if self.run_.reach:
            for actor in actors:
                self.run_.reach.died_in(int(actor.participant.place["intent"]["step"]) & (1 << STEP_BITS) - 1)

    def _call_keeper(self):
        self.keepers += 1
        self.simulation.spawn(self._keep, f"keeper {self.keepers}")

    def _keep(self):
        """A keeper: sees a death some time later, and repairs, or is killed over that and followed by another."""
        me = self.simulation.current
        begin_life(me, self.keeper_lives)
        try:
            for _ in range(self.delay):
                self.simulation.relax()
            while self.dead:
                self.lay_to_rest()
                self.simulation.relax()
        except Killed:
            self.simulation.empty(me)
            self._note_steps(self.dead)  # the next repairs one who died there, as far as anybody can tell
            self.keepers -= 1
            self._call_keeper()
            return
        end_life(me)
        self.keepers -= 1

    def lay_to_rest(self):
        """Repair all who are dead, as ``shm.roster.lay_to_rest`` does: one repairer, who may die."""
        if self.repairer:
            return
        simulation = self.simulation
        self.repairer = me = simulation.current
        try:
            for _ in range(TRIES_MAX):
                me.horizon = me.latest = simulation.now  # the kernel told of the death, and gave the lock
                for actor in list(self.dead):
                    if repair.repair(actor.participant.views):
                        assert actor.participant.step is Step.NONE and not actor.participant.place["intent"]["credit"]
                        simulation.empty(me)  # who follows in the place was told through the kernel too
                        self.dead.remove(actor)
                        actor.rise()
                if not self.dead:
                    return
                simulation.relax()
            raise Fault("repair does not come to an end")
        finally:
            self.repairer = None


ORDERS = {"any": Round}
"""Kinds of rounds by the order that they leave to the workers; more are registered for cases that are enumerated."""


class Hand(fragmented.Bench):
    """Sends fragments in the name of a participant."""

    def __init__(self, participant):
        self.table, self.me, self.views, self.sent = participant.table, participant.me, participant.views, 0

    def forget(self):
        """Have in mind what a new process has: no fragments."""
        scratch = naive_fragments.scratch(self.views)
        scratch["whole_count"] = scratch["late_count"] = 0


class Actor(Worker):
    """A worker with a program, which may be killed and is followed by another in its place."""

    def __init__(self, round_, participant, program, lives):
        super().__init__(round_.world, round_.simulation, participant)
        self.round, self.program, self.lives = round_, list(program), lives
        self.busy = False
        self.done = []
        """What it has begun of its program."""
        self.deaths = 0
        self.hand = Hand(participant)
        self.waits = set()
        """Tickets of fragments that it has not been told of."""
        self.hand.forget()

    def life(self):
        """Live until the program is done, or death."""
        me = self.simulation.current
        begin_life(me, self.lives)
        try:
            while self.program:
                self.done.append(self.program.pop(0))
                name, *arguments = self.done[-1]
                self.busy = True
                getattr(self, name)(*arguments)
                self.busy = False
                if (
                    self.round.dead
                    and not self.round.repairer
                    and self.operations
                    and "BUSY" in self.operations[-1].what
                ):
                    self.round.lay_to_rest()
        except Killed:
            self.simulation.empty(me)
            self.round.died(self)
            return
        end_life(me)

    def rise(self):
        """The dead is repaired: whatever it was killed over is over, and a successor goes on."""
        self.hand.forget()
        self.waits.clear()
        now = self.simulation.now
        for operation in self.operations:
            if operation.outcomes == ():
                operation.outcomes = UNKNOWN.get(operation.what.split()[0], ()) + histories.NOTHING
                operation.what += " killed"
                operation.end = now
        self.simulation.spawn(self.life, self.participant.me)

    def finish(self):
        """Do what was left for lack of a lock, when nobody else runs."""
        self.participant.find(self.play.keys[0])  # what was refused may have left a step, until the next begins
        self.participant.run()

    # -------------------------------------------------------------------------------------------- more operations
    def make_short(self, key):
        """Make a connection that expires at the first jump of the clock."""
        self.make(key, expiry_ms=SHORT_MS)

    def limit(self, limit):
        """Change the limit of zone 0 or, None, of the whole table to a few and back."""
        quota = u64(self.play.stage.table.address(Region.CONTROL, "quotas"))
        memory.release32(quota + offset(QUOTA, "limit"), u64(UNLIMITED if limit is None else limit))
        memory.release32(quota + offset(QUOTA, "has_limit"), u64(1))
        totals = u64(self.play.stage.table.address(Region.CONTROL, "globals"))
        memory.release32(totals + offset(GLOBAL, "limit"), u64(UNLIMITED if limit is None else limit + 1))

    def foretell(self, number):
        """A connection foretells another; two of each port, so that one replaces the other."""
        key = number % len(self.play.keys)
        record = int(self.participant.find(self.play.keys[key])[0])
        if record < tables.BUSY:
            life = int(tables.entries(self.play.stage.table)["life"][record])
            wanted = Wanted(port=1 + number // 2, zone=self.play.zone_of(key), mark=number)
            foretelling.add(self.participant, life >> 32 << 32 | record, wanted, most=2)

    def claim(self, number):
        """A connection comes that may have been foretold."""
        foretelling.claim(self.participant, Wanted(port=1 + number // 2))

    def call(self, number):
        """A packet of GRE asks for the call that it belongs to."""
        awaited.call_of(self.participant.views, Wanted(port=1 + number // 2).packet(1024))

    def find_other(self, key):
        """A packet that seems to be translated looks for another connection of its key."""
        wanted = np.ascontiguousarray(self.play.keys[key])
        views, address = self.participant.views, u64(wanted.ctypes.data)
        record = self.participant.find(wanted)[0]
        if record < tables.BUSY:
            found = index.find_other(
                views, address, tuples.hash_key(views, address), tuples.zone_of(address), u64(record)
            )
            if found != index.MISS and found != index.BUSY:
                locks.drop(entries.address(views, found) + entries.LOCK)
            intents.done(views)

    def hear(self):
        """Somebody reads what has happened: each number but once, in order."""
        table = self.play.stage.table
        batch, _ = Merger(table).take()
        numbers = batch.rows["sequence"]
        assert (np.diff(numbers.astype(np.int64)) > 0).all()

    def tally(self):
        """Somebody adds up what there is, without a lock."""
        cursor, sums = np.zeros(1, "u8"), np.zeros(1, TALLY)
        talkers = np.zeros(tally.TALKERS_BUCKETS * tally.TALKERS_PLACES, TALKER)
        at = (u64(one.ctypes.data) for one in (cursor, sums, talkers))
        tally.count(self.participant.views, u64(self.play.now_ms), u64(1 << 40), *at)

    def prune(self):
        """Take away expectations whose parents have gone."""
        expectations.prune(self.participant.views, u64(self.play.now_ms))

    def jump(self, by_ms):
        """The clock goes on."""
        self.play.now_ms += by_ms
        self.round.jumped = True  # what nobody has collected for long is given up

    def flush(self, zone=0):
        """Detach a zone, and bring home what it held in slices: one operation, which nobody leaves before its end."""
        keys = [key for key in range(len(self.play.keys)) if self.play.zone_of(key) == zone]
        begun = self._begin("flush", keys)
        word = self.participant.detach(zone)
        if word == flush.DONE:
            self._end(begun, "BUSY", histories.NOTHING)
            return
        self._end(begun, "detached" if word else "empty", histories.GONE if word else histories.MISSED)
        cursor = u64(0)
        for _ in range(TRIES_MAX):
            if not word or cursor == flush.DONE:
                return
            cursor = self.participant.reclaim(zone, word, cursor, SLICE)
            if cursor != flush.DONE:
                if self.round.dead:
                    self.round.lay_to_rest()
                self.simulation.relax()
        raise Fault("a flush does not come to an end")

    def drain(self):
        """Flush every zone, and take away what was foretold: for a round in which nobody else does anything."""
        for zone in np.flatnonzero(tables.zones(self.play.stage.table)["word"]):
            self.flush(int(zone))
        for _ in range(EXPECTATIONS_MAX // expectations.PRUNE_RECORDS):
            self.prune()

    def pieces(self, *pieces):
        """Track a burst of fragments: (datagram, piece)."""
        first = self.hand.sent
        fates = self.hand.send(*(PIECES[datagram][piece] for datagram, piece in pieces), now_ms=self.play.now_ms)
        self.waits |= {first + i for i, fate in enumerate(fates) if fate == fragmented.HELD}

    def collect(self):
        """Hear of fragments that have waited."""
        self.told_late(self.hand.late(self.play.now_ms))

    def told_late(self, told):
        """Note what was told: of each fragment once, and only of those that waited."""
        if not set(told) <= self.waits:
            raise Fault(f"worker {self.participant.me} was told twice, or of others' fragments")
        self.waits -= set(told)

    def give_up(self):
        """Leave what it holds, as who ends does."""
        if late.abandon(self.participant.views):
            self.waits.clear()

    def label(self, *packets):
        """Track a burst whose connections get a mark and a label, made or found."""
        super().burst(*packets, action=LABELS.ctypes.data)

    def translate(self, *packets):
        """Track a burst whose connections get another source, with one of a few ports."""
        super().burst(*packets, action=TRANSLATIONS.ctypes.data)

    def crowd(self, *packets):
        """Track a burst where a limit lets those that are not assured be driven out: whichever, and again."""
        keys = range(len(self.play.keys))
        before, after = self._begin("evicts", keys), self._begin("evicts", keys)
        try:
            super().burst(*packets)
        finally:  # what an earlier packet made may make room for a later one, also of one who was killed then
            for operation in after:
                operation.number = self.simulation.operations
                self.simulation.operations += 1
        self._end(before + after, "perhaps", histories.PERHAPS)

    def burst(self, *packets, action=0):
        """Track a burst; where connections expire a packet may delete one and then make another: two operations."""
        if not self.play.aging:
            super().burst(*packets, action=action)
            return
        begun = [(self._begin("closed", [key]), self._begin("packet", [key])) for key, _ in packets]
        verdicts = self._track([datagrams.Packet(self.play.keys[key], commit) for key, commit in packets])
        for (closed, operations), (_, commit), verdict in zip(begun, packets, verdicts, strict=True):
            self._end(closed, "perhaps", histories.PERHAPS)
            self._packet(operations, verdict, histories.THERE if commit else histories.FOUND)

    def walk(self, out_max=2):
        """List all connections; what a flush has detached is listed until it has come home, so that says nothing."""
        first = len(self.operations)
        super().walk(out_max)
        for operation in self.operations[first:]:
            if operation.what.endswith("listed"):
                operation.outcomes = histories.NOTHING
