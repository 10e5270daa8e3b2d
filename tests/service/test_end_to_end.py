"""The whole service, as its users meet it: real processes, packets through ports, questions over the socket.

Nothing here knows of a kernel but the port's client, and the audit at the end.
"""

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading

import conversations
import corpus
import numpy as np
import ports
import pytest
from eventually import until
from services import Service
from zonetrack.clients.errors import Exit, FailedError, NothingMatchedError
from zonetrack.clients.port import PortClosedError, Queue, frames_of
from zonetrack.clients.sending import Sending
from zonetrack.clients.sync import connect
from zonetrack.service import audit
from zonetrack.service.captures import Capture, CaptureError
from zonetrack.service.labels import label
from zonetrack.shm import segment
from zonetrack.shm.errors import Missing
from zonetrack.shm.layout import DESCRIPTOR, FRAME_SLOT_BYTES, FrameFlag, VerdictFlag

PATIENCE_MS = 60_000
CLIENTS = 6
KILLS = 30


@pytest.fixture
def serve(tmp_path):
    """Return a function that starts a service and waits until it is ready; it is taken away after the test.

    Its datagrams live for an hour: nothing ends while a machine is slow.
    """
    with contextlib.ExitStack() as started:

        def start(*flags, **more):
            service = Service(tmp_path, "--max-connections", 4000, *flags, **more)
            started.enter_context(service).until_ready()
            with ask(service) as ct:
                ct.timeouts.set("default", {"udp": 3600, "udp_stream": 3600})
            return service

        yield start


def ask(service):
    """Return a client of a service's socket."""
    return connect(socket=service.socket)


def talk(queue, packets):
    """Send packets through a queue, no more under way than come back; returns all answers, in their order."""
    answers, room = [], np.zeros(queue.slots, DESCRIPTOR)
    frames, kept = frames_of(packets)
    sent = 0
    while len(answers) < len(packets):
        ahead = queue.slots - (sent - len(answers))
        sent += queue.send(frames[sent : sent + ahead], tag=sent)
        assert queue.wait(PATIENCE_MS), "no answer"
        answers += room[: queue.receive(room)].tolist()
    del kept
    found = np.array(answers, DESCRIPTOR)
    assert found["tag"].tolist() == list(range(len(packets)))
    return found


def labels(answers):
    """Return the short label of each answer."""
    return [label_of(verdict) for verdict in answers["verdict"]]


def ask_until_it_stands(queue):
    """Send the question until a connection was made of it: a lock whose holder has no core is given up."""
    stands = False
    while not stands:
        answers = talk(queue, [QUESTION])
        assert labels(answers) == ["N>"]
        stands = answers["verdict"]["flags"][0] & VerdictFlag.COMMITTED


def label_of(verdict):
    """Return the short label of a verdict."""
    return label(int(verdict["ct_state"]), int(verdict["direction"]), int(verdict["flags"]))


def replayed(path):
    """Return the label of each packet of a capture, as ``zonetrack replay`` prints them."""
    run = [sys.executable, "-m", "zonetrack.service", "replay", "--packets", "--json", path]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return [json.loads(line)["label"] for line in done.stdout.splitlines()]


def host_of(packet):
    """Return the number of the client that a packet of ``conversations.mixed`` comes from or goes to."""
    ends = (packet.src, packet.dst)
    (number,) = [n for n in range(1, CLIENTS + 1) if f"192.0.2.{n}" in ends or f"2001:db8::{n}" in ends]
    return number


@pytest.mark.parametrize("queues", [1, 2])
def test_captures_get_the_labels_that_replay_gives(serve, tmp_path, queues):
    """But for whether a connection is assured: UDP is after two seconds, which may pass on a slow machine."""
    packets = conversations.mixed(CLIENTS)
    expected = [said.rstrip("a") for said in replayed(conversations.write(tmp_path / "x.pcap", packets))]
    frames = [captured.data for captured in conversations.captured(packets)]
    service = serve("--workers", queues, "--port", f"shm:lab,queues={queues},zone=5")
    found = [None] * len(frames)
    with contextlib.ExitStack() as stack:
        for queue in range(queues):
            own = [n for n, packet in enumerate(packets) if host_of(packet) % queues == queue]
            client = stack.enter_context(Queue("lab", queue, service.instance))
            for n, said in zip(own, labels(talk(client, [frames[n] for n in own])), strict=True):
                found[n] = said.rstrip("a")
    assert found == expected
    with ask(service) as ct:
        assert ct.count() == ct.count(zone=5) == len(set(ct.dump()["id"].tolist()))
        assert ct.count(proto="tcp") == 2 * CLIENTS
        (port,) = ct.ports()
        assert sum(queue["rx_packets"] for queue in port["queues"]) == len(frames)
    assert service.stop() == Exit.OK
    assert audit.at_rest(service.table) is None


