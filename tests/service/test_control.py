"""Whatever a client does, it gets a clear error, and all others are served as if it were not there."""

import os
import socket

import msgpack
import pytest
import tables
from eventually import until
from forked import Child
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Client, Service
from zonetrack.clients import wire
from zonetrack.clients.errors import Code, ForbiddenError, RemoteProtocolError, TooManyRequestsError
from zonetrack.shm import roster
from zonetrack.shm.layout import CONNECTION_BYTES, Kind

NOBODY, STAFF = 65534, 50


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("run") / "x.sock") as service:
        service.participant().made(tables.keys(50, zone=3))
        yield service


@pytest.fixture
def client(service):
    return service.connect()


@pytest.fixture
def unharmed(service):
    """Somebody who was connected before, and is served afterwards."""
    other = service.connect()
    yield other
    assert other.ask("count") == {"count": 50}
    assert service.ask("count", filter={"zone": 3}) == {"count": 50}


# ------------------------------------------------------------------------------------------------ what is no message
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xc1", Code.MALFORMED),
        (b"GET / HTTP/1.1\r\n\r\n", Code.MALFORMED),
        (b"\xd4\x01\x00", Code.MALFORMED),  # an extension type
        (msgpack.packb([1, 1, None, 5]), Code.MALFORMED),  # a response
        (msgpack.packb([0, 1, "count"]), Code.MALFORMED),
        (msgpack.packb([0, -1, "count", {}]), Code.MALFORMED),
        (msgpack.packb([0, 1, "count", {5: 5}], strict_types=False), Code.MALFORMED),
        (b"\x94\x00\x01\xa5count\x81\xa1\xff\x01", Code.MALFORMED),  # a name that is not UTF-8
        (b"\xdd\xff\xff\xff\xff", Code.TOO_LARGE),  # a list of four billion
        (b"\xdf\x7f\xff\xff\xff", Code.TOO_LARGE),
        (b"\xc6\xff\xff\xff\xff", Code.TOO_LARGE),  # four gigabytes
        (b"\x91" * 100, Code.TOO_LARGE),  # lists in lists
        (b"\x94\x00\x01\xa5count\x81\xa6filter" + b"\x81\xa1x" * 5000, Code.TOO_LARGE),
        (b"\x94\x00\x01\xa5count\x81\xa6filter" + b"\xdc\x40\x00", Code.TOO_LARGE),  # too many items
    ],
)
def test_what_is_no_message_ends_that_connection_with_the_reason(data, code, client, unharmed):
    client.send(data)
    assert client.last_word() == code


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=200))
def test_noise_is_answered_or_ends_the_connection(service, noise):
    client = Client(service.path)
    client.send(noise)
    client.socket.shutdown(socket.SHUT_WR)
    while (answer := client.hear()) is not None:
        assert answer.failure and answer.failure.code in set(Code)
    client.close()
    assert service.ask("count") == {"count": 50}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=12), st.integers(0, 60))
def test_a_damaged_request_is_answered_or_ends_the_connection(service, noise, place):
    packed = bytearray(wire.request(7, "count", {"filter": {"zone": 3, "mark": [1, 255], "src": "10.0.0.0/8"}}))
    packed[place : place + len(noise)] = noise
    client = Client(service.path)
    client.send(bytes(packed))
    client.socket.shutdown(socket.SHUT_WR)
    while (answer := client.hear()) is not None:
        assert answer.failure is None or answer.failure.code in set(Code)
    client.close()
    assert service.ask("count") == {"count": 50}


def test_requests_before_the_nonsense_are_answered(client, unharmed):
    client.send(wire.request(1, "count", {}) + wire.request(2, "hello", {}) + b"\xc1")
    assert [client.hear().id, client.hear().id] == [1, 2]
    assert client.last_word() == Code.MALFORMED


@pytest.mark.parametrize("half", [1, 5, 9])
def test_who_hangs_up_in_the_middle_of_a_message_is_told(half, client, unharmed):
    client.send(wire.request(1, "count", {})[:half])
    client.socket.shutdown(socket.SHUT_WR)
    assert client.last_word() == Code.MALFORMED


