"""What clients can ask about rules: further rows of the table of methods (handlers).

Reading, compiling and waiting for workers is done on a thread of its own, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from ..clients.errors import BadParameterError
from . import bindings, parameters, rules_file
from .door import Rights
from .handlers import Client, Desk, method
from .parameters import Parameter
from .rules import RulesError

FORMAT = Parameter(parameters.one_of(rules_file.FORMATS), rules_file.TEXT)
TEXT = Parameter(parameters.text)
TEXTS = Parameter(parameters.list_of(parameters.text), [])


@contextlib.contextmanager
def _as_parameter(name: str) -> Iterator[None]:
    """Tell what is wrong with rules as what is wrong with a parameter."""
    try:
        yield
    except RulesError as error:
        raise BadParameterError(str(error), {"parameter": name}) from error


@method("rules.get", Rights.READ)
async def rules_get(desk: Desk, client: Client) -> dict[str, Any]:
    """Return the rules that hold, each with what has met it."""
    return await asyncio.to_thread(desk.rules.show)


@method("rules.check", Rights.READ, {"text": TEXT, "format": FORMAT})
async def rules_check(desk: Desk, client: Client, text: str, format: str) -> dict[str, Any]:
    """Return what there is to tell of rules that might be loaded."""
    with _as_parameter("text"):
        return await asyncio.to_thread(desk.rules.check, text, format)


@method("rules.load", Rights.WRITE, {"text": TEXT, "format": FORMAT})
async def rules_load(desk: Desk, client: Client, text: str, format: str) -> dict[str, Any]:
    """Let rules hold from now on, all of them or, where anything is wrong, none."""
    with _as_parameter("text"):
        return await asyncio.to_thread(desk.rules.load, text, format)


@method(
    "rules.trace",
    Rights.READ,
    {"packet": TEXT, "ct_next": TEXTS, "then": TEXTS},
)
async def rules_trace(desk: Desk, client: Client, packet: str, ct_next: list[str], then: list[str]) -> dict[str, Any]:
    """Return the way of a described packet through the rules, and of those that follow it; nothing becomes of them."""
    zones = [port["zone"] for port in desk.context.ports()]
    try:
        return await desk.walker.do(desk.rules.trace, packet, zones, ct_next, then)
    except ValueError as error:
        raise BadParameterError(f"packet: {error}", {"parameter": "packet"}) from error


@method("rules.clear", Rights.WRITE)
async def rules_clear(desk: Desk, client: Client) -> dict[str, Any]:
    """Let no rules hold."""
    return await asyncio.to_thread(desk.rules.clear)


@method("nat", Rights.READ)
async def nat(desk: Desk, client: Client) -> list[dict[str, Any]]:
    """Return how many ports are left, by zone, address and protocol."""
    return await asyncio.to_thread(lambda: bindings.left(desk.context.table, desk.rules.rules()))
