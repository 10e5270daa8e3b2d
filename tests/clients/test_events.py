"""Batches of events: arrays and dicts of what a service says that they are, and nothing that it does not."""

import peer
import pytest
from zonetrack.clients.errors import BadParameterError, RemoteProtocolError
from zonetrack.clients.events import KINDS, Reading, subscription
from zonetrack.clients.wire import answers


@pytest.fixture
def batches():
    reader = answers()
    reader.feed(peer.notices())
    reading = Reading(peer.READING)
    return [reading.batch(told.params) for told in reader if told.method == "events"]


def test_events_are_what_happened_beside_the_connection(batches):
    first, second = (list(batch.events()) for batch in batches)
    assert [(one["event"], one["sequence"], one["id"]) for one in first] == [("new", 5, 5), ("update", 6, 6)]
    assert first[0]["time"] == 1767225600.5 and first[0]["proto"] == "udp"
    assert (first[1]["changes"], "changes" in first[0]) == (["status"], False)
    gap, last = second
    assert gap == {"event": "gap", "lost": 2, "sequence": 9}
    assert (last["event"], last["end"]) == ("destroy", "expired")


def test_events_as_an_array(batches):
    first, second = (batch.array() for batch in batches)
    assert first["sequence"].tolist() == [5, 6] and first.dtype.names[-1] == "helper"
    assert (second["id"].tolist(), batches[1].lost, batches[0].count) == ([9], 2, 2)


@pytest.mark.parametrize(
    "answer", [None, {}, {**peer.READING, "sequence": "4"}, {**peer.READING, "dtype": [["id", "<f8", []]]}], ids=str
)
def test_an_answer_that_cannot_be_read_by(answer):
    with pytest.raises(RemoteProtocolError):
        Reading(answer)


@pytest.mark.parametrize(
    "params",
    [{}, {"lost": 0, "sequence": 1, "records": b"x"}, {"lost": None, "sequence": 1, "records": b""}],
    ids=str,
)
def test_a_notification_without_events(params):
    with pytest.raises(RemoteProtocolError):
        Reading(peer.READING).batch(params)


@pytest.mark.parametrize("row", [peer.event(1, 8), peer.event(1, 4, end=2)])
def test_a_row_that_is_no_event(row):
    with pytest.raises(RemoteProtocolError, match="no event"):
        list(Reading(peer.READING).batch({"lost": 0, "sequence": 1, "records": row}).events())


def test_what_is_subscribed_to():
    assert subscription(None, {"zone": 5}) == {"filter": {"zone": 5}}
    assert subscription(KINDS[:1], {}) == {"filter": {}, "kinds": ["new"]}
    with pytest.raises(BadParameterError, match="'old' is no kind of event"):
        subscription(["old"], {})
