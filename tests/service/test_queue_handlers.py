"""Queues and times over a real service: who polls what, an assignment, a rebalance, what is measured, on and off."""

import json

import pytest
import queued
from queued import command, holders
from zonetrack.clients.errors import BadParameterError


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with queued.service(tmp_path_factory.mktemp("run")) as made:
        yield made


def test_queues_move_and_ports_and_workers_say_so(service):
    assert holders(service) == {0: 0, 1: 0}
    with service.ask() as ct:
        assert ct.queues.assign("lab", 0, 1) == {"settled": True}
        assert [row["worker"] for row in ct.ports()[0]["queues"]] == [1, 0]
        assert [worker["queues"] for worker in ct.workers()] == [[["lab", 1]], [["lab", 0]]]
        for wrong, said in (
            (("lan", 0, 0), "no port 'lan'"),
            (("lab", 2, 0), "2 queues"),
            (("lab", 0, 2), "workers 0 to 1"),
        ):
            with pytest.raises(BadParameterError, match=said):
                ct.queues.assign(*wrong)


def test_statistics_are_measured_and_can_be_off(service):
    told = json.loads(command(service, "stats", "--perf", "--json").out)
    assert (
        told["on"] is True and {"parse", "lookup", "track", "nat", "tx"} <= told["workers"][0]["ns_per_packet"].keys()
    )
    assert all(worker["idle_ns"] > 0 for worker in told["workers"])
    assert json.loads(command(service, "stats", "--perf", "--switch", "off", "--json").out)["on"] is False
    assert json.loads(command(service, "stats", "--perf", "--switch", "on", "--json").out)["on"] is True
    assert "idle_ns" in command(service, "stats", "--perf").out
