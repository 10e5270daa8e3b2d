"""A look that fails is told, and the next is taken all the same."""

import asyncio

import pytest
from zonetrack.service import log, looks


class Enough(BaseException):
    """What ends the looks here, as a cancellation would."""


def test_the_next_is_taken_though_one_fails(capfd):
    log.configure(level="info", as_json=False)
    taken = []

    async def look():
        taken.append(len(taken))
        if len(taken) == 2:
            raise ValueError("as asked")
        if len(taken) == 4:
            raise Enough

    with pytest.raises(Enough):
        asyncio.run(looks.again(look, 0.0, "it was not looked at"))
    assert taken == [0, 1, 2, 3]
    told = capfd.readouterr().err
    assert told.count("it was not looked at") == 1 and "ValueError: as asked" in told
