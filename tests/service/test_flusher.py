"""A flush empties zones at once, brings all home whoever leaves meanwhile, and remembers what it could not finish."""

import numpy as np
import pytest
import tables
from served import Service
from zonetrack.clients.errors import BadParameterError, BusyError
from zonetrack.kernels.jit import JIT
from zonetrack.shm import roster
from zonetrack.shm.layout import Step

MANY = 5000 if JIT else 500


@pytest.fixture
def table():
    return tables.small(12_000, zones=32)


@pytest.fixture
def service(table, tmp_path):
    with Service(tmp_path / "x.sock", table) as service:
        service.maker = service.participant()
        yield service
    tables.assert_at_rest(table)


@pytest.fixture
def client(service):
    return service.connect()


def test_a_flush_empties_its_zone_and_no_other(service, client):
    service.maker.made(tables.keys(MANY, zone=1))
    service.maker.made(tables.keys(20, zone=2))
    assert client.ask("flush", zone=1) == {"zones": 1, "flushed": MANY}
    assert client.ask("count", filter={"zone": 1}) == {"count": 0}
    assert client.ask("count") == {"count": 20}
    assert client.ask("flush", zone=1) == {"zones": 1, "flushed": 0}
    assert client.ask("coverage")["flushed"] == MANY


def test_a_flush_without_a_zone_takes_all_that_are_in_use(service, client):
    for zone in (1, 5, 65535):
        service.maker.made(tables.keys(30, zone=zone))
    assert client.ask("flush") == {"zones": 3, "flushed": 90}
    assert client.ask("count") == {"count": 0}
    assert client.ask("flush") == {"zones": 0, "flushed": 0}


def test_who_does_not_wait_finds_the_zone_empty_all_the_same(service, client):
    keys = tables.keys(MANY, zone=1)
    service.maker.made(keys)
    assert client.ask("flush", zone=1, wait=False) == {"zones": 1, "flushed": 0}
    assert set(service.maker.find(keys).tolist()) == {tables.NONE}
    assert client.ask("flush", zone=1) == {"zones": 1, "flushed": 0}  # its turn comes when the first is home
    assert client.ask("count", filter={"zone": 1}) == {"count": 0}


def test_a_flush_goes_on_when_whoever_asked_for_it_leaves(service, table, client):
    service.maker.made(tables.keys(MANY, zone=1))
    leaving = service.connect()
    leaving.send_request("flush", zone=1)
    assert client.ask("count")["count"] in range(MANY + 1)
    leaving.close()
    client.ask("flush", zone=2)
    while np.any(tables.quotas(table)["count"][1]):
        client.ask("flush", zone=1)
    assert client.ask("count") == {"count": 0}


def test_what_is_made_after_a_flush_stays(service, client):
    keys = tables.keys(300, zone=1)
    service.maker.made(keys)
    client.ask("flush", zone=1, wait=False)
    made = service.maker.made(keys[:50])
    client.ask("flush", zone=3)
    assert service.maker.find(keys[:50]).tolist() == made.tolist()
    assert client.ask("count", filter={"zone": 1}) == {"count": 50}


def test_a_zone_that_is_locked_is_not_flushed(service, table, client):
    service.maker.made(tables.keys(5, zone=1))
    with tables.held(tables.quotas(table)[1], "zone_lock"), pytest.raises(BusyError, match="zone 1 is locked"):
        client.ask("flush", zone=1)
    assert client.ask("count") == {"count": 5}
    assert client.ask("flush", zone=1) == {"zones": 1, "flushed": 5}


def test_what_could_not_come_home_does_with_the_next_flush(service, table, client):
    records = service.maker.made(tables.keys(100, zone=1))
    service.maker.made(tables.keys(7, zone=2))
    with tables.held(tables.entries(table)[int(records[60])]):
        with pytest.raises(BusyError, match="not all came home"):
            client.ask("flush", zone=1)
        assert 0 < client.ask("count", filter={"zone": 1})["count"] < 100
        with pytest.raises(BusyError):
            client.ask("flush", zone=2)  # one operation at a time
        assert client.ask("count", filter={"zone": 2}) == {"count": 7}
    assert client.ask("flush", zone=2) == {"zones": 1, "flushed": 7}
    assert client.ask("count") == {"count": 0}


@pytest.mark.parametrize("zone", [65536, -1, "1", True, 1.0])
def test_a_zone_that_cannot_be_is_refused(zone, client):
    with pytest.raises(BadParameterError) as refused:
        client.ask("flush", zone=zone)
    assert refused.value.detail == {"parameter": "zone"}


def test_control_ends_while_a_flush_is_stuck(table, tmp_path):
    """Its place stays behind, in the middle of that operation: nobody takes it over."""
    with Service(tmp_path / "y.sock", table) as service:
        records = service.participant().made(tables.keys(100, zone=1))
        with tables.held(tables.entries(table)[int(records[60])]):
            with pytest.raises(BusyError):
                service.ask("flush", zone=1)
            assert service.stop() == 0
            left = [(place.pid, place.step, place.alive) for place in roster.present(table) if not place.alive]
            assert left == [(service.child.pid, Step.RECLAIM, False)]
