"""Events over a real socket: in order, filtered, none lost to who reads; who does not read knows how many he has lost."""

import os
import signal

import numpy as np
import pytest
import tables
from forked import Child
from served import Service
from zonetrack.clients import wire
from zonetrack.clients.errors import BadParameterError, FailedError, UnknownParameterError
from zonetrack.shm.events import Events
from zonetrack.shm.layout import End, EventKind


@pytest.fixture
def service(tmp_path):
    table = tables.small(6000, zones=16)
    table.events = Events()
    with Service(tmp_path / "x.sock", table, output_bytes_max=1 << 18) as service:
        service.maker = service.participant()
        yield service


def subscribe(service, **params):
    client = service.connect()
    client.about = client.ask("events.subscribe", **params)
    return client


def notice(client):
    """Return lost, rows and sequence of the next notification."""
    told = client.hear()
    assert isinstance(told, wire.Notification) and told.method == "events", told
    dtype = np.dtype([(name, kind, tuple(shape)) for name, kind, shape in client.about["dtype"]])
    return told.params["lost"], np.frombuffer(told.params["records"], dtype), told.params["sequence"]


def rows_of(client, count):
    """Return the next so many rows, and how many were lost before the last of them."""
    parts, lost, seen = [], 0, 0
    while seen < count:
        more, rows, _ = notice(client)
        parts.append(rows)
        lost, seen = lost + more, seen + len(rows) + more
    return np.concatenate(parts), lost


def test_what_happens_is_told_in_order_to_all_who_want_it(service):
    one, of_zone, ends = (
        subscribe(service),
        subscribe(service, filter={"zone": 4}),
        subscribe(service, kinds=["destroy"]),
    )
    keys = tables.keys(100, zone=3)
    service.maker.made(keys)
    service.maker.made(tables.keys(10, zone=4))
    service.maker.remove(keys)
    rows, lost = rows_of(one, 210)
    assert lost == 0 and rows["sequence"].tolist() == list(range(1, 211))
    assert rows["kind"].tolist() == [EventKind.NEW] * 110 + [EventKind.DESTROY] * 100
    rows, lost = rows_of(of_zone, 10)
    assert lost == 0 and rows["sequence"].tolist() == list(range(101, 111))
    rows, lost = rows_of(ends, 100)
    assert lost == 0 and set(rows["end"].tolist()) == {End.DELETED} and rows["sequence"][0] == 111
    assert one.about["ends"][End.DELETED] == "deleted" and one.about["kinds"]["destroy"] == EventKind.DESTROY


def test_what_no_reader_means_is_not_written(service):
    """It takes no number, so it is lost to nobody either."""
    one = subscribe(service, filter={"zone": 4, "sport": 1})
    net = subscribe(service, filter={"src": "203.0.113.0/24"})
    usual = tables.keys(3, zone=4)
    usual[0, 4] = 1 << 48 | 2 << 32 | int(usual[0, 4]) & 0xFFFFFFFF
    far = tables.keys(2, first=10, zone=5)
    far[1, :2] = (0, int.from_bytes(bytes([203, 0, 113, 7]), "big"))
    service.maker.made(usual)
    service.maker.made(far)
    rows, lost = rows_of(one, 1)
    assert (lost, rows["sport"].tolist(), rows["sequence"].tolist()) == (0, [1], [1])
    rows, lost = rows_of(net, 1)
    assert (lost, rows["zone"].tolist(), rows["sequence"].tolist()) == (0, [5], [2])
    everyone = subscribe(service)
    service.maker.remove(usual)
    assert rows_of(everyone, 3)[0]["sequence"].tolist() == [3, 4, 5]
    assert rows_of(one, 1)[0]["sequence"].tolist() == [3]


