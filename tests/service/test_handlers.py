"""Every method over a real socket: what it answers, what it refuses and how, and that a mistake of ours is no hang-up."""

import contextlib

import bursts
import checkout
import pytest
import tables
from served import Service
from zonetrack.clients import wire
from zonetrack.clients.errors import (
    BadParameterError,
    Code,
    FailedError,
    NothingMatchedError,
    UnknownMethodError,
    UnknownParameterError,
)
from zonetrack.service import filters
from zonetrack.service.config import ConfigError
from zonetrack.service.context import Order
from zonetrack.service.control import ITEMS_MAX
from zonetrack.service.door import Rights
from zonetrack.service.handlers import METHODS
from zonetrack.service.snapshot import PAGE_RECORDS_MAX

NAMES = {
    *("hello", "stats", "coverage", "workers", "ports", "count", "dump", "expectations", "delete", "flush", "audit"),
    *("zones", "zones.set", "zones.unset", "timeouts.get", "timeouts.set", "timeouts.unset"),
    *("limits.get", "limits.set", "limits.unset", "fragments.get", "fragments.set"),
    *("config.reload", "restart", "stop", "explain.recent"),
    *("metrics", "summary", "events.subscribe", "events.unsubscribe"),
    *("queues", "queues.assign", "queues.rebalance", "perf", "perf.set"),
    *("nat", "rules.get", "rules.check", "rules.load", "rules.clear", "rules.trace"),
}


def refuse():
    """Be a configuration that is wrong."""
    raise ConfigError("workers: a number from 1 to 128, not 'many'")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    worker = {"number": 0, "pid": 77, "owner": 1, "state": "running"}
    table = tables.small(2000, zones=32)
    maker = tables.Participant(table)  # the first on the roster, as the worker above says
    with Service(
        tmp_path_factory.mktemp("run") / "x.sock",
        table,
        workers=[worker, worker | {"number": 1, "owner": 0}],
        check_config=lambda: {"changed": ["log_level"]},
    ) as service:
        maker.made(tables.keys(40, zone=3))
        yield service


@pytest.fixture
def client(service):
    with contextlib.closing(service.connect()) as made:
        yield made


# ------------------------------------------------------------------------------------------------ the table of methods
def test_there_are_the_methods_that_clients_know(client):
    assert set(METHODS) == NAMES
    assert client.ask("hello")["methods"] == sorted(NAMES)


def test_the_page_about_them_is_complete():
    page = checkout.page("control.md")
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}
    for name, method in METHODS.items():
        assert [parameter for parameter in method.parameters if f"`{parameter}`" not in rows[name]] == [], name
        assert ("` w |" in rows[name]) == (method.rights is Rights.WRITE), name
    assert [code for code in Code if f"`{code}`" not in page] == []
    assert [key for key in filters.READERS if f"`{key}`" not in page] == []
    assert f"{PAGE_RECORDS_MAX:,}" in page and f"{ITEMS_MAX:,}" in page


@pytest.mark.parametrize(
    ("method", "detail"),
    [
        ("cuont", {"method": "cuont", "nearest": "count"}),
        ("limits.gat", {"method": "limits.gat", "nearest": "limits.get"}),
        ("__class__", {"method": "__class__"}),
        ("", {"method": ""}),
        ("x" * 3000, {"method": "x" * 100}),
    ],
)
def test_an_unknown_method_is_named_with_the_nearest(method, detail, client):
    with pytest.raises(UnknownMethodError) as refused:
        client.ask(method)
    assert refused.value.detail == detail and len(str(refused.value)) < 200
    assert client.ask("count") == {"count": 40}


@pytest.mark.parametrize("method", sorted(NAMES))
def test_no_method_takes_what_it_does_not_know(method, client):
    with pytest.raises(UnknownParameterError) as refused:
        client.ask(method, surprise=1)
    assert refused.value.detail["parameter"] == "surprise"
    assert client.ask("count") == {"count": 40}


@pytest.mark.parametrize("method", sorted(name for name, row in METHODS.items() if row.parameters))
@pytest.mark.parametrize("value", [[[]], {"a": {"b": 1}}, b"\x00\xff", 1.5, -1, 2**64 - 1, "\u2603"], ids=repr)
def test_no_method_takes_a_value_of_another_type(method, value, client):
    for name in METHODS[method].parameters:
        with pytest.raises((BadParameterError, UnknownParameterError)) as refused:
            client.ask(method, **{name: value})
        assert refused.value.detail["parameter"]
    assert client.ask("count") == {"count": 40}


def test_a_mistake_of_ours_is_told_and_the_client_served_on(tmp_path):
    def mistake():
        raise ZeroDivisionError("as asked")

    with Service(tmp_path / "x.sock", check_config=mistake) as service:
        client = service.connect()
        with pytest.raises(FailedError, match="ZeroDivisionError: as asked"):
            client.ask("config.reload")
        assert client.ask("count") == {"count": 0}


