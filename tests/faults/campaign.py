"""Real processes killed under full load: workers mostly, control and the keeper now and then, at moments by chance.

Clients send through all queues all the while, from processes of their own; connections come, expire, are flushed and
deleted.  Beside them stand established flows in a zone of their own, kept in a list.  After each kill the rings of the dead
must move again; at the end every flow of the list is found, the counts are exact, no lock is held and the audit is clean.

The keeper's children go on when it dies: packets are answered meanwhile, and the next keeper, as systemd would start it,
adopts them.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import time
from dataclasses import dataclass, field

import naive_audit
import numpy as np
import ports
from forked import Child
from services import Service
from zonetrack.clients.errors import Exit, ZonetrackError
from zonetrack.clients.port import PortClosedError, Queue, frames_of
from zonetrack.clients.sync import connect
from zonetrack.kernels.timeouts import Timeout
from zonetrack.service import audit
from zonetrack.service.crew import shared
from zonetrack.shm import roster
from zonetrack.shm.layout import DESCRIPTOR, POLICY, ZONE, CtState, Region, Setting

WORKERS, KEPT_FLOWS = 4, 200
KEPT_ZONE, LOAD_ZONE = 1, 5
BATCHES, BATCH = 24, 512
"""What a client goes round in: new flows at first, and again when they have expired."""
SHORT_MS = 20
"""A flow of the load expires so soon."""
SAY_EVERY = 100
KEEPER_EVERY, CONTROL_EVERY = 100, 20
PACE_S = (0.0, 0.5)
"""Between two kills: each worker dies too seldom for the keeper to take it for one that cannot live."""
PATIENCE_MS = 60_000
WATCHES_MAX = 100_000
"""Looks for a worker within an operation before half of the kills: some ten milliseconds."""


@dataclass
class Report:
    """What a campaign came to."""

    kills: dict = field(default_factory=lambda: {"worker": 0, "control": 0, "keeper": 0})
    respawn_ms: list = field(default_factory=list)
    """Of workers: from the kill to the successor's word that it is ready."""
    interrupted: dict = field(default_factory=dict)
    """Steps that the dead were killed in."""
    packets: int = 0
    without_keeper: int = 0
    """Packets that were answered while there was no keeper."""
    gap_ms: list = field(default_factory=list)
    """How long there was none: from the kill to the next one's word that all is well."""
    lost: int = 0
    """Established flows that were not found."""
    moved: int = 0
    """Rings that were seen to move again after a kill."""
    held: list | None = None
    """Locks that are held at the end; None: nobody has looked yet."""
    counts: dict = field(default_factory=dict)
    """Counts at the end that were read, and what they had to be, by what is counted."""
    audit: str | None = None
    """What the audit of the end says."""
    broken: list = field(default_factory=list)
    """What audits said."""

    def __str__(self):
        times = sorted(self.respawn_ms) or [0.0]
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        steps = ", ".join(f"{name} {count}" for name, count in sorted(self.interrupted.items(), key=lambda i: -i[1]))
        return (
            f"{sum(self.kills.values())} kills {self.kills}; {self.packets:,} packets answered\n"
            f"killed within an operation: {sum(self.interrupted.values())} ({steps})\n"
            f"without a keeper {sum(self.gap_ms):.0f} ms, {self.without_keeper:,} packets answered meanwhile\n"
            f"respawn of workers: median {statistics.median(times):.0f} ms, p99 {p99:.0f} ms, most {times[-1]:.0f} ms\n"
            f"rings seen to move again: {self.moved}\n"
            f"established flows lost: {self.lost} of {KEPT_FLOWS}; broken: {self.broken or 'nothing'}{self._end()}"
        )

    def _end(self):
        """Say what was found when all had ended; nothing before."""
        if self.held is None:
            return ""
        counts = ", ".join(f"{what} {count} (must be {wanted})" for what, (count, wanted) in self.counts.items())
        return f"\nat the end: {len(self.held)} locks held; counts: {counts}; audit: {self.audit}"


