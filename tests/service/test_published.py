"""Rules published: what is loaded is shown, what is wrong changes nothing, and counters of the same rules go on."""

import pytest
import tables
from zonetrack.clients.errors import BusyError
from zonetrack.service.policies import Policies
from zonetrack.service.published import Published
from zonetrack.service.rules import RulesError
from zonetrack.shm import rulebook
from zonetrack.shm.rulebook import Rulebook

TEXT = """\
table=0,priority=9,arp actions=NORMAL
table=0,priority=5,tcp,in_port=lan,tp_dst=80 actions=ct(commit,zone=5,alg=ftp,timeout=quick),output:wan
table=0,priority=0 actions=drop
"""


@pytest.fixture
def published():
    table = tables.small()
    policies = Policies(table)
    policies.set(policies.make("quick"), {})
    return Published(Rulebook(2), table, ["lan", "wan"])


def follow(published, worker=0):
    """Let a worker go by what holds."""
    published.book._acknowledged[worker] = published.book.published


def hit(published, rule, packets, worker=0):
    """Count packets of 60 bytes that meet a rule."""
    line = rulebook.counters(published.book.current)[worker]
    line[rule] = (line[rule]["packets"] + packets, line[rule]["bytes"] + 60 * packets)


def counts(published):
    """Return the packets that have met each rule."""
    return [rule["packets"] for rule in published.show()["rules"]]


def test_what_is_loaded_is_shown_and_can_be_loaded_again(published):
    assert published.show() == {"number": 0, "rules": []}
    told = published.load(TEXT, "text")
    assert (told["number"], told["rules"], told["followed"]) == (1, 3, True)
    shown = published.show()
    assert shown["number"] == 1
    assert shown["rules"][1] == {
        "table": 0,
        "priority": 5,
        "match": {"tcp": True, "in_port": "lan", "tp_dst": "80"},
        "actions": ["ct(commit,zone=5,alg=ftp,timeout=quick)", "output:wan"],
        "packets": 0,
        "bytes": 0,
        "text": "table=0,n_packets=0,n_bytes=0,priority=5,tcp,in_port=lan,tp_dst=80 "
        "actions=ct(commit,zone=5,alg=ftp,timeout=quick),output:wan",
    }
    again = "\n".join(rule["text"] for rule in shown["rules"])
    assert published.load(again, "text")["number"] == 2
    assert published.show()["rules"] == shown["rules"]


def test_what_is_wrong_changes_nothing(published, tmp_path):
    published.load(TEXT, "text")
    for wrong in ("output:dmz", "ct(table=9)", "ct(commit,timeout=slow)"):
        with pytest.raises(RulesError):
            published.load(f"actions={wrong}", "text")
    assert published.show()["number"] == 1
    assert len(published.rules()) == 3
    file = tmp_path / "rules.json"
    file.write_text("{")
    with pytest.raises(RulesError, match=rf"{file}: not JSON"):
        published.load_file(str(file))
    with pytest.raises(RulesError, match="not JSON"):
        published.check_file(str(file))


def test_counters_of_rules_that_stay_go_on(published):
    published.load(TEXT, "text")
    follow(published)
    hit(published, 0, 5)
    hit(published, 1, 7, worker=1)
    hit(published, 2, 1)
    published.book._acknowledged[0] = 0
    published.load(TEXT.replace("priority=5", "priority=6") + "priority=1,udp actions=drop\n", "text")
    assert counts(published) == [5, 0, 0, 1]
    hit(published, 0, 1)
    published.load(TEXT, "text")
    assert counts(published) == [6, 0, 1]


def test_a_worker_that_does_not_follow_is_told_and_holds_up_the_next_but_one(published):
    published.load(TEXT, "text")
    follow(published)
    assert not published.load(TEXT, "text", 0)["followed"]
    with pytest.raises(BusyError, match="worker 0 still goes by older rules; try again"):
        published.load(TEXT, "text", 0)
    assert published.show()["number"] == 2
    follow(published)
    assert published.load(TEXT, "text", 0)["number"] == 3


def test_cleared(published):
    published.load(TEXT, "text")
    assert published.clear() == {"followed": True}
    assert published.show() == {"number": 0, "rules": []}
    assert published.load(TEXT, "text")["number"] == 2
