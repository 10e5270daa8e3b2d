"""Benchmark history: each figure of a load test as a JSON line, with what it was measured on.

    zonetrack load hit --repeat 5 --json | python -m zonetrack.clients.history FILE

A line stands for itself: date, commit, processor and versions, the scenario and its parameters, name, value, unit, and
the lowest and highest of the trials.  ``make bench`` appends to docs/benchmarks/history.jsonl, which git keeps.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .errors import Exit

UNITS = {
    "ns_per_packet": "ns",
    "ns_per_new_packet": "ns",
    "ns_per_packet_one_rule": "ns",
    "ns_per_packet_10_rules": "ns",
    "ns_per_packet_100_rules": "ns",
    "ratio_to_one_rule": "1",
    "ns_per_connection": "ns",
    "ns_per_reply": "ns",
    "ns_per_miss_stage": "ns",
    "commit_us_p50": "us",
    "commit_us_p9999": "us",
    "least_us_p9999": "us",
    "machine_us_p9999": "us",
    "generator_ns": "ns",
    "floor_ns_1": "ns",
    "floor_ns_2": "ns",
    "floor_ns_4": "ns",
    "ratio_to_floor": "1",
    "miss_ratio_to_floor": "1",
    "packets_per_second": "1/s",
    "packets_per_cpu_second": "1/s",
    "packets_per_busy_second": "1/s",
    "p50_us": "us",
    "p99_us": "us",
    "paced_per_second": "1/s",
    "paced_lost": "1",
    "paced_unaccounted": "1",
    "ratio_per_cpu_second": "1",
    "ratio": "1",
    "low": "1",
    "high": "1",
    "connections_per_second": "1/s",
    "elapsed_s": "s",
    "expiry_floor_s": "s",
    "waited_percent": "%",
    "cleaned": "1",
    "peak_connections": "1",
    "create_ns": "ns",
    "create_ns_many": "ns",
    "sweep_ns_per_entry": "ns",
    "sweep_ns_per_entry_many": "ns",
    "sweep_ratio": "1",
    "flush_us_empty": "us",
    "flush_us_full": "us",
    "home_ms": "ms",
    "burst_us_p999_idle": "us",
    "burst_us_p999_during_flush": "us",
    "burst_ratio": "1",
    "flood_packets_per_second": "1/s",
    "handshakes_completed_percent": "%",
    "established_lost": "1",
    "events_per_second": "1/s",
    "full_events_per_second": "1/s",
    "full_told_percent": "%",
    "full_lost": "1",
    "dump_s": "s",
    "dump_beside_s": "s",
    "conntrack_lines_per_second": "1/s",
    "ovs_lines_per_second": "1/s",
    "count_ms_p50": "ms",
    "count_ms_p99": "ms",
    "packet_rate_fall_percent_busy": "%",
    "packet_rate_fall_percent_dump": "%",
    "idle_cpu_percent": "%",
    "top_cpu_percent": "%",
    "page_cpu_percent": "%",
    "scrape_ms": "ms",
    "import_ms": "ms",
}
"""The figures that are worth comparing over time; all else in a result is a parameter, or counts what was done."""
ROW_PARAMETERS = ("flows", "batching", "tx_flush_interval_us", "rules", "pairs", "by")
"""Of a result that has rows: what tells one from another."""


def commit() -> str | None:
    """Return the commit that is checked out here, marked when the code differs from it; None where there is no git."""
    try:
        head = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return f"{head}+" if changed else head


def git(*arguments: str) -> str:
    """Return what git says."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def processor() -> str:
    """Return the processor's name for people."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """Return what figures depend on beside the code."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numba": version("numba"),
    }


def lines(result: dict[str, Any], measured_on: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a line for each figure of a result that is worth keeping.

    Args:
        result: what ``zonetrack load SCENARIO --json`` printed; each of its rows, if it has any, is a result.
        measured_on: what ``machine`` says.
    """
    whole = {name: value for name, value in result.items() if name != "rows"}
    for row in result.get("rows", ()):
        given = {name: value for name, value in row.items() if name in UNITS or name in ROW_PARAMETERS}
        yield from lines({name: value for name, value in whole.items() if name not in UNITS} | given, measured_on)
    result = whole
    spread = result.get("spread", {})
    parameters = {
        name: value
        for name, value in result.items()
        if name not in (*UNITS, *spread, "scenario", "spread") and value is not None
    }
    for name, unit in UNITS.items():
        if name in result:
            line = measured_on | {"scenario": result["scenario"], "parameters": parameters}
            line |= {"name": name, "value": result[name], "unit": unit}
            yield line | ({"spread": spread[name]} if name in spread else {})


def main() -> None:
    """Append the figures of the results on standard input, one a line, to the file that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("Usage: zonetrack load SCENARIO --json | python -m zonetrack.clients.history FILE", file=sys.stderr)
        sys.exit(Exit.USAGE)
    results = [json.loads(text) for text in sys.stdin if text.strip()]
    measured_on = machine()
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for result in results:
            for line in lines(result, measured_on):
                file.write(json.dumps(line) + "\n")
                print(f"{line['scenario']:>10} {line['name']:24} {line['value']:>16,} {line['unit']}")


if __name__ == "__main__":
    main()
