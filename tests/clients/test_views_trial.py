"""What looking costs: every way of looking is a real one, and a scrape without its zones is a failure."""

import os

import pytest
from zonetrack.clients import views_trial
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.views_trial import ViewsPlan

PLAN = ViewsPlan(connections=200, zones=20, seconds=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(views_trial, "SCRAPES", 3)
    monkeypatch.setattr(views_trial, "STARTS", 3)


def test_a_trial_has_all_figures():
    found = views_trial.conduct(PLAN, lambda packets: None)
    assert found.keys() == set(views_trial.FIGURES.names)
    assert found["scrape_ms"] > 0 and all(found[f"{name}_cpu_percent"] >= 0 for name in ("idle", "top", "page"))


def test_a_scrape_that_lacks_zones_is_a_failure(monkeypatch, capfd):
    monkeypatch.setattr(views_trial, "SETTLE_S", 0.0)
    monkeypatch.setattr(views_trial, "share", lambda *_: 0.0)
    monkeypatch.setattr(views_trial, "scrape", lambda port: (1.0, 'zonetrack_zone_entries{zone="0"} 1\n'))
    with pytest.raises(ZonetrackError):
        views_trial.conduct(PLAN, lambda packets: None)
    assert "the scrape has 1 zones, expected 20" in capfd.readouterr().err


def test_a_process_that_reckons_takes_a_share():
    me = [os.getpid()]
    before = views_trial.cpu_s(me)

    def reckon(_):
        while views_trial.cpu_s(me) < before + 0.05:
            pass

    assert views_trial.share(me, 0.0, reckon) > 0