def test_a_flush_is_told_from_its_beginning_to_its_end(service):
    service.maker.made(tables.keys(5000, zone=6))
    client = subscribe(service)
    assert client.about["sequence"] == 0  # nobody wanted those
    asker = service.connect()
    asker.send_request("flush", zone=6)
    rows, lost = rows_of(client, 5000)
    assert asker.hear().result == {"zones": 1, "flushed": 5000}
    assert lost == 0 and set(rows["end"].tolist()) == {End.FLUSHED} and len(set(rows["id"].tolist())) == 5000


def test_a_delete_by_filter_is_told(service):
    service.maker.made(tables.keys(50, zone=6))
    client = subscribe(service)
    assert service.ask("delete", filter={"zone": 6}) == {"deleted": 50}
    rows, _ = rows_of(client, 50)
    assert set(rows["end"].tolist()) == {End.DELETED}


def test_a_dump_says_up_to_which_event_it_is(service):
    client = subscribe(service)
    service.maker.made(tables.keys(7))
    rows_of(client, 7)
    answer = service.ask("dump")
    assert answer["sequence"] == 7 and len(answer["records"]) == 7 * 168


def test_who_does_not_read_loses_events_and_is_told_how_many(service):
    slow = service.connect()
    slow.about = slow.ask("events.subscribe")
    quick = subscribe(service)
    total = 0
    for first in range(1, 4000, 400):  # more than the socket and what is kept for it can hold
        keys = tables.keys(400, first=first)
        service.maker.made(keys)
        rows, lost = rows_of(quick, 400)
        assert lost == 0
        total += 400
    figures = service.ask("stats")["events"]
    assert figures["subscribers"] == 2 and 0 < figures["lost_by_slow_readers"] < total and figures["lost"] == 0
    service.maker.made(tables.keys(1, zone=9))
    rows, lost = rows_of(slow, total + 1)
    assert lost == figures["lost_by_slow_readers"] == total + 1 - len(rows)
    assert rows["zone"][-1] == 9 and np.all(np.diff(rows["sequence"].astype("i8")) > 0)


def test_who_goes_away_is_told_no_more(service):
    client = subscribe(service)
    assert client.ask("events.unsubscribe") == {"subscribed": True}
    assert client.ask("events.unsubscribe") == {"subscribed": False}
    dead = subscribe(service)
    dead.close()
    while service.ask("stats")["events"]["subscribers"]:
        pass
    assert not service.table.events.heads["wanted"].any()
    service.maker.made(tables.keys(3))
    assert service.table.events.sequence == 0
    later = subscribe(service)
    service.maker.made(tables.keys(2, zone=2))
    assert rows_of(later, 2)[0]["sequence"].tolist() == [1, 2]


def test_a_reader_that_is_killed_costs_the_others_nothing(service):
    one = subscribe(service)

    def read(child):
        client = subscribe(service)
        rows_of(client, 1)
        child.say("reading")
        rows_of(client, 1 << 30)

    with Child(read) as reader:
        while service.ask("stats")["events"]["subscribers"] != 2:
            pass
        service.maker.made(tables.keys(50, zone=2))
        assert reader.hear() == "reading"
        reader.kill()
    service.maker.made(tables.keys(50, first=60, zone=2))
    rows, lost = rows_of(one, 100)
    assert lost == 0 and rows["sequence"].tolist() == list(range(1, 101))
    while service.ask("stats")["events"]["subscribers"] != 1:
        pass


def test_what_a_killed_writer_was_writing_is_told_as_lost(service):
    client = subscribe(service)
    other = service.participant()
    service.table.events.heads[other.me - 1]["open"] = 1
    service.table.events._count[0] += 1
    service.maker.made(tables.keys(2))
    tables.roster.participants(service.table)[other.me - 1]["attendance"] = 0
    rows, lost = rows_of(client, 3)
    assert (lost, rows["sequence"].tolist()) == (1, [2, 3])
    tables.roster.participants(service.table)[other.me - 1]["attendance"] = 2


