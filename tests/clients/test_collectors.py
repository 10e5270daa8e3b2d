"""A collector over UDP and TCP: what arrives, and what becomes of it while the collector is away."""

import asyncio
import socket

import pytest
from zonetrack.clients import collectors
from zonetrack.clients.collectors import Address, Collector, CollectorError, address


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("192.0.2.1", ("192.0.2.1", 4739)),
        ("logs.example:514", ("logs.example", 514)),
        ("2001:db8::1", ("2001:db8::1", 4739)),
        ("[2001:db8::1]:99", ("2001:db8::1", 99)),
        ("[2001:db8::1]", ("2001:db8::1", 4739)),
    ],
)
def test_where_it_is(text, where):
    assert address(text, 4739) == where


@pytest.mark.parametrize("text", ["", ":514", "host:0", "host:65536", "host:http", "[]:5"])
def test_what_names_none(text):
    with pytest.raises(ValueError, match="host:port"):
        address(text, 1)


def test_it_is_shown_as_it_is_written():
    assert [str(Address("::1", 5)), str(Address("a", 5))] == ["[::1]:5", "a:5"]


def test_over_udp():
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind(("127.0.0.1", 0))
            to = Collector(Address("127.0.0.1", listener.getsockname()[1]), "udp")
            await to.open()
            assert await to.send(b"one")
            assert await to.send(b"two")
            await to.close()
            return [listener.recv(99), listener.recv(99)], to.sent

    assert asyncio.run(main()) == ([b"one", b"two"], 2)


def test_over_udp_where_nobody_listens():
    async def main():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            to = Collector(Address("127.0.0.1", taken.getsockname()[1]), "udp")
        await to.open()
        for _ in range(5):
            await to.send(b"one")
        await to.close()
        return to.sent + to.given_up

    assert asyncio.run(main()) == 5


def test_over_tcp_with_a_greeting_on_each_connection(monkeypatch):
    monkeypatch.setattr(collectors, "PAUSE_S", 0.0)
    came = []

    async def main():
        served = asyncio.Event()

        async def serve(reader, writer):
            came.append(await reader.readexactly(5))
            served.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        to = Collector(Address("127.0.0.1", server.sockets[0].getsockname()[1]), "tcp", greet=lambda: b"hi")
        await to.open()
        assert await to.send(b"one")
        await served.wait()
        served.clear()
        while to._writer is not None:  # until it has heard that the collector hung up
            await asyncio.sleep(0)
        assert await to.send(b"two")
        await served.wait()
        await to.close()
        server.close()
        return to.sent, to.connected

    assert asyncio.run(main()) == (2, 2) and came == [b"hione", b"hitwo"]


def test_over_tcp_while_the_collector_is_away():
    async def main():
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            to = Collector(Address("127.0.0.1", taken.getsockname()[1]), "tcp")
        await to.open()
        results = [await to.send(b"one") for _ in range(3)]
        await to.close()
        return results, to.given_up

    assert asyncio.run(main()) == ([False] * 3, 3)


def test_a_name_that_nobody_has():
    with pytest.raises(CollectorError, match="no-such-host"):
        asyncio.run(Collector(Address("no-such-host.invalid", 5), "tcp").open())
