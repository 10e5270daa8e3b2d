"""Fragments of one datagram on different queues of a real service, each queue with a worker process of its own."""

import contextlib
import os
import random
import signal

import fragmented
import numpy as np
import pytest
from eventually import until
from services import Service
from zonetrack.clients.port import Queue, frames_of
from zonetrack.clients.sync import connect
from zonetrack.service import audit
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, Kind
from zonetrack.shm.reasons import Reason

QUEUES = 3


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as started:

        def start(*flags):
            service = Service(tmp_path, "--max-connections", 4000, *flags)
            return started.enter_context(service).until_ready()

        yield start


class Lines:
    """A client of every queue of a port."""

    def __init__(self, service, queues=QUEUES):
        self.queues = [Queue("lab", index, service.instance) for index in range(queues)]
        self.said = {}
        """What came back: verdict and frame by tag."""

    def send(self, queue, tag, piece):
        """Send a piece through a queue."""
        frames, kept = frames_of([piece.frame])
        while not self.queues[queue].send(frames, tag=tag):
            self.hear()
        del kept

    def hear(self):
        """Take what has come back."""
        for queue in self.queues:
            answers, frames = np.zeros(64, DESCRIPTOR), np.zeros((64, FRAME_SLOT_BYTES), "u1")
            for answer, frame in zip(answers[: queue.receive(answers, frames)], frames, strict=False):
                assert int(answer["tag"]) not in self.said
                self.said[int(answer["tag"])] = answer["verdict"], bytes(frame[: int(answer["captured_bytes"])])

    def until(self, tags):
        """Wait until all of some have come back."""
        tags = set(tags)
        while not tags <= set(self.said):
            for queue in self.queues:
                queue.wait(1)
            self.hear()

    def close(self):
        for queue in self.queues:
            queue.close()


def datagrams(count, chance):
    """Return datagrams in three or four pieces each, as pieces by tag, shuffled: tag // 4 says of which."""
    pieces = []
    for n in range(count):
        family = chance.choice([4, 6])
        cuts = sorted(chance.sample(range(8, 4000, 8), chance.choice([2, 3])))
        cuts = [1400, 2800] if max(b - a for a, b in zip((0, *cuts), (*cuts, 4000), strict=True)) > 1900 else cuts
        whole = fragmented.cut(fragmented.udp(4000, sport=n + 1, family=family), *cuts, family=family, id=n)
        pieces += [(4 * n + at, piece) for at, piece in enumerate(whole)]
    chance.shuffle(pieces)
    return pieces


@pytest.mark.parametrize("seed", range(2))
def test_all_fragments_of_a_datagram_get_one_verdict_and_come_out_as_they_went_in(serve, seed):
    chance = random.Random(seed)
    service = serve("--workers", QUEUES, "--port", f"shm:lab,queues={QUEUES}")
    with contextlib.closing(Lines(service)) as lines, connect(socket=service.socket) as ct:
        pieces = datagrams(60, chance)
        for tag, piece in pieces:
            lines.send(chance.randrange(QUEUES), tag, piece)
        lines.until(tag for tag, _ in pieces)
        for tag, piece in pieces:
            verdict, frame = lines.said[tag]
            assert frame == piece.frame
            assert fragmented.fate(verdict) == fragmented.NEW
            assert verdict == lines.said[tag // 4 * 4][0]
        assert len({int(verdict["record"]) for verdict, _ in lines.said.values()}) == 60 == ct.count()
        until(lambda: ct.fragments.get()["waiting"] == 0)
        told = ct.fragments.get()
        assert told["counters"]["accepted"] == told["counters"]["completed"] == len(pieces)
    assert service.stop() == 0
    assert audit.at_rest(segment.attach(service.instance, sealed=True).table) is None


def test_when_a_worker_dies_the_others_hear_of_the_datagrams_that_miss_its_fragments(serve):
    service = serve("--workers", 2, "--port", "shm:lab,queues=2")
    first, middle, last = fragmented.cut(fragmented.udp(3200), 1480, 2960)
    with contextlib.closing(Lines(service, 2)) as lines, connect(socket=service.socket) as ct:
        lines.send(0, 1, first)
        lines.send(1, 2, middle)
        while ct.fragments.get()["waiting"] != 2:
            lines.hear()
        (victim,) = [worker["pid"] for worker in ct.workers() if worker["queues"] == [["lab", 0]]]
        os.kill(victim, signal.SIGKILL)
        lines.until([2])
        assert fragmented.fate(lines.said[2][0]) == fragmented.refused(Reason.FRAGMENT_EXPIRED)
        service.hear("it is started again")
        service.hear("is ready")
        for tag, piece in ((10, first), (11, middle), (12, last)):
            lines.send(tag % 2, tag, piece)
        lines.until([10, 11, 12])
        assert {fragmented.fate(lines.said[tag][0]) for tag in (10, 11, 12)} == {fragmented.NEW}
        until(lambda: ct.fragments.get()["counters"]["purged"] == 1)
    assert [place for place in roster.present(service.table) if place.kind is Kind.WORKER and not place.alive] == []
    assert service.stop() == 0
