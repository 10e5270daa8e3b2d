"""Queues that go from worker to worker while packets come: real workers; nothing is lost, nothing overtaken."""

import os
import signal
import time

import numpy as np
import ports
import pytest
from zonetrack.clients.port import Queue
from zonetrack.kernels.jit import JIT
from zonetrack.service import rules_compile, rules_text, worker
from zonetrack.service.board import Board
from zonetrack.service.children import Child
from zonetrack.service.rules import Names
from zonetrack.service.worker import Worker
from zonetrack.shm import port, segment
from zonetrack.shm.queues import Queues
from zonetrack.shm.rulebook import Rulebook
from zonetrack.shm.sizing import Geometry

FLOWS, TURNS, PATIENCE_S = 5, 4, 60.0
PLACES = 256
"""Of each ring.  No more than half of them are under way: a ring back that nobody empties has room for all of it, and for
what a worker has taken already."""


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """Load the loop's kernels, as a keeper does, so that each child has them; calls are short under the interpreter too."""
    before = worker.ROUNDS_MAX
    if not JIT:
        worker.ROUNDS_MAX = np.uint64(2)
    with ports.Lab() as lab:
        ports.send(lab.client(), ports.datagrams(1))
        lab.poll(sweep_slots=1)
    yield
    worker.ROUNDS_MAX = before


class Crew:
    """Two workers, and two ports of two queues each; what comes to one port goes out of the other, where rules say so."""

    def __init__(self, rules=""):
        self.table = segment.anonymous(Geometry(2000, zones_in_use=2, extension_share=0))
        self.instance = f"test-crew-{os.getpid()}"
        self.ports = [port.create(self.instance, name, 2, 0, PLACES) for name in ("first", "lab")]
        self.queues = Queues(self.ports, workers=2, flush_interval_us=200)
        self.book = Rulebook(2)
        if rules:
            names = Names({one.name: number for number, one in enumerate(self.ports, 1)})
            self.book.publish(rules_compile.compile_rules(rules_text.read(rules, names)))
        self.board = Board(2)
        self.children = []
        for number, own in enumerate(self.queues.deal()):
            made = Worker(self.table, self.queues, own, self.board.lines[number], self.book, number)
            self.children.append(Child("worker", number, made.work, made.stop, made.hurry))
            self.start(number)

    def start(self, number):
        self.children[number].fork(time.monotonic())

    def settle(self, wanted):
        """Assign, and wait until that is so."""
        self.queues.assign(wanted)
        self.until_settled(wanted)

    def until_settled(self, wanted):
        until_s = time.monotonic() + PATIENCE_S
        while not self.queues.is_settled(wanted):
            assert time.monotonic() < until_s, "a queue is not given up"
            os.sched_yield()

    def client(self, name, queue):
        return Queue(name, queue, self.instance)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for child in self.children:
            if child.lives:
                os.kill(child.pid, signal.SIGKILL)
                child.bury(time.monotonic())
        for made in self.ports:
            made.unlink()


def packet(number):
    """Return the packet of that number: of one of some flows, its number in its payload."""
    return ports.datagrams(1, number % FLOWS, number.to_bytes(4, "big"))[0]


def number_of(frame):
    return int.from_bytes(frame[42:46], "big")


def test_answers_come_in_order_and_all_of_them():
    with Crew() as crew, crew.client("first", 0) as client:
        tags, sent = [], 0
        for turn in range(2 * TURNS):
            crew.queues.assign({0: (turn + 1) % 2})
            # to the end of the handing over, and on: more than one burst of each worker
            while not crew.queues.is_settled([0]) or sent % 64:
                if sent - len(tags) < PLACES // 2:
                    sent += ports.send(client, [packet(sent)], sent)
                tags += ports.receive(client)[0]["tag"].tolist()
        until_s = time.monotonic() + PATIENCE_S
        while len(tags) < sent and time.monotonic() < until_s:
            tags += ports.receive(client)[0]["tag"].tolist()
        assert crew.queues.records["tx_full"].tolist() == [0, 0, 0, 0]
        assert tags == list(range(sent))
        assert crew.queues.held_by(0) + crew.queues.held_by(1) != []
        assert all(line["packets"] for line in crew.board.workers())


def test_what_rules_output_is_not_lost_or_overtaken():
    """The one who sends leaves by another queue of the port out: the first is empty before the second begins."""
    with Crew("in_port=first actions=ct(commit),output:lab") as crew:
        seen = []
        with crew.client("first", 0) as client, crew.client("lab", 0) as one, crew.client("lab", 1) as other:
            sent = 0
            for turn in range(TURNS):
                crew.queues.assign({0: (turn + 1) % 2, 3: turn % 2})
                while not crew.queues.is_settled([0, 3]) or sent % 64:
                    if sent - len(seen) < PLACES // 2:
                        sent += ports.send(client, [packet(sent)], sent)
                    ports.receive(client)
                    for sink in (one, other):
                        seen += map(number_of, ports.receive(sink)[1])
            until_s = time.monotonic() + PATIENCE_S
            while len(seen) < sent and time.monotonic() < until_s:
                for sink in (one, other):
                    seen += map(number_of, ports.receive(sink)[1])
        assert seen == list(range(sent))
        assert crew.queues.records["tx_full"][2:].tolist() == [0, 0]


def test_who_dies_over_it_has_a_successor_who_gives_it_up():
    with Crew() as crew, crew.client("first", 0) as client:
        ports.send(client, [packet(0)], 0)
        assert client.wait(60_000)
        os.kill(crew.children[0].pid, signal.SIGSTOP)
        crew.queues.assign({0: 1})
        os.kill(crew.children[0].pid, signal.SIGKILL)
        crew.children[0].bury(time.monotonic())
        assert not crew.queues.is_settled([0])
        crew.start(0)
        crew.until_settled([0])
        assert crew.queues.held_by(1) == [0, 1, 3]
        ports.receive(client)
        ports.send(client, [packet(1)], 1)
        assert client.wait(60_000)
        assert ports.receive(client)[0]["tag"].tolist() == [1]


def test_a_configuration_may_say_who_polls():
    with port.create(f"test-assigned-{os.getpid()}", "lab", 2, 0, 8) as made:
        queues = Queues([made], workers=2, assigned={("lab", 0): 1})
        assert [queues.held_by(worker) for worker in range(2)] == [[], [0, 1]]
        assert queues.records["shared"].tolist() == [1, 0]  # worker 0 sends by it
        for wrong, words in (
            ({("lan", 0): 0}, "there is no port 'lan'; there are: lab"),
            ({("lab", 2): 0}, "port lab has 2 queues to receive by, not a queue 2"),
            ({("lab", 1): 2}, "there are workers 0 to 1, not a worker 2"),
        ):
            with pytest.raises(ValueError, match=words):
                queues.find(wrong)
        queues.measure(False)
        assert np.all(queues.records["unmeasured"] == 1)
