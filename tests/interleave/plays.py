"""A play: a tiny table, some keys, and what each worker does with them; run from many seeds, judged after each.

After a run, with the memory plain again, each worker finishes what it left for lack of a lock.  Then the table is audited,
and what each worker was told about each key must be explained by one order of the operations.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import datagrams
import histories
import naive_audit
import numpy as np
import tables
import tiny
from histories import Operation
from simulation import Broken, Mapped, Simulation
from zonetrack.kernels import burst, delete_list, flush, sweep, walk
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    CONNECTION,
    FILTER,
    GLOBAL,
    NO_RECORD,
    QUOTA,
    VERDICT,
    Life,
    Link,
    Region,
    Slab,
    offset,
)
from zonetrack.shm.reasons import Reason

SEEDS = float(os.environ.get("ZONETRACK_SEEDS", "1"))
"""Multiple of the seeds that each test goes through; what CI can afford is 1."""
SHORT, NOW = 5_000, 100_000
"""An expiry that has passed at NOW, the moment of every sweep."""
SLICE = 2
"""Records that a flush brings home in one slice."""
REFUSED = frozenset((
    *(Reason.BUSY, Reason.CLASH, Reason.FULL, Reason.ZONE_FULL, Reason.INDEX_FULL, Reason.SLAB_FULL),
    *(Reason.SOURCE_FULL, Reason.HALF_OPEN_FULL),
))  # fmt: skip


def is_found(seeds, play, **how):
    """Return whether one of so many seeds of a play shows a fault."""
    for seed in range(seeds):
        try:
            play(seed, **how)
        except (AssertionError, Broken):
            return True
    return False


WHO = ("src", "dst", "sport", "dport", "zone", "protocol", "family")
"""Of a row of a walk, what tells its connection from others."""


def seen_as(key):
    """Return the fields WHO of a connection with a key whose low endpoint opened it."""
    low_high, low_low, high_high, high_low, last = (int(word) for word in key)
    src, dst = ((high << 64 | low).to_bytes(16, "big") for high, low in ((low_high, low_low), (high_high, high_low)))
    numbers = (
        (last >> 48, 2),
        (last >> 32 & 0xFFFF, 2),
        (last >> 16 & 0xFFFF, 2),
        (last >> 8 & 0xFF, 1),
        (last & 0xFF, 1),
    )
    return src, dst, *(number.to_bytes(size, "little") for number, size in numbers)


class Fault(AssertionError):
    """A run that went wrong."""


@dataclass
class Play:
    """What stands before every run.

    Args:
        stage: the table.
        keys: the keys that operations are about, u64[n, 5].
        before: those that are present.
        replies: reply keys by key, for connections that have two.
        expired: keys whose connections have expired at NOW.
        limit: of zone 0 and of the whole table.
        now_ms: the moment of every burst, sweep and walk.
    """

    stage: tiny.Stage
    keys: np.ndarray
    before: tuple[int, ...] = ()
    replies: dict[int, int] = field(default_factory=dict)
    expired: tuple[int, ...] = ()
    limit: int | None = None
    now_ms: int = NOW

    def __post_init__(self):
        maker = self.stage.participants[0]
        for key in self.before:
            expiry = SHORT if key in self.expired else tiny.LATER
            if key in self.replies:
                maker.made(self.keys[[key]], self.keys[[self.replies[key]]], expiry)
            else:
                maker.made(self.keys[[key]], None, expiry)
        self.bounds = {}
        if self.limit is not None:
            tables.set_limit(self.stage.table, 0, self.limit)
            tables.totals(self.stage.table)["limit"] = self.limit
            quotas, totals = (self.stage.table.address(Region.CONTROL, name) for name in ("quotas", "globals"))
            self.bounds = {
                quotas + int(offset(QUOTA, "count")): self.limit,
                totals + int(offset(GLOBAL, "count")): self.limit,
            }
        self.stage.save()
        self.counted = self.counters()
        self.happened = set()
        self.mapped = Mapped(self.stage.table)

    def prepare(self, program):
        """Let the first participant do something before every run."""
        worker = Worker(self, Simulation(self.mapped, 0, weak=False), self.stage.participants[0])
        worker.simulation.run(lambda: program(worker))
        self.before = tuple(self.present())
        self.stage.save()
        self.counted = self.counters()

    def pair(self, key):
        """Return the keys of the connection that ``key`` opens."""
        return (key, self.replies[key]) if key in self.replies else (key,)

    def connection(self, key):
        """Return ``key`` and the other key of the only connection that has it."""
        pairs = [pair for pair in self.replies.items() if key in pair] or [(key,)]
        assert len(pairs) == 1, f"key {key} may belong to any of {pairs}"
        return sorted(pairs[0], key=lambda other: other != key)

    def zone_of(self, key):
        """Return the zone of a key."""
        return int(self.keys[key][4]) >> 16 & 0xFFFF

    def present(self):
        """Return the keys that LIVE records have now."""
        table = self.stage.table
        entries, extensions = tables.entries(table), tables.extensions(table)
        found = set()
        for record in np.flatnonzero(naive_audit.states(table) == Life.LIVE):
            found.add(tuple(entries[record]["key"].tolist()))
            if entries[record]["extension"]:
                found.add(tuple(extensions[entries[record]["extension"] - 1]["reply_key"].tolist()))
        return {i for i, key in enumerate(self.keys) if tuple(key.tolist()) in found}

    def run(self, seed, programs, **how):
        """Run one program for each participant from a seed; raise what went wrong.

        Args:
            programs: one for each participant: functions of a Worker.
            how: of Simulation.
        """
        self.stage.restore()
        simulation = Simulation(self.mapped, seed, bounds=self.bounds, **how)
        workers = [
            Worker(self, simulation, participant)
            for participant, _ in zip(self.stage.participants, programs, strict=False)
        ]
        simulation.run(*(lambda w=w, p=p: p(w) for w, p in zip(workers, programs, strict=True)))
        for worker in workers:
            worker.finish()
        operations = [operation for worker in workers for operation in worker.operations]
        self.happened |= {Reason(int(at)).name for at in np.flatnonzero(self.counters() > self.counted)}
        self.happened |= {operation.what.split()[1] for operation in operations}
        faults = naive_audit.faults(self.stage.table)
        faults += histories.faults(operations, self.everything(self.before), self.present())
        if not how.get("impatient"):
            faults += [f"{o.what} of key {o.key}" for o in operations if "BUSY" in o.what]
        if faults:
            raise Fault(simulation.report(Fault("\n".join(faults))))
        return simulation

    def counters(self):
        """Return the sum of all participants' counters, by Reason."""
        return sum(participant.place["counters"].astype(int) for participant in self.stage.participants)

    def everything(self, keys):
        """Return the keys of the connections that ``keys`` open."""
        return {each for key in keys for each in self.pair(key)}

    def run_seeds(self, count, programs_of, **how):
        """Run ``count`` seeds; ``programs_of`` makes the programs from a random source.

        Returns:
            What has happened in all runs of this play: names of counters, and answers.
        """
        for seed in range(round(count * SEEDS)):
            self.run(seed, programs_of(random.Random(seed)), impatient=seed % 4 == 3, **how)
        return self.happened


