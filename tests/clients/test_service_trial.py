"""The load test through a real service: every scenario's own checks, what is refused, and what is left behind."""

import json
from dataclasses import replace

import click
import numpy as np
import ports
import pytest
from click.testing import CliRunner
from services import Service
from zonetrack.clients import service_trial, trial
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.errors import NothingMatchedError, ZonetrackError
from zonetrack.clients.load import command
from zonetrack.clients.port import Queue, frames_of
from zonetrack.clients.scenarios import Handshake, Hit, Miss, Plan, Scan
from zonetrack.clients.sending import Sending
from zonetrack.clients.service_trial import Target, open_service

CONNECTIONS = 1200


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A service with a port of two queues in zone 5."""
    flags = ("--workers", 2, "--max-connections", 8000, "--port", "shm:lab,queues=2,zone=5")
    with Service(tmp_path_factory.mktemp("served"), *flags) as service:
        yield service.until_ready()


@pytest.fixture
def target(served):
    return Target("lab", served.instance, served.socket)


@pytest.mark.parametrize(
    "scenario",
    [
        Hit(Plan(connections=CONNECTIONS, threads=2, iterations=2)),
        Hit(Plan(connections=CONNECTIONS, burst=256)),
        Miss(Plan(connections=CONNECTIONS, burst=1)),
        Handshake(Plan(connections=CONNECTIONS, threads=2, data_packets=1, iterations=2)),
        Scan(Plan(connections=CONNECTIONS, threads=2)),
    ],
    ids=lambda scenario: scenario.name,
)
def test_honest_work_passes_and_leaves_nothing(target, scenario):
    with open_service(target, scenario.plan) as service:
        for _ in range(2):
            found = service_trial.conduct(scenario, lambda packets: None, service=service)
            assert service.connections == 0
    expected = sum(run.packets_count for index in range(scenario.plan.threads) for run in scenario.perform(index))
    assert found["packets"] == expected
    assert found["looked_up"] >= 2
    unit = scenario.unit
    assert found[f"ns_per_{unit}"] == pytest.approx(1e9 * scenario.plan.threads / found[f"{unit}s_per_second"])


def test_command_prints_what_the_trial_found(served):
    where = ("--via", "service", "--port", "lab", "--instance", served.instance, "--socket", served.socket)
    result = CliRunner().invoke(command, ["hit", *where, "--connections", "500", "--iterations", "2", "--json"])
    assert result.exception is None, result.output
    report = json.loads(result.stdout)
    assert (report["via"], report["port"], report["burst"], report["packets"]) == ("service", "lab", 256, 1000)
    assert report["packets_per_second"] > 0


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"limit": 100}, "--limit is the service's"),
        ({"timeout_ms": 100}, "--timeout-ms is the service's"),
        ({"zones": 2}, "all packets of port lab are in zone 5"),
        ({"threads": 3}, "port lab has 2 queues"),
    ],
)
def test_what_only_the_service_can_change_is_refused(target, more, complaint):
    with pytest.raises(click.UsageError, match=complaint), open_service(target, Plan(**more)):
        pytest.fail("it was opened")


def test_port_that_there_is_not(target):
    with pytest.raises(NothingMatchedError), open_service(replace(target, port="lob"), Plan()):
        pytest.fail("it was opened")


def test_more_connections_than_the_service_has_room_for(target):
    scenario = Hit(Plan(connections=9000))
    with (
        open_service(target, scenario.plan) as service,
        pytest.raises(ZonetrackError, match="room for 8000 connections, 9000 are to be held"),
    ):
        service_trial.conduct(scenario, lambda packets: None, service=service)


def test_zone_that_is_in_use_is_left_alone(target, served):
    with Queue("lab", 0, served.instance) as queue:
        frames, kept = frames_of(ports.datagrams(3))
        Sending(queue).send(frames)
        del kept
    with pytest.raises(ZonetrackError, match="zone 5 of the service holds 3 connections"), open_service(target, Plan()):
        pytest.fail("it was opened")
    service = service_trial.Service(target, service_trial.port.attach(served.instance, "lab"), served.table)
    assert service.connections == 3
    service.flush()
    assert service.connections == 0


def test_each_thing_that_is_missing_is_found(target):
    scenario = Hit(Plan(connections=CONNECTIONS))
    results = np.zeros(1, trial.RESULT)
    with open_service(target, scenario.plan) as service:
        with pytest.raises(CheckFailed, match="0 packets were finished, expected 1200"):
            service_trial.check(scenario, service, results)
        results["units"] = CONNECTIONS
        with pytest.raises(CheckFailed, match="zone 5: 0 connections, expected 1200"):
            service_trial.check(scenario, service, results)


def test_timeout_is_that_of_the_service(target):
    with open_service(target, Plan()) as service:
        assert service.timeout_ms(Hit(Plan())) == 5 * 24 * 3600 * 1000