# ------------------------------------------------------------------------------------------------ who is there
def test_hello_says_who_answers(service, client):
    hello = client.ask("hello")
    assert (hello["protocol"], hello["instance"], hello["rights"]) == (wire.VERSION, "test", "write")
    assert hello["keeper"] != service.child.pid
    assert len(hello["format"]) == 16 and hello["version"]


def test_stats_have_everything(client):
    stats = client.ask("stats")
    assert (stats["connections"], stats["limit"], stats["capacity"], stats["zones_in_use"]) == (40, 2000, 2000, 1)
    assert stats["counters"]["insert"] == 40
    assert stats["zones"] == [{"zone": 3, "count": 40}]
    assert stats["ports"] == client.ask("ports") == [{"name": "lab", "zone": 0, "queues": []}]
    assert [one["number"] for one in stats["workers"]] == [one["number"] for one in client.ask("workers")] == [0, 1]
    assert stats["control"]["requests"] > 0
    assert stats["uptime_s"] >= 0


def test_workers_have_the_counters_of_their_places(client):
    first, second = client.ask("workers")
    assert (first["number"], first["pid"], first["counters"]["insert"]) == (0, 77, 40)
    assert "counters" not in second  # it has no place yet


def test_coverage_has_every_counter(client):
    coverage = client.ask("coverage")
    assert coverage["insert"] == 40 and coverage["tcp_state"] == 0


def test_zones(client):
    (zone,) = client.ask("zones")
    assert (zone["zone"], zone["count"], zone["limit"]) == (3, 40, None)
    assert client.ask("zones", zone=3) == [zone]
    assert client.ask("zones", zone=9)[0]["count"] == 0
    with pytest.raises(BadParameterError):
        client.ask("zones", zone=65536)


def test_an_audit_finds_nothing(client):
    assert client.ask("audit") == {"broken": None}


# ------------------------------------------------------------------------------------------------ reasons
def test_the_latest_packets_with_a_reason(service, client):
    maker = bursts.Bench(service.table)
    maker.track(bursts.tcp("FA", 1, 1), bursts.tcp("FA", 2, 1), zone=9)
    maker.track(bursts.tcp("FA", 3, 1), zone=8)
    told = client.ask("explain.recent")
    assert len(told) == 3 and {one["reason"] for one in told} == {"tcp_new_refused"}
    told = client.ask("explain.recent", zone=9, limit=1)
    assert len(told) == 1 and told[0]["packet"]["seq"] in (1, 2) and told[0]["by"] == f"participant {maker.me}"
    assert client.ask("coverage", zone=9) == {"tcp_new_refused": 2}
    assert client.ask("zones", zone=8)[0]["reasons"] == {"tcp_new_refused": 1}
    for params in ({"limit": 0}, {"limit": 1025}, {"zone": -1}):
        with pytest.raises(BadParameterError):
            client.ask("explain.recent", **params)


# ------------------------------------------------------------------------------------------------ limits
def test_limits_are_set_shown_and_taken_back(service, client):
    assert client.ask("limits.set", zone=5, limit=1000) == {}
    assert client.ask("limits.set", default=50, **{"global": 1500}) == {}
    shown = client.ask("limits.get")
    assert shown["global"] == {"limit": 1500, "count": 40}
    assert (shown["default"], shown["zones"]) == (50, [{"zone": 5, "limit": 1000, "count": 0, "own": True}])
    assert client.ask("limits.get", zone=3)["zones"] == [{"zone": 3, "limit": 50, "count": 40, "own": False}]
    client.ask("limits.unset", zone=5, default=True)
    client.ask("limits.set", **{"global": None})
    assert client.ask("limits.get") == {"global": {"limit": 2000, "count": 40}, "default": None, "zones": []}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("limits.set", {}),
        ("limits.set", {"zone": 5}),
        ("limits.set", {"limit": 5}),
        ("limits.set", {"zone": 5, "limit": -1}),
        ("limits.set", {"zone": 65536, "limit": 1}),
        ("limits.set", {"zone": 5, "limit": 2**32 - 1}),
        ("limits.set", {"default": "none"}),
        ("limits.set", {"global": 2001}),
        ("limits.set", {"global": 2001, "default": 1}),
        ("limits.unset", {}),
        ("limits.unset", {"default": 1}),
        ("limits.get", {"zone": 65536}),
    ],
)
def test_limits_that_cannot_be_are_refused_and_change_nothing(method, params, client):
    before = client.ask("limits.get")
    with pytest.raises(BadParameterError):
        client.ask(method, **params)
    assert client.ask("limits.get") == before


