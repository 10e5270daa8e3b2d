import json
from pathlib import Path

import numpy as np
import pytest
import tracker
from segments import tcp
from tcp_matrix import probes, ways_to_states
from zonetrack.kernels import outcome, ovs_tcp
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.outcome import Outcome
from zonetrack.kernels.ovs_tcp import MAX_ACK_WINDOW, PeerScale
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting, Status
from zonetrack.shm.reasons import Reason

MATRIX = json.loads((Path(__file__).parents[1] / "data" / "ovs-tcp-matrix.json").read_text())
WINDOW = int(MAX_ACK_WINDOW)
OVS = SETTINGS_WORD_DEFAULT | Setting.OVS
SETTINGS = {"checked": OVS, "noseq": OVS & ~Setting.SEQ_CHECK}


@kernel
def scale_offered(parsed):
    return ovs_tcp.scale_offered(tracker.parsed_at(parsed))


def protoinfo(scale):
    """Return what Open vSwitch shows of a peer's scale: the shift, none where it is not known, and its flags."""
    if scale & PeerScale.UNKNOWN:
        return None, "BE_LIBERAL"
    return scale & 0xF, "WINDOW_SCALE" if scale & PeerScale.OFFERED else 0


def shown(world):
    """Return the only connection as the matrix has it."""
    if not world.table:
        return None
    (connection,) = world.table.values()
    seen = world.seen("", connection, Reason.NONE)
    orig, _, reply = seen.state.partition("/")
    after = {"state_orig": orig, "state_reply": reply, "timeout": seen.timeout_s}
    for side, peer in zip(("orig", "reply"), connection.ovs_peers["peer"], strict=True):
        scale, after[f"flags_{side}"] = protoinfo(int(peer["scale"]))
        if scale is not None:
            after[f"wscale_{side}"] = scale
    return after | {"originator": "s" if connection.has(Status.ORIG_IS_HIGH) else "c"}


@pytest.mark.parametrize("mode", SETTINGS)
@pytest.mark.parametrize("way", ["orig", "reply"])
@pytest.mark.parametrize("state", ways_to_states())
def test_live_matrix(state, way, mode):
    """600 probes of a live Open vSwitch 4.0.90, with sequence checks and without: ct_state, both states, time to live."""
    side = "c" if way == "orig" else "s"
    cells = [cell for cell in MATRIX if cell["state"] == state and cell["dir"] == way]
    assert len(cells) == 25
    differences = []
    for cell in cells:
        packets, client, server = ways_to_states()[state]
        world = tracker.Tracker(settings=SETTINGS[mode])
        for packet in packets:
            world.track(packet)
        mine, yours = (client, server) if side == "c" else (server, client)
        flags, seq, ack, length, options = probes(side, mine, yours)[cell["packet"]]
        seen = world.track(tcp(side, flags, seq, ack, 502, length, options))
        expected = cell if mode == "checked" else cell["noseq"]
        if (tracker.OVS_LABELS[seen.label], shown(world)) != (expected["ct_state"], expected["after"]):
            differences.append((cell["packet"], seen, expected["ct_state"], expected["after"], shown(world)))
    assert differences == []


# ---------------------------------------------------------------------------------------------------- one at a time
def the_one(world):
    """Return the only connection."""
    (connection,) = world.table.values()
    return connection


def opened(*options, settings=OVS):
    """Return a tracker with one connection in use: next numbers 1001 and 5001, windows of 5000."""
    offered = [*options, "", ""]
    world = tracker.Tracker(settings=settings)
    world.track(tcp("c", "S", 1000, win=5000, options=offered[0]))
    world.track(tcp("s", "SA", 5000, 1001, 5000, options=offered[1]))
    world.track(tcp("c", "A", 1001, 5001, 5000))
    return world


