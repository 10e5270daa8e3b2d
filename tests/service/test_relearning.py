"""After a gap in which both ends went on, nothing that they send is held against them, and from then on all is as before."""

import numpy as np
import tables
import tracker
from hypothesis import example, given
from hypothesis import strategies as st
from segments import tcp
from zonetrack.service import relearning
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, Life, Region, Setting, Status
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

OPTIONS = "mss1460 sackok ws7"
U32 = 1 << 32
sent = st.integers(1, U32 - 1)


def established(settings):
    """Return a tracker that has seen a handshake."""
    world = tracker.Tracker(settings=settings)
    world.track(tcp("c", "S", 1000, options=OPTIONS))
    world.track(tcp("s", "SA", 5000, 1001, options=OPTIONS))
    assert world.track(tcp("c", "A", 1001, 5001)).state == "ESTABLISHED"
    (connection,) = world.table.values()
    connection.entry["life"] = Life.LIVE
    return world, connection


def conversation(client, server, first, payload):
    """Return segments of both sides that go on at these numbers, in the order in which they pass, to the end."""
    one, other = (client, server) if first == "c" else (server, client)
    second = "s" if first == "c" else "c"
    step = payload or 1
    yield tcp(first, "PA", one, other, 500, step)
    yield tcp(second, "A", other, (one + step) % U32, 500)
    yield tcp(second, "PA", other, (one + step) % U32, 500, step)
    yield tcp(first, "A", (one + step) % U32, (other + step) % U32, 500)
    yield tcp(first, "FA", (one + step) % U32, (other + step) % U32, 500)
    yield tcp(second, "FA", (other + step) % U32, (one + step + 1) % U32, 500)
    yield tcp(first, "A", (one + step + 1) % U32, (other + step + 1) % U32, 500)


@given(sent, sent, st.sampled_from("cs"), st.integers(0, 1400), st.booleans())
def test_whatever_both_have_sent_meanwhile(client, server, first, payload, strict):
    settings = tracker.SETTINGS_WORD_DEFAULT & ~Setting.BE_LIBERAL if strict else tracker.SETTINGS_WORD_DEFAULT
    world, connection = established(settings)
    assert relearning.mark(connection.record) == 1
    for parsed in conversation((1001 + client) % U32, (5001 + server) % U32, first, payload):
        seen = world.track(parsed)
        assert seen.label[0] == "E", seen
    assert seen.state == "TIME_WAIT"
    assert not connection.has(Status.TORN)


def test_without_it_they_would_be_refused():
    world, _ = established(tracker.SETTINGS_WORD_DEFAULT)
    (first, *_) = conversation(1001 + (1 << 30), 5001 + (1 << 30), "c", 100)
    assert world.track(first).label == "I"


def told_of(world, connection, parsed):
    """Judge a segment, and return what it came to and its reason."""
    relearning.mark(connection.record)
    seen = world.track(parsed)
    return seen.label[0], seen.reason


numbers = st.one_of(st.integers(0, U32 - 1), st.integers(-70_000, 70_000))


@given(numbers, numbers, st.sampled_from("cs"), st.integers(0, 1400))
@example(1 << 30, 0, "c", 10)
@example(0, 90_000, "s", 10)
def test_what_is_believed_for_want_of_news_has_a_reason(seq, ack, side, payload):
    """It has it if and only if the windows before would have refused it; and once, for they are learned from it."""
    mine, other = (1001, 5001) if side == "c" else (5001, 1001)
    parsed = tcp(side, "PA", (mine + seq) % U32, (other + ack) % U32, 500, payload)
    world, _ = established(tracker.SETTINGS_WORD_DEFAULT)
    is_refused = world.track(parsed).reason != Reason.NONE  # or let by, and not followed
    world, connection = established(tracker.SETTINGS_WORD_DEFAULT)
    reason = Reason.RELEARNED if is_refused else Reason.NONE
    assert told_of(world, connection, parsed) == ("E", reason)
    assert world.track(parsed).reason == Reason.NONE


def test_who_is_marked():
    """TCP and SCTP that live; not UDP, whose packets say nothing of those before, nor a record that nobody uses."""
    table = segment.anonymous(Geometry(1000))
    one = tables.Participant(table)
    keys = tables.keys(30)
    for number, protocol in enumerate((6, 17, 132)):
        keys[number::3, 4] = keys[number::3, 4] & ~np.uint64(0xFF00) | np.uint64(protocol << 8)
    one.made(keys)
    one.remove(keys[:3])
    one.run()
    assert relearning.mark_all(table) == 18
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    torn = entries[entries["status"] & Status.TORN != 0]
    assert {int(key) >> 8 & 0xFF for key in torn["key"][:, 4]} == {6, 132} and (torn["life"] & 0xFF == Life.LIVE).all()
