"""A benchmark's figures become lines that stand for themselves, and are appended."""

import json
import subprocess
import sys

from zonetrack.clients import history
from zonetrack.clients.errors import Exit

RESULT = {
    "scenario": "hit",
    "threads": 1,
    "connections": 1000,
    "limit": None,
    "repeat": 3,
    "elapsed_s": 0.5,
    "ns_per_packet": 81.5,
    "ratio_to_floor": 1.9,
    "packets_per_second": 12_000_000,
    "spread": {"elapsed_s": [0.4, 0.6], "ns_per_packet": [80.0, 83.0], "ratio_to_floor": [1.8, 2.0]},
}


def test_a_line_for_each_figure_that_is_worth_keeping():
    found = {line["name"]: line for line in history.lines(RESULT, {"commit": "abc"})}
    assert found.keys() == {"ns_per_packet", "ratio_to_floor", "packets_per_second", "elapsed_s"}
    assert found["ns_per_packet"] == {
        "commit": "abc",
        "scenario": "hit",
        "parameters": {"threads": 1, "connections": 1000, "repeat": 3},
        "name": "ns_per_packet",
        "value": 81.5,
        "unit": "ns",
        "spread": [80.0, 83.0],
    }
    assert "spread" not in found["packets_per_second"]


def test_each_row_of_a_result_is_one():
    rows = [
        {"flows": 10, "batching": "on", "packets_per_second": 5.0, "sent": 12},
        {"flows": 10, "batching": "off", "p99_us": 7, "sent": 13},
    ]
    result = {"scenario": "forward", "topology": "pp", "ratio_per_cpu_second": 1.5, "rows": rows}
    found = [(line["parameters"], line["name"], line["value"]) for line in history.lines(result, {})]
    assert found == [
        ({"topology": "pp", "flows": 10, "batching": "on"}, "packets_per_second", 5.0),
        ({"topology": "pp", "flows": 10, "batching": "off"}, "p99_us", 7),
        ({"topology": "pp"}, "ratio_per_cpu_second", 1.5),
    ]


def test_every_line_says_what_it_was_measured_on():
    machine = history.machine()
    assert {"date", "commit", "cpu", "cores", "numba"} <= machine.keys()
    assert machine["cpu"] and machine["numba"]


def test_command_appends(tmp_path):
    path = tmp_path / "new" / "history.jsonl"
    command = [sys.executable, "-m", "zonetrack.clients.history", str(path)]
    for _ in range(2):
        subprocess.run(command, input=json.dumps(RESULT) + "\n", text=True, check=True, capture_output=True)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["name"] for line in lines] == [
        "ns_per_packet",
        "ratio_to_floor",
        "packets_per_second",
        "elapsed_s",
    ] * 2
    assert subprocess.run(command[:-1], capture_output=True, check=False).returncode == Exit.USAGE
