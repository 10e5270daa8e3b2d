"""A short soak: everything at once for some seconds, and what its report says."""

import pytest
from zonetrack.kernels.jit import JIT

from .soak import Soak, SoakReport


@pytest.mark.skipif(not JIT, reason="real workers need compiled kernels")
def test_everything_at_once(tmp_path, record_property):
    soak = Soak(tmp_path, seed=3)
    try:
        report = soak.soak(4.0)
    finally:
        soak.close()
    record_property("report", str(report))
    assert report.lost == 0 and report.broken == []
    assert report.kills["worker"] >= 2
    assert report.done["dumps"] and report.done["readers"] and report.done["events"]
    assert report.shared_bytes[1] <= report.shared_bytes[0]
    assert set(report.times_ms) == {"count", "packet and answer"}


def test_a_report_says_what_was_done_and_how_long_it_took():
    report = SoakReport(done={"dumps": 3}, times_ms={"count": (0.5, 1.0, 2.0, 9.0)}, shared_bytes=(4096, 8192))
    assert "3 dumps" in str(report) and "p99 1.00 ms" in str(report) and "4,096 -> 8,192 bytes" in str(report)
