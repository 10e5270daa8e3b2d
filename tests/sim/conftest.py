"""Simulated worlds need the interpreter: with the JIT on only the test that starts a run without it is collected."""

import kills
import pytest
from zonetrack.kernels.jit import JIT

collect_ignore_glob = ["test_*.py"] if JIT else []


@pytest.fixture(autouse=True, scope="module")
def few_zones_and_fragments():
    with kills.few_zones(), kills.few_fragments():
        yield
