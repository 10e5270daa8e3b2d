import json
from pathlib import Path

import numpy as np
import pytest
import segments
import tracker
from segments import tcp
from tcp_matrix import probes, ways_to_states
from zonetrack.kernels import outcome
from zonetrack.kernels.outcome import Outcome
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.tcp_window import PeerFlag
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting, Status, Way
from zonetrack.shm.reasons import Reason

TESTS = Path(__file__).parents[1]
MATRIX = json.loads((TESTS / "data" / "netfilter-tcp-matrix.json").read_text())
OPTIONS = "mss1460 sackok ws7"


# ---------------------------------------------------------------------------------------------------- the live matrix
VERDICTS = {"NEW/orig": "N>", "ESTABLISHED/orig": "E>", "ESTABLISHED/reply": "E<", "INVALID": "I"}


@pytest.mark.parametrize("way", ["orig", "reply"])
@pytest.mark.parametrize("state", ways_to_states())
def test_live_kernel_matrix(state, way):
    """600 probes of a live Linux 6.18: verdict, state after, seconds to live (measured, so within 2), status."""
    side = "c" if way == "orig" else "s"
    cells = [cell for cell in MATRIX if cell["state"] == state and cell["dir"] == way]
    assert len(cells) == 25
    differences = []
    for cell in cells:
        packets, client, server = ways_to_states()[state]
        world = tracker.Tracker()
        for packet in packets:
            world.track(packet)
        flags, seq, ack, length, options = probes(side, *((client, server) if side == "c" else (server, client)))[
            cell["packet"]
        ]
        label = world.track(tcp(side, flags, seq, ack, 502, length, options)).label.rstrip("a")
        seen = world.seen(label, next(iter(world.table.values()), None), Reason.NONE)
        expected = (
            VERDICTS[cell["verdict"]],
            "gone" if cell["after"] == "-" else cell["after"],
            cell["flags"] == "ASSURED",
            cell["flags"] == "UNREPLIED",
        )
        timeout_s = cell["timeout"]
        if (
            (label, seen.state, seen.assured, seen.unreplied) != expected
            or (seen.timeout_s is None) != (timeout_s is None)
            or (timeout_s is not None and not -1 <= seen.timeout_s - timeout_s <= 2)
        ):
            differences.append((cell, seen))
    assert differences == []


# ---------------------------------------------------------------------------------------------------- one at a time
@pytest.fixture
def established():
    """A tracker with one assured connection: next numbers 1001 and 5001, no scaling."""
    world = tracker.Tracker()
    world.track(tcp("c", "S", 1000, win=5000))
    world.track(tcp("s", "SA", 5000, 1001, 5000))
    world.track(tcp("c", "A", 1001, 5001, 5000))
    return world


def the_one(world):
    """Return the only connection."""
    (connection,) = world.table.values()
    return connection


