import numpy as np
import pytest
import segments
import tracker
from zonetrack.kernels import outcome
from zonetrack.kernels.outcome import Outcome
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ENTRY, SETTINGS_WORD_DEFAULT, CtState, Status, VerdictFlag, Way
from zonetrack.shm.reasons import Reason

TRK, NEW, EST, RPL, INV = CtState.TRK, CtState.NEW, CtState.EST, CtState.RPL, CtState.INV


def judge(world, record, way, parsed):
    """Return the outcome of one packet for a record."""
    return u64(
        tracker.update(
            tracker.at(record),
            u64(way),
            tracker.at(parsed),
            u64(world.settings),
            u64(world.now_ms),
            tracker.at(world.verdict),
        )
    )


@pytest.mark.parametrize("protocol", [17, 50])
def test_ct_state_is_new_until_a_reply(protocol):
    world = tracker.Tracker()
    steps = [("c", TRK | NEW), ("s", TRK | EST | RPL), ("c", TRK | EST), ("s", TRK | EST | RPL)]
    world.track(segments.flow("c", protocol))
    for side, ct_state in steps:
        world.track(segments.flow(side, protocol))
        verdict = world.verdict[0]
        assert verdict["ct_state"] == ct_state
        assert verdict["direction"] == (Way.ORIG if side == "c" else Way.REPLY)
        assert verdict["protocol"] == protocol
        assert verdict["flags"] == VerdictFlag.COMMITTED


def test_an_invalid_packet_has_no_part_in_its_connection():
    world = tracker.Tracker()
    for segment in (segments.tcp("c", "S", 1), segments.tcp("s", "SA", 5, 2), segments.tcp("c", "A", 2, 6)):
        world.track(segment)
    assert world.verdict[0]["flags"] == VerdictFlag.COMMITTED | VerdictFlag.ASSURED
    assert world.track(segments.tcp("s", "S", 6)).reason is Reason.TCP_STATE
    verdict = world.verdict[0]
    assert verdict["ct_state"] == TRK | INV
    assert verdict["flags"] == 0
    assert verdict["state"] == Tcp.ESTABLISHED


def test_an_invalid_reply_is_no_reply():
    world = tracker.Tracker()
    world.track(segments.tcp("c", "S", 1))
    assert world.track(segments.tcp("s", "SA", 5, 77777)).unreplied
    assert not world.track(segments.tcp("s", "SA", 5, 2)).unreplied


def test_a_restart_leaves_the_verdict_to_the_next_try():
    world = tracker.Tracker()
    record = np.zeros(1, ENTRY)
    record[0]["state"] = Tcp.CLOSE
    peers = record[0]["protocol"].view(tracker.TCP_PEERS)
    peers["last_segment"] = tracker.track.tcp.Segment.RST
    world.verdict[0]["ct_state"] = 0xAA
    assert outcome.kind_of(judge(world, record, Way.ORIG, segments.tcp("c", "S", 1))) == Outcome.RESTART
    assert world.verdict[0]["ct_state"] == 0xAA


def test_the_last_packet_of_an_unanswered_connection_is_tracked_and_it_is_deleted():
    world = tracker.Tracker()
    world.track(segments.tcp("c", "S", 1))
    (connection,) = world.table.values()
    assert outcome.kind_of(judge(world, connection.record, Way.REPLY, segments.tcp("s", "RA", 0, 2))) == Outcome.DELETE
    assert world.verdict[0]["ct_state"] == TRK | EST | RPL


def test_begin_leaves_key_status_and_times_to_its_caller():
    record = np.full(1, 0, ENTRY)
    record.view("u1")[:] = 0x5A
    before = record.copy()
    parsed = segments.tcp("c", "S", 1)
    tracker.begin(tracker.at(record), tracker.at(parsed), u64(int(SETTINGS_WORD_DEFAULT)))
    for name in ENTRY.names:
        if name not in ("state", "protocol"):
            assert (record[0][name] == before[0][name]).all(), name


def test_a_fixed_timeout_is_left_alone():
    world = tracker.Tracker()
    world.track(segments.flow("c"))
    (connection,) = world.table.values()
    connection.entry["status"] |= Status.FIXED_TIMEOUT
    word = judge(world, connection.record, Way.REPLY, segments.flow("s"))
    assert outcome.term_of(word) == outcome.NO_TERM
    assert outcome.is_counted(word)