def test_the_corpus_gets_the_labels_that_replay_gives(serve, record_property):
    """Packet by packet, but for captures with frames that are longer than a port has room for.

    Nor those with fragments that lack others: they would be waited for, and might go with some of the next capture.
    Whether a connection is assured is left out: UDP is after two seconds, for which no port waits.
    """
    captures = {str(path): [] for path in corpus.present()}
    run = [sys.executable, "-m", "zonetrack.service", "replay", "--each", "--no-expiry", "--packets", "--json"]
    lines = subprocess.run([*run, *captures], capture_output=True, text=True, check=False).stdout.splitlines()
    for line in map(json.loads, lines):
        captures[line["file"]].append(line["label"].rstrip("a"))
    service = serve("--port", "shm:lab", "--max-connections", 65_536)
    packets, compared = 0, 0
    with ask(service) as ct, Queue("lab", 0, service.instance) as queue:
        sending = Sending(queue)
        for path, expected in captures.items():
            if "." in expected:
                continue
            with contextlib.suppress(CaptureError), Capture(path, flags=FrameFlag.COMMIT) as capture:
                slices = [(frames.copy(), times) for frames, times in capture.slices()]
                if any((frames["captured_bytes"] > FRAME_SLOT_BYTES).any() for frames, _ in slices):
                    continue
                said = [each for frames, _ in slices for each in sending.send(frames)]
                assert [label_of(verdict).rstrip("a") for verdict in said] == expected, path
                packets, compared = packets + len(said), compared + 1
            ct.flush()
            assert ct.count() == 0
    assert compared > 0.9 * len(captures)
    record_property("corpus_cases", packets)


LAST = 1 << 60
"""Tag of a packet behind all others."""


class Traffic:
    """A thread that sends datagrams of new connections through a queue, and counts what comes back, until it is left.

    Then nothing of it is under way any more: a packet behind all others has come back.
    """

    def __init__(self, service, queue=0):
        self.client = Queue("lab", queue, service.instance)
        self.answered = 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        room, first = np.zeros(64, DESCRIPTOR), 0
        while not self._enough.is_set():
            ports.send(self.client, ports.datagrams(32, first % 60_000))
            first += 32
            if self.client.wait(10):
                self.answered += self.client.receive(room)
        until(lambda: self._has_come_back(room))

    def _has_come_back(self, room):
        """Send a packet behind all others; return whether it came back, as it does not where a worker died with it."""
        ports.send(self.client, ports.datagrams(1), LAST)
        while self.client.wait(1_000):
            if LAST in room["tag"][: self.client.receive(room)]:
                return True
        return False

    def wait_for(self, more):
        """Wait until this many more packets have been answered."""
        until = self.answered + more
        while self.answered < until:
            assert self._thread.is_alive()
            os.sched_yield()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._enough.set()
        self._thread.join()
        self.client.close()


def test_operators_work_while_traffic_runs(serve):
    service = serve("--workers", 2, "--port", "shm:lab,queues=2,zone=5")
    with Traffic(service, 0) as first, Traffic(service, 1) as second, ask(service) as ct:
        first.wait_for(500)
        second.wait_for(500)
        ct.limits.set(zone=5, limit=300)
        for _ in range(3):
            ct.flush(zone=5)
            first.wait_for(200)
            assert ct.count(zone=5) <= 300
            ct.delete(zone=5, dport=53)
            second.wait_for(200)
            assert {5} >= set(ct.dump(zone=5)["zone"].tolist())  # not of one moment: one goes, and another comes
            assert ct.audit()["broken"] is None
        assert ct.limits.get(zone=5)["zones"][0]["count"] <= 300
        ct.limits.unset(zone=5)
        first.wait_for(2000)
    with ask(service) as ct:
        assert ct.count() == len(ct.dump()) > 300
        with pytest.raises(NothingMatchedError):
            ct.delete(zone=6, proto="udp")
        ct.flush()
        assert ct.count() == 0
    assert service.stop() == Exit.OK
    assert audit.at_rest(service.table) is None


