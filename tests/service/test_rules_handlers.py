"""Rules over the socket: checked, loaded, shown, cleared, each by whoever may."""

import pytest
from served import Service
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.door import Rights
from zonetrack.service.handlers import METHODS

TEXT = "priority=5,in_port=lab,tcp actions=ct(commit,zone=port),IN_PORT\npriority=0 actions=drop\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("run") / "x.sock") as service:
        yield service


@pytest.fixture
def client(service):
    return service.connect()


def test_rights():
    rights = {name: row.rights for name, row in METHODS.items() if name.startswith("rules.")}
    assert rights == {
        "rules.get": Rights.READ,
        "rules.check": Rights.READ,
        "rules.load": Rights.WRITE,
        "rules.clear": Rights.WRITE,
        "rules.trace": Rights.READ,
    }


def test_rules_from_nothing_and_back(client):
    assert client.ask("rules.get") == {"number": 0, "rules": []}
    assert client.ask("rules.check", text=TEXT)["rules"] == 2
    assert client.ask("rules.get")["number"] == 0
    told = client.ask("rules.load", text=TEXT)
    assert (told["rules"], told["followed"]) == (2, True)
    shown = client.ask("rules.get")
    assert [rule["priority"] for rule in shown["rules"]] == [5, 0]
    assert shown["number"] == told["number"]
    assert client.ask("rules.clear") == {"followed": True}
    assert client.ask("rules.get") == {"number": 0, "rules": []}


def test_complaints_are_told_line_by_line(client):
    for method in ("rules.check", "rules.load"):
        with pytest.raises(BadParameterError) as caught:
            client.ask(method, text="tpc,actions=drop\nactions=output:wan\n")
        assert caught.value.detail == {"parameter": "text"}
        assert str(caught.value).splitlines() == [
            "line 1: unknown field 'tpc': nearest is 'tp_src'",
            "line 2: there is no port 'wan': 1 is lab",
        ]
    assert client.ask("rules.get")["number"] == 0


def test_formats(client):
    assert client.ask("rules.check", text='{"rules": [{"actions": ["drop"]}]}', format="json")["rules"] == 1
    with pytest.raises(BadParameterError, match="format: one of text, toml, json, not 'xml'"):
        client.ask("rules.check", text="", format="xml")


def test_a_trace(client):
    told = client.ask("rules.trace", packet="in_port=lab,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=53")
    assert (told["number"], told["outputs"], told["reason"]) == (0, ["lab"], None)
    loaded = client.ask("rules.load", text=TEXT)["number"]
    told = client.ask("rules.trace", packet="in_port=lab,udp", ct_next=[])
    assert (told["number"], told["outputs"], told["reason"]) == (loaded, [], "rule_dropped")
    client.ask("rules.clear")
    for wrong, complaint in (("udp", "in_port is missing"), ("in_port=wan", "there is no port 'wan'")):
        with pytest.raises(BadParameterError, match=complaint):
            client.ask("rules.trace", packet=wrong)
    with pytest.raises(BadParameterError, match="there is no flag 'maybe'"):
        client.ask("rules.trace", packet="in_port=lab,udp", ct_next=["maybe"])
