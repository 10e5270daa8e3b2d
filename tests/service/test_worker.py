"""A worker as a process of its own: it takes what its queues hold, answers, sweeps, and ends as it is asked to."""

import os
import select
import signal
import time

import ports
import pytest
from zonetrack.clients.errors import Exit
from zonetrack.clients.port import Queue
from zonetrack.kernels.timeouts import Timeout
from zonetrack.service import rules_compile, rules_text
from zonetrack.service.board import Board
from zonetrack.service.children import Child
from zonetrack.service.rules import Names
from zonetrack.service.worker import Worker
from zonetrack.shm import port, roster, segment
from zonetrack.shm.layout import GLOBAL, POLICY, CtState, Kind, Region
from zonetrack.shm.queues import Queues
from zonetrack.shm.rulebook import Rulebook
from zonetrack.shm.sizing import Geometry

INSTANCE = f"test-worker-{os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Load the loop's kernels, as a keeper does, so that each child has them."""
    with ports.Lab() as lab:
        ports.send(lab.client(), ports.datagrams(1))
        lab.poll(sweep_slots=1)


class Place:
    """A table, a port named lab, and one worker's place with all its queues."""

    def __init__(self, queues=1, slots=64):
        self.table = segment.anonymous(Geometry(2000, zones_in_use=2, extension_share=0))
        self.port = port.create(INSTANCE, "lab", max(1, queues), 0, slots)
        self.queues = Queues([self.port])
        self.board = Board(1, lambda worker: [("lab", index) for index in range(queues)])
        self.worker = Worker(self.table, self.queues, range(queues), self.board.lines[0])
        self.child = Child("worker", 0, self.worker.work, self.worker.stop, self.worker.hurry)

    @property
    def count(self):
        return int(self.table.array(Region.CONTROL, "globals", GLOBAL)["count"][0])

    def start(self):
        self.child.fork(time.monotonic())

    def wait(self, descriptor):
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(60_000)

    def until_ready(self):
        self.wait(self.child.ready)
        assert self.child.hear(time.monotonic())

    def end(self):
        self.wait(self.child.pidfd)
        return self.child.bury(time.monotonic())


@pytest.fixture
def place():
    made = []

    def make(**sizes):
        made.append(Place(**sizes))
        return made[-1]

    yield make
    for each in made:
        if each.child.lives:
            os.kill(each.child.pid, signal.SIGKILL)
            each.end()
        each.port.unlink()


def talk(client, packets, tag=0):
    """Send packets, and return the ct_state of each of their answers."""
    assert ports.send(client, packets, tag) == len(packets)
    states = []
    while len(states) < len(packets):
        assert client.wait(60_000)
        answers, _ = ports.receive(client)
        states += answers["verdict"]["ct_state"].tolist()
    return states


NEW, ANSWER = CtState.TRK | CtState.NEW, CtState.TRK | CtState.EST | CtState.RPL
QUESTION = ports.udp(b"\x0a\0\0\1", b"\x0a\1\0\1", 5000, 53, b"question")
REPLY = ports.udp(b"\x0a\1\0\1", b"\x0a\0\0\1", 53, 5000, b"answer")


def test_packets_are_tracked_on_each_of_its_queues(place):
    at = place(queues=2)
    at.start()
    at.until_ready()
    with Queue("lab", 0, INSTANCE) as first, Queue("lab", 1, INSTANCE) as second:
        assert talk(first, [QUESTION]) == [NEW]
        assert talk(second, [REPLY]) == [ANSWER]
    assert at.board.workers()[0]["owner"] == roster.present(at.table)[0].owner
    at.child.ask_to_stop(0.0)
    assert at.end() == Exit.OK
    (line,) = at.board.workers()
    assert (line["packets"], line["owner"], at.count) == (2, 0, 1) and line["calls"] > 1
    assert roster.present(at.table) == []


def test_a_successor_goes_on_with_the_same_queue(place):
    at = place()
    at.start()
    at.until_ready()
    with Queue("lab", 0, INSTANCE) as client:
        assert talk(client, [QUESTION]) == [NEW]
        os.kill(at.child.pid, signal.SIGKILL)
        assert at.end() == -signal.SIGKILL
        ports.send(client, [REPLY])
        at.start()
        assert client.wait(60_000)
        answers, _ = ports.receive(client)
        assert answers["verdict"]["ct_state"].tolist() == [ANSWER]
    at.child.ask_to_stop(0.0)
    assert at.end() == Exit.OK
    assert at.board.workers()[0]["packets"] in (1, 2)  # the first may have been killed before it wrote its own down


def test_it_empties_its_queues_before_it_ends(place):
    at = place(slots=64)
    with Queue("lab", 0, INSTANCE) as client:
        assert ports.send(client, ports.datagrams(64)) == 64
        at.start()
        at.child.ask_to_stop(0.0)
        assert at.end() == Exit.OK
        answers, _ = ports.receive(client)
    assert len(answers) == 64 and at.count == 64


def test_a_hurried_worker_does_not_wait_until_they_are_empty(place):
    at = place()
    at.start()
    at.until_ready()
    with Queue("lab", 0, INSTANCE) as client:
        at.child.ask_to_stop(0.0)
        at.child.hurry(0.0)
        ended = select.poll()
        ended.register(at.child.pidfd, select.POLLIN)
        while not ended.poll(0):
            ports.send(client, ports.datagrams(32))
            ports.receive(client)
    assert at.end() == Exit.OK
    assert roster.present(at.table) == []


def test_what_has_expired_is_freed_though_nothing_comes(place):
    at = place()
    lengths = at.table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"]
    lengths[0, Timeout.UDP] = 1
    at.start()
    at.until_ready()
    with Queue("lab", 0, INSTANCE) as client:
        assert set(talk(client, ports.datagrams(40))) == {NEW}
    end_s = time.monotonic() + 60
    while at.count and time.monotonic() < end_s:
        os.sched_yield()
    assert at.count == 0


def test_a_worker_without_queues_sleeps_and_ends(place):
    at = place(queues=0)
    at.start()
    at.until_ready()
    at.child.ask_to_stop(0.0)
    assert at.end() == Exit.OK


def test_a_worker_goes_by_rules_and_lets_go_of_them(place):
    each = place()
    each.worker.rules = book = Rulebook(1)
    book.publish(rules_compile.compile_rules(rules_text.read("actions=IN_PORT", Names({"lab": 1}))))
    each.start()
    each.until_ready()
    with Queue("lab", 0, INSTANCE) as queue:
        ports.send(queue, ports.datagrams(3))
        descriptors = []
        while len(descriptors) < 6:
            assert queue.wait(60_000)
            descriptors += ports.receive(queue)[0].tolist()
    assert book.picked_up(0)
    assert book.hits()["packets"].tolist() == [3]
    os.kill(each.child.pid, signal.SIGTERM)
    assert each.end() == Exit.OK
    assert book._acknowledged.tolist() == [0]


def test_one_that_is_to_stay_awake_does_not_sleep(place):
    at = place()
    me = roster.join(at.table, Kind.WORKER)
    turn = at.worker._turns(me, at.table.views(me))
    loop = at.worker._loop.record
    assert (turn(), loop["sleeps"]) == (0, 1)
    at.queues.stay_awake(True)
    assert ([turn() for _ in range(3)], loop["sleeps"]) == ([0, 0, 0], 1)
    at.queues.stay_awake(False)
    assert (turn(), loop["sleeps"]) == (0, 2)
    roster.leave(at.table, me)
