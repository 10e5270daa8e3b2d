"""The simulated worlds of tests/sim, in a process of their own whose kernels are plain Python."""

import os
import subprocess
import sys

import checkout
import pytest
from zonetrack.kernels.jit import JIT


@pytest.mark.skipif(not JIT, reason="tests/sim runs in this very process")
def test_worlds_under_the_interpreter():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sim"],
        cwd=checkout.ROOT,
        env={k: v for k, v in os.environ.items() if k != "ZONETRACK_CORPUS"} | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