def test_half_a_message_waits_for_the_other_half(client, unharmed):
    packed = wire.request(9, "count", {})
    client.send(packed[:7])
    assert unharmed.ask("count") == {"count": 50}
    client.send(packed[7:])
    assert client.hear().result == {"count": 50}


def test_who_says_that_this_is_all_gets_his_answers(client, unharmed):
    client.send(b"".join(wire.request(id, "count", {}) for id in range(40)))
    client.socket.shutdown(socket.SHUT_WR)
    assert [client.hear().id for _ in range(40)] == list(range(40))
    assert client.hear() is None


def test_who_leaves_without_a_word_is_forgotten(service, unharmed):
    before = unharmed.ask("stats")["control"]["clients"]
    leaving = [service.connect() for _ in range(20)]
    for client in leaving:
        client.send_request("dump")
    for client in leaving:
        client.close()
    until(lambda: unharmed.ask("stats")["control"]["clients"] <= before)


# ------------------------------------------------------------------------------------------------ too much
def test_requests_are_answered_in_their_order(client):
    ids = [client.send_request("dump" if i % 3 else "count") for i in range(30)]
    assert [client.hear().id for _ in ids] == ids


def test_200_idle_clients_disturb_nobody(service, unharmed):
    idle = [Client(service.path) for _ in range(200)]
    for client in idle[::2]:
        client.send(wire.request(1, "count", {})[:6])
    assert unharmed.ask("count") == {"count": 50}
    for client in idle[1::2]:
        assert client.ask("count") == {"count": 50}
    assert unharmed.ask("stats")["control"]["clients"] >= 200
    for client in idle:
        client.close()


def test_more_clients_than_are_served_are_told_so(tmp_path):
    with Service(tmp_path / "x.sock", clients_max=3) as service:
        served = [service.connect() for _ in range(3)]
        assert [client.ask("count") for client in served] == [{"count": 0}] * 3
        for _ in range(5):
            assert service.connect().last_word() == Code.TOO_MANY_CLIENTS
        assert served[0].ask("stats")["control"]["refused"] == {"too_many_clients": 5}
        served[1].close()
        until(lambda: served[2].ask("stats")["control"]["clients"] == 2)
        assert service.connect().ask("count") == {"count": 0}


def test_a_request_of_more_bytes_than_are_taken_is_refused(tmp_path):
    with Service(tmp_path / "x.sock", request_bytes_max=2000, depth_max=4) as service:
        service.connect().ask("count", filter={"src": "10.0.0.1"})
        long, deep = service.connect(), service.connect()
        long.send_value([0, 1, "count", {"filter": {"src": "x" * 3000}}])
        assert long.last_word() == Code.TOO_LARGE
        deep.send_value([0, 1, "count", {"filter": {"mark": [[[1]]]}}])
        assert deep.last_word() == Code.TOO_LARGE


def test_more_requests_than_may_wait_are_refused_one_by_one(tmp_path):
    with Service(tmp_path / "x.sock", in_flight_max=4) as service:
        client = service.connect()
        client.send(b"".join(wire.request(id, "count", {}) for id in range(20)))
        answers = [client.hear() for _ in range(20)]
        refused = [answer.id for answer in answers if answer.failure]
        assert {answer.failure.code for answer in answers if answer.failure} == {Code.TOO_MANY_REQUESTS}
        assert 0 < len(refused) <= 16  # some of the others may have been answered while it was read
        assert sorted(answer.id for answer in answers) == list(range(20))
        assert client.ask("count") == {"count": 0}  # nothing is held against it
        assert TooManyRequestsError.code == Code.TOO_MANY_REQUESTS


def test_more_bytes_of_requests_than_may_wait_are_refused_too(tmp_path):
    with Service(tmp_path / "x.sock", request_bytes_max=1 << 16) as service:
        client = service.connect()
        long = {"no such": "x" * 30_000}
        client.send(b"".join(wire.request(id, "count", long) for id in range(10)))
        codes = [client.hear().failure.code for _ in range(10)]
        assert Code.TOO_MANY_REQUESTS in codes and codes.count(Code.UNKNOWN_PARAMETER) >= 2
        assert client.ask("count") == {"count": 0}


