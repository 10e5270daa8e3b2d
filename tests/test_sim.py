"""The simulated worlds of tests/sim, in a process of their own whose kernels are plain Python."""

import interpreted
import pytest
from zonetrack.kernels.jit import JIT


@pytest.mark.skipif(not JIT, reason="tests/sim runs in this very process")
def test_worlds_under_the_interpreter():
    interpreted.passes("tests/sim")
