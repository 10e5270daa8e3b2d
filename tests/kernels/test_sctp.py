"""SCTP through parser and tracker: the live kernel's 432 probes, tags, crossing and late INITs, heartbeats."""

import json
from pathlib import Path

import associations
import naive_sctp
import pytest
import tracker
from associations import TAGS, led, named, packet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from zonetrack.shm.layout import SCTP_ASSOCIATION, Status
from zonetrack.shm.reasons import Reason

OTHER = json.loads((Path(__file__).parents[1] / "data" / "netfilter-other-matrix.json").read_text())
LABELS = {"NEW/orig": "N>", "ESTABLISHED/orig": "E>", "ESTABLISHED/reply": "E<", "INVALID": "I"}
WRONG_TAG = 0xDEADBEEF
PROBES = {
    (state, way): [probe for probe in OTHER["sctp"] if probe[:2] == [state, way]]
    for state, way in {(probe[0], probe[1]) for probe in OTHER["sctp"]}
}
C, S = TAGS["c"], TAGS["s"]


@pytest.mark.parametrize(("state", "way"), sorted(PROBES))
def test_as_the_live_kernel(state, way):
    side = {"orig": "c", "reply": "s"}[way]
    for _, _, chunk, tag, verdict, after, timeout_s in PROBES[state, way]:
        world = led(tracker.Tracker(), state.partition("(")[0])
        seen = world.track(packet(side, chunk, WRONG_TAG if tag == "wrong tag" else None))
        assert seen.label.rstrip("a") == LABELS[verdict], (chunk, tag)
        if verdict == "INVALID":
            (connection,) = world.table.values() or [None]
            seen = world.seen("", connection, Reason.NONE)
        assert seen.state == ("gone" if after == "-" else after), (chunk, tag)
        assert seen.timeout_s is timeout_s is None or 0 <= seen.timeout_s - timeout_s <= 1  # measured seconds may lag


def test_all_probes_are_looked_at():
    assert sum(len(probes) for probes in PROBES.values()) == len(OTHER["sctp"]) == 432


def run(world, *steps):
    """Track packets, given as (side, chunk or chunks, tag or None); return (label, state) of each."""
    seen = [world.track(packet(*step)) for step in steps]
    return [(one.label, one.state) for one in seen]


def test_a_whole_life():
    world = tracker.Tracker()
    assert run(
        world,
        ("c", "INIT"),
        ("s", "INIT_ACK"),
        ("c", ("COOKIE_ECHO", "DATA")),
        ("s", ("COOKIE_ACK", "SACK")),
        ("c", ("SACK", "DATA", "DATA")),
        ("s", "SHUTDOWN"),
        ("c", "SHUTDOWN_ACK"),
        ("s", "SHUTDOWN_COMPLETE"),
    ) == [
        ("N>", "CLOSED"),
        ("E<", "COOKIE_WAIT"),
        ("E>", "COOKIE_ECHOED"),
        ("E<a", "ESTABLISHED"),
        ("E>a", "ESTABLISHED"),
        ("E<a", "SHUTDOWN_RECD"),
        ("E>a", "SHUTDOWN_ACK_SENT"),
        ("E<a", "CLOSED"),
    ]


def test_reasons():
    world = tracker.Tracker()
    for chunk in ("DATA", "ABORT", "INIT_ACK", "COOKIE_ECHO", "COOKIE_ACK", "SHUTDOWN", "SHUTDOWN_COMPLETE", "ERROR"):
        assert world.track(packet("c", chunk)).reason == Reason.SCTP_STATE
        assert world.track(packet("c", ("HEARTBEAT", chunk))).reason in (Reason.SCTP_STATE, Reason.SCTP_CHUNK)
    assert world.track(packet("c", "INIT", 7)).reason == Reason.SCTP_TAG
    assert world.track(packet("c", ())).reason == Reason.SCTP_CHUNK
    assert world.table == {}
    led(world, "ESTABLISHED")
    assert world.track(packet("c", "DATA", 7)).reason == Reason.SCTP_TAG
    world = led(tracker.Tracker(), "HEARTBEAT_SENT")
    assert world.track(packet("s", "SHUTDOWN_ACK")).reason == Reason.SCTP_STATE


def test_an_invalid_packet_neither_counts_nor_keeps_alive():
    world = led(tracker.Tracker(), "ESTABLISHED")
    (connection,) = world.table.values()
    before = connection.record.copy()
    world.now_ms += 5000
    assert world.track(packet("c", "DATA", 7)).label == "I"
    assert connection.record == before


@pytest.mark.parametrize("chunk", ["ABORT", "SHUTDOWN_COMPLETE"])
@pytest.mark.parametrize(
    ("tag", "flags", "label"), [(S, 0, "E>a"), (C, 0, "I"), (C, 1, "E>a"), (S, 1, "I"), (7, 0, "I"), (7, 1, "I")]
)
def test_a_reflected_tag(chunk, tag, flags, label):
    world = led(tracker.Tracker(), "SHUTDOWN_ACK_SENT")
    seen = world.track(packet("c", named(chunk, "c", flags=flags), tag))
    assert (seen.label, seen.state) == (label, "CLOSED" if label != "I" else "SHUTDOWN_ACK_SENT")


