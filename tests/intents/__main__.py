"""What intents cost, in loads with and without them, in turns: python -m tests.intents [ROUNDS [CONNECTIONS]]."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from .without import copy, run

SCENARIOS = {"hit": "ns_per_packet", "miss": "ns_per_packet", "scan": "ns_per_connection"}
"""Loads, and the figure of each."""


def nanoseconds(where: Path, scenario: str, connections: int) -> float:
    """Return what a packet, or a connection, of a load takes."""
    return json.loads(run(where, "load", scenario, "--connections", str(connections), "--json"))[SCENARIOS[scenario]]


def main(rounds: int = 5, connections: int = 1_000_000) -> int:
    """Run the loads, and say of each what a packet takes, and the ratio of each round."""
    with tempfile.TemporaryDirectory() as directory:
        usual = copy(Path(directory) / "usual", silent=False)
        silent = copy(Path(directory) / "silent", silent=True)
        for scenario in SCENARIOS:
            for where in (usual, silent):  # compiled, and not measured
                nanoseconds(where, scenario, 1_000)
            pairs = []
            for turn in range(rounds):
                both = {
                    where: nanoseconds(where, scenario, connections) for where in (usual, silent)[:: 1 - 2 * (turn % 2)]
                }
                pairs.append((both[usual], both[silent]))
            ratios = sorted(100 * (one / other - 1) for one, other in pairs)
            print(
                f"{scenario}: {statistics.median(one for one, _ in pairs):.1f} ns, without intents "
                f"{statistics.median(other for _, other in pairs):.1f} ns: {statistics.median(ratios):+.1f} % "
                f"({ratios[0]:+.1f} to {ratios[-1]:+.1f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
