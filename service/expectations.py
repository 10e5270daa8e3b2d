"""Expectations as clients are shown them: those that stand, each with its parent.

The table has at most some thousand records, so it is copied whole: without a lock, again when something was changed
meanwhile.  What is stale and was not removed yet is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..clients.connections import PROTOCOLS, address
from ..shm.layout import (
    EXPECTATION,
    EXPECTATION_TABLE,
    ZONE,
    ExpectationFlag,
    Foretold,
    Helper,
    Region,
    Setting,
)
from ..shm.views import Table
from . import connections

NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)
COPIES_MAX = 8


def copied(table: Table) -> np.ndarray:
    """Return the expectations in use, EXPECTATION[n], in the order in which they were made."""
    records = table.array(Region.CONTROL, "expectations", EXPECTATION)
    header = table.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE)
    copy = records.copy()
    for _ in range(COPIES_MAX):
        version = int(header["version"][0])
        copy = records.copy()
        if version % 2 == 0 and int(header["version"][0]) == version:
            break
    in_use = copy["flags"] & ExpectationFlag.IN_USE != 0
    shown = copy[in_use & (copy["flags"] & ExpectationFlag.CALL == 0)]
    return shown[np.argsort(shown["order"])]


def listed(table: Table, now_ms: int, zone: int | None = None) -> list[dict[str, Any]]:
    """Return the expectations of a zone, or of all, as JSON has them.

    Args:
        table: where.
        now_ms: the moment to judge by.
        zone: None: all.
    """
    found = copied(table)
    parents = connections.parents_of(table, found["parent"], now_ms)
    settings = table.array(Region.CONTROL, "zones", ZONE)["settings"]
    shown = []
    for one in found:
        of_zone = int(one["last"]) >> 16 & 0xFFFF
        late = one["expiry_ms"] <= now_ms and not settings[of_zone] & Setting.NO_EXPIRY
        if zone in (None, of_zone) and int(one["parent"]) in parents and not late:
            shown.append(described(one, parents[int(one["parent"])], now_ms))
    return shown


def described(one: np.void, of: dict[str, Any], now_ms: int) -> dict[str, Any]:
    """Return an EXPECTATION, whose parent is ``of``, as JSON has it."""
    last, flags = int(one["last"]), int(one["flags"])
    family, protocol = last & 0xFF, last >> 8 & 0xFF
    source, destination = (one[name].astype(">u8").tobytes() for name in ("source", "destination"))
    shown = {
        "zone": last >> 16 & 0xFFFF,
        "proto": PROTOCOLS.get(protocol, "unknown"),
        "proto_num": protocol,
        "src": None if flags & ExpectationFlag.SOURCE_ANY else address(family, source),
        "dst": address(family, destination),
        "sport": last >> 48,
        "dport": last >> 32 & 0xFFFF,
        "timeout": None if one["expiry_ms"] == NEVER else (int(one["expiry_ms"]) - now_ms) // 1000,
        "helper": Helper(int(one["helper"])).name.lower(),
        "class": Foretold(int(one["kind"])).name.lower(),
        "parent": of,
    }
    if flags & ExpectationFlag.PERMANENT:
        shown["permanent"] = True
    if one["mark"]:
        shown["mark"] = int(one["mark"])
    if labels := int(one["label"][0]) << 64 | int(one["label"][1]):
        shown["labels"] = hex(labels)
    return shown