QUESTION = ports.udp(b"\x0a\x63\0\1", b"\x0a\1\0\1", 5000, 53, b"question")
ANSWER = ports.udp(b"\x0a\1\0\1", b"\x0a\x63\0\1", 53, 5000, b"answer")


def test_a_worker_is_killed_and_traffic_goes_on(serve):
    service = serve("--workers", 2, "--port", "shm:lab,queues=2")
    with ask(service) as ct, Queue("lab", 0, service.instance) as queue, Traffic(service, 1) as traffic:
        ask_until_it_stands(queue)
        (victim,) = [worker for worker in ct.workers() if ["lab", 0] in worker["queues"]]
        os.kill(victim["pid"], signal.SIGKILL)
        traffic.wait_for(500)
        assert labels(talk(queue, [ANSWER])) == ["E<"]
        service.hear("was killed by SIGKILL")
        service.hear(f"worker {victim['number']} is ready")
        (successor,) = [worker for worker in ct.workers() if worker["number"] == victim["number"]]
        assert (successor["restarts"], successor["queues"]) == (1, victim["queues"])
        assert successor["pid"] != victim["pid"]
    assert service.stop() == Exit.OK
    assert audit.at_rest(service.table) is None


def test_a_worker_is_killed_in_the_middle_of_its_traffic(serve):
    """What it had taken is lost, as a card would lose it; its queue is served again, and so are all others."""
    service = serve("--workers", 2, "--port", "shm:lab,queues=2")
    with Traffic(service, 0) as first, Traffic(service, 1) as second:
        first.wait_for(500)
        with ask(service) as ct:
            (victim,) = [worker for worker in ct.workers() if ["lab", 0] in worker["queues"]]
        os.kill(victim["pid"], signal.SIGKILL)
        service.hear(f"worker {victim['number']} is ready")
        first.wait_for(500)
        second.wait_for(500)
    assert service.stop() == Exit.OK


def test_thirty_kills_under_traffic_lose_no_connection(serve):
    """Workers are killed wherever they are; what they were killed over is repaired, and successors take their places."""
    asked = [ports.udp(b"\x0a\x64\0" + bytes([i]), b"\x0a\1\0\1", 5000, 53, b"question") for i in range(100)]
    answered = [ports.udp(b"\x0a\1\0\1", b"\x0a\x64\0" + bytes([i]), 53, 5000, b"answer") for i in range(100)]
    service = serve("--workers", 4, "--port", "shm:lab,queues=5")
    chance = random.Random(0)
    with contextlib.ExitStack() as stack:
        ct = stack.enter_context(ask(service))
        queue = stack.enter_context(Queue("lab", 4, service.instance))
        assert labels(talk(queue, asked + answered)) == ["N>"] * 100 + ["E<"] * 100
        traffic = [stack.enter_context(Traffic(service, number)) for number in range(4)]
        for kill in range(KILLS):
            number = kill % 4  # each dies too seldom for the keeper to take it for a crash loop
            traffic[number].wait_for(chance.randrange(1, 500))
            (victim,) = [worker["pid"] for worker in ct.workers() if worker["number"] == number]
            os.kill(victim, signal.SIGKILL)
            service.hear("was killed by SIGKILL")
            service.hear(f"worker {number} is ready")
        assert [label[:2] for label in labels(talk(queue, asked))] == [
            "E>"
        ] * 100  # assured or not: two seconds may be over
    assert service.stop() == Exit.OK
    assert any("put away" in line["text"] for line in service.log), "somebody's place was not at rest"
    assert audit.at_rest(service.table) is None