def test_what_answers_a_shutdown_ack_out_of_the_blue_reflects_its_tag():
    world = tracker.Tracker()
    assert world.track(packet("c", "SHUTDOWN_ACK", 7))[:3] == ("N>", "SHUTDOWN_ACK_SENT", 3)
    assert world.track(packet("s", named("SHUTDOWN_COMPLETE", "s"), 8)).reason == Reason.SCTP_TAG
    assert world.track(packet("s", named("SHUTDOWN_COMPLETE", "s", flags=0), 7))[:2] == ("E<", "CLOSED")


def test_an_init_again_keeps_nothing_alive():
    world = led(tracker.Tracker(), "CLOSED")
    (connection,) = world.table.values()
    world.now_ms += 4000
    assert world.track(packet("c", "INIT"))[:3] == ("N>", "CLOSED", 6)
    assert connection.entry["packets"].tolist() == [1, 0]


# ---------------------------------------------------------------------------------------------------- INITs that cross
def test_crossing_inits_and_a_stale_init_ack():
    world = tracker.Tracker()
    assert [
        label
        for label, _ in run(
            world,
            ("c", "INIT"),
            ("s", "INIT"),
            ("c", "INIT_ACK"),
            ("s", "COOKIE_ECHO"),
            ("c", "COOKIE_ACK"),
            ("s", named("INIT_ACK", "s", 0x333)),
            ("c", "DATA"),
            ("s", "SACK"),
            ("c", "DATA", 0x333),
        )
    ] == ["N>", "E<", "E>", "E<", "E>", "I", "E>", "E<", "I"]


def test_crossing_inits_and_an_init_ack_of_another_tag():
    world = tracker.Tracker()
    run(world, ("c", "INIT"), ("s", "INIT"))
    assert run(world, ("s", named("INIT_ACK", "s", 0x333), C))[0][0] == "I"
    assert run(world, ("s", "INIT_ACK"))[0] == ("E<", "COOKIE_WAIT")


def test_a_late_init_and_the_init_ack_that_answers_it():
    world = tracker.Tracker()
    assert [
        label
        for label, _ in run(
            world,
            ("s", "INIT"),
            ("c", "INIT_ACK"),
            ("s", "COOKIE_ECHO"),
            ("c", "COOKIE_ACK"),
            ("c", "INIT"),  # sent before all of these
            ("s", named("INIT_ACK", "s", 0x333)),
            ("c", "DATA"),
            ("s", "SACK"),
            ("s", "DATA"),
        )
    ] == ["N>", "E<", "E>", "E<a", "E<a", "I", "E<a", "E>a", "E>a"]


def test_a_host_that_begins_anew():
    world = led(tracker.Tracker(), "ESTABLISHED")
    assert [
        label
        for label, _ in run(
            world,
            ("c", named("INIT", "c", 0x111), 0),
            ("s", named("INIT_ACK", "s", 0x222), 0x111),
            ("c", "COOKIE_ECHO", 0x222),
            ("s", "COOKIE_ACK", 0x111),
            ("c", "DATA", 0x222),
            ("s", "SACK", 0x111),
            ("c", "DATA"),
        )
    ] == ["E>a"] * 1 + ["E<a", "E>a", "E<a", "E>a", "E<a", "I"]


# ---------------------------------------------------------------------------------------------------- heartbeats
def test_a_further_path():
    world = tracker.Tracker()
    assert world.track(packet("c", "HEARTBEAT"))[:3] == ("N>", "HEARTBEAT_SENT", 30)
    assert world.track(packet("s", "DATA")).reason == Reason.SCTP_TAG  # its tag was not seen
    assert world.track(packet("s", "HEARTBEAT_ACK"))[:4] == ("E<a", "ESTABLISHED", 210, True)
    assert run(world, ("c", "DATA"), ("s", "SACK"), ("s", "DATA", 7)) == [
        ("E>a", "ESTABLISHED"),
        ("E<a", "ESTABLISHED"),
        ("I", "ESTABLISHED"),
    ]


def test_tags_that_changed_are_confirmed_by_a_heartbeat():
    world = led(tracker.Tracker(), "ESTABLISHED")
    world.now_ms += 10_000
    assert world.track(packet("c", "HEARTBEAT", 0x222))[:3] == ("E>a", "ESTABLISHED", 200)  # let by
    assert world.track(packet("s", "HEARTBEAT_ACK", 0x111))[:3] == ("E<a", "ESTABLISHED", 210)
    assert world.track(packet("c", "HEARTBEAT", 0x222)).label == "E>a"
    assert run(world, ("c", "DATA", 0x222), ("s", "DATA", 0x111), ("c", "DATA"), ("s", "DATA")) == [
        ("E>a", "ESTABLISHED"),
        ("E<a", "ESTABLISHED"),
        ("I", "ESTABLISHED"),
        ("I", "ESTABLISHED"),
    ]


