import pytest
import segments
import tracker
from segments import tcp
from zonetrack.kernels.timeouts import Timeout
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, CtState, Setting, Status, VerdictFlag, Way
from zonetrack.shm.reasons import Reason

TRK, EST, REL, RPL, INV = (CtState[name] for name in ("TRK", "EST", "REL", "RPL", "INV"))
OVS = SETTINGS_WORD_DEFAULT | Setting.OVS


def opened(settings=OVS):
    """Return a tracker with one connection in use: next numbers 1001 and 5001, no scaling."""
    world = tracker.Tracker(settings=settings)
    for segment in (tcp("c", "S", 1000), tcp("s", "SA", 5000, 1001), tcp("c", "A", 1001, 5001)):
        world.track(segment)
    return world


def the_one(world):
    """Return the only connection."""
    (connection,) = world.table.values()
    return connection


def test_a_connection_keeps_the_profile_of_its_beginning():
    world = opened()
    world.settings = SETTINGS_WORD_DEFAULT
    assert world.track(tcp("c", "A", 1001, 5001)).state == "ESTABLISHED/ESTABLISHED"
    linux = opened(SETTINGS_WORD_DEFAULT)
    linux.settings = OVS
    assert linux.track(tcp("c", "A", 1001, 5001)).state == "ESTABLISHED"
    assert the_one(world).has(Status.OVS) and not the_one(linux).has(Status.OVS)


def test_what_is_reopened_has_the_profile_of_the_zone_then():
    world = opened()
    world.settings = SETTINGS_WORD_DEFAULT
    world.track(tcp("s", "RA", 5001, 1001))
    seen = world.track(tcp("s", "S", 9000))
    assert (seen.label, seen.state) == ("N>", "SYN_SENT")
    assert the_one(world).has(Status.ORIG_IS_HIGH) and not the_one(world).has(Status.OVS)


def test_verdict():
    world = opened()
    world.track(tcp("s", "A", 5001, 1001))
    verdict = world.verdict[0]
    assert verdict["ct_state"] == TRK | EST | RPL
    assert (verdict["direction"], verdict["protocol"]) == (Way.REPLY, 6)
    assert verdict["flags"] == VerdictFlag.COMMITTED and verdict["state"] == 0x44
    assert the_one(world).has(Status.SEEN_REPLY) and not the_one(world).has(Status.ASSURED)


def test_a_refused_packet_has_no_part_in_its_connection():
    world = opened()
    before = the_one(world).record.tobytes()
    seen = world.track(tcp("c", "PA", 1001 + 1_000_000, 5001, length=10))
    assert (seen.label, seen.reason) == ("I", Reason.TCP_SEQ_CHK_FAILED)
    assert world.verdict[0]["ct_state"] == TRK | INV and world.verdict[0]["flags"] == 0
    assert the_one(world).record.tobytes() == before


@pytest.mark.parametrize("packet", [tcp("c", "A", 1001, 5001), segments.flow("c")], ids=["tcp", "udp"])
def test_packets_of_a_foretold_connection_are_related(packet):
    world = tracker.Tracker(settings=OVS)
    world.track(packet)
    the_one(world).entry["status"] |= Status.RELATED
    reply = segments.flow("s") if packet[0]["protocol"] == 17 else tcp("s", "A", 5001, 1001)
    tracker.update(
        tracker.at(the_one(world).record),
        tracker.u64(Way.REPLY),
        tracker.at(reply),
        tracker.u64(OVS),
        tracker.u64(world.now_ms),
        tracker.at(world.verdict),
    )
    assert world.verdict[0]["ct_state"] == TRK | EST | REL | RPL


@pytest.mark.parametrize("protocol", [6, 17])
def test_a_fixed_timeout_is_not_put_off(protocol):
    world = tracker.Tracker(settings=OVS)
    packet = segments.flow("c") if protocol == 17 else tcp("c", "S", 1000)
    world.track(packet)
    the_one(world).entry["status"] |= Status.FIXED_TIMEOUT
    world.now_ms += 5000
    assert world.track(packet).timeout_s in (55, 25)


def test_errors_are_related_as_in_the_other_profile():
    world = tracker.Tracker(settings=OVS)
    world.track(segments.flow("c"))
    world.now_ms += 5000
    seen = world.track(segments.error("s", segments.flow("c")))
    assert (tracker.OVS_LABELS[seen.label], seen.timeout_s) == ("rel|rpl", 55)


def test_lengths_are_those_of_the_policy():
    world = tracker.Tracker(settings=OVS)
    world.policy[0]["timeout_ms"][Timeout.UDP_FIRST] = 7000
    assert world.track(segments.flow("c")).timeout_s == 7
    assert world.track(segments.flow("c")).timeout_s == 60


def test_an_answer_to_no_request_opens_nothing():
    world = tracker.Tracker(settings=OVS)
    assert world.track(segments.query("s", 0)).reason is Reason.ICMP_UNMATCHED
    assert not world.table
