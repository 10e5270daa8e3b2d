"""The library for asyncio: many requests at once, cancelled ones, and what becomes of all that wait when it is over."""

import asyncio

import peer
import pytest
import uvloop
from zonetrack.clients import errors
from zonetrack.clients.aio import connect


@pytest.fixture(scope="module")
def socket(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("peer") / "s")
    with peer.running(path):
        yield path


def run(question, path):
    """Run a coroutine function of a client."""

    async def main():
        async with connect(path) as ct:
            return await question(ct)

    return asyncio.run(main())


def test_many_requests_at_once(socket):
    async def question(ct):
        return await asyncio.gather(*(ct.call("echo", {"n": n}) for n in range(200)))

    assert [answer["params"]["n"] for answer in run(question, socket)] == list(range(200))


def test_answers_in_another_order_find_their_requests(socket):
    async def question(ct):
        return await asyncio.gather(ct.call("later", {"n": 1}), ct.call("later", {"n": 2}), ct.call("echo", {"n": 3}))

    assert [answer["params"]["n"] for answer in run(question, socket)] == [1, 2, 3]


def test_an_error_is_its_request_s_alone(socket):
    async def question(ct):
        return await asyncio.gather(ct.call("fail", {"code": "busy"}), ct.count(), return_exceptions=True)

    busy, count = run(question, socket)
    assert isinstance(busy, errors.BusyError) and count == 20


def test_nobody_waits_for_a_cancelled_request_and_the_others_go_on(socket):
    async def question(ct):
        waiting = asyncio.ensure_future(ct.call("later", {"n": 1}))
        await asyncio.sleep(0)
        waiting.cancel()
        count = await ct.count()  # after which the late answer comes
        return waiting.cancelled(), count, await ct.count()

    assert run(question, socket) == (True, 20, 20)


def test_a_late_answer_does_not_disturb(socket):
    async def main():
        async with connect(socket, timeout_s=0.05) as ct:
            with pytest.raises(errors.TookTooLongError):
                await ct.call("later", {})
            ct._timeout_s = 30  # a busy machine may take its time over the others
            return await ct.count(), await ct.count()

    assert asyncio.run(main()) == (20, 20)


@pytest.mark.parametrize("method", ["nonsense", "stranger", "half", "hangup"])
def test_all_who_wait_are_told_when_nothing_can_be_believed_any_more(socket, method):
    async def question(ct):
        told = await asyncio.gather(ct.call("silence", {}), ct.call(method, {}), return_exceptions=True)
        with pytest.raises(errors.ZonetrackError):
            await ct.count()
        return told

    assert [type(error) for error in run(question, socket)] == [errors.RemoteProtocolError] * 2


def test_closing_tells_all_who_wait(socket):
    async def main():
        ct = await connect(socket)
        waiting = asyncio.ensure_future(ct.call("silence", {}))
        await asyncio.sleep(0)
        await ct.close()
        await ct.close()
        with pytest.raises(errors.NoServiceError, match="the connection is closed"):
            await waiting
        with pytest.raises(errors.NoServiceError, match="the connection is closed"):
            await ct.count()

    asyncio.run(main())


def test_a_service_that_has_died_hung_up(tmp_path):
    path = str(tmp_path / "s")

    async def main():
        with peer.running(path) as process:
            async with connect(path) as ct:
                waiting = asyncio.ensure_future(ct.call("silence", {}))
                assert await ct.count() == 20
                process.kill()
                with pytest.raises(errors.RemoteProtocolError, match="the service hung up, and owes 1 answer"):
                    await waiting

    asyncio.run(main())


def test_a_client_may_be_entered_too(socket):
    async def main():
        async with await connect(socket) as ct:
            return await ct.count()

    assert asyncio.run(main()) == 20


def test_on_uvloop_too(socket):
    async def main():
        async with connect(socket) as ct:
            counts = await asyncio.gather(*(ct.count(zone=zone) for zone in range(20)))
            with pytest.raises(errors.RemoteProtocolError):
                await ct.call("hangup", {})
            return counts, len(await (await connect(socket)).dump())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == ([20] * 20, 20)


def test_events_beside_requests(socket):
    async def question(ct):
        told = []
        async for event in ct.events(["new"], zone=5):
            told.append((event["event"], event["sequence"], await ct.count()))
            if event["event"] == "destroy":
                break
        return told, await ct.count()

    told, count = run(question, socket)
    assert told == [("new", 5, 20), ("update", 6, 20), ("gap", 9, 20), ("destroy", 9, 20)] and count == 20


def test_who_takes_no_batches_holds_up_what_comes_behind(socket, monkeypatch):
    monkeypatch.setattr("zonetrack.clients.aio.NOTICES_MAX", 1)

    async def question(ct):
        batches = ct.event_batches()
        sequences = [(await anext(batches)).sequence for _ in range(3)]
        await batches.aclose()
        return sequences, await ct.count()

    assert run(question, socket) == ([4, 6, 9], 20)


def test_events_that_do_not_come(socket):
    async def question(ct):
        told = []
        with pytest.raises(errors.TookTooLongError, match=r"nothing happened in 0\.05 s"):
            async for event in ct.events(timeout_s=0.05):
                told.append(event["event"])
        return told, await ct.count()

    assert run(question, socket) == (["new", "update", "gap", "destroy"], 20)


def test_a_service_that_goes_away_while_one_waits(tmp_path):
    async def question(ct):
        told = []
        with pytest.raises(errors.NoServiceError):
            async for event in ct.events():
                told.append(event["event"])
                if event["event"] == "destroy":
                    process.kill()
        return told

    with peer.running(tmp_path / "s") as process:
        assert len(run(question, str(tmp_path / "s"))) == 4