def test_all_clients_together_have_a_bound_and_who_is_over_it_is_told(tmp_path):
    asked, bounds = 150, {"kept_bytes_max": 1 << 20, "clients_max": 16, "in_flight_max": 200}
    with Service(tmp_path / "x.sock", **bounds) as service:
        other = service.connect()
        deaf = [Client(service.path, buffer_bytes=1 << 14) for _ in range(14)]
        for client in deaf:
            client.send(b"".join(wire.request(id, "coverage", {}) for id in range(asked)))
        while not (figures := other.ask("stats")["control"])["refused"]:
            pass
        assert figures["refused"].keys() == {"too_many_requests"}
        assert other.ask("count") == {"count": 0}  # who is within its part is served as ever
        for client in deaf:
            answers = [client.hear() for _ in range(asked)]
            refused = [answer.failure for answer in answers if answer.failure]
            assert sorted(answer.id for answer in answers) == list(range(asked))
            assert {one.code for one in refused} <= {Code.TOO_MANY_REQUESTS}
            assert all(one.message.endswith(f"{1 << 20} are the most") for one in refused)
            assert client.ask("count") == {"count": 0}  # nothing is held against it
            client.close()


def test_what_is_half_sent_counts_too(tmp_path):
    bounds = {"kept_bytes_max": 1 << 20, "clients_max": 8, "request_bytes_max": 1 << 20}
    with Service(tmp_path / "x.sock", **bounds) as service:
        other, clients = service.connect(), [service.connect() for _ in range(5)]
        head = b"\x94\x00\x01\xa5count\x81\xa1x\xdb" + (1_000_000).to_bytes(4, "big")
        for client, count in zip(clients, (300_000, 300_000, 300_000, 148_000), strict=False):
            client.send(head + b"x" * count)
        while other.ask("stats")["control"]["kept_bytes"] < 1_048_000:
            pass
        clients[3].send(b"x" * 1_000)
        assert clients[3].last_word() == Code.TOO_MANY_REQUESTS
        assert other.ask("count") == {"count": 0}
        assert clients[4].ask("count") == {"count": 0}


def test_a_crowd_rests_and_all_have_their_answers(tmp_path):
    with Service(tmp_path / "x.sock", crowd_percent=25) as service:
        crowd, other = [service.connect() for _ in range(16)], service.connect()
        for client in crowd:
            client.send(b"".join(wire.request(id, "hello", {}) for id in range(30)))
        while not other.ask("stats")["control"]["rests"]:
            pass
        for client in crowd:
            assert [client.hear().id for _ in range(30)] == list(range(30))


def test_thousands_of_requests_at_once_hold_up_nobody(client, unharmed):
    packed = b"".join(wire.request(id, "no.such", {}) for id in range(20_000))
    sender = Child(lambda child: client.send(packed))
    counts = [unharmed.ask("count") for _ in range(50)]
    assert counts == [{"count": 50}] * 50
    assert sorted(client.hear().id for _ in range(20_000)) == list(range(20_000))
    assert sender.wait() == 0


def test_who_never_reads_is_paused_then_dropped_and_costs_the_others_nothing(tmp_path):
    table = tables.small(8000)
    with Service(tmp_path / "x.sock", table, stall_s=0.5, output_bytes_max=1 << 18) as service:
        service.participant().made(tables.keys(6000, zone=1))
        deaf, other = Client(service.path), service.connect()
        for _ in range(20):
            deaf.send_request("dump")
        # it is paused once its pages fill the buffers, and dropped when it has not read on
        while True:
            figures = other.ask("stats")["control"]
            if figures["refused"]:
                break
            assert other.ask("count") == {"count": 6000}
        assert figures["refused"] == {"slow_reader": 1}
        assert (figures["clients"], figures["paused"]) in ((1, 0), (2, 1), (2, 0))
        with pytest.raises((RemoteProtocolError, ConnectionResetError)):
            while deaf.hear() is not None:
                pass
        deaf.close()


