"""The page of benchmarks: the latest figures of the history, beside those of others where there are any.

    python -m zonetrack.clients.benchmarks docs/benchmarks/history.jsonl > docs/benchmarks.md

What was not measured yet stays empty; nothing here is a figure of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .errors import Exit

Line = Mapping[str, Any]


class Configuration(NamedTuple):
    """A configuration of ``handshake``, and what others needed for it, in seconds."""

    threads: int
    connections: int
    zones: int
    data_packets: int
    iterations: int
    before: str = ""
    """On their authors' machine, before and after ten patches to Open vSwitch."""
    after: str = ""
    ovs: str = ""
    """Open vSwitch 4.0.90 on a machine like ours, best / median, as it is and with these patches."""
    patched: str = ""

    def __str__(self) -> str:
        return " ".join(map(str, self[:5]))


SEED = (
    Configuration(10, 10_000, 100, 0, 100, "73.8", "3.7", "132", "16.7 / 19.5"),
    Configuration(10, 10_000, 100, 20, 100),
    Configuration(10, 10_000, 1, 0, 100, patched="25.8"),
    Configuration(10, 10_000, 1, 20, 100),
    Configuration(10, 10, 100, 20_000, 100),
    Configuration(10, 10, 1, 20_000, 100),
)
"""Those of Open vSwitch's `benchmark-tcp`: threads, connections of each, zones, data packets, iterations."""

FIGURES = {
    "hit": ("ns_per_packet", "packets_per_second", "floor_ns_4", "ratio_to_floor"),
    "miss": ("ns_per_packet", "packets_per_second", "floor_ns_2", "ratio_to_floor"),
    "scan": (
        *("ns_per_connection", "connections_per_second", "floor_ns_2", "elapsed_s", "expiry_floor_s", "waited_percent"),
    ),
    "handshake": ("ns_per_connection", "connections_per_second", "elapsed_s"),
    "flood": ("flood_packets_per_second", "handshakes_completed_percent", "established_lost"),
    "zones": (
        *("create_ns", "create_ns_many", "sweep_ns_per_entry", "sweep_ns_per_entry_many", "flush_us_empty"),
        *("flush_us_full", "burst_us_p999_idle", "burst_us_p999_during_flush"),
    ),
    "events": ("events_per_second", "full_events_per_second", "full_told_percent", "full_lost"),
    "dump": (
        *("dump_s", "conntrack_lines_per_second", "ovs_lines_per_second", "count_ms_p50", "count_ms_p99"),
        *("packet_rate_fall_percent_dump", "packet_rate_fall_percent_busy"),
    ),
    "clients": (
        *("packets_per_second", "requests_per_second", "count_ms_p50", "count_ms_p99"),
        *("packet_rate_fall_percent_flood", "packet_rate_fall_percent_busy"),
    ),
    "forward": (
        *("packets_per_second", "packets_per_cpu_second", "packets_per_busy_second", "p50_us", "p99_us", "paced_lost"),
        *("paced_unaccounted", "ratio_per_cpu_second", "ratio", "low", "high"),
    ),
    "views": ("idle_cpu_percent", "top_cpu_percent", "page_cpu_percent", "scrape_ms", "import_ms"),
}
"""What is shown of each scenario; of others, all that the history has."""
SHOWN_PARAMETERS = ("threads", "connections", "connections_per_thread", "zones", "data_packets", "iterations", "limit")
SHOWN_PARAMETERS += ("timeout_ms", "burst", "addresses", "fill", "pairs", "room", "seconds", "size", "flows", "rounds")
SHOWN_PARAMETERS += ("topology", "port", "batching", "tx_flush_interval_us", "paced_share", "against", "by", "rules")


def read(text: Iterable[str]) -> list[Line]:
    """Return the lines of a history."""
    return [json.loads(one) for one in text if one.strip()]