def test_heartbeats_that_confirm_nothing():
    world = led(tracker.Tracker(), "ESTABLISHED")
    assert world.track(packet("s", "HEARTBEAT_ACK", 0x111)).reason == Reason.SCTP_TAG  # nobody asked
    world.track(packet("c", "HEARTBEAT", 0x222))
    assert world.track(packet("c", "HEARTBEAT_ACK", 0x222)).reason == Reason.SCTP_TAG  # the same side
    assert world.track(packet("c", "HEARTBEAT")).label == "E>a"  # it has the right tag after all
    assert world.track(packet("s", "HEARTBEAT_ACK", 0x111)).reason == Reason.SCTP_TAG


def test_a_heartbeat_brings_no_data_in():
    world = led(tracker.Tracker(), "ESTABLISHED")
    assert world.track(packet("c", ("HEARTBEAT", "DATA"), 7)).reason == Reason.SCTP_TAG
    assert world.track(packet("c", ("HEARTBEAT", "HEARTBEAT"), 7)).reason == Reason.SCTP_TAG
    assert world.track(packet("c", ("HEARTBEAT", "DATA"))).label == "E>a"


def test_a_packet_of_many_chunks_takes_all_their_steps():
    world = tracker.Tracker()
    assert world.track(packet("c", ("SHUTDOWN_ACK", "HEARTBEAT"))).state == "SHUTDOWN_ACK_SENT"
    world = led(tracker.Tracker(), "ESTABLISHED")
    assert world.track(packet("c", ("SACK", "SHUTDOWN", "ABORT"))).state == "CLOSED"


# ---------------------------------------------------------------------------------------------------- a torn record
def test_the_next_packets_tell_the_tags_of_a_torn_association():
    world = led(tracker.Tracker(), "ESTABLISHED")
    (connection,) = world.table.values()
    connection.entry["status"] |= Status.TORN
    connection.entry["protocol"][:8] = 0xA5
    assert run(world, ("s", "DATA"), ("s", "DATA", 7), ("c", "SACK"), ("c", "DATA", 7), ("s", "SACK")) == [
        ("E<a", "ESTABLISHED"),
        ("I", "ESTABLISHED"),
        ("E>a", "ESTABLISHED"),
        ("I", "ESTABLISHED"),
        ("E<a", "ESTABLISHED"),
    ]
    assert not connection.has(Status.TORN)
    assert connection.entry["protocol"].view(SCTP_ASSOCIATION)["tag"].tolist() == [[S, C]]


# ---------------------------------------------------------------------------------------------------- the naive twin
NAMES = [name for name in associations.TYPES if name not in ("ERROR", "ECNE", "I_DATA")]
SOME_TAGS = (C, S, 0x333, 0x444, 0)


@st.composite
def packets(draw):
    """Draw (side, chunks as the twin takes them, tag); most have a chance to be part of an association."""
    side = draw(st.sampled_from("cs"))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3 if draw(st.booleans()) else 1))
    chunks = [(name, draw(st.integers(0, 1)), draw(st.sampled_from(SOME_TAGS[:4]))) for name in names]
    right = 0 if "INIT" in names else TAGS[associations.OTHER[side]]
    return side, chunks, draw(st.sampled_from((right, right, right, *SOME_TAGS)))


@settings(max_examples=2 * EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(associations.LED)), st.lists(packets(), max_size=12))
def test_the_naive_twin_agrees(state, sent):
    led_by = [(step[0], [(step[2:], 0, TAGS[step[0]])], None) for step in associations.LED[state]]
    world, twin, opener = tracker.Tracker(), naive_sctp.Association(), None
    for side, chunks, tag in (*led_by, *sent):
        data = tuple(named(name, side, announced, flags) for name, flags, announced in chunks)
        carried = tag if tag is not None else 0 if chunks[0][0] == "INIT" else TAGS[associations.OTHER[side]]
        way = "orig" if side == (opener or side) else "reply"
        is_part = twin.track(way, chunks, carried)
        seen = world.track(packet(side, data, carried))
        assert (seen.label != "I") == is_part, (side, chunks, hex(carried))
        if twin.state == "NONE":
            twin = naive_sctp.Association()
            assert not world.table
            continue
        opener = opener or side
        (connection,) = world.table.values()
        assert world.seen("", connection, Reason.NONE).state == twin.state
        assert connection.has(Status.ASSURED) == twin.assured
        tags = connection.entry["protocol"].view(SCTP_ASSOCIATION)["tag"][0].tolist()
        assert tags == [twin.tags["orig"], twin.tags["reply"]]
