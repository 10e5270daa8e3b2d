"""A short campaign: whoever is killed under load is repaired and followed, and nothing established is lost."""

import pytest
from zonetrack.kernels.jit import JIT

from .campaign import KEPT_FLOWS, WORKERS, Campaign, Report


@pytest.mark.skipif(not JIT, reason="real workers need compiled kernels")
def test_kills_under_load(tmp_path, record_property):
    campaign = Campaign(tmp_path, pace_s=(0.0, 0.1))
    try:
        campaign._kill_keeper()
        report = campaign.run(21)  # the twentieth is control
    finally:
        campaign.close()
    record_property("kills", sum(report.kills.values()))
    assert report.kills == {"worker": 20, "control": 1, "keeper": 1}
    assert report.lost == 0 and report.broken == []
    assert report.packets > 20 * 200
    assert report.without_keeper > WORKERS * 200
    assert report.moved == 20 + WORKERS and report.held == [] and report.audit == "clean"
    assert "0 locks held" in str(report) and f"in all {KEPT_FLOWS} (must be {KEPT_FLOWS})" in str(report)


def test_what_is_left_at_the_end_is_told():
    report = Report(held=["zone lock 5 is held by 3"], counts={"in all": (201, KEPT_FLOWS)}, audit="count 5 1 0")
    assert f"1 locks held; counts: in all 201 (must be {KEPT_FLOWS}); audit: count 5 1 0" in str(report)
    assert "at the end" not in str(Report())


def test_a_report_says_what_went_wrong():
    report = Report(lost=3, broken=["a lock"], respawn_ms=[10.0, 20.0, 30.0])
    assert f"lost: 3 of {KEPT_FLOWS}" in str(report) and "a lock" in str(report) and "median 20 ms" in str(report)
