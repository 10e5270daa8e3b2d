"""Where frames go: to the ports that rules name, as a switch would, and nowhere but counted."""

import time

import numpy as np
import pytest
import tables
from ports import datagrams, receive, udp
from ruled import Switch
from zonetrack.kernels import memory, port_shm
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, NO_TAG, FrameFlag, Kind
from zonetrack.shm.loop import Loop
from zonetrack.shm.queues import Queues
from zonetrack.shm.reasons import Reason
from zonetrack.shm.rulebook import Rulebook

FRAME_A = udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53, b"x")


def ethernet(dst, src, vlan=None):
    """Return a frame between two hosts, by number; 0 is everybody."""
    addresses = [bytes(5) + bytes([host]) if host else b"\xff" * 6 for host in (dst, src)]
    tag = b"" if vlan is None else b"\x81\x00" + vlan.to_bytes(2, "big")
    return addresses[0] + addresses[1] + tag + b"\x08\x00" + bytes(40)


def counted(switch, reason):
    """Return a counter of the worker."""
    return switch.worker.counter(reason)


def test_output_goes_to_its_port_and_the_answer_back():
    with Switch(3, "actions=output:c,output:b") as switch:
        verdicts, came = switch.through("a", [FRAME_A])
        assert came == {"a": [], "b": [FRAME_A], "c": [FRAME_A]}
        assert len(verdicts) == 1 and verdicts["reason"][0] == Reason.NONE
        assert counted(switch, Reason.OUTPUTS) == 2


def test_output_to_where_it_came_from_goes_nowhere_and_in_port_does():
    with Switch(2, "in_port=a,actions=output:a\nin_port=b,actions=IN_PORT") as switch:
        assert switch.through("a", [FRAME_A])[1] == {"a": [], "b": []}
        assert switch.through("b", [FRAME_A])[1] == {"a": [], "b": [FRAME_A]}


def test_forwarded_frames_have_no_tag_and_are_told_from_answers():
    with Switch(2, "actions=IN_PORT") as switch:
        switch.send("a", [FRAME_A, FRAME_A], tag=40)
        switch.poll()
        descriptors, _ = receive(switch.client("a"))
        assert descriptors["tag"].tolist() == [NO_TAG, NO_TAG, 40, 41]
        assert (descriptors["flags"] & FrameFlag.FORWARDED).tolist() == [8, 8, 0, 0]
        assert descriptors["captured_bytes"].tolist() == [len(FRAME_A), len(FRAME_A), 0, 0]
        assert descriptors["wire_bytes"].tolist() == [len(FRAME_A)] * 4


def test_a_quiet_client_gets_no_answers():
    with Switch(2, "in_port=a,actions=output:b") as switch:
        switch.client("b")
        switch.send("a", [FRAME_A] * 3, flags=FrameFlag.QUIET)
        switch.poll()
        assert len(switch.came("a")[0]) == 0
        assert len(switch.came("b")[1]) == 3


def test_a_switch_floods_learns_and_forgets_nothing_in_between():
    with Switch(3, "actions=NORMAL") as switch:
        first = ethernet(2, 1)
        assert switch.through("a", [first])[1] == {"a": [], "b": [first], "c": [first]}
        back = ethernet(1, 2)
        assert switch.through("b", [back])[1] == {"a": [back], "b": [], "c": []}
        assert switch.through("a", [first])[1] == {"a": [], "b": [first], "c": []}
        everybody = ethernet(0, 1)
        assert switch.through("a", [everybody])[1] == {"a": [], "b": [everybody], "c": [everybody]}
        assert switch.through("b", [ethernet(2, 3)])[1] == {"a": [], "b": [], "c": []}  # its own segment
        tagged = ethernet(1, 2, vlan=9)
        assert switch.through("b", [tagged])[1] == {"a": [tagged], "b": [], "c": [tagged]}


def test_ports_that_this_worker_has_no_queue_of_are_out_of_reach():
    with Switch(2, "actions=output:b") as switch:
        switch.loop = Loop(switch.queues, [0], switch.worker.me, switch.rules)
        switch.loop.record["sleep_ms"] = 0
        verdicts, came = switch.through("a", [FRAME_A])
        assert came["b"] == []
        assert verdicts["reason"].tolist() == [Reason.RULE_DROPPED]
        assert counted(switch, Reason.OUTPUT_UNREACHABLE) == 1


def test_rings_without_room_drop_and_count():
    with Switch(2, "actions=output:b", slots=8) as switch:
        switch.client("b")
        for turn in range(3):
            switch.send("a", datagrams(8, first=8 * turn))
            switch.poll()
            assert len(switch.came("a")[0]) == 8
        assert switch.came("b")[1] == datagrams(8)
        assert counted(switch, Reason.OUTPUT_FULL) == 16
        assert switch.queues.records["tx_full"].tolist() == [0, 16]
        assert switch.queues.records["tx_packets"].tolist() == [24, 8]


@pytest.mark.parametrize("queue", [0, 1, 2])
def test_frames_leave_by_the_queue_with_the_place_of_theirs(queue):
    with Switch(2, "actions=output:b", queues=3) as switch:
        for one in range(3):
            switch.client("b", one)
        switch.send("a", [FRAME_A], queue=queue)
        switch.poll()
        assert [len(switch.came("b", one)[1]) for one in range(3)] == np.eye(3, dtype=int)[queue].tolist()


