"""What clients can ask about rules: further rows of the table of methods (handlers).

Reading, compiling and waiting for workers is done on a thread of its own, one after the other.
"""

from __future__ import annotations

import asyncio
from typing import Any

from . import parameters, rules_file
from .door import Rights
from .handlers import Client, Desk, method
from .parameters import Parameter

FORMAT = Parameter(parameters.one_of(rules_file.FORMATS), rules_file.TEXT)
TEXT = Parameter(parameters.text)


@method("rules.get", Rights.READ)
async def rules_get(desk: Desk, client: Client) -> dict[str, Any]:
    """Return the rules that hold, each with what has met it."""
    return await asyncio.to_thread(desk.rules.show)


@method("rules.check", Rights.READ, {"text": TEXT, "format": FORMAT})
async def rules_check(desk: Desk, client: Client, text: str, format: str) -> dict[str, Any]:
    """Return what there is to tell of rules that might be loaded."""
    return await asyncio.to_thread(desk.rules.check, text, format)


@method("rules.load", Rights.WRITE, {"text": TEXT, "format": FORMAT})
async def rules_load(desk: Desk, client: Client, text: str, format: str) -> dict[str, Any]:
    """Let rules hold from now on, all of them or, where anything is wrong, none."""
    return await asyncio.to_thread(desk.rules.load, text, format)


@method("rules.clear", Rights.WRITE)
async def rules_clear(desk: Desk, client: Client) -> dict[str, Any]:
    """Let no rules hold."""
    return await asyncio.to_thread(desk.rules.clear)
