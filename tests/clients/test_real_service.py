"""Every method of both libraries against a real service: keeper, control, workers, and packets that came through a port."""

import asyncio
import itertools
import json
import os

import pytest
from desk import run
from libraries import BOTH
from services import Service
from zonetrack.clients import conversation, errors
from zonetrack.clients.aio import connect as connect_aio
from zonetrack.clients.errors import Exit
from zonetrack.clients.sync import connect

CONNECTIONS, TCP = 7, 3
"""That the conversation opens, and those of TCP among them."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    directory = tmp_path_factory.mktemp("service")
    name = f"clients{os.getpid()}"
    flags = ("--workers", 1, "--max-connections", 4000, "--port", f"shm:{name}")
    with Service(directory, *flags) as service:
        service.until_ready()
        service.port, service.capture = name, directory / "conversation.pcap"
        service.capture.write_bytes(conversation.capture())
        yield service


@pytest.fixture
def filled(service):
    """The service, with the connections of the conversation in it and no others."""
    with connect(service.socket) as ct:
        ct.flush()
    sent = run("send", service.port, service.capture, "--instance", service.instance)
    assert sent.code == Exit.OK, sent
    return service


@pytest.fixture(params=list(BOTH))
def ask(request, service):
    return lambda question: BOTH[request.param](service.socket, question)


def test_who_answers(ask, service):
    told = ask(lambda ct: ct.hello())
    assert (told["instance"], told["keeper"], told["rights"]) == (service.instance, service.pid, "write")
    asked = {
        "hello",
        "stats",
        "count",
        "dump",
        "delete",
        "flush",
        "zones",
        "workers",
        "ports",
        "coverage",
        "audit",
        "stop",
    }
    asked |= {"limits.get", "limits.set", "limits.unset", "config.reload", "explain.recent", "expectations", "nat"}
    asked |= {"events.subscribe", "events.unsubscribe", "metrics", "summary", "restart"}
    asked |= {
        "timeouts.get",
        "timeouts.set",
        "timeouts.unset",
        "zones.set",
        "zones.unset",
        "fragments.get",
        "fragments.set",
    }
    asked |= {"queues", "queues.assign", "queues.rebalance", "perf", "perf.set"}
    asked |= {"rules.get", "rules.check", "rules.load", "rules.trace", "rules.clear"}
    assert set(told["methods"]) == asked, "a method that clients do not know, or the other way round"


def test_counts_and_filters(ask, filled):
    assert ask(lambda ct: ct.count()) == CONNECTIONS
    assert ask(lambda ct: ct.count(proto="tcp")) == TCP
    assert ask(lambda ct: ct.count(zone=1)) == 0
    assert ask(lambda ct: ct.count(state="TIME_WAIT", src="192.0.2.0/24", dport=80)) == 1
    assert ask(lambda ct: ct.count(src="2001:db8::/32")) == 2
    assert ask(lambda ct: ct.count(unreplied=True)) + ask(lambda ct: ct.count(reply_dst="192.0.2.10")) >= 5


def test_dumps(ask, filled):
    table = ask(lambda ct: ct.dump())
    listed = ask(lambda ct: ct.connections())
    assert table["id"].tolist() == [connection["id"] for connection in listed]
    assert len(table) == CONNECTIONS and len(ask(lambda ct: ct.dump(limit=2))) == 2
    (page,) = ask(lambda ct: ct.pages(proto="tcp"))
    assert len(list(page.connections())) == TCP
    (web,) = ask(lambda ct: ct.connections(dport=80))
    assert (web["state"], web["status"]) == ("TIME_WAIT", ["seen_reply", "assured"])
    assert (web["orig"]["packets"], web["reply"]["packets"]) == (5, 4)


def test_what_list_shows_is_what_replay_shows(filled):
    """Times apart: they are when the packets came."""
    asked = run("list", "--json", "--socket", filled.socket)
    replayed = run("replay", "--json", filled.capture)
    shown = [
        sorted((_timeless(connection) for connection in json.loads(outcome.out)), key=json.dumps)
        for outcome in (asked, replayed)
    ]
    assert shown[0] == shown[1]


def _timeless(connection):
    return {name: value for name, value in connection.items() if name not in ("id", "start", "timeout")}


def test_deletes_and_flushes(ask, filled):
    assert ask(lambda ct: ct.delete(proto="tcp", dport=80)) == 1
    with pytest.raises(errors.NothingMatchedError):
        ask(lambda ct: ct.delete(proto="tcp", dport=80))
    with pytest.raises(errors.BadParameterError):
        ask(lambda ct: ct.delete())
    assert ask(lambda ct: ct.flush(zone=0)) == {"zones": 1, "flushed": CONNECTIONS - 1}
    assert ask(lambda ct: ct.flush(wait=False))["flushed"] == 0
    assert ask(lambda ct: ct.count()) == 0


def test_limits(ask):
    ask(lambda ct: ct.limits.set(zone=5, limit=1000, default=10, total=3000))
    told = ask(lambda ct: ct.limits.get())
    assert (told["global"]["limit"], told["default"], told["zones"][0]["limit"]) == (3000, 10, 1000)
    ask(lambda ct: ct.limits.set(zone=5, limit=None))
    assert ask(lambda ct: ct.limits.get(zone=5))["zones"][0]["limit"] is None
    ask(lambda ct: ct.limits.unset(zone=5, default=True))
    ask(lambda ct: ct.limits.set(total=None))
    told = ask(lambda ct: ct.limits.get())
    assert (told["global"]["limit"], told["default"], told["zones"]) == (4000, None, [])
    with pytest.raises(errors.NothingMatchedError):
        ask(lambda ct: ct.limits.unset(zone=5))
    for wrong in ({"zone": 5, "limit": -1}, {"zone": 65536, "limit": 1}, {"zone": 5}, {"total": 1 << 40}):
        with pytest.raises(errors.BadParameterError):
            ask(lambda ct, wrong=wrong: ct.limits.set(**wrong))


def test_timeouts(ask):
    ask(lambda ct: ct.timeouts.set(3, {"udp": 5.5, "tcp_established": 7200}))
    ask(lambda ct: ct.timeouts.set_zone(9, 3))
    told = ask(lambda ct: ct.timeouts.get(policy=3))
    assert (told["policies"][0]["timeouts"]["udp"], told["zones"]) == (5.5, [{"zone": 9, "policy": 3, "name": None}])
    ask(lambda ct: ct.timeouts.set(3, {"udp": None, "tcp_established": None}))
    ask(lambda ct: ct.timeouts.set_zone(9, 0))
    assert [policy["policy"] for policy in ask(lambda ct: ct.timeouts.get())["policies"]] == [0]
    with pytest.raises(errors.UnknownParameterError, match=r"udp_steam.*did you mean udp_stream"):
        ask(lambda ct: ct.timeouts.set(3, {"udp_steam": 5}))


def test_settings_of_a_zone(ask):
    ask(lambda ct: ct.zones.set(7, profile="ovs", loose=False, max_retrans=5))
    [told] = ask(lambda ct: ct.zones(zone=7))
    assert (told["settings"]["profile"], told["settings"]["max_retrans"]) == ("ovs", 5)
    ask(lambda ct: ct.zones.unset(7))
    with pytest.raises(errors.NothingMatchedError):
        ask(lambda ct: ct.zones.unset(7))
    with pytest.raises(errors.UnknownParameterError):
        ask(lambda ct: ct.zones.set(7, lose=False))


def test_fragments(ask):
    before = ask(lambda ct: ct.fragments.get())
    ask(lambda ct: ct.fragments.set(v4=False, max=10))
    told = ask(lambda ct: ct.fragments.get())
    assert (told["v4"], told["max"]) == (False, 10)
    ask(lambda ct: ct.fragments.set(v4=before["v4"], max=before["max"]))
    with pytest.raises(errors.BadParameterError):
        ask(lambda ct: ct.fragments.set(min_v4=1))


def test_rules(ask):
    rules = "priority=1,tcp actions=ct(commit,zone=3)"
    assert ask(lambda ct: ct.rules.check(rules))
    ask(lambda ct: ct.rules.load(rules))
    assert "tcp" in str(ask(lambda ct: ct.rules.get()))
    packet = "in_port=1,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=2"
    try:
        assert "commit" in str(ask(lambda ct: ct.rules.trace(packet)))
    finally:
        ask(lambda ct: ct.rules.clear())
    with pytest.raises(errors.BadParameterError):
        ask(lambda ct: ct.rules.load("priority=1,tpc actions=drop"))


def test_what_is_foretold_and_what_was_invalid(ask):
    assert ask(lambda ct: ct.expectations()) == []
    told = ask(lambda ct: ct.explain(limit=5))
    assert len(told) <= 5 and {each["fate"] for each in told} <= {"invalid", "not committed", "let by"}


def test_figures(ask, filled):
    stats = ask(lambda ct: ct.stats())
    assert (stats["connections"], stats["zones"]) == (CONNECTIONS, [{"zone": 0, "count": CONNECTIONS}])
    assert ask(lambda ct: ct.coverage())["packets"] == stats["counters"]["packets"] >= 24
    assert ask(lambda ct: ct.zones(zone=0))[0]["count"] == CONNECTIONS == ask(lambda ct: ct.zones())[0]["count"]
    assert [worker["state"] for worker in ask(lambda ct: ct.workers())] == ["running"]
    assert [port["name"] for port in ask(lambda ct: ct.ports())] == [filled.port]
    assert ask(lambda ct: ct.audit()) == {"broken": None}


def test_reload(ask, service):
    ask(lambda ct: ct.reload())
    service.hear("config")


def test_a_method_that_there_is_not(ask):
    with pytest.raises(errors.UnknownMethodError, match="did you mean count"):
        ask(lambda ct: ct.call("cuont", {}))
    with pytest.raises(errors.UnknownParameterError, match="did you mean zone"):
        ask(lambda ct: ct.call("flush", {"zoen": 5}))


def test_many_at_once_get_their_own_answers(filled):
    async def main():
        async with connect_aio(filled.socket) as ct:
            filters = list(itertools.product(("tcp", "udp"), range(4)))
            counts = await asyncio.gather(*(ct.count(proto=proto, zone=zone) for proto, zone in filters))
            return dict(zip(filters, counts, strict=True))

    counts = asyncio.run(main())
    assert counts["tcp", 0] == TCP and sum(counts.values()) == TCP + counts["udp", 0]


@pytest.mark.parametrize("library", BOTH)
def test_the_service_stops_when_it_is_told_to(library, tmp_path):
    with Service(tmp_path, "--workers", 1, "--max-connections", 1000) as service:
        service.until_ready()
        assert BOTH[library](service.socket, lambda ct: ct.stop(unlink=True)) == {"keeper": service.pid}
        assert service.wait() == 0
        with pytest.raises(errors.NoServiceError):
            connect(service.socket)


def test_zonetrack_stop_returns_when_the_service_is_gone(tmp_path):
    with Service(tmp_path, "--workers", 1, "--max-connections", 1000) as service:
        service.until_ready()
        assert run("stop", "--unlink", "--socket", service.socket) == (Exit.OK, "stopped\n", "")
        assert not os.path.exists(service.socket)
        assert service.wait() == 0