@pytest.mark.parametrize("flags", ["S", "A", "R", "RA", "FA", "PA"])
def test_all_but_syn_ack_open(flags):
    world = tracker.Tracker(settings=OVS)
    assert world.track(tcp("c", flags, 1000, 2000)).label == "N>"
    assert world.track(tcp("c", flags, 1000, 2000)).state == {"R": "TIME_WAIT/TIME_WAIT"}.get(
        flags[0], "CLOSING/CLOSED" if "F" in flags else "SYN_SENT/CLOSED"
    )
    assert tracker.Tracker(settings=OVS).track(tcp("s", "SA", 1, 2)).reason is Reason.TCP_NEW_REFUSED
    assert tracker.Tracker(settings=OVS).track(tcp("s", "SF", 1, 2)).reason is Reason.INVALID_TCP_FLAGS


@pytest.mark.parametrize(
    ("ack", "label"),
    [
        (5001 + WINDOW, "E>"),
        (5001 + WINDOW + 1, "I"),
        (5001 - WINDOW, "E>"),
        (5001 - WINDOW - 1, "I"),
    ],
)
def test_an_acknowledgment_may_be_a_little_off(ack, label):
    assert opened().track(tcp("c", "A", 1001, ack, 5000)).label == label


def test_behind_it_may_be_further_by_the_scale():
    world = opened("ws3", "ws3")
    assert world.track(tcp("c", "A", 1001, 5001 - 8 * WINDOW)).label == "E>"
    assert world.track(tcp("c", "A", 1001, 5001 - 8 * WINDOW - 1)).label == "I"


@pytest.mark.parametrize(
    ("seq", "length", "label"),
    [(1001, 5000, "E>"), (1001, 5001, "I"), (1000 - 5000, 5000, "E>"), (1000 - 5001, 5001, "I"), (77, 0, "E>")],
)
def test_data_must_fit_the_window(seq, length, label):
    """Counted back from 1000: a SYN does not move its side's own number, nor does a bare ACK."""
    assert opened().track(tcp("c", "PA", seq, 5001, 5000, length)).label == label


@pytest.mark.parametrize(("seq", "label"), [(998, "I"), (999, "E>"), (1000, "E>"), (1001, "E>"), (1002, "I")])
def test_a_reset_must_be_there(seq, label):
    seen = opened().track(tcp("c", "R", seq))
    assert (seen.label, seen.state) == (label, "TIME_WAIT/TIME_WAIT" if label == "E>" else "ESTABLISHED/ESTABLISHED")


def test_numbers_wrap():
    world = tracker.Tracker(settings=OVS)
    top = 2**32 - 1
    for packet in (tcp("c", "S", top - 1), tcp("s", "SA", top - 5, top), tcp("c", "A", top, top - 4)):
        world.track(packet)
    labels = [
        world.track(tcp("s", "PA", top - 4, top, length=10)).label,
        world.track(tcp("c", "A", top, 5)).label,
        world.track(tcp("c", "PA", top, 5, length=20)).label,
        world.track(tcp("s", "A", 5, 19)).label,
    ]
    assert labels == ["E<", "E>", "E>", "E<"]


@pytest.mark.parametrize(
    ("offered", "answered", "scales", "windows"),
    [
        ("ws2", "ws3", (PeerScale.OFFERED | 2, PeerScale.OFFERED | 3), (5000, 625)),
        ("ws15", "ws200", (PeerScale.OFFERED | 14, PeerScale.OFFERED | 14), (5000, 1)),
        ("ws2", "", (0, 0), (5000, 5000)),
        ("", "ws3", (0, 0), (5000, 5000)),
    ],
)
def test_scales_count_if_both_offer_one(offered, answered, scales, windows):
    peers = the_one(opened(offered, answered)).ovs_peers["peer"]
    assert (tuple(peers["scale"]), tuple(peers["max_win"])) == (scales, windows)


