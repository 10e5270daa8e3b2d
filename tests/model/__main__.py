"""Explore every scenario, then every flaw; or one of them, with the shortest bad interleaving.

python -m tests.model                       all
python -m tests.model SCENARIO [FLAW ...]   one scenario, with flaws switched on
python -m tests.model --list                names
"""

from __future__ import annotations

import sys
import time

from .checker import explore
from .repair import repair
from .scenarios import FLAWS, SCENARIOS


def main(arguments: list[str]) -> int:
    """Run what the arguments name; return 1 when the protocol or the checker failed."""
    if arguments == ["--list"]:
        print("scenarios:", *SCENARIOS)
        print("flaws:", *FLAWS)
        return 0
    jobs = [(name, ()) for name in SCENARIOS] + [(name, (flaw,)) for flaw, name in FLAWS.items()]
    if arguments:
        jobs = [(arguments[0], tuple(arguments[1:]))]
    failures = 0
    for name, flaws in jobs:
        begin = time.perf_counter()
        outcome = explore(SCENARIOS[name], repair, flaws)
        seconds = time.perf_counter() - begin
        if arguments:
            print(*outcome.trace, sep="\n")
        answer = outcome.fault or ("ok" if outcome.complete else "cut short")
        print(f"{name:20} {','.join(flaws) or '-':22} {outcome.states:8} states {seconds:6.1f} s  {answer}", flush=True)
        failures += bool(flaws) != bool(outcome.fault) or not outcome.complete
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
