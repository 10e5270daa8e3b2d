"""`zonetrack ports queues`, `ports assign` and `rebalance` against a real service."""

import json

import pytest
import queued
from queued import command, holders
from zonetrack.clients.errors import Exit


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with queued.service(tmp_path_factory.mktemp("run")) as made:
        yield made


def test_commands_show_assign_and_rebalance(service):
    done = command(service, "ports", "assign", "lab.1", "1")
    assert done.code == Exit.OK and "worker 1 polls queue 1 of port lab" in done.out
    assert holders(service)[1] == 1
    assert "usage_percent" in command(service, "ports", "queues").out
    assert json.loads(command(service, "ports", "queues", "--json").out)["queues"]
    done = command(service, "rebalance", "--dry-run", "--json")
    assert json.loads(done.out).keys() == {"moves", "improvement_percent", "settled"}
    assert "improvement" in command(service, "rebalance").out
    assert command(service, "ports", "assign", "lab", "1").code == Exit.USAGE
