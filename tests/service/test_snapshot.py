"""Dumps, counts and deletes over a real socket, in pages and turns, while others work on the table and after some died."""

import os
import signal

import numpy as np
import pytest
import tables
from forked import Child
from served import Service
from zonetrack.clients.errors import BadParameterError, BusyError, NothingMatchedError
from zonetrack.service.snapshot import DTYPE, PAGE_RECORDS_MAX, STATES, STATUS
from zonetrack.shm.layout import CONNECTION, Slab, Status

MANY = 19_000


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    table = tables.small(30_000, zones=64)
    with Service(tmp_path_factory.mktemp("run") / "x.sock", table) as service:
        service.maker = service.participant()
        service.maker.made(tables.keys(MANY, zone=3))
        service.maker.made(tables.keys(1000, zone=4))
        yield service


@pytest.fixture
def client(service):
    return service.connect()


def rows(answer):
    """Return the rows of a page as its own description says that they are to be read."""
    dtype = np.dtype([(name, kind, tuple(shape)) for name, kind, shape in answer["dtype"]])
    return np.frombuffer(answer["records"], dtype)


def dump(client, **params):
    """Return all rows, and the number of pages."""
    pages, cursor = [], 0
    while cursor is not None:
        answer = client.ask("dump", cursor=cursor, **params)
        assert answer["next"] is None or answer["next"] > cursor
        pages.append(rows(answer))
        cursor = answer["next"]
    return np.concatenate(pages), len(pages)


def records(page):
    return (page["id"] & np.uint64(0xFFFFFFFF)).tolist()


# ------------------------------------------------------------------------------------------------ dump
def test_a_page_says_how_it_is_to_be_read(client):
    answer = client.ask("dump")
    assert rows(answer).dtype == np.dtype(CONNECTION.descr)
    assert len(rows(answer)) == PAGE_RECORDS_MAX
    assert (answer["dtype"], answer["states"], answer["status"]) == (DTYPE, STATES, STATUS)
    assert STATES[3] == "ESTABLISHED" and STATUS["assured"] == Status.ASSURED
    assert len(answer["records"]) < 4 << 20


@pytest.mark.parametrize("limit", [PAGE_RECORDS_MAX, 1000, 2**32 - 1])
def test_pages_hold_every_connection_once(limit, client):
    found, pages = dump(client, limit=limit)
    assert len(found) == len(set(records(found))) == MANY + 1000
    assert pages >= len(found) // min(limit, PAGE_RECORDS_MAX)
    assert found["zone"].tolist().count(4) == 1000


def test_a_filter_is_applied_in_the_walk(client):
    found, pages = dump(client, filter={"zone": 4, "proto": "udp"})
    assert (len(found), set(found["zone"].tolist())) == (1000, {4})
    assert pages <= 2
    assert len(dump(client, filter={"proto": "tcp"})[0]) == 0


def test_what_a_page_is_limited_to_is_at_its_beginning(client):
    some = rows(client.ask("dump", limit=3, filter={"zone": 4}))
    everything, _ = dump(client, filter={"zone": 4})
    assert records(some) == records(everything)[:3]


@pytest.mark.parametrize("cursor", [10**6, 2**63 - 1])
def test_a_cursor_beyond_the_end_is_at_the_end(cursor, client):
    answer = client.ask("dump", cursor=cursor)
    assert (len(answer["records"]), answer["next"]) == (0, None)


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": 0}, "limit"),
        ({"limit": 2**32}, "limit"),
        ({"limit": "all"}, "limit"),
        ({"cursor": -1}, "cursor"),
        ({"cursor": 2**63}, "cursor"),
        ({"cursor": None}, "cursor"),
        ({"filter": {"zone": 65536}}, "filter.zone"),
        ({"filter": []}, "filter"),
    ],
)
def test_what_cannot_be_is_refused(params, parameter, client):
    with pytest.raises(BadParameterError) as refused:
        client.ask("dump", **params)
    assert refused.value.detail["parameter"] == parameter


def test_a_dump_that_is_left_in_the_middle_leaves_nothing_behind(service, client):
    other = service.connect()
    for _ in range(5):
        assert client.ask("dump", limit=10)["next"] is not None
    client.close()
    assert len(dump(other)[0]) == MANY + 1000


def test_dumps_of_many_clients_go_side_by_side(service):
    clients = [service.connect() for _ in range(6)]
    cursors, found = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
    while any(cursor is not None for cursor in cursors.values()):
        asking = [client for client in clients if cursors[client] is not None]
        for client in asking:
            client.send_request("dump", cursor=cursors[client], limit=500)
        for client in asking:
            answer = client.hear().result
            cursors[client] = answer["next"]
            found[client] += len(answer["records"]) // CONNECTION.itemsize
    assert set(found.values()) == {MANY + 1000}


