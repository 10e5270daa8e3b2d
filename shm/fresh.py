"""A table with nothing in it: what stands in every region before the first packet.

Memory comes zeroed, and most of a new table is zero: FREE records, empty segments, zones without directory, no due
hints.  What is not zero is written here, with numpy, by the one process that knows of the table; nobody else may look
before ``publish`` has stored READY.
"""

from __future__ import annotations

import os
import time

import numpy as np

from . import descriptions, header
from .layout import (
    BLOCK_RECORDS,
    DATAGRAM,
    ENTRY,
    EXTENSION,
    FRAGMENT,
    FRAGMENT6_BYTES_MIN_DEFAULT,
    FRAGMENT_BYTES_MIN_DEFAULT,
    FRAGMENT_COUNT_MAX_DEFAULT,
    GLOBAL,
    MAX_RETRANS_DEFAULT,
    POLICY,
    POOL_COUNT_SHIFT,
    PURGE_MS_DEFAULT,
    QUOTA,
    SETTINGS_DEFAULT,
    SETTINGS_WORD_DEFAULT,
    STORE,
    UNLIMITED,
    ZONE,
    Region,
    SegmentState,
    Slab,
    StoreFlag,
)
from .views import Table

_BLOCKS_AT_ONCE = 256


def initialise(
    table: Table,
    *,
    generation: int | None = None,
    policies: np.ndarray | None = None,
    secret: bytes | None = None,
) -> None:
    """Fill a table of zeroed regions; it is left in state NEW.

    Args:
        table: all regions mapped, all bytes 0.
        generation: number of this creation, the same in all regions; random when None.
        policies: u4[n, TIMEOUTS_MAX], n <= POLICIES_MAX, the first timeout policies in ms; row 0 is the
            default one, which kernels know and this layer does not.
        secret: 32 bytes, the key of the tuple hash; random when None, given where a run must be repeatable.
    """
    generation = header.new_generation() if generation is None else generation
    for region in Region:
        header.mapped(table, region)[:] = header.new(table.geometry, region, generation)
    control = header.mapped(table, Region.CONTROL)
    control["secret"] = np.frombuffer(os.urandom(32) if secret is None else secret, "u8")
    control["wall_offset_ms"] = (time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1_000_000

    descriptions.write(table)

    counts = table.array(Region.CONTROL, "globals", GLOBAL)
    counts["limit"] = table.geometry.connections
    counts["zone_limit_default"] = UNLIMITED
    counts["settings"] = SETTINGS_WORD_DEFAULT
    table.array(Region.CONTROL, "quotas", QUOTA)["limit"] = UNLIMITED
    zones = table.array(Region.CONTROL, "zones", ZONE)
    zones["settings"] = SETTINGS_DEFAULT
    zones["max_retrans"] = MAX_RETRANS_DEFAULT
    if policies is not None:
        table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][: len(policies)] = policies

    for slab, region, name, dtype in (
        (Slab.ENTRIES, Region.ENTRIES, "entries", ENTRY),
        (Slab.EXTENSIONS, Region.EXTENSIONS, "extensions", EXTENSION),
    ):
        _chain(table, slab, table.array(region, name, dtype))
    _open_store(table)


def _open_store(table: Table) -> None:
    """Fill the store of fragments: all of it free, and set as Open vSwitch has it."""
    store = table.array(Region.FRAGMENTS, "store", STORE)
    store["flags"] = StoreFlag.IPV4 | StoreFlag.IPV6
    store["count_max"] = FRAGMENT_COUNT_MAX_DEFAULT
    store["bytes_min"], store["bytes6_min"] = FRAGMENT_BYTES_MIN_DEFAULT, FRAGMENT6_BYTES_MIN_DEFAULT
    store["purge_ms"] = PURGE_MS_DEFAULT
    store["due_ms"] = np.iinfo("u8").max
    for name, dtype, first in (("fragments", FRAGMENT, "free_fragment"), ("datagrams", DATAGRAM, "free_datagram")):
        records = table.array(Region.FRAGMENTS, name, dtype)
        records["next"] = np.arange(2, 2 + len(records))
        records["next"][-1] = 0
        store[first] = 1


def _chain(table: Table, slab: Slab, records: np.ndarray) -> None:
    """Link the records of each block through ``next``, and put each chain into the slab's pool, owned by nobody."""
    step = _BLOCKS_AT_ONCE * BLOCK_RECORDS  # so that a table of gigabytes needs a megabyte beside it
    for first in range(0, len(records), step):
        part = records["next"][first : first + step]
        part[:] = np.arange(first + 2, first + 2 + len(part), dtype="u4")  # index + 1 of the record behind
        part[BLOCK_RECORDS - 1 :: BLOCK_RECORDS] = 0
    blocks = table.geometry.blocks(slab)
    pool = table.array(Region.CONTROL, f"pool_{slab.name.lower()}", "u8")
    heads = np.arange(blocks, dtype="u8") * BLOCK_RECORDS + 1
    pool[:blocks] = heads | BLOCK_RECORDS << POOL_COUNT_SHIFT


def publish(table: Table) -> None:
    """Say that a table may be used: READY in every region, and last in CONTROL, whose state is the instance's."""
    for region in reversed(Region):
        header.mapped(table, region)["state"] = SegmentState.READY
