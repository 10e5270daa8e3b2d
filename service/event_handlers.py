"""What clients can ask about events: further rows of the table of methods (handlers)."""

from __future__ import annotations

from typing import Any

from ..clients.errors import BadParameterError, FailedError
from ..shm.events import EVERYTHING
from . import filters, parameters
from .door import Rights
from .event_filters import KINDS
from .handlers import Client, Desk, method
from .parameters import Parameter

NUMBER = parameters.nothing_or(parameters.whole(0, (1 << 63) - 1))
"""Of an event, or of a life: fits a signed integer of every client."""


def kinds(name: str, value: Any) -> int:
    """Read which kinds of events are wanted: a list of their names."""
    found = 0
    for one in parameters.list_of(parameters.one_of(KINDS))(name, value):
        found |= KINDS[one]
    if not found:
        raise BadParameterError(f"{name}: none is named; there are {', '.join(KINDS)}", {"parameter": name})
    return found


@method(
    "events.subscribe",
    Rights.READ,
    {
        "kinds": Parameter(kinds, EVERYTHING),
        "filter": Parameter(filters.read, filters.EVERYTHING),
        "after": Parameter(NUMBER, None),
        "life": Parameter(NUMBER, None),
    },
)
async def subscribe(
    desk: Desk, client: Client, kinds: int, filter: filters.Wanted, after: int | None, life: int | None
) -> dict[str, Any]:
    """Tell this client of events from now on, or from a number on; another subscription takes the place of this one."""
    if client.line is None:
        raise FailedError("events.subscribe: nobody is there to be told")
    return await desk.hub.subscribe(client.line, kinds, filter, after, life)


@method("events.unsubscribe", Rights.READ, {"finish": Parameter(parameters.flag, False)})
async def unsubscribe(desk: Desk, client: Client, finish: bool) -> dict[str, Any]:
    """Tell this client of no more events; with ``finish``, after those that have happened until now."""
    if client.line is None:
        return {"subscribed": False}
    return {"subscribed": await desk.hub.finish(client.line) if finish else desk.hub.forget(client.line)}