def test_queues_are_emptied_before_the_end_and_the_port_is_closed(serve):
    service = serve("--port", "shm:lab", environment={"ZONETRACK_DRAIN_MS": "600000"})
    with Queue("lab", 0, service.instance) as queue:
        (pid,) = service.workers()
        os.kill(pid, signal.SIGSTOP)
        assert ports.send(queue, ports.datagrams(queue.slots)) == queue.slots
        service.send(signal.SIGTERM)
        service.hear("SIGTERM")
        os.kill(pid, signal.SIGCONT)
        assert service.wait() == Exit.OK
        room = np.zeros(queue.slots, DESCRIPTOR)
        assert queue.receive(room) == queue.slots
        with pytest.raises(PortClosedError):
            queue.check()
    assert audit.at_rest(service.table) is None


def test_connections_outlive_the_service(serve):
    first = serve("--port", "shm:lab")
    with Queue("lab", 0, first.instance) as queue:
        ask_until_it_stands(queue)
    assert first.stop() == Exit.OK
    second = serve("--port", "shm:lab", instance=first.instance)
    with ask(second) as ct, Queue("lab", 0, second.instance) as queue:
        assert ct.count() == 1
        assert labels(talk(queue, [ANSWER])) == ["E<"]
        assert ct.hello()["instance"] == first.instance


def test_control_is_killed_and_comes_back_behind_the_same_door(serve):
    service = serve("--port", "shm:lab")
    with ask(service) as ct:
        keeper = ct.hello()["keeper"]
    assert keeper == service.pid
    (control,) = {int(pid) for pid in children_of(service.pid)} - set(service.workers())
    os.kill(control, signal.SIGKILL)
    with ask(service) as ct:  # waits in the door's queue
        assert ct.count() == 0
    assert service.stop() == Exit.OK


