"""The memory of one sender: what its frames say beyond the packet, and how it complains."""

import pytest
from zonetrack.clients.sender import Sender
from zonetrack.clients.traffic import Packet
from zonetrack.shm.layout import BURST_PACKETS_MAX, CtState, FrameFlag
from zonetrack.shm.reasons import Reason


def test_frames_say_whether_to_commit():
    sender = Sender(1, 8)
    assert set(sender.frames["flags"]) == {FrameFlag.COMMIT}
    sender.commits(False)
    assert set(sender.frames["flags"]) == {0}


@pytest.mark.parametrize("burst", [0, BURST_PACKETS_MAX + 1])
def test_a_burst_has_its_bounds(burst):
    with pytest.raises(ValueError, match="a burst has 1 to 256 packets"):
        Sender(1, burst)


def test_no_errors_no_complaint():
    assert Sender(1, 1).complaint() is None


def test_a_complaint_names_packet_connection_and_verdict():
    sender = Sender(1, 1)
    wrong = CtState.TRK | CtState.INV | Reason.TCP_STATE << 8
    sender.set(errors=2, wrong_number=17, wrong_packet=Packet.SYN_ACK, wrong_verdict=wrong)
    assert sender.complaint() == (
        "2 packets with a wrong verdict, the first of them SYN_ACK of connection 17: "
        "expected est|rpl|trk, found inv|trk (tcp_state)"
    )


def test_a_run_is_done_when_all_numbers_are_sent_and_none_waits():
    sender = Sender(1, 1)
    sender.set(end=2)
    sender.send(Packet.SYN)
    assert not sender.done
    sender.set(next=2, waiting=1)
    assert not sender.done
    sender.set(waiting=0)
    assert sender.done
