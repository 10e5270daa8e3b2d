"""How many ports are left: a walk over all connections that got another source, by the address that they got.

The gauge counts ports, not tuples: a port that some connection has may still serve another one to another destination.  So
`free` is what certainly is free; where it is 0, a connection to a busy destination may find nothing.

The records are read as they stand, without locks, in slices between which others get on: each row is true of a moment
during the walk, give or take what comes and goes meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

import numpy as np

from ..clients.connections import PROTOCOLS
from ..shm.layout import ENTRY, EXTENSION, Life, Region, Status, ZoneFrom
from ..shm.views import Table
from .rules import Ct, Rule

SLICE_RECORDS = 65_536
ADDRESSES_SHOWN_MAX = 4096
"""Addresses of one rule that are shown though nobody has a port of theirs."""
PROTOCOLS_SHOWN = (6, 17)
"""Of an address of which nobody has a port."""
LIKE_THE_OPENERS = 65_535
"""Ports of an address where the rule names none."""


class Row(NamedTuple):
    """An address in a zone, for a protocol."""

    zone: int
    family: int
    address: int
    protocol: int


def _translated(entries: np.ndarray, extensions: np.ndarray) -> np.ndarray:
    """Return zone, family, address (two words), protocol and port of the source that connections got, u64[6, n]."""
    live = (entries["life"] & 0xFF == Life.LIVE) & (entries["status"] & Status.SOURCE_NAT != 0)
    live &= entries["extension"] != 0
    found = entries[live]
    links = found["extension"].astype("i8") - 1
    there = links < len(extensions)
    found, keys = found[there], extensions["reply_key"][links[there]]
    keys, found = keys[keys[:, 4] != 0], found[keys[:, 4] != 0]
    replier_is_high = found["status"] & Status.REPLIER_IS_HIGH != 0
    last = keys[:, 4]
    port = np.where(replier_is_high, last >> 48, last >> 32 & 0xFFFF)
    high = np.where(replier_is_high, keys[:, 0], keys[:, 2])
    low = np.where(replier_is_high, keys[:, 1], keys[:, 3])
    return np.array([last >> 16 & 0xFFFF, last & 0xFF, high, low, last >> 8 & 0xFF, port], "u8")


def walk(table: Table) -> Iterator[tuple[Row, np.ndarray]]:
    """Yield, slice by slice, rows and the ports of each, u2[n]."""
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    extensions = table.array(Region.EXTENSIONS, "extensions", EXTENSION)
    for first in range(0, len(entries), SLICE_RECORDS):
        found = _translated(entries[first : first + SLICE_RECORDS], extensions)
        order = np.lexsort(found[::-1])
        found = found[:, order]
        if found.shape[1]:
            changes = np.flatnonzero((found[:5, 1:] != found[:5, :-1]).any(axis=0)) + 1
            for part in np.split(found, changes, axis=1):
                zone, family, high, low, protocol = (int(word) for word in part[:5, 0])
                yield Row(zone, family, high << 64 | low, protocol), part[5].astype("u2")
        time.sleep(0)  # others may want the interpreter


def _asked(rules: Iterable[Rule]) -> Iterator[tuple[int | None, Any]]:
    """Yield the zone, None where that depends on the packet, and the translation of each ct that chooses a source."""
    for rule in rules:
        for action in rule.actions:
            if isinstance(action, Ct) and action.nat is not None and action.nat.way == "src":
                yield action.zone if action.zone_from is ZoneFrom.NUMBER else None, action.nat


def left(table: Table, rules: Iterable[Rule] = ()) -> list[dict[str, Any]]:
    """Return the ports of each address that connections got as their source, or that rules may give them.

    Args:
        table: of the service.
        rules: that hold.

    Returns:
        A row for each zone, address and protocol: ``zone``, ``address``, ``proto``, ``ports`` that rules may give,
        ``connections`` that have one, ``used``: different ports that these have, ``free``: the others.
    """
    ports: dict[Row, list[np.ndarray]] = {}
    for row, some in walk(table):
        ports.setdefault(row, []).append(some)
    asked = list(_asked(rules))
    for zone, nat in asked:
        if zone is not None and nat.low and nat.high - nat.low < ADDRESSES_SHOWN_MAX:
            for address in range(nat.low, nat.high + 1):
                if not any(Row(zone, nat.family, address, protocol) in ports for protocol in PROTOCOLS_SHOWN):
                    ports |= {Row(zone, nat.family, address, protocol): [] for protocol in PROTOCOLS_SHOWN}
    return [_told(row, ports[row], asked) for row in sorted(ports)]


def _told(row: Row, parts: list[np.ndarray], asked: list[tuple[int | None, Any]]) -> dict[str, Any]:
    connections = sum(map(len, parts))
    used = np.unique(np.concatenate(parts)) if parts else np.zeros(0, "u2")
    given = np.zeros(1 << 16, bool)
    for zone, nat in asked:
        if zone in (None, row.zone) and nat.low <= row.address <= nat.high:
            low, high = (nat.port_low, nat.port_high) if nat.port_high else (1, LIKE_THE_OPENERS)
            given[low : high + 1] = True
    free = int(np.count_nonzero(given)) - int(np.count_nonzero(given[used]))
    return {
        "zone": row.zone,
        "address": str(IPv4Address(row.address) if row.family == 4 else IPv6Address(row.address)),
        "proto": PROTOCOLS.get(row.protocol, str(row.protocol)),
        "ports": int(np.count_nonzero(given)),
        "connections": connections,
        "used": len(used),
        "free": free,
    }
