"""The site of a real control process, asked over TCP: what it shows, to whom, how often, and what it refuses."""

import http.client
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Service
from zonetrack.service.listening import Address, listen
from zonetrack.service.site import CONNECTIONS_MAX, HEADERS, is_here


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with (
        listen(Address("127.0.0.1", 0), "metrics.listen") as listener,
        Service(tmp_path_factory.mktemp("run") / "x.sock", sites={"metrics": listener}) as service,
    ):
        service.port = listener.getsockname()[1]
        yield service


@pytest.fixture
def ask(service):
    """Return a function that asks, and returns the answer with its body."""

    def ask(path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()

    return ask


def test_metrics(ask):
    answer, body = ask("/metrics")
    assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "zonetrack_entries" in {family.name for family in text_string_to_metric_families(body)}
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_for_reading(ask, method):
    assert ask("/metrics", method)[0].status == 405


def test_nothing_else_is_there(ask):
    assert ask("/")[0].status == 404
    assert ask("/../etc/passwd")[0].status == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "192.0.2.1", "", "[::"])
def test_a_page_of_the_web_cannot_ask_in_a_visitors_name(ask, host):
    assert ask("/metrics", Host=host)[0].status in (400, 403)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1:80", True),
        ("[::1]:80", True),
        ("localhost.evil.example", False),
        ("[::", False),
    ],
)
def test_names_of_this_machine(host, here):
    assert is_here(host) is here


def test_more_connections_than_there_may_be_are_hung_up_on(service, ask):
    held = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(CONNECTIONS_MAX + 8)]
    try:
        # one that was let in is answered; one that was not hears the end
        held[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert held[0].recv(12) == b"HTTP/1.1 200"
        with pytest.raises(ConnectionResetError):
            assert not held[-1].recv(1)
            raise ConnectionResetError
        assert service.ask("count") == {"count": 0}
    finally:
        for connection in held:
            connection.close()
    with socket.create_connection(("127.0.0.1", service.port), timeout=60):
        assert service.ask("count") == {"count": 0}


def test_what_is_no_http_harms_nobody(service, ask):
    for nonsense in (b"\x00" * 100, b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost"):
        with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
            connection.sendall(nonsense)
    assert ask("/metrics")[0].status == 200
