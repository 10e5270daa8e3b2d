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


def test_a_report_says_what_went_wrong():
    report = Report(lost=3, broken=["a lock"], respawn_ms=[10.0, 20.0, 30.0])
    assert f"lost: 3 of {KEPT_FLOWS}" in str(report) and "a lock" in str(report) and "median 20 ms" in str(report)
