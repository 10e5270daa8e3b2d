"""Two routers with many workers on many queues: python -m tests.gateway [WORKERS [QUEUES]]."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

from .routers import run  # noqa: E402 - after it knows where support is


def main(workers=60, queues=1024):
    """Run it, and say what went through."""
    with tempfile.TemporaryDirectory() as directory:
        print(run(Path(directory), workers, queues, partial(print, flush=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