def test_what_seq_check_would_refuse_passes_without_it_and_says_so():
    world = opened(settings=OVS & ~Setting.SEQ_CHECK)
    seen = world.track(tcp("c", "PA", 9_000_000, 5001, 5000, 10))
    assert (seen.label, seen.reason, seen.timeout_s) == ("E>", Reason.TCP_SEQ_CHK_BYPASS, 86400)
    world.track(tcp("s", "A", 5001, 9_000_010, 5000))
    assert world.track(tcp("c", "PA", 9_000_010, 5001, 5000, 10)).reason is Reason.NONE
    assert world.track(tcp("c", "R", 5)).state == "TIME_WAIT/TIME_WAIT"


def test_what_passes_loosely_puts_nothing_off_but_moves_the_window():
    world = tracker.Tracker(settings=OVS)
    world.track(tcp("c", "S", 1000, win=100))
    world.now_ms += 10_000
    seen = world.track(tcp("c", "PA", 1001, 5001, 100, 60_000))
    assert (seen.label, seen.timeout_s) == ("E>", 20)
    assert the_one(world).ovs_peers["peer"]["seqlo"][0] == 61_001


def test_a_repeated_syn_and_a_repeated_ack_put_it_off():
    world = tracker.Tracker(settings=OVS)
    world.track(tcp("c", "S", 1000))
    world.now_ms += 10_000
    assert world.track(tcp("c", "S", 1000))[:3] == ("N>", "SYN_SENT/CLOSED", 30)
    world = opened()
    world.now_ms += 10_000
    assert world.track(tcp("c", "A", 1001, 5001, 5000)).timeout_s == 86400


def test_the_first_segment_of_a_side_is_learned_even_when_it_is_refused():
    world = tracker.Tracker(settings=OVS)
    world.track(tcp("c", "S", 1000))
    world.track(tcp("s", "S", 7000))
    assert world.track(tcp("s", "PA", 5001, 1001, length=10)).label == "I"
    seen = world.seen("", the_one(world), Reason.NONE)
    assert seen.state == "SYN_SENT/SYN_SENT"


def test_a_torn_record_begins_anew_as_one_picked_up():
    world = opened("ws7", "ws7")
    the_one(world).entry["status"] |= Status.TORN
    the_one(world).record[0]["protocol"] = 0xA5
    seen = world.track(tcp("s", "PA", 123_456, 654_321, length=10))
    assert (seen.label, seen.state) == ("E<", "CLOSED/SYN_SENT") and not the_one(world).has(Status.TORN)
    world.track(tcp("c", "A", 654_321, 123_466))
    seen = world.track(tcp("s", "A", 123_466, 654_321))
    assert (seen.label, seen.state, seen.timeout_s) == ("E<", "ESTABLISHED/ESTABLISHED", 86400)
    assert [int(scale) for scale in the_one(world).ovs_peers["peer"]["scale"]] == [PeerScale.UNKNOWN] * 2


def test_any_state_and_any_record_give_an_outcome():
    random = np.random.default_rng(11)
    for state in range(256):
        world = opened()
        connection = the_one(world)
        connection.entry["state"] = state
        connection.record[0]["protocol"] = np.frombuffer(random.bytes(64), "u1")
        for side in "cs":
            for flags in ("S", "SA", "A", "FA", "R", "", "PAU"):
                word = tracker.update(
                    tracker.at(connection.record),
                    u64(side == "s"),
                    tracker.at(tcp(side, flags, 5000, 1001, options="ws7")),
                    u64(int(OVS)),
                    u64(0),
                    tracker.at(world.verdict),
                )
                assert int(outcome.kind_of(u64(word))) in set(Outcome)


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ("0x030307", PeerScale.OFFERED | 7),
        ("0x01010303090000", PeerScale.OFFERED | 9),
        ("0x0303070303ff00", PeerScale.OFFERED | 14),
        ("0x020405b4", 0),
        ("0x00030307", 0),
        ("0x0200030307", PeerScale.OFFERED | 7),
        ("0x02ff030307", 0),
        ("0x" + "01" * 40, 0),
        ("", 0),
    ],
)
def test_scale_option(options, offered):
    assert scale_offered(tracker.at(tcp("c", "S", 1, options=options))) == offered
