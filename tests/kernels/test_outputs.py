"""Where frames go: to the ports that rules name, as a switch would, and nowhere but counted."""

import numpy as np
import pytest
from ports import datagrams, receive, udp
from ruled import Switch
from zonetrack.shm.layout import NO_TAG, FrameFlag
from zonetrack.shm.queues import Loop
from zonetrack.shm.reasons import Reason

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
