"""The tracker inside a program: verdicts and connections of frames, of a capture, and of a table that is only looked at."""

import pytest
import tables
from bursts import SERVER, tcp, udp
from scapy.utils import wrpcap
from zonetrack.clients.errors import BadParameterError, FailedError, UnknownParameterError
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.service.captures import CaptureError
from zonetrack.service.embedded import Tracker, Watched, attach
from zonetrack.shm.errors import SegmentError
from zonetrack.shm.layout import CtState

NEW, EST, RPL, INV = (CtState.TRK | one for one in (CtState.NEW, CtState.EST, CtState.EST | CtState.RPL, CtState.INV))
HANDSHAKE = (tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501))
LATE = tcp("A", 9_000_000, 501)
SECOND_NS = 1_000_000_000
BEGAN_NS = 1_767_225_600 * SECOND_NS


@pytest.fixture
def tracker():
    with Tracker(1000) as tracker:
        yield tracker


def test_frames_in_verdicts_and_connections_out(tracker):
    frames = [bytes(packet) for packet in (*HANDSHAKE, LATE)]
    verdicts = tracker.track(frames, zone=5, times_ns=[BEGAN_NS + n for n in range(4)])
    assert verdicts["ct_state"].tolist() == [NEW, RPL, EST, INV] and set(verdicts["zone"].tolist()) == {5}
    (row,) = tracker.connections()
    assert (row["zone"], row["state"], row["packets"].tolist()) == (5, Tcp.ESTABLISHED, [2, 1])
    (connection,) = tracker.describe(proto="tcp", zone=5)
    assert (connection["state"], connection["orig"]["dst"]) == ("ESTABLISHED", SERVER)
    assert connection["start"] == BEGAN_NS / SECOND_NS
    assert len(tracker.connections(zone=4)) == 0


def test_calls_go_on_with_the_same_table_and_clock(tracker):
    assert tracker.track([bytes(udp())], times_ns=[BEGAN_NS])["ct_state"].tolist() == [NEW]
    assert tracker.track([bytes(udp(reply=True))], times_ns=[BEGAN_NS + SECOND_NS])["ct_state"].tolist() == [RPL]
    late = BEGAN_NS + 1000 * SECOND_NS
    assert tracker.track([bytes(udp())], times_ns=[late])["ct_state"].tolist() == [NEW]  # it had expired
    assert len(tracker.connections()) == 1


def test_frames_that_may_not_open_anything(tracker):
    assert tracker.track([bytes(udp())], commit=False)["ct_state"].tolist() == [NEW]
    assert len(tracker.connections()) == 0 and len(tracker.track([])) == 0


def test_a_capture(tracker, tmp_path):
    path = str(tmp_path / "x.pcap")
    wrpcap(path, [*HANDSHAKE, udp()])
    verdicts = tracker.capture(path)
    assert verdicts["ct_state"].tolist() == [NEW, RPL, EST, NEW] and len(tracker.connections()) == 2
    again = tracker.capture(path)
    assert again["ct_state"][3] == NEW  # nobody has answered


def test_a_capture_that_ends_too_early_is_tracked_as_far_as_it_goes(tracker, tmp_path):
    path = tmp_path / "x.pcap"
    wrpcap(str(path), [*HANDSHAKE])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CaptureError):
        tracker.capture(str(path))
    (row,) = tracker.connections()
    assert row["packets"].tolist() == [1, 1]
    with pytest.raises(CaptureError):
        tracker.capture(str(tmp_path / "missing"))


def test_settings_and_helpers(tmp_path):
    with Tracker(100, profile="ovs", helpers={"ftp": [21]}) as tracker:
        tracker.track([bytes(packet) for packet in HANDSHAKE])
        (connection,) = tracker.describe()
        assert connection["state_orig"] == "ESTABLISHED" and "ovs" in connection["status"]
    with pytest.raises(BadParameterError):
        Tracker(100, profile="pf")
    with pytest.raises(UnknownParameterError, match="did you mean loose"):
        Tracker(100, lose=True)


def test_closed_is_closed():
    tracker = Tracker(100)
    tracker.close()
    tracker.close()
    with pytest.raises(FailedError, match="closed"):
        tracker.track([bytes(udp())])
    with pytest.raises(FailedError, match="closed"):
        tracker.connections()


# ---------------------------------------------------------------------------------------------------- only looking
class Here(Watched):
    """One who looks at a table of this process."""

    def __init__(self, table, moment=0):
        self.table, self.moment = table, int(moment)

    def _moment(self):
        return self.moment


def test_a_table_that_is_looked_at_shows_what_a_dump_shows(tracker):
    frames = [bytes(packet) for packet in (*HANDSHAKE, udp(), udp(77))]
    tracker.track(frames, zone=3)
    here = Here(tracker.table, tracker.now_ms)
    wanted, rows = tracker.connections(), here.connections()
    for name in wanted.dtype.names:
        assert rows[name].tolist() == wanted[name].tolist(), name
    assert len(here.connections(zone=3)) == 3 and len(here.connections(zone=4)) == 0
    assert [one["proto"] for one in here.describe()] == ["tcp", "udp", "udp"]


def test_replies_of_what_is_translated_are_shown():
    me = tables.Participant(tables.small(100))
    me.made(tables.keys(1), tables.keys(1, first=99, low=5))
    (row,) = Here(me.table).connections()
    assert row["reply_src"].tolist() != row["dst"].tolist()


def test_where_no_service_is():
    with pytest.raises(SegmentError):
        attach("no-such-instance")