def latest(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Return the runs of a history, the latest of each scenario and parameters, in the order in which they first came.

    Returns:
        Maps of ``scenario``, ``parameters``, ``figures`` by name with their value and spread, and the line's machine.
    """
    runs: dict[str, dict[str, Any]] = {}
    for line in lines:
        given = {name: value for name, value in line["parameters"].items() if name in SHOWN_PARAMETERS}
        key = json.dumps([line["scenario"], given], sort_keys=True)
        run = runs.setdefault(key, {"date": ""})
        if line["date"] != run["date"]:
            run.update({name: line[name] for name in ("scenario", "parameters", "date", "commit", "cpu", "cores")})
            run["figures"] = {}
        run["figures"][line["name"]] = (line["value"], line["unit"])
    return list(runs.values())


def seconds(configuration: Configuration, runs: Iterable[Mapping[str, Any]], burst: int) -> str:
    """Return how long we need for a configuration in bursts of some length, in seconds; nothing when it was not measured."""
    wanted = {
        "threads": configuration.threads,
        "connections_per_thread": configuration.connections,
        "zones": configuration.zones,
        "data_packets": configuration.data_packets,
        "iterations": configuration.iterations,
        "burst": burst,
    }
    for run in runs:
        if run["scenario"] == "handshake" and wanted.items() <= run["parameters"].items():
            if "elapsed_s" in run["figures"]:
                return f"{run['figures']['elapsed_s'][0]:.2f}"
            rate = run["figures"]["connections_per_second"][0]
            return f"{configuration.threads * configuration.connections * configuration.iterations / rate:.2f}"
    return ""


def shown(value: float, unit: str) -> str:
    """Return a figure for people."""
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return text if unit == "1" else f"{text} {unit}"


def page(lines: list[Line]) -> Iterator[str]:
    """Yield the lines of the page."""
    runs = latest(lines)
    yield "# Benchmarks"
    yield ""
    yield "Printed by `make docs` from [benchmarks/history.jsonl](benchmarks/history.jsonl), to which `make bench` appends:"
    yield "the latest figures of each scenario and its parameters, medians of the trials. What would stand in an empty cell"
    yield "was not measured yet."
    yield ""
    for machine in dict.fromkeys(f"{run['cpu']}, {run['cores']} cores" for run in runs):
        yield f"Machine: {machine}."
    yield ""
    yield "## Ten threads, ten million connections"
    yield ""
    yield "`load handshake`, whole TCP conversations: threads, connections of each, zones, data packets, iterations. Seconds"
    yield "for all of it. The configurations are those of a series of ten patches to Open vSwitch (*patched*), which its"
    yield "authors measured on a machine of their own before and after (*theirs*)."
    yield ""
    yield "| configuration | theirs | Open vSwitch | patched | here, bursts of 32 | here, one packet a call |"
    yield "|---|---|---|---|---|---|"
    for one in SEED:
        theirs = f"{one.before} / {one.after}" if one.before else ""
        yield f"| `{one}` | {theirs} | {one.ovs} | {one.patched} | {seconds(one, runs, 32)} | {seconds(one, runs, 1)} |"
    for scenario in dict.fromkeys([*FIGURES, *(run["scenario"] for run in runs)]):
        found = [run for run in runs if run["scenario"] == scenario]
        if found:
            yield from _table(scenario, found)


def _table(scenario: str, runs: list[dict[str, Any]]) -> Iterator[str]:
    names = FIGURES.get(scenario) or tuple(dict.fromkeys(name for run in runs for name in run["figures"]))
    names = tuple(name for name in names if any(name in run["figures"] for run in runs))
    yield ""
    yield f"## {scenario}"
    yield ""
    yield f"| parameters | {' | '.join(f'`{name}`' for name in names)} | measured |"
    yield f"|---|{'---|' * len(names)}---|"
    for run in runs:
        given = ", ".join(f"{name} {run['parameters'][name]}" for name in SHOWN_PARAMETERS if name in run["parameters"])
        cells = [shown(*run["figures"][name]) if name in run["figures"] else "" for name in names]
        yield f"| {given} | {' | '.join(cells)} | {run['date'][:10]}, {run['commit']} |"


def main() -> None:
    """Print the page of the history that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print("Usage: python -m zonetrack.clients.benchmarks HISTORY", file=sys.stderr)
        sys.exit(Exit.USAGE)
    print("\n".join(page(read(Path(sys.argv[1]).read_text().splitlines()))))


if __name__ == "__main__":
    main()
