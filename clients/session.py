"""A client's side of one connection, without I/O: which answers are awaited, and what may happen next.

Rule 1.  What may happen is a row of TRANSITIONS.  What no row mentions is a mistake, ours or the other side's, by the
         event; it raises that side's protocol error, and of the other side's nothing more is believed.
Rule 2.  An answer belongs to the request with its id, in whatever order they come; nothing else is an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from . import errors, wire
from .errors import LocalProtocolError, NoServiceError, RemoteProtocolError, ServerError


class State(Enum):
    """Where the connection stands."""

    IDLE = "idle"  # nothing is awaited
    WAITING = "waiting"  # answers are
    REFUSED = "refused"  # the service has said its last word
    CLOSED = "closed"  # in order
    BROKEN = "broken"  # nothing can be believed any more


class Event(Enum):
    """What happens to it: ASK and LEAVE are ours."""

    ASK = "ask"
    LEAVE = "leave"
    ANSWER = "answer"  # and others are awaited
    LAST_ANSWER = "last answer"  # none is
    NOTICE = "notice"
    LAST_WORD = "last word"
    END = "end"  # of the bytes
    NONSENSE = "nonsense"


class Transition(NamedTuple):
    """In state ``old``, an ``event`` leads to ``new``."""

    old: State
    event: Event
    new: State
    why: str


# fmt: off
TRANSITIONS = (
    #          from           event              to              why
    Transition(State.IDLE,    Event.ASK,         State.WAITING,  "a request"),
    Transition(State.WAITING, Event.ASK,         State.WAITING,  "another, before the answer to the first"),
    Transition(State.WAITING, Event.ANSWER,      State.WAITING,  "to one of several requests"),
    Transition(State.WAITING, Event.LAST_ANSWER, State.IDLE,     "to the only request"),
    Transition(State.IDLE,    Event.NOTICE,      State.IDLE,     "something is told"),
    Transition(State.WAITING, Event.NOTICE,      State.WAITING,  "something is told, between answers"),
    Transition(State.IDLE,    Event.LAST_WORD,   State.REFUSED,  "too many clients, or the service stops"),
    Transition(State.WAITING, Event.LAST_WORD,   State.REFUSED,  "and the answers will not come"),
    Transition(State.REFUSED, Event.END,         State.REFUSED,  "as it said; why stands in its last word"),
    Transition(State.IDLE,    Event.END,         State.CLOSED,   "the service has closed, and owes nothing"),
    Transition(State.WAITING, Event.END,         State.BROKEN,   "answers are missing"),
    Transition(State.IDLE,    Event.NONSENSE,    State.BROKEN,   "no message, or one that nobody asked for"),
    Transition(State.WAITING, Event.NONSENSE,    State.BROKEN,   "no message, or one that nobody asked for"),
    Transition(State.REFUSED, Event.NONSENSE,    State.BROKEN,   "something after the last word"),
    Transition(State.IDLE,    Event.LEAVE,       State.CLOSED,   "we close"),
    Transition(State.WAITING, Event.LEAVE,       State.CLOSED,   "we close, and do not want the answers"),
    Transition(State.REFUSED, Event.LEAVE,       State.CLOSED,   "we close too"),
    Transition(State.BROKEN,  Event.LEAVE,       State.CLOSED,   "what is broken can be closed"),
    Transition(State.CLOSED,  Event.LEAVE,       State.CLOSED,   "twice is as good as once"),
)
# fmt: on
_STEPS = {(row.old, row.event): row.new for row in TRANSITIONS}
OURS = frozenset({Event.ASK, Event.LEAVE})


class Answer(NamedTuple):
    """What came of a request: a result, or the error to raise."""

    id: int
    error: ServerError | None
    result: Any


class Session:
    """Numbers the requests of one connection, and matches the answers."""

    def __init__(self) -> None:
        self.state = State.IDLE
        self._reader = wire.answers()
        self._next_id = 0
        self._awaited: set[int] = set()
        self._last_word: ServerError | None = None

    def ask(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        """Return the id of a new request, and the bytes to send.

        Raises:
            LocalProtocolError: it cannot be packed, or the connection is over.
            ServerError: the service has refused the connection; says why.
        """
        if self._last_word is not None:
            raise self._last_word
        packed = wire.request(self._next_id, method, params)
        self._step(Event.ASK)
        id, self._next_id = self._next_id, (self._next_id + 1) & wire.ID_MAX
        self._awaited.add(id)
        return id, packed

    def receive(self, data: bytes | bytearray | memoryview) -> Iterator[Answer | wire.Notification]:
        """Yield what bytes from the service complete; no bytes: they have ended.

        Raises:
            RemoteProtocolError: the service does not speak the protocol, or hung up in the middle.
            ServerError: its last word; nobody gets an answer any more.
        """
        if not data:
            return self._end()
        self._reader.feed(data)
        return self._messages()

    def leave(self) -> None:
        """Close; whoever still waits for an answer will not get it."""
        self._step(Event.LEAVE)
        self._awaited.clear()

    def _messages(self) -> Iterator[Answer | wire.Notification]:
        try:
            for message in self._reader:
                yield self._take(message)
        except RemoteProtocolError:
            self.state = State.BROKEN
            raise

    def _take(self, message: wire.Message) -> Answer | wire.Notification:
        if isinstance(message, wire.Notification):
            self._step(Event.NOTICE)
            return message
        assert isinstance(message, wire.Response)  # the reader takes nothing else
        error = message.failure and errors.of(*message.failure)
        if message.id is None and error:
            self._step(Event.LAST_WORD)
            self._last_word = error
            raise error
        if message.id is None or message.id not in self._awaited:
            self._step(Event.NONSENSE)
            raise RemoteProtocolError(f"an answer to request {message.id}, which is not awaited")
        self._awaited.remove(message.id)
        self._step(Event.ANSWER if self._awaited else Event.LAST_ANSWER)
        return Answer(message.id, error, message.result)

    def _end(self) -> Iterator[Answer | wire.Notification]:
        self._step(Event.END)
        if self._last_word is not None:
            raise self._last_word
        if self.state is State.BROKEN:
            raise RemoteProtocolError(f"the service hung up, and owes {len(self._awaited)} answers")
        try:
            self._reader.end()
        except RemoteProtocolError:
            self.state = State.BROKEN
            raise
        return iter(())

    def _step(self, event: Event) -> None:
        new = _STEPS.get((self.state, event))
        if new is not None:
            self.state = new
        elif event is Event.ASK and self.state is State.CLOSED:
            raise NoServiceError("the connection is closed")
        elif event in OURS:
            raise LocalProtocolError(f"{event.value}: the connection is {self.state.value}")
        else:
            old, self.state = self.state, State.BROKEN
            raise RemoteProtocolError(f"{event.value}: the connection was {old.value}")