def test_who_reads_slowly_but_reads_is_served(tmp_path):
    table = tables.small(8000)
    with Service(tmp_path / "x.sock", table, output_bytes_max=1 << 17) as service:
        service.participant().made(tables.keys(6000, zone=1))
        slow = Client(service.path, buffer_bytes=1 << 14)
        ids = [slow.send_request("dump") for _ in range(10)]
        for id in ids:
            answer = slow.hear()
            assert answer.id == id and len(answer.result["records"]) == CONNECTION_BYTES * 6000
        slow.close()


# ------------------------------------------------------------------------------------------------ rights
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_group_of_the_socket_reads_and_does_not_write(tmp_path):
    for directory in (tmp_path, *tmp_path.parents):
        if str(directory).startswith("/tmp/") and directory.stat().st_uid == os.geteuid():
            directory.chmod(0o755)

    def member(child):
        os.setgroups([STAFF])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        client = Client(str(tmp_path / "x.sock"))
        child.say(client.ask("hello")["rights"])
        child.say(client.ask("count"))
        codes = []
        for method in (
            "flush",
            "delete",
            "limits.set",
            "limits.unset",
            "timeouts.set",
            "audit",
            "config.reload",
            "stop",
        ):
            try:
                client.ask(method)
            except ForbiddenError as error:
                codes.append((method, error.detail))
        child.say(codes)

    with Service(tmp_path / "x.sock", group=str(STAFF)) as service, Child(member) as child:
        assert child.hear() == "read"
        assert child.hear() == {"count": 0}
        refused = child.hear()
        assert len(refused) == 8 and all(detail == {"needs": "write"} for _, detail in refused)
        assert service.ask("hello")["rights"] == "write"
        assert child.wait() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_even_read_is_told_so_where_the_file_lets_him_in(tmp_path):
    for directory in (tmp_path, *tmp_path.parents):
        if str(directory).startswith("/tmp/") and directory.stat().st_uid == os.geteuid():
            directory.chmod(0o755)
    with Service(tmp_path / "x.sock") as service:
        os.chmod(service.path, 0o666)

        def stranger(child):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            child.say(Client(service.path).last_word())

        with Child(stranger) as child:
            assert child.hear() == Code.FORBIDDEN
        assert service.ask("count") == {"count": 0}


# ------------------------------------------------------------------------------------------------ begin and end
def test_control_has_places_on_the_roster_and_leaves_them(tmp_path):
    table = tables.small()
    with Service(tmp_path / "x.sock", table) as service:
        assert {(place.kind, place.pid) for place in roster.present(table)} == {(Kind.CONTROL, service.child.pid)}
        service.ask("count", filter={"proto": "udp"})
    assert roster.present(table) == []
    tables.assert_at_rest(table)


def test_who_is_connected_when_it_ends_is_told(tmp_path):
    with Service(tmp_path / "x.sock") as service:
        clients = [service.connect() for _ in range(5)]
        assert [client.ask("count") for client in clients] == [{"count": 0}] * 5
        assert service.stop() == 0
        assert [client.last_word() for client in clients] == [Code.STOPPING] * 5


def test_who_comes_while_control_is_away_is_served_by_its_successor(tmp_path):
    table = tables.small()
    with Service(tmp_path / "x.sock", table) as service:
        service.child.kill()
        waiting = service.connect()
        asked = waiting.send_request("count")
        roster.lay_to_rest(table, lambda owner: True)
        service.start()
        answer = waiting.hear()
        assert (answer.id, answer.result) == (asked, {"count": 0})


def test_the_loops_own_latency_is_shown(service):
    latency = service.ask("stats")["control"]["loop_latency_us"]
    assert set(latency) == {"p50", "p99", "max", "highest"}
    assert 0 <= latency["p50"] <= latency["p99"] <= latency["max"] <= latency["highest"]
