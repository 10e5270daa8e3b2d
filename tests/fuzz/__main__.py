"""Give the tracker nonsense, and say what came of it.

python -m tests.fuzz TARGET CASES [SEED]      worlds of seeds SEED, SEED + 1 ...
python -m tests.fuzz SEED TARGET=CASES ...    of several targets
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from . import runs  # noqa: E402 - after it knows where support is
from .targets import TARGETS  # noqa: E402


def main(*arguments):
    """Run what was asked for; returns 1 when something was found."""
    if arguments[0] in TARGETS:
        seed = int(arguments[2]) if len(arguments) > 2 else 1
        wanted = {arguments[0]: int(arguments[1])}
    else:
        seed = int(arguments[0])
        wanted = {name: int(cases) for name, _, cases in (one.partition("=") for one in arguments[1:])}
    found = 0
    for name, cases in wanted.items():
        report = runs.run(TARGETS[name], cases, seed)
        print(report, flush=True)
        found += len(report.findings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
