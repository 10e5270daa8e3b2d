"""Every method, in both libraries: what goes over the wire, and what is made of the answer."""

import inspect

import peer
import pytest
from libraries import BOTH
from zonetrack.clients import errors
from zonetrack.clients.errors import Code, RemoteProtocolError
from zonetrack.clients.methods import Fragments, Limits, Methods, Queues, Rules, Timeouts, Zones, entry


@pytest.fixture(scope="module")
def socket(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("peer") / "s")
    with peer.running(path):
        yield path


@pytest.fixture(params=list(BOTH))
def ask(request, socket):
    """Return a function that asks one question over a new connection, with either library."""
    return lambda question, **how: BOTH[request.param](socket, question, **how)


QUESTIONS = {
    "hello": (lambda ct: ct.hello(), "hello", {}),
    "stats": (lambda ct: ct.stats(), "stats", {}),
    "coverage of a zone": (lambda ct: ct.coverage(zone=0), "coverage", {"zone": 0}),
    "coverage": (lambda ct: ct.coverage(), "coverage", {}),
    "flush": (lambda ct: ct.flush(), "flush", {}),
    "flush a zone": (lambda ct: ct.flush(zone=0), "flush", {"zone": 0}),
    "flush and go on": (lambda ct: ct.flush(wait=False), "flush", {"wait": False}),
    "zones of one": (lambda ct: ct.zones(zone=0), "zones", {"zone": 0}),
    "zones.get": (lambda ct: ct.zones.get(), "zones", {}),
    "zones.set": (
        lambda ct: ct.zones.set(0, loose=False, profile="ovs"),
        "zones.set",
        {"zone": 0, "settings": {"loose": False, "profile": "ovs"}},
    ),
    "zones.unset": (lambda ct: ct.zones.unset(0), "zones.unset", {"zone": 0}),
    "timeouts.unset": (lambda ct: ct.timeouts.unset("web"), "timeouts.unset", {"policy": "web"}),
    "zones": (lambda ct: ct.zones(), "zones", {}),
    "explain": (lambda ct: ct.explain(), "explain.recent", {}),
    "explain a few": (lambda ct: ct.explain(limit=3, zone=0), "explain.recent", {"limit": 3, "zone": 0}),
    "summary": (lambda ct: ct.summary(), "summary", {}),
    "metrics": (lambda ct: ct.metrics(), "metrics", {"format": "text"}),
    "metrics in plain values": (lambda ct: ct.metrics("plain"), "metrics", {"format": "plain"}),
    "workers": (lambda ct: ct.workers(), "workers", {}),
    "ports": (lambda ct: ct.ports(), "ports", {}),
    "queues": (lambda ct: ct.queues(), "queues", {}),
    "queues.assign": (
        lambda ct: ct.queues.assign("lan", 0, 1),
        "queues.assign",
        {"port": "lan", "queue": 0, "worker": 1},
    ),
    "queues.rebalance": (lambda ct: ct.queues.rebalance(True), "queues.rebalance", {"dry_run": True}),
    "perf": (lambda ct: ct.perf(), "perf", {}),
    "set_perf": (lambda ct: ct.set_perf(False), "perf.set", {"on": False}),
    "audit": (lambda ct: ct.audit(), "audit", {}),
    "reload": (lambda ct: ct.reload(), "config.reload", {}),
    "nat": (lambda ct: ct.nat(), "nat", {}),
    "expectations": (lambda ct: ct.expectations(), "expectations", {}),
    "expectations of a zone": (lambda ct: ct.expectations(zone=0), "expectations", {"zone": 0}),
    "restart": (lambda ct: ct.restart(), "restart", {}),
    "stop": (lambda ct: ct.stop(), "stop", {"unlink": False}),
    "stop and unlink": (lambda ct: ct.stop(unlink=True), "stop", {"unlink": True}),
    "limits.get": (lambda ct: ct.limits.get(), "limits.get", {}),
    "limits.get of a zone": (lambda ct: ct.limits.get(zone=0), "limits.get", {"zone": 0}),
    "limits.set of a zone": (lambda ct: ct.limits.set(zone=5, limit=1000), "limits.set", {"zone": 5, "limit": 1000}),
    "limits.set to none": (lambda ct: ct.limits.set(zone=5, limit=None), "limits.set", {"zone": 5, "limit": None}),
    "limits.set of all": (
        lambda ct: ct.limits.set(total=0, default=None),
        "limits.set",
        {"global": 0, "default": None},
    ),
    "limits.unset": (lambda ct: ct.limits.unset(zone=0), "limits.unset", {"zone": 0}),
    "limits.unset of the default": (lambda ct: ct.limits.unset(default=True), "limits.unset", {"default": True}),
    "timeouts.get": (lambda ct: ct.timeouts.get(), "timeouts.get", {}),
    "timeouts.get of a policy": (lambda ct: ct.timeouts.get(policy=0), "timeouts.get", {"policy": 0}),
    "timeouts.set": (
        lambda ct: ct.timeouts.set(1, {"udp": 5, "icmp": None}),
        "timeouts.set",
        {"policy": 1, "timeouts": {"udp": 5, "icmp": None}},
    ),
    "rules.get": (lambda ct: ct.rules.get(), "rules.get", {}),
    "rules.check": (
        lambda ct: ct.rules.check("{}", "json"),
        "rules.check",
        {"text": "{}", "format": "json"},
    ),
    "rules.load": (
        lambda ct: ct.rules.load("actions=drop"),
        "rules.load",
        {"text": "actions=drop", "format": "text"},
    ),
    "rules.trace": (
        lambda ct: ct.rules.trace("in_port=1,ip", ["trk,new"]),
        "rules.trace",
        {"packet": "in_port=1,ip", "ct_next": ["trk,new"]},
    ),
    "rules.trace of two": (
        lambda ct: ct.rules.trace("in_port=1,ip", then=["in_port=2,ip"]),
        "rules.trace",
        {"packet": "in_port=1,ip", "ct_next": [], "then": ["in_port=2,ip"]},
    ),
    "rules.clear": (lambda ct: ct.rules.clear(), "rules.clear", {}),
    "fragments.get": (lambda ct: ct.fragments.get(), "fragments.get", {}),
    "fragments.set": (
        lambda ct: ct.fragments.set(v4=False, max=500),
        "fragments.set",
        {"v4": False, "max": 500},
    ),
    "timeouts.set_zone": (lambda ct: ct.timeouts.set_zone(7, 1), "timeouts.set", {"zone": 7, "policy": 1}),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_goes_over_the_wire(ask, question):
    asks, method, params = QUESTIONS[question]
    assert ask(asks) == {"method": method, "params": params}


def test_every_method_is_asked_here():
    known = {"count", "delete", "call"}
    groups = (
        (Limits, "limits."),
        (Timeouts, "timeouts."),
        (Zones, "zones."),
        (Fragments, "fragments."),
        (Rules, "rules."),
        (Queues, "queues."),
    )
    for kind, prefix in ((Methods, ""), *groups):
        for name, _ in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in known:
                assert any(question.startswith(prefix + name) for question in QUESTIONS), f"nobody asks {prefix + name}"


def test_filters_are_checked_and_sent(ask):
    assert ask(lambda ct: ct.count(zone=5, proto="tcp", src="10.1.2.3/8", mark="1/0xff")) == 20
    assert ask(lambda ct: ct.delete(unreplied=True)) == 20
    with pytest.raises(errors.BadParameterError, match="zone: a number from 0 to 65535, not 65536"):
        ask(lambda ct: ct.count(zone=65536))
    with pytest.raises(errors.UnknownParameterError, match="zoone: not a filter"):
        ask(lambda ct: ct.count(zoone=1))


def test_what_is_picked_of_a_result_must_be_there(ask):
    with pytest.raises(RemoteProtocolError, match="a result without deleted"):
        ask(lambda ct: ct.call("count", {}, entry("deleted")))


@pytest.mark.parametrize("code", list(Code))
def test_an_error_of_the_service_is_raised_as_its_class(ask, code):
    with pytest.raises(errors.ServerError, match="as you wish") as refused:
        ask(lambda ct: ct.call("fail", {"code": code}))
    assert type(refused.value).code == code and refused.value.detail == {"asked": True}


def test_connections_come_page_by_page(ask):
    assert [connection["id"] for connection in ask(lambda ct: ct.connections())] == list(range(20))
    assert [connection["id"] for connection in ask(lambda ct: ct.connections(limit=9))] == list(range(9))
    assert [len(page.records) // peer.ROW_BYTES for page in ask(lambda ct: ct.pages())] == [7, 7, 6]
    assert ask(lambda ct: ct.connections(limit=0)) == []


def test_a_dump_is_one_structured_array(ask):
    table = ask(lambda ct: ct.dump())
    assert table["id"].tolist() == list(range(20)) and set(table["protocol"].tolist()) == {17}
    assert table["packets"].shape == (20, 2) and table.dtype.itemsize == peer.ROW_BYTES
    table["mark"] = 1  # it is the caller's
    assert len(ask(lambda ct: ct.dump(limit=8))) == 8


@pytest.mark.parametrize("method", ["nonsense", "stranger", "half", "hangup"])
def test_a_service_that_does_not_speak_the_protocol(ask, method):
    with pytest.raises(RemoteProtocolError):
        ask(lambda ct: ct.call(method, {}))


def test_the_last_word_of_a_service_is_what_is_raised(ask):
    with pytest.raises(errors.StoppingError, match="goodbye"):
        ask(lambda ct: ct.call("last_word", {}))


def test_an_answer_that_does_not_come(ask):
    with pytest.raises(errors.TookTooLongError, match=r"no answer in 0\.05 s"):
        ask(lambda ct: ct.call("silence", {}), timeout_s=0.05)


def test_nobody_answers(ask, tmp_path, request):
    library = BOTH[request.node.callspec.params["ask"]]
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(errors.NoServiceError, match=f"no service answers at {path}"):
            library(str(path), lambda ct: ct.hello())


def test_a_request_that_is_too_large_is_not_sent(ask):
    with pytest.raises(errors.LocalProtocolError, match="a message of"):
        ask(lambda ct: ct.call("count", {"filter": "x" * 100_000}))
