"""Go through seeds, each a case of its own; what goes wrong is shrunk and printed as a case to be kept in ``found``.

python -m tests.sim SEED STEPS [SEEDS]      seeds SEED, SEED + 1 ...: at least so many rounds each
python -m tests.sim "Case(...)"             one case, with its last accesses
python -m tests.sim --both                   two workers, an insert beside a delete or an insert, both killed at every store
python -m tests.sim --pairs [SHARE [FIRST ...]]  two workers, each pair of operations, a kill at every access; or at a share

The kernels must be plain Python: NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"
sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import kills  # noqa: E402 - after the environment says that kernels are plain Python
from zonetrack.shm.layout import Step  # noqa: E402

from ..interleave.frame_ring import frame_ring  # noqa: E402
from ..interleave.packet_ring import packet_ring  # noqa: E402
from ..interleave.rings import Outcome, client_ring, rules, sleep  # noqa: E402
from ..interleave.xdp_rings import xdp_ring  # noqa: E402
from . import both, pairs  # noqa: E402
from .reach import Reach  # noqa: E402
from .rounds import Case, Run  # noqa: E402
from .shrink import shrink_play, tell  # noqa: E402
from .worlds import DRAWN, WORLDS  # noqa: E402

FAULTS_MAX = 5
PLAYS = (client_ring, sleep, rules, packet_ring, frame_ring, xdp_ring)
SAY_EVERY = 5_000


class Tally:
    """What some seeds came to."""

    def __init__(self):
        self.reach = Reach()
        self.seeds = self.accesses = self.killed = self.faults = 0
        self.fewest = None
        self.began = time.process_time()

    def add(self, run, beside):
        """Count the run of a seed, and its play beside the table."""
        self.seeds += 1
        self.accesses += run.accesses + beside.accesses
        self.killed += run.killed + beside.killed
        self.fewest = run.accesses if self.fewest is None else min(self.fewest, run.accesses)
        self.reach.end_of_seed()

    def tell(self):
        """Print it."""
        seconds = time.process_time() - self.began
        print(
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} {self.seeds:,} seeds, {self.accesses:,} shared accesses (at least "
            f"{self.fewest:,} each), {self.killed:,} killed, {self.faults} faults; {seconds:,.0f} s of one core, "
            f"{self.accesses / seconds:,.0f} accesses/s",
            flush=True,
        )

    def tell_reach(self):
        """Print what was reached, by how many seeds, and what was not."""
        reach = self.reach
        died = sorted(((count, Step(step).name) for step, count in enumerate(reach.steps) if count), reverse=True)
        print("killed in:", ", ".join(f"{name} {count:,}" for count, name in died))
        print(
            "nobody was killed in:",
            ", ".join(step.name for step in Step if not reach.steps[step]) or "none is left out",
        )
        for name, seeds in sorted(zip(reach.names, reach.seeds, strict=True), key=lambda item: item[1]):
            print(f"{seeds:8,}  {name}")
        print(f"places never reached: {len(reach.missed())} of {len(reach.names)}")


def name_of(seed):
    """Return the world of a seed: they take turns."""
    return DRAWN[seed % len(DRAWN)]


def go_through(first, steps, seeds):
    """Run seeds; returns the number that went wrong."""
    for world in WORLDS.values():
        world()
    tally = Tally()
    for case in both.cases():
        both.killed(case, tally.reach)
    for seed in range(first, first + seeds):
        run = Run(name_of(seed), seed, tally.reach)
        try:
            run.drawn(steps)
        except Exception as error:
            tally.faults += 1
            tell(run.case, error, f"make sim SEED={seed} STEPS={steps}")
        tally.add(run, _beside(seed, tally))
        if tally.seeds % SAY_EVERY == 0:
            tally.tell()
        if tally.faults >= FAULTS_MAX:
            break
    tally.tell_reach()
    tally.tell()
    return tally.faults


def _beside(seed, tally):
    """Run the play of a seed that is not about the table: rings and rules take turns."""
    play = PLAYS[seed % len(PLAYS)]
    try:
        return play(seed)
    except Exception as error:
        tally.faults += 1
        print(f"{play.__name__}({seed}): {error}\nagain: make sim SEED={seed}", flush=True)
        again, least, fault = shrink_play(play, seed)
        print(f"smaller, for tests/interleave: {play.__name__}({again}, **{least}): {fault}", flush=True)
        return Outcome(0)


def again(text):
    """Run one case, and print how it ends."""
    case = eval(text, {"Case": Case})
    try:
        Run(case.world, case.seed, tracing=True).one(case)
    except Exception as error:
        print(error)
        return 1
    print("nothing goes wrong")
    return 0


def main(arguments):
    """Do what the arguments say."""
    with kills.few_zones(), kills.few_fragments():
        if arguments and arguments[0] == "--pairs":
            share = float(arguments[1]) if len(arguments) > 1 else 1.0
            return pairs.main(share, tuple(arguments[2:]) or tuple(pairs.OPERATIONS))
        if arguments == ["--both"]:
            return both.main()
        if len(arguments) == 1:
            return again(arguments[0])
        first, steps, seeds = (int(text) for text in (*arguments, "1")[:3])
        return go_through(first, steps, seeds)


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
