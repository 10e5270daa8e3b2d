"""Methods for those who watch a service: metrics, and who and what fills the table."""

from __future__ import annotations

import asyncio
from typing import Any

from . import parameters
from .door import Rights
from .handlers import Client, Desk, method
from .parameters import Parameter

FORMATS = ("text", "plain")


@method("metrics", Rights.READ, {"format": Parameter(parameters.one_of(FORMATS), FORMATS[0])})
async def metrics(desk: Desk, client: Client, format: str) -> dict[str, Any]:
    """Return what Prometheus is told, as it reads it or in plain values."""
    if format == "text":
        return {"text": (await asyncio.to_thread(desk.metrics.text)).decode()}
    return {"families": await asyncio.to_thread(desk.metrics.plain)}


@method("summary", Rights.READ)
async def summary(desk: Desk, client: Client) -> dict[str, Any]:
    """Return what the last walk over all connections has counted; it is as old as it says."""
    return await desk.summary.get()