def children_of(pid):
    """Return the process ids of the children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return children.read().split()


def test_clients_reload_and_stop_it(serve, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("[limits]\nglobal = 100\n")
    service = serve("--config", file)
    ended = select.poll()
    pidfd = os.pidfd_open(service.pid)
    ended.register(pidfd, select.POLLIN)
    with ask(service) as ct:
        assert ct.limits.get()["global"]["limit"] == 100
        file.write_text("workers = 2\n[limits]\nglobal = 50\n")
        assert ct.reload() == {"changed": ["limits.global"], "restart": ["workers"]}
        service.hear("was read again")
        assert ct.limits.get()["global"]["limit"] == 50
        ct.stop(unlink=True)
    assert ended.poll(PATIENCE_MS)
    os.close(pidfd)
    assert service.wait() == Exit.OK
    with pytest.raises(Missing):
        segment.attach(service.instance, sealed=True)


# ------------------------------------------------------------------------------------------------ rules
FIREWALL = """
priority=5,ip actions=ct(table=1,zone=9)
table=1,priority=9,ct_state=+est+trk,in_port=lan actions=output:wan
table=1,priority=9,ct_state=+est+trk,in_port=wan actions=output:lan
table=1,priority=5,ct_state=+new+trk,in_port=lan actions=ct(commit,zone=9),output:wan
"""


def forwarded(queue, count=0):
    """Return the frames that a rule has output to a port, as far as they have come, but wait for so many."""
    found = []
    while queue.wait(PATIENCE_MS if len(found) < count else 0):
        descriptors, frames = ports.receive(queue)
        found += [frame for descriptor, frame in zip(descriptors, frames, strict=True) if descriptor["captured_bytes"]]
    assert len(found) >= count, "no frame"
    return found


def until_answered(queue, packets, tag=0):
    """Send packets, and wait for the answer of each; returns the verdicts, by tag."""
    assert ports.send(queue, packets, tag) == len(packets)
    verdicts = {}
    while len(verdicts) < len(packets):
        assert queue.wait(PATIENCE_MS), "no answer"
        descriptors, _ = ports.receive(queue)
        answers = descriptors[descriptors["flags"] & FrameFlag.FORWARDED == 0]
        verdicts |= dict(zip(answers["tag"].tolist(), answers["verdict"], strict=True))
    return [verdicts[tag + place] for place in range(len(packets))]


def test_a_firewall_between_two_ports(serve, tmp_path):
    file = tmp_path / "firewall.txt"
    file.write_text(FIREWALL)
    config = tmp_path / "zonetrack.toml"
    config.write_text(f'rules = "{file}"\n')
    service = serve("--config", config, "--port", "shm:lan", "--port", "shm:wan")
    there, back = ports.udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53), ports.udp(b"\x0a\0\0\2", b"\x0a\0\0\1", 53, 5)
    with Queue("lan", 0, service.instance) as lan, Queue("wan", 0, service.instance) as wan, ask(service) as ct:
        assert label_of(until_answered(wan, [back])[0]) == "N>"
        assert forwarded(lan) == []
        until_answered(lan, [there])
        assert forwarded(wan, 1) == [there]
        assert label_of(until_answered(wan, [back])[0]) == "E<"
        assert forwarded(lan, 1) == [back]
        assert ct.count(zone=9) == 1
        assert [rule["packets"] for rule in ct.rules.get()["rules"]] == [3, 0, 1, 1]
        # a file that is wrong changes nothing, whoever asks for it
        file.write_text(FIREWALL + "actions=output:dmz\n")
        with pytest.raises(FailedError, match=r"firewall.txt: line 6: there is no port 'dmz': 1 is lan, 2 is wan"):
            ct.reload()
        os.kill(service.pid, signal.SIGHUP)
        service.hear("there is no port 'dmz'")
        assert len(ct.rules.get()["rules"]) == 4
        file.write_text(FIREWALL + "priority=1,arp actions=NORMAL\n")
        ct.reload()
        service.hear("the configuration was read again")
        shown = ct.rules.get()
        assert len(shown["rules"]) == 5
        assert [rule["packets"] for rule in shown["rules"]] == [3, 0, 0, 1, 1]


def test_rules_change_while_packets_flow_and_none_is_lost(serve):
    """Every packet gets its answer, and goes where one generation or the other sends it, whole."""
    service = serve("--workers", 2, "--port", "shm:a,queues=2", "--port", "shm:b,queues=2", "--port", "shm:c,queues=2")
    sets = [f"priority=5,in_port=a actions=output:{port},output:{port}\n" for port in "bc"]
    with contextlib.ExitStack() as stack:
        queues = {
            (name, queue): stack.enter_context(Queue(name, queue, service.instance))
            for name in "abc"
            for queue in range(2)
        }
        ct = stack.enter_context(ask(service))
        ct.rules.load(sets[0])
        sent, came = 0, {"b": 0, "c": 0}
        for turn in range(60):
            queue = queues["a", turn % 2]
            packets = ports.datagrams(20, first=20 * turn)
            assert ports.send(queue, packets, 100) == 20
            if turn % 3 == 0:
                assert ct.rules.load(sets[turn % 2])["followed"]
            answered = 0
            while answered < 20:
                assert queue.wait(PATIENCE_MS), "no answer"
                answered += len(ports.receive(queue)[0])
            sent += 20
            found = {name: [] for name in "bc"}

            def all_came(turn=turn, found=found):
                for name in "bc":
                    found[name] += forwarded(queues[name, turn % 2])
                return sum(map(len, found.values())) == 40

            until(all_came)
            for name, frames in found.items():
                pairs = sorted(frames)
                assert pairs[::2] == pairs[1::2], "half of a rule"
                came[name] += len(frames)
        assert came["b"] + came["c"] == 2 * sent
        assert min(came.values()) > 0
        (rule,) = ct.rules.get()["rules"]
        assert rule["packets"] * 2 <= came["b"] + came["c"]


def test_rules_outlive_a_worker(serve):
    service = serve("--port", "shm:a", "--port", "shm:b")
    with Queue("a", 0, service.instance) as a, Queue("b", 0, service.instance) as b, ask(service) as ct:
        ct.rules.load("actions=output:b")
        for turn in range(3):
            until_answered(a, ports.datagrams(4, first=4 * turn))
            assert len(forwarded(b, 4)) == 4
            (worker,) = ct.workers()
            os.kill(worker["pid"], signal.SIGKILL)
            service.hear("it is started again")
            service.hear("worker 0 is ready")
        assert ct.rules.load("actions=IN_PORT")["followed"]
        until_answered(a, ports.datagrams(2))
        assert forwarded(b) == []
