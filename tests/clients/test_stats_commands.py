"""stats, coverage, workers and ports against a real service, for people and as JSON."""

import json

import pytest
from bursts import Bench, tcp
from zonetrack.clients import stats_commands
from zonetrack.clients.errors import Exit
from zonetrack.clients.stats_commands import flattened, show, show_rows, text
from zonetrack.shm.reasons import Reason

ZONE = 130


def test_stats(desk):
    desk.fill(ZONE, 3)
    told = json.loads(desk.run("stats", "--json").out)
    assert told["connections"] >= 3 and {"zone": ZONE, "count": 3} in told["zones"]
    code, out, _ = desk.run("stats")
    assert code == Exit.OK and "connections" in out and f"{ZONE}" in out and "insert" in out


def test_stats_again_and_again(desk, monkeypatch):
    naps = iter([None, None])

    def nap(seconds):
        assert seconds == 0.5
        try:
            next(naps)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(stats_commands.time, "sleep", nap)
    code, out, _ = desk.run("stats", "--watch", "--interval", 0.5, "--json")
    assert code == Exit.OK
    assert [json.loads(line)["instance"] for line in out.splitlines()] == ["test"] * 3


def test_coverage_has_every_counter(desk):
    told = json.loads(desk.run("coverage", "--json").out)
    assert set(told) == {reason.name.lower() for reason in Reason if reason is not Reason.NONE}
    lines = [line.split() for line in desk.run("coverage").out.splitlines()]
    assert lines[0] == ["counter", "count"] and [name for name, _ in lines[1:]] == list(told)


def test_coverage_of_a_zone(desk):
    Bench(desk.service.table).track(tcp("FA", 1, 1), zone=ZONE)
    assert json.loads(desk.run("coverage", "--zone", ZONE, "--json").out) == {"tcp_new_refused": 1}
    assert [line.split() for line in desk.run("coverage", "--zone", ZONE).out.splitlines()][1:] == [
        ["tcp_new_refused", "1"]
    ]


@pytest.mark.parametrize("command", ["workers", "ports"])
def test_workers_and_ports(desk, command):
    assert isinstance(json.loads(desk.run(command, "--json").out), list)
    assert desk.run(command).code == Exit.OK


def test_metrics(desk):
    zone = ZONE + 1
    desk.fill(zone, 3)
    assert f'zonetrack_zone_entries{{zone="{zone}"}} 3.0' in desk.run("metrics").out.splitlines()
    families = {one["name"]: one for one in json.loads(desk.run("metrics", "--json").out)}
    sample = {"name": "zonetrack_zone_entries", "labels": {"zone": str(zone)}, "value": 3}
    assert sample in families["zonetrack_zone_entries"]["samples"]


def test_rows_are_tables_whatever_they_hold(capsys):
    rows = [
        {"name": "lab", "up": True, "counters": {"hit": 5}, "queues": [{"index": 0}], "zones": [1, 2]},
        {"name": "two", "up": False, "pid": None},
    ]
    show_rows(rows)
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["name", "up", "hit", "zones", "pid"]
    assert out[1].split() == ["lab", "yes", "5", "1", "2"] and out[2].split() == ["two", "no"]
    show({"instance": "x", "ports": rows, "none": [], "control": {"clients": 1}})
    out = capsys.readouterr().out
    assert "queues of ports lab" in out and "clients" in out and "instance" in out


def test_cells():
    assert [text(value) for value in (None, True, False, 0, 1, "x", [1, "a"], 1.5, {"p50": 3, "p99": 5})] == [
        *("", "yes", "no", "0", "1", "x", "1 a", "1.5", "p50 3, p99 5"),
    ]
    assert flattened({"a": 1, "b": {"c": 2}, "d": [{"e": 3}]}) == {"a": 1, "c": 2}
