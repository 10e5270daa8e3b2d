"""The interleavings of tests/interleave, in a process of their own whose kernels are plain Python."""

import interpreted
import pytest
from zonetrack.kernels.jit import JIT


@pytest.mark.skipif(not JIT, reason="tests/interleave runs in this very process")
def test_interleavings_under_the_interpreter():
    interpreted.passes("tests/interleave")
