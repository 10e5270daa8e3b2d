"""Tests that need plain Python kernels, run in a process of their own, for here kernels are compiled."""

import os
import subprocess
import sys

import checkout


def passes(folder):
    """Run the tests of a folder with the JIT off; what went wrong is the assertion's message."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder],
        cwd=checkout.ROOT,
        env={k: v for k, v in os.environ.items() if k != "ZONETRACK_CORPUS"} | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
