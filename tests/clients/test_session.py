"""A client's side of a connection: every row of its table, that all else is refused, and answers in any order."""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients import wire
from zonetrack.clients.errors import (
    Code,
    ForbiddenError,
    LocalProtocolError,
    NoServiceError,
    RemoteProtocolError,
    StoppingError,
    TooManyClientsError,
    ZonetrackError,
)
from zonetrack.clients.session import OURS, TRANSITIONS, Answer, Event, Session, State

LAST_WORD = wire.failure(None, Code.STOPPING, "goodbye")


def happen(session, event):
    """Let an event happen to a session."""
    match event:
        case Event.ASK:
            session.ask("count", {})
        case Event.LEAVE:
            session.leave()
        case Event.ANSWER | Event.LAST_ANSWER:
            oldest = min(session._awaited, default=99)
            list(session.receive(wire.response(oldest, 5)))
        case Event.NOTICE:
            list(session.receive(wire.notification("gap", {})))
        case Event.LAST_WORD:
            with suppress(StoppingError):
                list(session.receive(LAST_WORD))
        case Event.END:
            list(session.receive(b""))
        case Event.NONSENSE:
            list(session.receive(b"\xc1"))


def brought_to(state, event):
    """Return a session in a state, in which the event is the one that it is called."""
    session = Session()
    if state is State.WAITING:
        session.ask("count", {})
        if event is Event.ANSWER:
            session.ask("count", {})
    elif state is State.REFUSED:
        happen(session, Event.LAST_WORD)
    elif state is State.CLOSED:
        session.leave()
    elif state is State.BROKEN:
        with pytest.raises(RemoteProtocolError):
            happen(session, Event.NONSENSE)
    assert session.state is state
    return session


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.old.value} {row.event.value}")
def test_every_row(row):
    session = brought_to(row.old, row.event)
    try:
        happen(session, row.event)
    except ZonetrackError:
        assert row.new in (State.BROKEN, State.REFUSED)
    assert session.state is row.new


LISTED = {(row.old, row.event) for row in TRANSITIONS}
UNLISTED = [
    (state, event)
    for state, event in itertools.product(State, Event)
    # an answer that is not awaited is nonsense, whichever it would have been
    if (state, event) not in LISTED and not (state is State.WAITING and event in (Event.ANSWER, Event.LAST_ANSWER))
]


@pytest.mark.parametrize(("state", "event"), UNLISTED)
def test_what_no_row_mentions_is_refused_by_whose_fault_it_is(state, event):
    session = brought_to(state, event)
    fault = (LocalProtocolError, NoServiceError, StoppingError) if event in OURS else RemoteProtocolError
    with pytest.raises(fault):
        happen(session, event)
    assert session.state in (state, State.BROKEN)


def test_rows_are_listed_once():
    assert len(LISTED) == len(TRANSITIONS)


@given(st.permutations(range(6)), st.data())
def test_answers_in_any_order_and_any_pieces_find_their_requests(order, data):
    session = Session()
    ids = [session.ask("count", {"n": n})[0] for n in range(6)]
    stream = b"".join(wire.response(ids[n], {"n": n}) for n in order)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(stream) - 1), max_size=6, unique=True)))
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += session.receive(stream[begin:end])
    assert got == [Answer(ids[n], None, {"n": n}) for n in order]
    assert session.state is State.IDLE


def test_an_error_belongs_to_its_request_and_the_others_go_on():
    session = Session()
    one, _ = session.ask("flush", {})
    two, _ = session.ask("count", {})
    answers = list(session.receive(wire.failure(one, Code.FORBIDDEN, "not you", {"uid": 7}) + wire.response(two, 3)))
    assert isinstance(answers[0].error, ForbiddenError) and answers[0].error.detail == {"uid": 7}
    assert answers[1] == Answer(two, None, 3)


def test_a_last_word_is_remembered():
    session = Session()
    with pytest.raises(TooManyClientsError, match="64 at most"):
        list(session.receive(wire.failure(None, Code.TOO_MANY_CLIENTS, "64 at most")))
    for _ in range(2):
        with pytest.raises(TooManyClientsError, match="64 at most"):
            session.ask("count", {})
        with pytest.raises(TooManyClientsError, match="64 at most"):
            session.receive(b"")


def test_half_a_message_at_the_end_is_not_in_order():
    session = Session()
    list(session.receive(wire.notification("gap", {})[:-1]))
    with pytest.raises(RemoteProtocolError, match="in the middle of a message"):
        session.receive(b"")
    assert session.state is State.BROKEN


def test_a_request_that_cannot_be_packed_is_not_awaited():
    session = Session()
    with pytest.raises(LocalProtocolError):
        session.ask("count", {"zone": object()})
    assert session.state is State.IDLE
    assert session.ask("count", {})[0] == 0


def test_ids_begin_anew_after_the_last():
    session = Session()
    session._next_id = wire.ID_MAX
    assert [session.ask("count", {})[0] for _ in range(2)] == [wire.ID_MAX, 0]


@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_is_an_answer_or_the_end(noise, cut_off):
    """Bytes of a good answer with others behind them: no other error, and none of the session's own making."""
    session = Session()
    id, _ = session.ask("count", {})
    packed = wire.response(id, {"count": 5})
    try:
        got = list(session.receive((packed[:-1] if cut_off else packed) + noise))
        assert cut_off or got[0] == Answer(id, None, {"count": 5})
        session.receive(b"")
        assert session.state is State.CLOSED
    except RemoteProtocolError:
        assert session.state is State.BROKEN
    except ZonetrackError:
        assert session.state is State.REFUSED
