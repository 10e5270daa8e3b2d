"""The page of benchmarks: the latest of each run, nothing for what was not measured, and others' figures beside ours."""

import subprocess
import sys

from zonetrack.clients import benchmarks
from zonetrack.clients.benchmarks import SEED, Configuration
from zonetrack.clients.errors import Exit

HANDSHAKE = {"threads": 10, "connections_per_thread": 10_000, "zones": 100, "data_packets": 0, "iterations": 100}


def line(name, value, unit="ns", date="2026-01-01T00:00:00", scenario="hit", **parameters):
    machine = {"date": date, "commit": "abc", "cpu": "Model X", "cores": 2}
    return machine | {"scenario": scenario, "parameters": parameters, "name": name, "value": value, "unit": unit}


def test_the_latest_run_of_the_same_parameters_counts():
    lines = [
        line("ns_per_packet", 90.0, threads=1),
        line("ns_per_packet", 70.0, threads=2),
        line("ns_per_packet", 80.0, date="2026-01-02T00:00:00", threads=1),
        line("ratio_to_floor", 3.0, "1", date="2026-01-02T00:00:00", threads=1),
    ]
    runs = benchmarks.latest(lines)
    assert [run["figures"] for run in runs] == [
        {"ns_per_packet": (80.0, "ns"), "ratio_to_floor": (3.0, "1")},
        {"ns_per_packet": (70.0, "ns")},
    ]


def test_what_was_not_measured_is_empty():
    text = "\n".join(benchmarks.page([line("ns_per_packet", 90.0)]))
    assert "| `10 10000 100 0 100` | 73.8 / 3.7 | 132 | 16.7 / 19.5 |  |  |" in text
    assert "Machine: Model X, 2 cores." in text and "| 90 ns |" in text
    assert all(f"| `{one}` |" in text for one in SEED)


def test_seconds_are_measured_or_reckoned():
    rate = line("connections_per_second", 2e6, "1/s", scenario="handshake", burst=32, **HANDSHAKE)
    elapsed = line("elapsed_s", 7.25, "s", scenario="handshake", burst=1, **HANDSHAKE)
    runs = benchmarks.latest([rate, elapsed])
    assert [benchmarks.seconds(SEED[0], runs, burst) for burst in (32, 1)] == ["5.00", "7.25"]
    assert benchmarks.seconds(Configuration(10, 10_000, 1, 0, 100), runs, 32) == ""


def test_scenarios_that_are_not_known_show_all_they_have():
    text = "\n".join(benchmarks.page([line("packets_per_second", 2e6, "1/s", scenario="forward", size=64)]))
    assert "## forward" in text and "| size 64 | 2,000,000 1/s | 2026-01-01, abc |" in text


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "zonetrack.clients.benchmarks", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_the_page(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text("")
    assert run(path).stdout.startswith("# Benchmarks\n")
    assert run().returncode == Exit.USAGE
