"""The two routers with real workers, on a small scale; `make gateway` is the large one."""

import pytest
from zonetrack.kernels.jit import JIT

from .routers import run


@pytest.mark.skipif(not JIT, reason="a service's workers are compiled")
def test_eight_workers_on_sixty_four_queues(tmp_path):
    report = run(tmp_path, 8, 64)
    assert (report.connections, report.packets) == (128, 5 * 64)
