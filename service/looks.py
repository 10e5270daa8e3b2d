"""Looks that are taken again and again: one that fails is told, and the next may do better."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from . import log

_log = log.logger("control")


async def again(look: Callable[[], Awaitable[Any]], interval_s: float, failed: str) -> NoReturn:
    """Look again and again, until cancelled.

    Args:
        look: one; nobody waits for what it says.
        interval_s: before each.
        failed: what the log says of one that raises.
    """
    while True:
        await asyncio.sleep(interval_s)
        try:
            await look()
        except Exception as error:
            _log.error("%s", failed, exc_info=error)