class Load:
    """Client processes, one for each queue, and how many packets each has had answered."""

    def __init__(self, service, queues=WORKERS):
        self.tally = shared(np.dtype([("answered", "u8"), ("enough", "u8"), ("reserved", "u8", (6,))]), queues)
        self.instance = service.instance
        self.children = [Child(lambda child, queue=queue: self._send(queue)) for queue in range(queues)]

    def _send(self, number):
        """Send round and round, as much as there is room for, until there was enough, or nobody is there."""
        parent = os.getppid()
        mine = self.tally[number]
        batches = [frames_of(ports.datagrams(BATCH, first=i * BATCH, sport=6000 + number)) for i in range(BATCHES)]
        room = np.zeros(2 * BATCH, DESCRIPTOR)
        with Queue("lab", number, self.instance) as queue, contextlib.suppress(PortClosedError):
            at = 0
            while not mine["enough"] and os.getppid() == parent:
                queue.send(batches[at % BATCHES][0])
                at += 1
                came = queue.receive(room)
                mine["answered"] += came
                if not came:
                    queue.wait(5)
                    queue.check()

    def until_moved(self, number, more=200):
        """Wait until a queue has so many more packets answered; returns 1, the rings that have moved."""
        target = self.tally[number]["answered"] + more
        limit_s = time.monotonic() + PATIENCE_MS / 1_000
        while self.tally[number]["answered"] < target:
            assert time.monotonic() < limit_s, f"queue {number} does not move"
            time.sleep(0.001)
        return 1

    def answered(self):
        """Return the packets that were answered so far."""
        return int(self.tally["answered"].sum())

    def end(self):
        """Let all end; returns the packets that were answered."""
        self.tally["enough"] = 1
        for child in self.children:
            child.wait()
        return self.answered()