# ------------------------------------------------------------------------------------------------ count
@pytest.mark.parametrize(
    ("filter", "number"),
    [
        ({}, MANY + 1000),
        ({"zone": 3}, MANY),
        ({"zone": 9}, 0),
        ({"proto": "udp"}, MANY + 1000),
        ({"proto": "udp", "zone": 4}, 1000),
        ({"unreplied": True}, MANY + 1000),
        ({"proto": 6}, 0),
        ({"src": "0.0.0.1"}, MANY + 1000),
        ({"dst": "0.0.0.0/28"}, 2 * 15),
        ({"src": "::/0"}, 0),
    ],
)
def test_counts(filter, number, client):
    assert client.ask("count", filter=filter) == {"count": number}


def test_a_count_is_answered_while_another_client_dumps(service, client):
    """Without a filter it is not even asked of the thread that walks."""
    stop_r, stop_w = os.pipe()

    def dumper(child):
        os.set_blocking(stop_r, False)
        mine, number = service.connect(), 0
        child.say("begun")
        while True:
            number += len(dump(mine, limit=100)[0])
            try:
                os.read(stop_r, 1)
                break
            except BlockingIOError:
                continue
        child.say(number)

    with Child(dumper) as child:
        assert child.hear() == "begun"
        for _ in range(300):
            assert client.ask("count") == {"count": MANY + 1000}
        assert client.ask("count", filter={"proto": "udp"}) == {"count": MANY + 1000}
        os.write(stop_w, b"x")
        number = child.hear()
        assert number > 0 and number % (MANY + 1000) == 0
        assert child.wait() == 0
    os.close(stop_r)
    os.close(stop_w)


# ------------------------------------------------------------------------------------------------ delete
def test_a_delete_takes_what_it_means_and_says_how_many(service, client):
    service.maker.made(tables.keys(500, zone=7))
    assert client.ask("delete", filter={"zone": 7, "dst": "0.0.0.0/28"}) == {"deleted": 15}
    assert client.ask("count", filter={"zone": 7}) == {"count": 485}
    assert client.ask("delete", filter={"zone": 7}) == {"deleted": 485}
    assert client.ask("count") == {"count": MANY + 1000}


def test_a_delete_of_nothing_says_so(client):
    with pytest.raises(NothingMatchedError):
        client.ask("delete", filter={"zone": 50})


@pytest.mark.parametrize("params", [{}, {"filter": {}}, {"filter": None}])
def test_a_delete_of_everything_is_refused(params, client):
    with pytest.raises(BadParameterError):
        client.ask("delete", **params)
    assert client.ask("count") == {"count": MANY + 1000}


def test_a_delete_that_comes_no_further_says_so_and_others_are_answered(tmp_path):
    table = tables.small(2000)
    with Service(tmp_path / "x.sock", table) as service:
        service.participant().made(tables.keys(600, zone=1))
        client, other = service.connect(), service.connect()
        with tables.held(tables.quotas(table)[1], "count_lock"):
            client.send_request("delete", filter={"zone": 1})
            assert other.ask("count") == {"count": 600}
            answer = client.hear()
            assert answer.failure.code == BusyError.code
            assert 0 < answer.failure.detail["deleted"] < 600
        service.participant().made(tables.keys(1, zone=2))
        assert client.ask("delete", filter={"zone": 1})["deleted"] == 600 - answer.failure.detail["deleted"]
        assert client.ask("count") == {"count": 1}
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ beside others
def test_connections_that_stay_are_met_once_whatever_comes_and_goes_beside_them(service, client):
    """A worker makes and removes connections as fast as it can, while pages are asked for."""
    stays = set(range(1, MANY + 1))

    def worker(child):
        me = service.participant()
        keys, asked = tables.keys(200, zone=5), []
        signal.signal(signal.SIGTERM, lambda *_: asked.append("to end"))
        child.say("begun")
        while not asked:
            me.made(keys)
            me.remove(keys)

    with Child(worker) as child:
        assert child.hear() == "begun"
        for limit in (1000, 5000, PAGE_RECORDS_MAX):
            found, _ = dump(client, limit=limit)
            kept = found[found["zone"] == 3]
            assert len(kept) == MANY
            endpoints = kept["dst"].view(">u4").reshape(-1, 4)[:, 3]
            assert set(endpoints.tolist()) == stays
            assert set(found["zone"].tolist()) <= {3, 4, 5}
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait() == 0


def test_a_record_whose_holder_died_is_shown_as_torn(service, client):
    record = records(rows(client.ask("dump", limit=1)))[0]
    with tables.held(tables.entries(service.table)[record]):
        found, _ = dump(client)
        torn = found[found["status"] & STATUS["torn"] != 0]
        assert records(torn) == [record]
    assert len(found) == MANY + 1000


def test_the_table_is_as_it_was(service, client):
    assert client.ask("audit") == {"broken": None}
    assert service.table.geometry.records(Slab.ENTRIES) > MANY