class Worker:
    """A simulated participant: each method is an operation that goes into the history."""

    def __init__(self, play, simulation, participant):
        self.play, self.simulation, self.participant = play, simulation, participant
        self.operations = []
        self.flushes = []

    def _begin(self, what, keys):
        begun = [Operation(what, key) for key in keys]
        for operation in begun:
            self.simulation.begin(operation)
        self.operations += begun
        return begun

    def _end(self, begun, said, outcomes):
        for operation in begun:
            operation.what += f" {said}"
            operation.outcomes = outcomes
            self.simulation.end(operation)

    def _answer(self, begun, record, outcomes):
        """End a lookup: BUSY says nothing, NONE that the key it looked for, the first, was absent."""
        if record == tables.BUSY:
            self._end(begun, "BUSY", histories.NOTHING)
        elif record == tables.NONE:
            self._end(begun[:1], "missed", histories.MISSED)
            self._end(begun[1:], "missed", histories.NOTHING)
        else:
            self._end(begun, f"record {record}", outcomes)

    def find(self, key):
        """Find."""
        begun = self._begin("find", [key])
        self._answer(begun, self.participant.find(self.play.keys[key])[0], histories.FOUND)

    def refresh(self, key, expiry_ms=tiny.LATER):
        """A packet that changes the expiry."""
        begun = self._begin("refresh", [key])
        record = self.participant.refresh(self.play.keys[key], expiry_ms)[0]
        self._answer(begun, record, histories.FOUND)

    def mark(self, key):
        """Delete later."""
        begun = self._begin("mark", self.play.connection(key))
        self._answer(begun, self.participant.mark(self.play.keys[key])[0], histories.REMOVED)

    def remove(self, key):
        """Delete at once."""
        begun = self._begin("remove", self.play.connection(key))
        self._answer(begun, self.participant.remove(self.play.keys[key])[0], histories.REMOVED)

    def make(self, *keys, expiry_ms=tiny.LATER):
        """Make connections, one after the other, asking for credit for all at once."""
        begun = [self._begin("make", self.play.pair(key)) for key in keys]
        replies = [self.play.keys[self.play.replies[key]] for key in keys if key in self.play.replies]
        made = self.participant.make(
            self.play.keys[list(keys)], np.array(replies) if replies else None, expiry_ms, len(keys)
        )
        for operations, reason, record in zip(begun, *made, strict=True):
            reason = Reason(int(reason))
            if reason == Reason.NONE:
                self._end(operations, f"made record {record}", histories.MADE)
            elif reason == Reason.ADOPTED:
                self._end(operations[:1], "ADOPTED", histories.FOUND)
                self._end(operations[1:], "ADOPTED", histories.NOTHING)
            elif reason == Reason.CLASH:
                self._end(operations[:1], "CLASH", histories.NOTHING)
                self._end(operations[1:], "CLASH", histories.FOUND)
            else:
                assert reason in REFUSED, reason
                self._end(operations, reason.name, histories.NOTHING)

    def _track(self, packets, action=0, link=Link.RAW_IP):
        frames, kept = datagrams.burst(packets, link)
        frames["action"] = action
        verdicts = np.zeros(len(packets), VERDICT)
        views, now_ms = self.participant.views, self.play.now_ms
        burst.track_burst(views, u64(frames.ctypes.data), u64(len(packets)), u64(now_ms), u64(verdicts.ctypes.data))
        del kept
        return verdicts

    def burst(self, *packets, action=0):
        """Track a burst of datagrams: pairs of a key, and whether a connection shall be made for it.

        ``action`` is the address of what is asked of the connections.
        """
        begun = [self._begin("packet", [key]) for key, _ in packets]
        verdicts = self._track([datagrams.Packet(self.play.keys[key], commit) for key, commit in packets], action)
        for operations, (_, commit), verdict in zip(begun, packets, verdicts, strict=True):
            self._packet(operations, verdict, histories.THERE if commit else histories.FOUND)

    def segments(self, *packets):
        """Track a burst of TCP segments: (key, flags) or (key, flags, reply).

        One may delete what it finds, because it is closed, and then make it anew: two operations.
        """
        self._converse([(key, True, *how) for key, *how in packets], Link.RAW_IP)

    def converse(self, *packets):
        """Track a burst of segments whose short ways are foretold, in Ethernet: (key, commit, flags, reply, seq ...)."""
        self._converse(packets, Link.ETHERNET)

    def _converse(self, packets, link):
        begun = [(self._begin("closed", [packet[0]]), self._begin("segment", [packet[0]])) for packet in packets]
        verdicts = self._track([datagrams.Packet(self.play.keys[key], *how) for key, *how in packets], link=link)
        for (closed, operations), (_, commit, *_), verdict in zip(begun, packets, verdicts, strict=True):
            self._end(closed, "perhaps", histories.PERHAPS)
            self._packet(operations, verdict, (histories.THERE if commit else histories.FOUND) + histories.REMOVED)

    def _packet(self, operations, verdict, outcomes):
        if verdict["record"] != NO_RECORD:
            self._end(operations, f"record {verdict['record']}", outcomes)
        elif verdict["reason"] == Reason.NONE:
            self._end(operations, "missed", histories.MISSED)
        else:
            self._end(operations, Reason(int(verdict["reason"])).name, histories.NOTHING)

    def run_list(self):
        """Run the own delete list."""
        delete_list.run(self.participant.views)

    def sweep(self):
        """Sweep what has expired at NOW."""
        keys = self.play.everything(self.play.expired)
        begun = self._begin("sweep", keys) + self._begin("sweep", keys)  # what is made anew meanwhile may be met too
        sweep.sweep(self.participant.views, u64(self.play.now_ms), u64(1 << 30))
        self._end(begun, "done", histories.PERHAPS)

    def walk(self, out_max=2):
        """List all connections, page by page: what is on no page was not there all the time."""
        begun = self._begin("walk", range(len(self.play.keys)))
        cursor, out = np.zeros(1, "u8"), np.zeros(out_max, CONNECTION)
        wanted, listed = np.zeros(1, FILTER).view(np.recarray)[0], set()
        while cursor[0] < self.play.stage.table.geometry.records(Slab.ENTRIES):
            n = walk.collect(
                self.participant.views, wanted, u64(self.play.now_ms), u64(0), u64(BLOCK_RECORDS),
                u64(cursor.ctypes.data), u64(out.ctypes.data), u64(out_max),
            )  # fmt: skip
            listed |= {tuple(row[name].tobytes() for name in WHO) for row in out[: int(n)]}
        for operation in begun:
            if seen_as(self.play.keys[operation.key]) in listed:
                self._end([operation], "listed", histories.FOUND)
            else:  # what has expired is there and is not listed
                expired = operation.key in self.play.expired
                self._end([operation], "missed", histories.NOTHING if expired else histories.MISSED)

    def wipe(self):
        """Delete all connections that are met."""
        keys = range(len(self.play.keys))
        begun = self._begin("wipe", keys) + self._begin("wipe", keys)  # what is made anew meanwhile may be met too
        cursor, wanted = np.zeros(1, "u8"), np.zeros(1, FILTER).view(np.recarray)[0]
        walk.delete(self.participant.views, wanted, u64(self.play.now_ms), u64(1 << 30), u64(cursor.ctypes.data))
        self._end(begun, "wiped", histories.PERHAPS)

    def flush(self, zone=0):
        """Detach a zone, then bring home what it held in slices."""
        keys = [key for key in range(len(self.play.keys)) if self.play.zone_of(key) == zone]
        begun = self._begin("flush", keys)
        word = self.participant.detach(zone)
        if word == flush.DONE:
            self._end(begun, "BUSY", histories.NOTHING)
            return
        self._end(begun, "detached" if word else "empty", histories.GONE if word else histories.MISSED)
        if word:
            cursor = u64(0)
            for _ in range(20):
                cursor = self.participant.reclaim(zone, word, cursor, SLICE)
                if cursor == flush.DONE:
                    return
            self.flushes.append((zone, word, cursor))

    def shrink(self, zone=0):
        """Bring home what a zone does not need of the index; nobody can tell."""
        self.participant.shrink(zone)

    def finish(self):
        """Do what was left for lack of a lock, when nobody else runs."""
        self.participant.find(self.play.keys[0])  # what was refused may have left a step, until the next begins
        for zone, word, cursor in self.flushes:
            assert self.participant.reclaim(zone, word, cursor) == flush.DONE
        self.participant.run()


def mixed(rng, choices, length):
    """Return a program of up to ``length`` operations, each drawn from (operation, arguments) choices."""
    drawn = [rng.choice(choices) for _ in range(rng.randint(1, length))]

    def program(worker):
        for operation, *arguments in drawn:
            getattr(worker, operation)(*arguments)

    return program
