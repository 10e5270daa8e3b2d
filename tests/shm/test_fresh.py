"""A new table: every field that is not zero, and every chain of every pool."""

import numpy as np
import pytest
from zonetrack.shm import header, segment
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    ENTRY,
    EXTENSION,
    FORMAT_VERSION,
    GLOBAL,
    HEADER,
    MAGIC,
    POLICIES_MAX,
    POLICY,
    POOL_COUNT_SHIFT,
    POOL_OWNER_SHIFT,
    QUOTA,
    SETTINGS_DEFAULT,
    TIMEOUTS_MAX,
    UNLIMITED,
    ZONE,
    Region,
    SegmentState,
    Slab,
    digest,
)
from zonetrack.shm.sizing import Geometry

GEOMETRY = Geometry(3000, zones_in_use=10)


@pytest.fixture(scope="module")
def table():
    return segment.anonymous(GEOMETRY, secret=bytes(range(32)))


@pytest.mark.parametrize("region", Region)
def test_headers_say_what_they_head(table, region):
    head = header.mapped(table, region)[0]
    assert head["magic"] == MAGIC
    assert head["version"] == FORMAT_VERSION
    assert head["region"] == region
    assert head["digest"] == digest()
    assert head["boot_id"].tobytes() == header.boot_id()
    assert head["size"] == GEOMETRY.region_bytes(region) == table.regions[region].nbytes
    assert head["state"] == SegmentState.READY
    assert (head["capacity"], head["zones_in_use_max"]) == (3000, 10)


def test_all_regions_are_of_one_generation(table):
    assert len({int(header.mapped(table, region)["generation"][0]) for region in Region}) == 1


def test_the_magic_can_be_read_in_a_dump(table):
    assert table.regions[Region.CONTROL][:8].tobytes() == b"ZNETRACK"


def test_the_secret_is_as_given_or_random(table):
    assert table.header["secret"].tobytes() == bytes(range(32))
    first, second = (segment.anonymous(Geometry(1)).header["secret"][0] for _ in range(2))
    assert not np.intersect1d(first, second).size
    assert first.all()


def test_limits_and_settings(table):
    counts = table.array(Region.CONTROL, "globals", GLOBAL)[0]
    assert (counts["count"], counts["limit"], counts["zone_limit_default"]) == (0, 3000, UNLIMITED)
    quotas = table.array(Region.CONTROL, "quotas", QUOTA)
    assert (quotas["limit"] == UNLIMITED).all()
    assert not quotas["has_limit"].any()
    zones = table.array(Region.CONTROL, "zones", ZONE)
    assert (zones["settings"] == SETTINGS_DEFAULT).all()
    assert not zones["word"].any()


@pytest.mark.parametrize(
    ("slab", "region", "dtype"),
    [(Slab.ENTRIES, Region.ENTRIES, ENTRY), (Slab.EXTENSIONS, Region.EXTENSIONS, EXTENSION)],
)
def test_the_pool_holds_every_record_once_in_chains_of_a_block(table, slab, region, dtype):
    records = table.array(region, region.name.lower(), dtype)
    pool = table.array(Region.CONTROL, f"pool_{slab.name.lower()}", "u8")
    blocks = GEOMETRY.blocks(slab)
    assert not pool[blocks:].any()
    assert (pool >> POOL_OWNER_SHIFT == 0).all()
    seen = []
    for word in pool[:blocks].tolist():
        chain, record = [], word & 0xFFFFFFFF
        while record:
            chain.append(record - 1)
            record = int(records["next"][record - 1])
        assert len(chain) == (word >> POOL_COUNT_SHIFT) & 0xFFFF == BLOCK_RECORDS
        seen += chain
    assert seen == list(range(GEOMETRY.records(slab)))


def test_everything_else_is_zero(table):
    for region in (Region.DUE, Region.INDEX):
        assert not table.regions[region][HEADER.itemsize :].any()
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    assert not any(entries[field].any() for field in ENTRY.names if field != "next")


def test_policies_given_stand_in_the_first_rows():
    rows = np.arange(2 * TIMEOUTS_MAX, dtype="u4").reshape(2, TIMEOUTS_MAX)
    table = segment.anonymous(Geometry(1), policies=rows)
    policies = table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"]
    assert (policies[:2] == rows).all()
    assert not policies[2:].any()


def test_too_many_policies_are_refused():
    with pytest.raises(ValueError, match="broadcast"):
        segment.anonymous(Geometry(1), policies=np.zeros((POLICIES_MAX + 1, TIMEOUTS_MAX), "u4"))