def test_a_limit_that_there_is_not_cannot_be_taken_back(client):
    with pytest.raises(NothingMatchedError):
        client.ask("limits.unset", zone=44)


# ------------------------------------------------------------------------------------------------ timeouts
def test_timeouts_are_set_shown_and_taken_back(client):
    assert client.ask("timeouts.set", policy=2, timeouts={"udp": 5, "tcp_close": 2.5}) == {"policy": 2}
    assert client.ask("timeouts.set", policy=2, zone=9) == {"policy": 2}
    shown = client.ask("timeouts.get")
    assert [row["policy"] for row in shown["policies"]] == [0, 2]
    assert shown["policies"][1]["timeouts"]["udp"] == 5 and shown["policies"][1]["timeouts"]["tcp_close"] == 2.5
    assert shown["zones"] == [{"zone": 9, "policy": 2, "name": None}]
    client.ask("timeouts.set", policy=2, timeouts={"udp": None, "tcp_close": None})
    client.ask("timeouts.set", policy=0, zone=9)
    assert [row["policy"] for row in client.ask("timeouts.get")["policies"]] == [0]


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({}, BadParameterError),
        ({"policy": 2}, BadParameterError),
        ({"policy": 64, "zone": 1}, BadParameterError),
        ({"policy": "nobody", "zone": 1}, NothingMatchedError),
        ({"policy": 2, "timeouts": {}}, BadParameterError),
        ({"policy": 2, "timeouts": {"udp": 0}}, BadParameterError),
        ({"policy": 2, "timeouts": {"upd": 5}}, UnknownParameterError),
        ({"policy": 2, "timeouts": {"udp": 5}, "zone": -1}, BadParameterError),
    ],
)
def test_timeouts_that_cannot_be_are_refused_and_change_nothing(params, error, client):
    before = client.ask("timeouts.get")
    with pytest.raises(error):
        client.ask("timeouts.set", **params)
    assert client.ask("timeouts.get") == before


def test_a_policy_with_a_name(client):
    row = client.ask("timeouts.set", policy="web", timeouts={"udp": 5})["policy"]
    assert client.ask("timeouts.set", policy="web", zone=9) == {"policy": row}
    shown = client.ask("timeouts.get", policy="web")
    assert (shown["policies"][0]["name"], shown["zones"]) == ("web", [{"zone": 9, "policy": row, "name": "web"}])
    assert client.ask("zones", zone=9)[0]["policy_name"] == "web"
    assert client.ask("timeouts.unset", policy="web") == {}
    assert client.ask("zones", zone=9)[0]["policy"] == 0
    for method in ("timeouts.unset", "timeouts.get"):
        with pytest.raises(NothingMatchedError):
            client.ask(method, policy="web")
    with pytest.raises(NothingMatchedError):
        client.ask("timeouts.unset", policy=40)


# ------------------------------------------------------------------------------------------------ settings of zones
def test_a_zone_is_set_and_unset(client):
    assert client.ask("zones.set", zone=9, settings={"profile": "ovs", "loose": False})["profile"] == "ovs"
    (zone,) = client.ask("zones", zone=9)
    assert zone["settings"]["loose"] is False and zone["settings_are_own"]
    assert zone in client.ask("zones")
    assert client.ask("zones.unset", zone=9)["loose"] is True
    with pytest.raises(NothingMatchedError):
        client.ask("zones.unset", zone=9)


@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"zone": 9}, BadParameterError),
        ({"zone": 9, "settings": {}}, BadParameterError),
        ({"zone": 65536, "settings": {"loose": True}}, BadParameterError),
        ({"zone": 9, "settings": {"loose": False, "lose": True}}, UnknownParameterError),
    ],
)
def test_settings_that_cannot_be_are_refused_and_change_nothing(params, error, client):
    with pytest.raises(error):
        client.ask("zones.set", **params)
    assert not client.ask("zones", zone=9)[0]["settings_are_own"]


# ------------------------------------------------------------------------------------------------ orders
def test_orders_reach_the_keeper(service, client):
    assert client.ask("config.reload") == {"changed": ["log_level"]}
    assert service.child.hear() is Order.RELOAD
    assert client.ask("stop")["keeper"] != service.child.pid
    assert service.child.hear() is Order.STOP
    client.ask("stop", unlink=True)
    assert service.child.hear() is Order.DISCARD
    assert client.ask("count") == {"count": 40}  # it is the keeper who stops control


def test_a_configuration_that_is_wrong_is_not_passed_on(tmp_path):
    with Service(tmp_path / "x.sock", check_config=refuse) as service:
        client = service.connect()
        with pytest.raises(FailedError, match="workers: a number from 1 to 128"):
            client.ask("config.reload")
        client.ask("stop")
        assert service.child.hear() is Order.STOP  # and nothing before it
