"""All of it at once, for as long as one likes: python -m tests.faults.soak [MINUTES [SEED]].

Two workers at full rate with connections that come and go; a worker killed every two seconds; dumps, flushes, limits and
rules that change; readers of events who come and go; and beside it all established flows that must stay.  Packets and
counts are timed all the while.  At the end nothing is lost, shared memory is what it was, and the audit is clean.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import numpy as np  # noqa: E402 - after it knows where support is
import ports  # noqa: E402
from forked import Child  # noqa: E402
from zonetrack.clients.errors import TookTooLongError  # noqa: E402
from zonetrack.clients.port import Queue, frames_of  # noqa: E402
from zonetrack.clients.sync import connect  # noqa: E402
from zonetrack.service.crew import shared  # noqa: E402
from zonetrack.shm import estate  # noqa: E402
from zonetrack.shm.layout import DESCRIPTOR  # noqa: E402

from .campaign import KEPT_ZONE, LOAD_ZONE, PATIENCE_MS, Campaign, Report  # noqa: E402

KILL_EVERY_S = 2.0
PROBE_ZONE = 2
PROBE_PAUSE_S = 0.002
AGAIN_S = 0.05
"""Without an answer: the worker that had the packet was killed over it."""
SAMPLES_MAX = 1 << 21
BATCHES_MAX = 10
"""Of events that a reader takes before it goes."""
SETTLE_S = 60.0
PROCESS_BYTES = 64 << 20
"""What control may grow by: what it has read once stays in its caches."""
BASE = f"in_port=kept actions=ct(commit,zone={KEPT_ZONE})\nin_port=probe actions=ct(commit,zone={PROBE_ZONE})\n"
RULES = (
    BASE + f"in_port=lab actions=ct(commit,zone={LOAD_ZONE})\n",
    BASE + f"in_port=lab,udp actions=ct(table=1,zone={LOAD_ZONE})\ntable=1 actions=ct(commit,zone={LOAD_ZONE})\n",
)
TIMES = np.dtype([("count", "u8"), ("ns", "u8", (SAMPLES_MAX,))])
CLIENTS = 4
DONE = np.dtype(
    [
        *((name, "u8") for name in ("enough", "dumps", "rows", "readers", "events", "lost", "rest")),
        ("rests", "u8", (CLIENTS,)),
    ]
)


@dataclass
class SoakReport(Report):
    """What a soak came to."""

    done: dict = field(default_factory=dict)
    times_ms: dict = field(default_factory=dict)
    """Median, 99 % and 99.9 % of what was timed."""
    shared_bytes: tuple = (0, 0)
    """At the beginning and at the end."""
    control_bytes: tuple = (0, 0)

    def __str__(self):
        done = ", ".join(f"{count:,} {name}" for name, count in self.done.items())
        times = "\n".join(
            f"{name}: median {p50:.2f} ms, p99 {p99:.2f} ms, p99.9 {p999:.2f} ms, most {most:.1f} ms"
            for name, (p50, p99, p999, most) in self.times_ms.items()
        )
        first, last = self.shared_bytes
        control = " -> ".join(f"{size >> 20} MB" for size in self.control_bytes)
        return f"{super().__str__()}\n{done}\n{times}\nshared memory {first:,} -> {last:,} bytes; control {control}"


class Soak(Campaign):
    """A campaign that kills at an even pace, among all that clients do."""

    workers = 2
    more_ports = ("--port", f"shm:probe,queues=1,zone={PROBE_ZONE}")

    def _new_report(self):
        return SoakReport()

    def soak(self, seconds):
        """Do it all for so long, look at everything, and return the report."""
        self.times = {name: shared(TIMES, 1)[0] for name in ("count", "packet and answer")}
        self.note = shared(DONE, 1)[0]
        others = [Child(lambda child, act=act: act()) for act in (self._dump, self._read, self._count, self._probe)]
        try:
            self._everything_once()
            self._rest()
            before = self._memory()
            self.note["rest"] = 0
            self._go_on(time.monotonic() + seconds)
            self._rest()
            self._compare(before)
        finally:
            self.note["enough"], self.note["rest"] = 1, 0
            ends = [other.wait() for other in others]
        if any(ends):
            self.report.broken.append(f"clients ended with {ends}")
        self._tell()
        with self._ask() as ct:
            ct.flush(zone=PROBE_ZONE)
        self.report.packets += self.load.end()
        self._judge()
        return self.report

    def _everything_once(self):
        """Have all done what makes memory, before it is measured."""
        self._kill_worker(0)
        for rules in (*RULES, *RULES):
            self._load_rules(rules)
        limit_s = time.monotonic() + PATIENCE_MS / 1_000
        while not (self.note["dumps"] and self.note["readers"]):
            assert time.monotonic() < limit_s, "dumps and readers do not begin"
            time.sleep(0.01)

    def _go_on(self, until_s):
        number, next_s = 0, time.monotonic()
        while time.monotonic() < until_s:
            next_s += KILL_EVERY_S
            self._kill_worker(number % self.workers)
            while (left := next_s - time.monotonic()) > 0:
                self._operate()
                time.sleep(min(left, self.chance.uniform(0.0, 0.4)))
            if number % 30 == 29:
                self._load_rules(RULES[number // 30 % 2])
                self.report.lost += self._lost()
                print(f"{number + 1} kills, {self.load.answered():,} packets", flush=True)
            number += 1

    def _load_rules(self, rules):
        with self._ask() as ct:
            ct.rules.load(rules)

    # -------------------------------------------------------------------------------------------- clients
    def _until_enough(self):
        """Yield again and again; wait where all shall rest."""
        parent = os.getppid()
        while not self.note["enough"] and os.getppid() == parent:
            yield
            if self.note["rest"]:
                self.note["rests"][self._own] = 1
                while self.note["rest"] and os.getppid() == parent:
                    time.sleep(0.01)
                self.note["rests"][self._own] = 0

    def _dump(self):
        self._own = 0
        with self._ask() as ct:
            for _ in self._until_enough():
                self.note["rows"] += len(ct.dump())
                self.note["dumps"] += 1

    def _read(self):
        """Come, read events, and go; what is told is told in order."""
        self._own = 1
        for _ in self._until_enough():
            with connect(socket=self.service.socket) as ct:
                sequence = 0
                try:
                    for number, batch in enumerate(ct.event_batches(timeout_s=1.0)):
                        assert batch.sequence >= sequence + batch.count, "events are told twice"
                        sequence = batch.sequence
                        self.note["events"] += batch.count
                        self.note["lost"] += batch.lost
                        if number == BATCHES_MAX or self.note["rest"] or self.note["enough"]:
                            break
                except TookTooLongError:
                    continue
            self.note["readers"] += 1

    def _count(self):
        self._own = 2
        with self._ask() as ct:
            for _ in self._until_enough():
                begun = time.perf_counter_ns()
                ct.count()
                self._took("count", begun)
                time.sleep(PROBE_PAUSE_S)

    def _probe(self):
        """Send a packet of one connection again and again, and wait for its answer; what a dead worker had is sent again."""
        self._own = 3
        frames, kept = frames_of(ports.datagrams(1, sport=8000))
        room = np.zeros(8, DESCRIPTOR)
        with Queue("probe", 0, self.service.instance) as queue:
            for tag, _ in enumerate(self._until_enough()):
                begun = time.perf_counter_ns()
                while not queue.send(frames, tag=tag):
                    queue.wait(1)
                waited_s = time.monotonic() + PATIENCE_MS / 1_000
                again_s = time.monotonic() + AGAIN_S
                while tag not in room["tag"][: queue.receive(room)]:
                    queue.wait(10)
                    assert time.monotonic() < waited_s, "a packet has no answer"
                    if time.monotonic() > again_s:
                        again_s += AGAIN_S
                        queue.send(frames, tag=tag)
                self._took("packet and answer", begun)
                time.sleep(PROBE_PAUSE_S)
        del kept

    def _took(self, name, begun):
        times = self.times[name]
        if times["count"] < SAMPLES_MAX:
            times["ns"][int(times["count"])] = time.perf_counter_ns() - begun
            times["count"] += 1

    # -------------------------------------------------------------------------------------------- memory
    def _rest(self):
        """Let clients rest, so that what is on demand is given back."""
        self.note["rest"] = 1
        limit_s = time.monotonic() + PATIENCE_MS / 1_000
        while not self.note["rests"].all():
            assert time.monotonic() < limit_s, f"clients do not rest: {self.note['rests'].tolist()}"
            time.sleep(0.01)

    def _memory(self):
        """Return the bytes of shared memory that the service has, and those that are control's own."""
        instance = self.service.instance
        files = {}
        for path in Path("/dev/shm").glob(f"zonetrack.{instance}.*"):
            found = path.stat()
            files[found.st_dev, found.st_ino] = 512 * found.st_blocks
        for member in estate.members(instance):
            for link in Path(f"/proc/{member.pid}/fd").iterdir():
                if os.path.lexists(link) and os.readlink(link).startswith("/memfd:zonetrack"):
                    found = link.stat()
                    files[found.st_dev, found.st_ino] = 512 * found.st_blocks
        with self._ask() as ct:
            pid = ct.hello()["control"]
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return sum(files.values()), (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")

    def _compare(self, before):
        """Hold memory against what it was; what is given back is so soon after the last reader has gone."""
        limit_s = time.monotonic() + SETTLE_S
        while (after := self._memory())[0] > before[0] and time.monotonic() < limit_s:
            time.sleep(0.1)
        self.report.shared_bytes = before[0], after[0]
        self.report.control_bytes = before[1], after[1]
        if after[0] > before[0]:
            self.report.broken.append(f"shared memory has grown by {after[0] - before[0]:,} bytes")
        if after[1] > before[1] + PROCESS_BYTES:
            self.report.broken.append(f"control has grown by {after[1] - before[1]:,} bytes")

    def _tell(self):
        self.report.done = {name: int(self.note[name]) for name in ("dumps", "rows", "readers", "events", "lost")}
        for name, times in self.times.items():
            taken = times["ns"][: int(times["count"])] / 1e6
            if len(taken):
                self.report.times_ms[name] = (*np.percentile(taken, (50, 99, 99.9)).tolist(), float(taken.max()))


def main(minutes=1.0, seed=0):
    """Soak for so many minutes; returns 1 when something was lost or broken."""
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(Path(directory), seed)
        try:
            report = soak.soak(60 * minutes)
        finally:
            soak.close()
    print(report)
    return 1 if report.lost or report.broken else 0


if __name__ == "__main__":
    sys.exit(main(*(kind(one) for kind, one in zip((float, int), sys.argv[1:], strict=False))))
