"""A packet in rehearsal becomes what it would become in the table, which stays as it is."""

import asked
import numpy as np
import pytest
import tables
from gateway import rule
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from zonetrack.clients.port import frames_of
from zonetrack.kernels import burst
from zonetrack.kernels.words import u64
from zonetrack.service import rehearsal
from zonetrack.service.rehearsal import Rehearsal
from zonetrack.shm.layout import VERDICT, ZONE, CtState, FrameFlag, Nat, Region, Setting
from zonetrack.shm.reasons import Reason

ZONE_NUMBER = 3
THERE, BACK = {"src": "10.0.0.1", "dst": "10.0.0.2"}, {"src": "10.0.0.2", "dst": "10.0.0.1"}


@pytest.fixture
def table():
    return tables.small(200, extension_share=1000)


@pytest.fixture
def me(table):
    return tables.Participant(table)


def frame(ends, l4):
    return bytes(Ether() / IP(**ends) / l4)


def track(me, data, action=None):
    """Really track a packet."""
    frames, kept = frames_of([data])
    frames["zone"], frames["flags"] = ZONE_NUMBER, FrameFlag.COMMIT
    frames["action"] = 0 if action is None else action.ctypes.data
    verdict = np.zeros(1, VERDICT)
    burst.track_burst(me.views, u64(frames.ctypes.data), u64(1), rehearsal.now_ms(), u64(verdict.ctypes.data))
    del kept
    return verdict[0]


def public_id(verdict):
    return int(verdict["incarnation"]) << 32 | int(verdict["record"])


def test_a_connection_is_found_and_what_is_made_stays_in_the_rehearsal(table, me):
    real = track(me, frame(THERE, UDP(sport=1, dport=2)), asked.action(mark=5, mark_mask=asked.ALL_32))
    before = bytes(table.regions[Region.ENTRIES])
    one = Rehearsal(table, me.views)
    found = one.track(frame(BACK, UDP(sport=2, dport=1)), ZONE_NUMBER, None, True, False)
    assert (found.known, found.is_made, found.verdict["mark"]) == (public_id(real), False, 5)
    assert found.verdict["ct_state"] == CtState.TRK | CtState.EST | CtState.RPL
    made = one.track(frame(THERE, UDP(sport=3, dport=4)), ZONE_NUMBER, None, True, False)
    assert (made.known, made.is_made) == (0, True)
    answer = one.track(frame(BACK, UDP(sport=4, dport=3)), ZONE_NUMBER, None, False, False)
    assert (answer.known, answer.is_made, answer.verdict["ct_state"]) == (0, False, found.verdict["ct_state"])
    assert bytes(table.regions[Region.ENTRIES]) == before and me.counter(Reason.INSERT) == 1


def test_the_tuple_of_a_translated_connection_comes_with_it(table, me):
    track(me, frame(THERE, UDP(sport=1, dport=2)), rule(Nat.SOURCE, "192.0.2.7"))
    back = frame({"src": "10.0.0.2", "dst": "192.0.2.7"}, UDP(sport=2, dport=1))
    found = Rehearsal(table, me.views).track(back, ZONE_NUMBER, rule(0), False, False)
    assert found.fields["dst"] == 0x0A000001 and Ether(found.data)[IP].dst == "10.0.0.1"


def test_a_segment_has_the_numbers_that_come_next_unless_they_are_its_own(table, me):
    track(me, frame(THERE, TCP(sport=1, dport=2, flags="S", seq=1000, window=8192)))
    track(me, frame(BACK, TCP(sport=2, dport=1, flags="SA", seq=9000, ack=1001, window=8192)))
    data = frame(THERE, TCP(sport=1, dport=2, flags="A", seq=77_000_000, ack=5, window=8192))
    next_ = Rehearsal(table, me.views).track(data, ZONE_NUMBER, None, False, False)
    assert (Ether(next_.data)[TCP].seq, Ether(next_.data)[TCP].ack) == (1001, 9001)
    assert not next_.verdict["ct_state"] & CtState.INV
    own = Rehearsal(table, me.views).track(data, ZONE_NUMBER, None, False, True)
    assert own.data == data and own.verdict["ct_state"] & CtState.INV


def test_zones_are_judged_as_they_are_set_and_not_refused(table, me):
    zone = table.array(Region.CONTROL, "zones", ZONE)[ZONE_NUMBER : ZONE_NUMBER + 1]
    zone["settings"] = Setting.OWN | Setting.SEQ_CHECK | Setting.HALF_OPEN  # not LOOSE
    tables.totals(table)["limit"] = 0
    one = Rehearsal(table, me.views)
    middle = one.track(frame(THERE, TCP(sport=1, dport=2, flags="A", seq=5, ack=9)), ZONE_NUMBER, None, True, False)
    assert middle.verdict["ct_state"] & CtState.INV
    opening = one.track(frame(THERE, TCP(sport=1, dport=2, flags="S", seq=5)), ZONE_NUMBER, None, True, False)
    assert opening.is_made