REASONS = {
    "flags": (tcp("c", "SF", 1001), Reason.INVALID_TCP_FLAGS),
    "state": (tcp("c", "SA", 1001, 5001), Reason.TCP_STATE),
    "data beyond": (tcp("c", "A", 1001 + 9999999, 5001), Reason.TCP_SEQ_ABOVE),
    "overrun": (tcp("c", "A", 1001 + 5002, 5001), Reason.TCP_SEQ_ABOVE),
    "data old": (tcp("c", "A", 1001 - 5002, 5001), Reason.TCP_SEQ_BELOW),
    "ACK beyond": (tcp("c", "A", 1001, 5002), Reason.TCP_ACK_ABOVE),
    "ACK old": (tcp("c", "A", 1001, 5001 - 66001), Reason.TCP_ACK_BELOW),
    "RST": (tcp("c", "R", 1000), Reason.TCP_RST_SEQ),
    "SYN": (tcp("c", "S", 77), Reason.TCP_SYN_CHALLENGE),
    "right": (tcp("c", "PA", 1001, 5001, length=9), Reason.NONE),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons(established, name):
    segment, reason = REASONS[name]
    assert established.track(segment).reason is reason


@pytest.mark.parametrize("name", ["flags", "state", "data beyond", "data old", "ACK beyond", "ACK old", "RST"])
def test_what_is_not_followed_changes_nothing(established, name):
    before = the_one(established).record.tobytes()
    established.track(REASONS[name][0])
    assert the_one(established).record.tobytes() == before


def test_what_is_let_by_is_not_counted(established):
    connection = the_one(established)
    packets = connection.entry["packets"].tolist()
    established.track(REASONS["SYN"][0])
    established.track(REASONS["data old"][0])
    assert connection.entry["packets"].tolist() == packets == [2, 1]


def test_bounds_are_exact(established):
    """The last segment inside each bound passes as part of the connection, one further it does not (see reasons)."""
    for segment in (
        tcp("c", "A", 1001 + 5000, 5001),  # I
        tcp("c", "A", 1001 - 5000, 5001),  # II
        tcp("c", "A", 1001, 5001),  # III
        tcp("c", "A", 1001, 5001 - 66000),  # IV
    ):
        fresh = tracker.Tracker()
        for packet in (
            tcp("c", "S", 1000, win=5000),
            tcp("s", "SA", 5000, 1001, 5000),
            tcp("c", "A", 1001, 5001, 5000),
        ):
            fresh.track(packet)
        assert fresh.track(segment)[0::5] == ("E>a", Reason.NONE)


def test_a_fixed_timeout_stays(established):
    connection = the_one(established)
    connection.entry["status"] |= Status.FIXED_TIMEOUT
    established.now_ms += 1000
    assert established.track(tcp("c", "PA", 1001, 5001, length=1)).timeout_s == 432000 - 1
    established.track(tcp("c", "FA", 99999999, 5001))
    assert established.track(tcp("s", "FA", 99999999, 1002)).timeout_s == 432000 - 1


def test_a_policy_shortens_and_caps(established):
    policy = established.policy[0]["timeout_ms"]
    policy[tracker.timeouts.Timeout.TCP_ESTABLISHED] = 90_000
    assert established.track(tcp("c", "PA", 1001, 5001, length=1)).timeout_s == 90
    policy[tracker.timeouts.Timeout.TCP_UNACKNOWLEDGED] = 30_000
    assert established.track(tcp("c", "PA", 1002, 5001, length=1)).timeout_s == 30
    assert established.track(tcp("s", "A", 5001, 1003)).timeout_s == 90


def test_a_torn_record_is_taken_up(established):
    """Its last writer died in the middle: numbers are learned anew, and nothing of a live connection is refused."""
    connection = the_one(established)
    connection.record[0]["protocol"] = np.frombuffer(np.random.default_rng(5).bytes(64), "u1")
    connection.entry["status"] |= Status.TORN
    for segment in (
        tcp("s", "PA", 70001, 31001, 5000, 100),
        tcp("c", "A", 31001, 70101, 5000),
        tcp("c", "PA", 31001, 70101, 5000, 100),
        tcp("s", "A", 70101, 31101, 5000),
        tcp("c", "FA", 31101, 70101, 5000),
        tcp("s", "FA", 70101, 31102, 5000),
        tcp("c", "A", 31102, 70102, 5000),
    ):
        assert established.track(segment).label[0] == "E"
    assert the_one(established).entry["state"] == Tcp.TIME_WAIT
    assert not the_one(established).has(Status.TORN)


def test_any_state_and_any_memory_is_survived():
    """No byte of a record, however torn, makes an index go astray or a shift too far."""
    random = np.random.default_rng(11)
    for state in range(256):
        world = tracker.Tracker()
        world.track(tcp("c", "S", 1000))
        connection = the_one(world)
        connection.entry["state"] = state
        connection.record[0]["protocol"] = np.frombuffer(random.bytes(64), "u1")
        connection.entry["status"] |= Status.TORN
        for flags in ("S", "SA", "A", "FA", "R", ""):
            word = u64(
                tracker.update(
                    tracker.at(connection.record),
                    u64(Way.REPLY),
                    tracker.at(tcp("s", flags, 5000, 1001, options=OPTIONS)),
                    u64(int(SETTINGS_WORD_DEFAULT)),
                    u64(0),
                    tracker.at(world.verdict),
                )
            )
            assert int(outcome.kind_of(word)) in set(Outcome)


def test_pick_up_is_liberal_on_both_sides():
    world = tracker.Tracker()
    world.track(tcp("c", "PA", 1000, 2000, length=5))
    assert all(flags & PeerFlag.LIBERAL for flags in the_one(world).peers["peer"]["flags"])


def test_what_picks_up_is_remembered():
    """Its acknowledgment bounds the other side's resets, and the window that it grants the other side's data."""
    world = tracker.Tracker()
    world.track(tcp("c", "A", 1000, 2**32 - 10_000, 4096))
    sender, receiver = the_one(world).peers["peer"]
    assert (sender["end"], sender["maxend"], sender["maxwin"], sender["maxack"]) == (1000, 5096, 4096, 2**32 - 10_000)
    assert (receiver["end"], receiver["maxend"], receiver["maxwin"]) == (0, 0, 0)


def test_pick_up_may_be_forbidden():
    world = tracker.Tracker(settings=SETTINGS_WORD_DEFAULT & ~Setting.LOOSE)
    assert world.track(tcp("c", "A", 1000, 2000)).reason is Reason.TCP_NEW_REFUSED
    assert not world.table


@pytest.mark.parametrize("flags", ["SA", "FA", "R", "RA"])
def test_only_syn_and_ack_open(flags):
    world = tracker.Tracker()
    assert world.track(tcp("c", flags, 1000, 2000)).reason is Reason.TCP_NEW_REFUSED
    assert world.track(tcp("c", "SF", 1000, 2000)).reason is Reason.INVALID_TCP_FLAGS
    assert not world.table


def test_the_server_may_be_the_low_endpoint():
    world = tracker.Tracker()
    assert world.track(tcp("s", "S", 1000)).label == "N>"
    assert world.track(tcp("c", "SA", 5000, 1001)).label == "E<"
    assert world.track(tcp("s", "A", 1001, 5001)).label == "E>a"
    assert segments.CLIENT < segments.SERVER
