"""`zonetrack ports queues`, `ports assign` and `rebalance` against a real service."""

import json

import pytest
from desk import run
from services import Service
from zonetrack.clients.errors import Exit


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    flags = ("--max-connections", 2000, "--workers", 2, "--port", "shm:lab,queues=2,slots=8")
    config = tmp_path_factory.mktemp("run")
    (config / "x.toml").write_text('assign = { "lab.1" = 0 }\n')
    with Service(config, *flags, "--config", config / "x.toml") as made:
        yield made.until_ready()
        assert made.stop() == Exit.OK


def holders(service):
    with service.ask() as ct:
        return {row["queue"]: row["worker"] for row in ct.queues()["queues"]}


def command(service, *words):
    """Run a command against the service; options of a group stand behind all its words."""
    return run(*words, "--socket", service.socket)


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