class Campaign:
    """Kills under load, from a seed."""

    workers = WORKERS
    more_ports = ()
    """Flags of ports beside those of the load and of the list."""

    def __init__(self, directory, seed=0, pace_s=PACE_S):
        self.directory, self.chance, self.pace_s = directory, random.Random(seed), pace_s
        self.report = self._new_report()
        self.service = self._start(None)
        asked = ports.datagrams(KEPT_FLOWS, sport=7000)
        answered = [
            ports.udp(b"\x0a\x01\0\x01", b"\x0a\0" + i.to_bytes(2, "big"), 53, 7000, b"answer")
            for i in range(KEPT_FLOWS)
        ]
        self.asked = asked
        assert (self._kept(asked + answered)[KEPT_FLOWS:] & CtState.EST).all()
        self.load = Load(self.service, self.workers)

    def _new_report(self):
        return Report()

    def _start(self, after):
        service = Service(
            self.directory,
            *(
                "--workers",
                self.workers,
                "--max-connections",
                65_536,
                "--port",
                f"shm:lab,queues={self.workers},zone={LOAD_ZONE}",
            ),
            *("--port", f"shm:kept,queues=1,zone={KEPT_ZONE}"),
            *self.more_ports,
            after=after,
        ).until_ready()
        if after is not None:
            return service
        table = service.table
        table.array(Region.CONTROL, "zones", ZONE)["settings"][KEPT_ZONE] |= Setting.NO_EXPIRY
        policy = table.array(Region.CONTROL, "policies", POLICY)[0]
        policy["timeout_ms"][[Timeout.UDP, Timeout.UDP_STREAM]] = SHORT_MS
        return service

    def _kept(self, packets):
        """Send packets of the list; returns the ct_state of each."""
        said, room = {}, np.zeros(1024, DESCRIPTOR)
        with Queue("kept", 0, self.service.instance) as queue:
            for first in range(0, len(packets), 100):
                frames, kept = frames_of(packets[first : first + 100])
                assert queue.send(frames, tag=first) == len(frames)
                while len(said) < first + len(frames):
                    assert queue.wait(PATIENCE_MS), "no answer"
                    came = room[: queue.receive(room)]
                    said.update(zip(came["tag"].tolist(), came["verdict"]["ct_state"].tolist(), strict=True))
                del kept
        return np.array([said[i] for i in range(len(packets))])

    # -------------------------------------------------------------------------------------------- kills
    def run(self, kills):
        """Kill so often, look at everything, and return the report."""
        for number in range(1, kills + 1):
            time.sleep(self.chance.uniform(*self.pace_s))
            if number % KEEPER_EVERY == 0:
                self._kill_keeper()
            elif number % CONTROL_EVERY == 0:
                self._kill_control()
            else:
                self._kill_worker(self.chance.randrange(self.workers))
            if number % 7 == 0:
                self._operate()
            if number % SAY_EVERY == 0:
                print(f"{number} of {kills}: {self.report}", flush=True)
        self.report.packets += self.load.end()
        self._judge()
        return self.report

    def _ask(self):
        return connect(socket=self.service.socket)

    def _operate(self):
        """What operators do meanwhile."""
        with contextlib.suppress(ZonetrackError), self._ask() as ct:  # control may have been killed just now
            what = self.chance.choice(("flush", "delete", "limit", "audit"))
            if what == "flush":
                ct.flush(zone=LOAD_ZONE)
            elif what == "delete":
                ct.delete(zone=LOAD_ZONE, dport=53)
            elif what == "limit":
                ct.limits.set(zone=LOAD_ZONE, limit=self.chance.choice((500, 5_000, 60_000)))
            else:
                found = ct.audit()["broken"]
                if found is not None:
                    self.report.broken.append(str(found))

    def _kill_worker(self, number):
        line = self._workers()[number]
        if self.chance.random() < 0.5:
            self._watch(line["owner"])
        killed_s = time.monotonic()
        os.kill(line["pid"], signal.SIGKILL)
        self.service.hear(f"worker {number} (pid {line['pid']})")
        self.service.hear(f"worker {number} is ready")
        self.report.respawn_ms.append(1_000 * (time.monotonic() - killed_s))
        self.report.kills["worker"] += 1
        self.report.moved += self.load.until_moved(number)

    def _watch(self, owner):
        """Wait a little for a worker to be seen within an operation: at a moment by chance few are."""
        place = roster.participants(self.service.table)[owner - 1 : owner]["intent"]
        for _ in range(WATCHES_MAX):
            if place["step"][0]:
                return

    def _workers(self):
        with self._ask() as ct:
            return {worker["number"]: worker for worker in ct.workers()}

    def _note(self):
        """Read in the log what was repaired, by the keeper or by who waited for a lock of the dead."""
        for line in self.service.log:
            for step in line.get("repaired", {}).values():
                self.report.interrupted[step] = self.report.interrupted.get(step, 0) + 1

    def _kill_control(self):
        with self._ask() as ct:
            pid = ct.hello()["control"]
        os.kill(pid, signal.SIGKILL)
        self.service.hear(f"control (pid {pid})")
        self.service.hear("control is ready")
        self.report.kills["control"] += 1

    def _kill_keeper(self):
        """Kill the keeper; all queues move on without it, and the next adopts whoever it had."""
        before = {number: line["pid"] for number, line in self._workers().items()}
        answered, killed_s = self.load.answered(), time.monotonic()
        self.service.kill_keeper()
        for number in range(self.workers):
            self.report.moved += self.load.until_moved(number)
        self.service = self._start(self.service)
        self.report.gap_ms.append(1_000 * (time.monotonic() - killed_s))
        self.report.without_keeper += self.load.answered() - answered
        after = {number: line["pid"] for number, line in self._workers().items()}
        if after != before:
            self.report.broken.append(f"workers {before} were followed by {after} when the keeper was killed")
        self.report.lost += self._lost()
        self.report.kills["keeper"] += 1

    # -------------------------------------------------------------------------------------------- the end
    def _lost(self):
        """Return how many flows of the list are not found."""
        return int((self._kept(self.asked) & CtState.EST == 0).sum())

    def _judge(self):
        self.report.lost += self._lost()
        with self._ask() as ct:
            counts = {"listed": ct.count(zone=KEPT_ZONE), "in all": self._without_load(ct)}
        code = self.service.stop()
        self._note()
        if code != Exit.OK:
            self.report.broken.append(f"the service ended with {code}")
        table = self.service.table
        counts["in the records"] = int(np.count_nonzero(naive_audit.states(table)))
        self.report.counts = {what: (count, KEPT_FLOWS) for what, count in counts.items()}
        self.report.held = list(naive_audit.locks(table))
        found = audit.at_rest(table)
        self.report.audit = "clean" if found is None else str(found)
        wrong = [f"{what}: {count}" for what, count in counts.items() if count != KEPT_FLOWS]
        self.report.broken += [*wrong, *self.report.held, *([] if found is None else [str(found)])]

    def _without_load(self, ct):
        """Flush the load until nothing of it comes any more: what clients had sent at their end is on its way still."""
        limit_s = time.monotonic() + PATIENCE_MS / 1_000
        while True:
            ct.flush(zone=LOAD_ZONE)
            count = ct.count()
            if count == KEPT_FLOWS or time.monotonic() > limit_s:
                return count

    def close(self):
        """Take away all that is left."""
        for child in self.load.children:
            child.kill()
        self.service.close()
