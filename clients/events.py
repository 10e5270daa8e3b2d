"""Events as clients read them: packed rows become arrays, or dicts with what happened beside the connection.

    {"event": "new", "sequence": 7, "time": 1767225600.1, ... the connection ...}
    {"event": "update", ..., "changes": ["state", "status"]}
    {"event": "destroy", ..., "end": "expired"}
    {"event": "gap", "lost": 12, "sequence": 40}

A gap says how many events were lost; those of other connections than the filter means may be among them.  All up to
``sequence`` has been told: a dump whose ``sequence`` is as high has all of that in it.  Who comes back, and gives the
``mark`` of the last batch that he had, is told what has happened since, as far as the service still has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .connections import STATUS, TCP_STATES, Field, Rows, describe
from .errors import BadParameterError, RemoteProtocolError
from .filters import wire_filter

if TYPE_CHECKING:
    import numpy as np

KINDS = ("new", "update", "destroy")
NOTICE = "events"
"""The notification that brings them."""

Event = dict[str, Any]


class Mark(NamedTuple):
    """How far a reader of events has come."""

    life: int  # what the number is one of
    sequence: int


NOWHERE = Mark(0, 0)
"""Of who has read nothing, and wants what the service keeps for such as him (its exports)."""


class Batch(NamedTuple):
    """What happened next."""

    lost: int  # events before these that will never be told
    sequence: int  # all up to this number has been told
    records: bytes  # rows, one behind the other
    reading: Reading

    @property
    def mark(self) -> Mark:
        """How far this batch goes."""
        return Mark(self.reading.life, self.sequence)

    @property
    def count(self) -> int:
        """How many events there are."""
        return self.reading.rows.count(self.records)

    def array(self) -> np.ndarray:
        """Return the events as a numpy structured array, one row each; columns as of a dump, and what happened."""
        import numpy as np

        return np.frombuffer(self.records, [(name, kind, tuple(shape)) for name, kind, shape in self.reading.fields])

    def events(self) -> Iterator[Event]:
        """Yield the events as dicts, a gap first if something was lost.

        Raises:
            RemoteProtocolError: rows have not the fields, or not the values, that make an event.
        """
        if self.lost:
            yield {"event": "gap", "lost": self.lost, "sequence": self.sequence}
        for row in self.reading.rows.read(self.records):
            try:
                event = self.reading.event(row)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                raise RemoteProtocolError(f"a row that is no event: {error!r}") from error
            yield event


class Reading:
    """How a subscription's rows are read.

    Args:
        answer: to ``events.subscribe``.

    Raises:
        RemoteProtocolError: it is none.
    """

    def __init__(self, answer: Any) -> None:
        match answer:
            case {
                "sequence": int(sequence),
                "dtype": list(fields),
                "kinds": dict(kinds),
                "ends": list(ends),
                "changes": dict(changes),
                "life": int(life),
                "table": int(table),
            }:
                self.sequence: int = sequence
                self.fields: Sequence[Field] = fields
                self.rows = Rows(fields)
                self.kinds = {number: name for name, number in kinds.items()}
                self.ends: Sequence[str] = ends
                self.changes: Mapping[str, int] = changes
                self.life: int = life
                self.table: int = table
            case _:
                raise RemoteProtocolError("an answer to events.subscribe that is none")

    def event(self, row: Mapping[Any, Any]) -> Event:
        """Return one event as a dict."""
        event: Event = {
            "event": self.kinds[row["kind"]],
            "sequence": row["sequence"],
            "time": row["time_ms"] / 1000,
        }
        if row["changes"]:
            event["changes"] = [name for name, bit in self.changes.items() if row["changes"] & bit]
        if row["end"]:
            event["end"] = self.ends[row["end"]]
        return event | describe(row, TCP_STATES, STATUS)

    def batch(self, params: Any) -> Batch:
        """Return what a notification brings.

        Raises:
            RemoteProtocolError: it brings no events.
        """
        match params:
            case {"lost": int(lost), "sequence": int(sequence), "records": bytes(records)}:
                batch = Batch(lost, sequence, records, self)
                self.rows.count(records)
                return batch
        raise RemoteProtocolError("a notification of events without any")


def subscription(kinds: Sequence[str] | None, filter: dict[str, Any], after: Mark | None = None) -> dict[str, Any]:
    """Return the parameters of ``events.subscribe``.

    Args:
        kinds: names of those that are wanted; None: all.
        filter: keywords of ``filters.Filter``.
        after: how far one has come before.

    Raises:
        BadParameterError: there is no such kind, or a value of the filter will not do.
    """
    for kind in kinds or ():
        if kind not in KINDS:
            raise BadParameterError(
                f"{kind!r} is no kind of event; there are {', '.join(KINDS)}", {"parameter": "kinds"}
            )
    wanted: dict[str, Any] = {"filter": wire_filter(**filter)}
    if kinds is not None:
        wanted["kinds"] = list(kinds)
    if after is not None:
        wanted |= {"after": after.sequence, "life": after.life}
    return wanted
