"""Tests that need plain Python kernels, run in processes of their own, for here kernels are compiled."""

import os
import subprocess
import sys

import checkout
import pytest

LATER = os.environ.get("ZONETRACK_INTERPRETED") == "later"
"""Whether whoever started these tests runs `make interpreted` as well, which has them all; CI does."""


def passes(*paths):
    """Run the tests of folders or rooms with the JIT off, on all cores; what went wrong is the assertion's message."""
    if LATER:
        pytest.skip("make interpreted runs them")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *paths],
        cwd=checkout.ROOT,
        env={k: v for k, v in os.environ.items() if k != "ZONETRACK_CORPUS"} | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
