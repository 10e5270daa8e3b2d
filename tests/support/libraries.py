"""Both client libraries behind one door: a test says what it asks of a client, and gets what came of it."""

import asyncio
import inspect

from zonetrack.clients import aio, sync


def ask_sync(path, question, **how):
    """Ask one question over a connection of the library that waits."""
    with sync.connect(path, **how) as client:
        return _listed(question(client))


def ask_aio(path, question, **how):
    """Ask one question over a connection of the library for asyncio."""

    async def ask():
        async with aio.connect(path, **how) as client:
            result = question(client)
            if inspect.isasyncgen(result):
                return [item async for item in result]
            return await result

    return asyncio.run(ask())


def _listed(result):
    return list(result) if inspect.isgenerator(result) else result


BOTH = {"sync": ask_sync, "aio": ask_aio}
