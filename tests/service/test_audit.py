"""The audit from Python: None for a good table, and for a broken one its finding in words and numbers."""

import pytest
import tables
from tables import Participant
from zonetrack.kernels.audit import Finding
from zonetrack.service import audit
from zonetrack.shm.layout import Kind


@pytest.fixture
def table():
    return tables.small(300, zones=2)


def test_a_good_table_is_none(table):
    me, auditor = Participant(table), Participant(table, Kind.TOOL)
    me.made(tables.keys(60, zone=1))
    with tables.zones_that_matter():
        assert audit.at_rest(table) is None
        assert audit.live(table, auditor.me) is None


def test_a_broken_table_is_told_by_its_finding_and_numbers(table):
    me = Participant(table)
    [record] = me.made(tables.keys(1, zone=1))
    tables.quotas(table)["count"][1] = 3
    with tables.zones_that_matter():
        broken = audit.at_rest(table)
    assert broken == audit.Broken(Finding.ZONE_COUNT, (1, 3, 1))
    assert str(broken) == "zone_count 1 3 1"
    tables.entries(table)["lock"][int(record)] = 200
    with tables.zones_that_matter():
        assert str(audit.at_rest(table)) == f"lock_held 0 {record} 200"
        assert audit.live(table, me.me) is None  # neither may never be


def test_the_first_finding_is_the_one_that_is_told(table):
    """Counts come after the index, for they are compared with what is in it."""
    [record] = Participant(table).made(tables.keys(1, zone=1))
    tables.quotas(table)["count"][1] = 0
    tables.slots(table)[:] = 0
    with tables.zones_that_matter():
        assert audit.at_rest(table) == audit.Broken(Finding.SLOTS_MISSING, (int(record), 0, 1))


def test_what_is_found_beside_others_is_told_alike(table):
    me, auditor = Participant(table), Participant(table)
    [record] = me.made(tables.keys(1, zone=1))
    tables.slots(table)[:] = 0
    with tables.zones_that_matter():
        broken = audit.live(table, auditor.me)
    assert str(broken) == f"slots_missing {record} 0 0"


@pytest.mark.parametrize(("connections", "zones", "extension_share"), [(1, 1, 0), (1, 1, 1000), (700, 300, 333)])
def test_scratch_memory_fits_every_geometry(connections, zones, extension_share):
    table = tables.small(connections, zones, extension_share)
    me, total = Participant(table), table.geometry.records(audit.Slab.ENTRIES)
    tables.totals(table)["limit"] = total
    me.make(tables.keys(total))
    tables.assert_at_rest(table)
