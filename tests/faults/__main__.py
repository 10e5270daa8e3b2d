"""Kill real processes under load, and say what came of it: python -m tests.faults [KILLS [SEED]]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from .campaign import Campaign  # noqa: E402 - after it knows where support is


def main(kills=100, seed=0):
    """Run a campaign; returns 1 when something was lost or broken."""
    with tempfile.TemporaryDirectory() as directory:
        campaign = Campaign(Path(directory), seed)
        try:
            report = campaign.run(kills)
        finally:
            campaign.close()
    print(report)
    return 1 if report.lost or report.broken else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
