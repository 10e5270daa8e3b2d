"""A dump, page by page: which page to ask for next, and what a page holds, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .connections import Connection, Field, Rows, describe
from .errors import RemoteProtocolError

if TYPE_CHECKING:
    import numpy as np

PAGE_CONNECTIONS = 16_384
"""Asked for at once; about 2.6 MB."""


class Page(NamedTuple):
    """A part of a dump."""

    records: bytes  # rows, one behind the other
    fields: Sequence[Field]  # what a row is made of
    states: Sequence[str]  # names of TCP's states
    status: Mapping[str, int]  # names of status bits
    parents: Mapping[int, dict[str, Any]] = {}  # what is shown of parents, by their ids
    sequence: int = 0  # all events up to this number have happened to what is shown; of a later page, at least these

    def array(self) -> np.ndarray:
        """Return the connections as a numpy structured array."""
        import numpy as np

        return np.frombuffer(self.records, [(name, kind, tuple(shape)) for name, kind, shape in self.fields])

    def connections(self) -> Iterator[Connection]:
        """Yield the connections as dicts.

        Raises:
            RemoteProtocolError: rows have not the fields, or not the values, that make a connection.
        """
        for row in Rows(self.fields).read(self.records):
            try:
                connection = describe(row, self.states, self.status, self.parents)
            except (KeyError, ValueError, TypeError) as error:
                raise RemoteProtocolError(f"a row that is no connection: {error!r}") from error
            yield connection


class Walk:
    """Where a dump stands.

    Args:
        filter: which connections, as the wire has it.
        limit: connections at most, None: all.
    """

    def __init__(self, filter: dict[str, Any], limit: int | None = None) -> None:
        self._filter = filter
        self._left = limit
        self._cursor: int | None = 0

    def ask(self) -> dict[str, Any] | None:
        """Return the parameters to ask for the next page with, None when the dump is done."""
        if self._cursor is None or self._left == 0:
            return None
        limit = PAGE_CONNECTIONS if self._left is None else min(self._left, PAGE_CONNECTIONS)
        return {"cursor": self._cursor, "limit": limit, "filter": self._filter}

    def take(self, result: Any) -> Page:
        """Return the page that an answer is, and go on behind it.

        Raises:
            RemoteProtocolError: it is none.
        """
        match result:
            case {
                "records": bytes(records),
                "dtype": list(fields),
                "next": None | int() as next_cursor,
                "states": list(states),
                "status": dict(status),
            }:
                parents = _by_id(result.get("parents", []))
                page = Page(records, fields, states, status, parents, result.get("sequence", 0))
            case _:
                raise RemoteProtocolError("an answer to dump that is no page")
        rows = Rows(fields)
        count = rows.count(records)
        if self._left is not None:
            self._left = max(0, self._left - count)
        if next_cursor is not None and not count and next_cursor == self._cursor:
            raise RemoteProtocolError("a dump that does not come further")
        self._cursor = next_cursor
        return page


def _by_id(parents: Any) -> dict[int, dict[str, Any]]:
    try:
        return {parent["id"]: parent for parent in parents}
    except (KeyError, TypeError) as error:
        raise RemoteProtocolError("a page with parents that are none") from error


def joined(pages: Sequence[Page]) -> np.ndarray:
    """Return the rows of pages as one structured array.

    Their bytes are joined, for numpy would copy rows field by field.

    Raises:
        RemoteProtocolError: the rows of one page are others than those of the first.
    """
    import numpy as np

    if not pages:
        return np.zeros(0, [("id", "<u8")])
    first = pages[0]
    if any(page.fields != first.fields for page in pages):
        raise RemoteProtocolError("pages of one dump whose rows are not alike")
    return np.frombuffer(bytearray().join(page.records for page in pages), first.array().dtype)