def test_a_control_that_dies_leaves_nothing_behind(service):
    subscribe(service)
    os.kill(service.child.pid, signal.SIGKILL)
    service.child.wait()
    service.maker.made(tables.keys(3))  # whoever wanted them is gone; nobody has said so yet
    service.start()
    later = subscribe(service)
    assert later.about["sequence"] == 3
    service.maker.made(tables.keys(1, zone=2))
    assert rows_of(later, 1)[0]["sequence"].tolist() == [4]


def test_who_comes_back_is_told_what_he_has_missed_of_what_was_kept(service):
    service.table.events.keep(EventKind.NEW)
    client = subscribe(service)
    service.maker.made(tables.keys(2, zone=3))
    assert rows_of(client, 2)[1] == 0
    life = client.about["life"]
    client.close()
    os.kill(service.child.pid, signal.SIGKILL)
    service.child.wait()
    service.maker.made(tables.keys(3, first=7, zone=3))
    service.maker.made(tables.keys(1, first=11, zone=4))
    service.start()
    other = subscribe(service, kinds=["destroy"], filter={"zone": 9})  # wants less: the rest is kept all the same
    again = subscribe(service, after=2, life=life, filter={"zone": 3})
    rows, lost = rows_of(again, 3)
    assert (lost, rows["sequence"].tolist(), again.about["sequence"]) == (0, [3, 4, 5], 2)
    service.maker.made(tables.keys(1, first=20, zone=3))
    assert rows_of(again, 1)[0]["sequence"].tolist() == [7]
    assert other.ask("events.unsubscribe", finish=True) == {"subscribed": True}


@pytest.mark.parametrize(("life", "first"), [(None, 1), (0, 3), (77, 0)], ids=["this", "none", "another"])
def test_where_one_begins_who_knows(service, life, first):
    reader = subscribe(service)
    service.maker.made(tables.keys(3))
    rows_of(reader, 3)
    again = subscribe(service, after=1, life=life)
    assert again.about["sequence"] == first
    service.maker.made(tables.keys(1, first=9))
    assert rows_of(again, 4 - first)[0]["sequence"].tolist() == list(range(first + 1, 5))


def test_who_knows_nothing_is_told_what_was_kept_for_it(service):
    reader = subscribe(service)
    service.maker.made(tables.keys(2))
    service.table.events.keep(EventKind.NEW)
    service.maker.made(tables.keys(2, first=5))
    rows_of(reader, 4)
    again = subscribe(service, after=0, life=0)
    assert again.about["sequence"] == 2
    assert rows_of(again, 2)[0]["sequence"].tolist() == [3, 4]


def test_who_leaves_in_order_is_told_all_before(service):
    client = subscribe(service)
    service.maker.made(tables.keys(300))
    client.send_request("events.unsubscribe", finish=True)
    rows = rows_of(client, 300)[0]
    assert rows["sequence"][-1] == 300 and client.hear().result == {"subscribed": True}
    assert client.ask("events.unsubscribe", finish=True) == {"subscribed": False}


def test_what_is_kept_outlives_the_last_reader(service):
    service.table.events.keep(EventKind.NEW)
    client = subscribe(service)
    client.ask("events.unsubscribe", finish=True)
    assert service.table.events.heads["wanted"][0] == EventKind.NEW
    service.maker.made(tables.keys(2))
    later = subscribe(service, after=0)
    assert rows_of(later, 2)[0]["sequence"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"kinds": []}, BadParameterError),
        ({"kinds": ["created"]}, BadParameterError),
        ({"filter": {"zone": -1}}, BadParameterError),
        ({"filter": {"zones": 1}}, UnknownParameterError),
        ({"after": -1}, BadParameterError),
        ({"life": "mine"}, BadParameterError),
    ],
    ids=str,
)
def test_what_cannot_be_wanted(service, params, error):
    with pytest.raises(error):
        service.ask("events.subscribe", **params)


def test_where_there_are_no_events(tmp_path):
    with Service(tmp_path / "x.sock", tables.small()) as service, pytest.raises(FailedError, match="writes no events"):
        service.ask("events.subscribe")
