"""A runner works on its thread in order, at its own place, and leaves the place when it is closed."""

import asyncio
import threading

import pytest
import tables
from zonetrack.service.runner import Runner, now_ms
from zonetrack.shm import roster
from zonetrack.shm.layout import PARTICIPANT, Kind, Region


@pytest.fixture
def table():
    return tables.small()


def test_work_runs_on_another_thread_in_order_and_under_its_own_name(table):
    runner, seen = Runner(table, "walker"), []

    def work(views, number, *, fails=False):
        seen.append((number, int(views["me"]), threading.current_thread().name))
        if fails:
            raise ValueError("as asked")
        return 10 * number

    async def main():
        assert await asyncio.gather(*(runner.do(work, number) for number in range(5))) == [0, 10, 20, 30, 40]
        with pytest.raises(ValueError, match="as asked"):
            await runner.do(work, 5, fails=True)

    asyncio.run(main())
    assert seen == [(number, runner.me, "walker_0") for number in range(6)]
    assert [(place.owner, place.kind) for place in roster.present(table)] == [(runner.me, Kind.CONTROL)]
    runner.close()
    assert roster.present(table) == []


def test_its_place_knows_what_time_it_is(table):
    """What is deleted from there is deleted now: a port that it leaves is kept for as long from then on."""
    runner, before = Runner(table, "walker"), int(now_ms())
    place = table.array(Region.CONTROL, "participants", PARTICIPANT)[runner.me - 1]

    async def main():
        return await runner.do(lambda views: int(place["clock_ms"]))

    assert before <= asyncio.run(main()) <= int(now_ms())
    runner.close()


def test_who_stops_waiting_leaves_the_work_to_its_end(table):
    runner, begun, go_on, ended = Runner(table, "walker"), threading.Event(), threading.Event(), []

    def work(views):
        begun.set()
        go_on.wait(30)
        ended.append(True)

    async def main():
        task = asyncio.ensure_future(runner.do(work))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(main())
    runner.close()
    assert ended == [True]


def test_two_runners_have_two_places(table):
    first, second = Runner(table, "a"), Runner(table, "b")
    assert first.me != second.me
    first.close()
    second.close()


def test_the_clock_is_the_monotonic_one():
    first = now_ms()
    assert first > 0
    assert 0 <= int(now_ms()) - int(first) < 60_000
