"""Budgets by source: set, shown, taken away, kept over a start."""

import pytest
import tables
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.per_source import LIMIT_MAX
from zonetrack.service.zone_settings import ZoneSettings, changes
from zonetrack.shm.layout import Setting
from zonetrack.shm.sources import Sources


@pytest.fixture
def table():
    made = tables.small()
    made.sources = Sources(2000)
    return made


def test_a_zone_says_that_it_has_one(table):
    settings = ZoneSettings(table)
    settings.set(1, {"per_source": 5})
    assert settings.of(1)["per_source"] == 5 and int(tables.zones(table)["settings"][1]) & Setting.SOURCES
    settings.set(1, {"loose": False})
    assert settings.of(1)["per_source"] == 5 and "per_source" not in settings.of(2)
    settings.set(1, {"per_source": 0})
    assert "per_source" not in settings.of(1) and not int(tables.zones(table)["settings"][1]) & Setting.SOURCES
    assert tables.quotas(table)["has_sources"][1]  # those that are in still have to leave
    settings.set(1, {"per_source": 7})
    settings.unset(1)
    assert "per_source" not in settings.of(1) and not int(tables.zones(table)["settings"][1]) & Setting.SOURCES


def test_a_table_without_counts():
    settings = ZoneSettings(tables.small())
    with pytest.raises(BadParameterError, match="only the table of a service"):
        settings.set(1, {"per_source": 5, "loose": False})
    assert not settings.is_own(1) and settings.of(1)["loose"]


def test_budgets_as_they_come_over_the_wire():
    assert changes("settings", {"per_source": 0}) == {"per_source": 0}
    for value in (-1, LIMIT_MAX + 1, True, "5", None, [5]):
        with pytest.raises(BadParameterError):
            changes("settings", {"per_source": value})