# ------------------------------------------------------------------------------------------------ several workers
class Shared(Switch):
    """Two ports of a queue each, and two workers: the first polls port a, the second port b, and both send to both."""

    def __init__(self, text, **more):
        super().__init__(2, text, **more)
        self.queues = Queues(self.ports, workers=2)
        self.participants = [self.worker, tables.Participant(self.table, Kind.WORKER)]
        self.rules = Rulebook(2)
        self.load(text)
        self.loops = [Loop(self.queues, own, 0, self.rules, number) for number, own in enumerate(self.queues.deal())]
        for loop in self.loops:
            loop.record["sleep_ms"] = 0

    def turn(self, number):
        """Let a worker work."""
        self.worker, self.loop = self.participants[number], self.loops[number]
        return self.poll()


ACROSS = "in_port=a actions=output:b\nin_port=b actions=output:a,IN_PORT"


def test_workers_share_a_queue_where_a_port_has_fewer_than_there_are_of_them():
    with Shared(ACROSS) as switch:
        for name in "ab":
            switch.client(name)
        assert switch.queues.records["shared"].tolist() == [1, 1]
        switch.send("a", [FRAME_A] * 40)
        switch.send("b", [FRAME_A] * 3, tag=70)
        assert [switch.turn(0), switch.turn(1)] == [40, 3]
        answers, frames = switch.came("b")
        assert (len(frames), answers["tag"].tolist()) == (43, [70, 71, 72])
        answers, frames = switch.came("a")
        assert (len(frames), answers["tag"].tolist()) == (3, list(range(40)))
        assert switch.queues.records["lock"].tolist() == [0, 0]
        assert switch.queues.records["tx_packets"].tolist() == [43, 46]
        assert counted(switch, Reason.OUTPUT_UNREACHABLE) == 0


def test_a_shared_ring_that_is_full_refuses_and_counts():
    with Shared(ACROSS, slots=8) as switch:
        switch.client("b")
        for _ in range(2):
            switch.send("a", [FRAME_A] * 8, flags=FrameFlag.QUIET)
            switch.turn(0)
        assert switch.queues.records["tx_full"].tolist() == [0, 8]
        assert switch.participants[0].counter(Reason.OUTPUT_FULL) == 8
        assert len(switch.came("b")[1]) == 8


class Held(memory.World):
    """Another worker has a lock, and lost its core: it gives it back when we have looked so many times."""

    def __init__(self, lock, looks):
        self.lock, self.looks = lock, looks

    def relax(self):
        """One more."""
        self.looks -= 1
        if self.looks == 0:
            self.lock[:] = 0


@pytest.mark.skipif(JIT, reason="another worker's turn comes in the midst of a call")
def test_nothing_is_lost_where_another_has_the_ring_for_a_turn_of_the_scheduler(monkeypatch):
    with Shared(ACROSS) as switch:
        for name in "ab":
            switch.client(name)
        for number in (0, 1):  # of its answer; of what goes out
            lock = switch.queues.records["lock"][number : number + 1]
            lock[:] = 2
            monkeypatch.setattr(memory, "world", Held(lock, 60_000))
            switch.send("a", [FRAME_A], tag=number)
            switch.turn(0)
            monkeypatch.undo()
        assert len(switch.came("b")[1]) == 2
        assert switch.came("a")[0]["tag"].tolist() == [0, 1]
        assert switch.queues.records["tx_full"].tolist() == [0, 0]


def test_a_ring_that_a_dead_worker_has_is_given_up_in_time_and_its_heir_gives_it_back():
    with Shared(ACROSS) as switch:
        switch.client("b")
        switch.queues.records["lock"][1] = 2  # the second worker died with it
        switch.queues.records["pending"][1] = 5
        switch.send("a", [FRAME_A], flags=FrameFlag.QUIET)
        switch.turn(0)
        assert switch.participants[0].counter(Reason.OUTPUT_FULL) == 1
        switch.loops[1] = Loop(switch.queues, [1], 0, switch.rules, 1)
        assert (switch.queues.records["lock"][1], switch.queues.records["pending"][1]) == (0, 0)
        switch.send("a", [FRAME_A], flags=FrameFlag.QUIET)
        switch.turn(0)
        assert len(switch.came("b")[1]) == 1


def test_a_frame_too_long_for_a_shared_ring_is_counted():
    with Shared(ACROSS) as switch:
        switch.queues.records["shared"][0] = 1
        box = switch.loops[0]._boxes.view(np.recarray)[0]
        frame = np.zeros(1, FRAME).view(np.recarray)[0]
        frame["captured_bytes"] = 2113
        assert port_shm.put_aside(box, frame, u64(0)) == Reason.OUTPUT_TOO_LONG
        assert box["count"] == 0


# ------------------------------------------------------------------------------------------------ waiting
def test_frames_wait_while_packets_come_and_leave_when_none_do():
    with Switch(2, "in_port=a actions=output:b") as switch:
        switch.client("b")
        switch.loop.pipe["flush_interval_ns"] = 1 << 60
        switch.loop.pipe["flushed_ns"] = time.monotonic_ns()
        switch.send("a", [FRAME_A] * 5, flags=FrameFlag.QUIET)
        switch.poll(rounds=1)
        assert switch.came("b")[1] == []
        switch.poll(rounds=1)
        assert len(switch.came("b")[1]) == 5


def test_frames_leave_when_they_have_waited_for_long_enough():
    with Switch(2, "in_port=a actions=output:b") as switch:
        switch.client("b")
        switch.loop.pipe["flush_interval_ns"] = 1_000
        switch.send("a", [FRAME_A] * 5, flags=FrameFlag.QUIET)
        switch.poll(rounds=1)
        assert len(switch.came("b")[1]) == 5
        assert switch.loop.pipe["flushed_ns"][0] > 0
