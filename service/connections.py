"""The connections of a table at rest, as the rows that clients read, in the order in which they were opened.

A listing is the same whichever worker made a connection.  While others work on the table it is kernels/walk that may look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..clients.connections import TCP, Connection, Field, Rows, describe
from ..kernels.ovs_tcp import PeerScale
from ..kernels.tcp_window import PeerFlag
from ..shm.layout import (
    CONNECTION,
    ENTRY,
    EXTENSION,
    HEADER,
    KEY_WORDS,
    OVS_PEERS,
    TCP_PEERS,
    Life,
    Region,
    Status,
)
from ..shm.views import Table

FIELDS: list[Field] = [
    [name, dtype.base.str, list(dtype.shape)] for name, (dtype, *_) in (CONNECTION.fields or {}).items()
]
"""What a row is made of, as the wire tells it."""


def listed(table: Table, now_ms: int, expired: bool = False) -> Iterator[Connection]:
    """Yield the live connections of a table at rest, as dicts.

    Args:
        table: where.
        now_ms: the moment to judge by.
        expired: show those too that have expired and were not swept yet.
    """
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    shown = entries["life"] & 0xFF == Life.LIVE
    if not expired:
        shown &= entries["expiry_ms"] > now_ms
    records = np.flatnonzero(shown)
    order = np.lexsort((*entries["key"][records].T, entries["created_ms"][records]))
    records = records[order]
    wall_offset_ms = int(np.frombuffer(table.regions[Region.CONTROL], HEADER, 1)["wall_offset_ms"][0])
    rows = packed(entries[records], records, now_ms, wall_offset_ms)
    _extend(table, entries[records], rows)
    parents = parents_of(table, rows["parent"], now_ms)
    return (describe(row, parents=parents) for row in Rows(FIELDS).read(rows.tobytes()))


def parents_of(table: Table, ids: np.ndarray, now_ms: int) -> dict[int, dict[str, Any]]:
    """Return what is shown of parents beside their children, by public id; those that are gone are not there.

    Shown are id, protocol, and who opened it towards whom.  They are read without their locks: of one that goes meanwhile,
    nothing or what it was.
    """
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    ids = np.unique(ids[ids != 0])
    if not len(ids):
        return {}
    records = ids & np.uint64(0xFFFFFFFF)
    ids, records = ids[records < len(entries)], records[records < len(entries)]
    copy = entries[records.astype(np.int64)]
    here = (copy["life"] >> 32 == ids >> 32) & (copy["life"] & 0xFF == Life.LIVE)
    rows = packed(copy[here], records[here], now_ms, 0)
    found = {}
    for one in map(describe, Rows(FIELDS).read(rows.tobytes())):
        ends = {name: one["orig"][name] for name in ("src", "dst", "sport", "dport") if name in one["orig"]}
        found[one["id"]] = {"id": one["id"], "proto": one["proto"]} | ends
    return found


def _extend(table: Table, entries: Any, rows: Any) -> None:
    """Add what stands in extensions to the rows of their connections: helper, label, the tuple of the replies."""
    have = np.flatnonzero(entries["extension"])
    if not len(have):
        return
    extensions = table.array(Region.EXTENSIONS, "extensions", EXTENSION)[entries["extension"][have] - 1]
    rows["helper"][have], rows["label"][have] = extensions["helper"], extensions["label"]
    keys = extensions["reply_key"]
    has_key = keys[:, KEY_WORDS - 1] != 0
    have, keys = have[has_key], keys[has_key]
    ends, ports = _ends(keys)
    replier = (entries["status"][have] & Status.REPLIER_IS_HIGH != 0).astype(int)
    these = np.arange(len(have))
    rows["reply_src"][have], rows["reply_dst"][have] = ends[these, replier], ends[these, 1 - replier]
    rows["reply_sport"][have], rows["reply_dport"][have] = ports[these, replier], ports[these, 1 - replier]


def _ends(keys: Any) -> tuple[Any, Any]:
    """Return the addresses, u1[n, 2, 16], and the ports, u8[n, 2], of the endpoints of keys."""
    last = keys[:, KEY_WORDS - 1]
    ends = np.ascontiguousarray(keys[:, : KEY_WORDS - 1]).astype(">u8").view("u1").reshape(len(keys), 2, 16)
    return ends, np.stack((last >> 48, last >> 32 & 0xFFFF), axis=1)


def packed(entries: Any, records: Any, now_ms: int, wall_offset_ms: int) -> Any:
    """Return entries as CONNECTIONs.

    Args:
        entries: ENTRY[n].
        records: their indices.
        now_ms: what timeouts count from.
        wall_offset_ms: wall clock minus `now_ms`.
    """
    rows = np.zeros(len(entries), CONNECTION)
    key = entries["key"]
    last = key[:, KEY_WORDS - 1]
    rows["id"] = entries["life"] >> 32 << 32 | records.astype(np.uint64)
    for name in ("parent", "packets", "bytes", "mark", "state"):
        rows[name] = entries[name]
    rows["start_ms"] = entries["created_ms"] + np.uint64(wall_offset_ms % (1 << 64))
    ends, ports = _ends(key)
    all_rows = np.arange(len(entries))
    opener = (entries["status"] & Status.ORIG_IS_HIGH != 0).astype(int)
    rows["src"] = rows["reply_dst"] = ends[all_rows, opener]
    rows["dst"] = rows["reply_src"] = ends[all_rows, 1 - opener]
    rows["sport"] = rows["reply_dport"] = ports[all_rows, opener]
    rows["dport"] = rows["reply_sport"] = ports[all_rows, 1 - opener]
    left_ms = np.where(entries["expiry_ms"] > now_ms, entries["expiry_ms"] - np.uint64(now_ms), 0)
    rows["timeout_ms"] = np.minimum(left_ms, 0xFFFFFFFF)
    rows["zone"], rows["protocol"], rows["family"] = last >> 16 & 0xFFFF, last >> 8 & 0xFF, last & 0xFF
    rows["status"] = entries["status"] & ~np.uint16(
        Status.ORIG_IS_HIGH | Status.REPLIER_IS_HIGH | Status.SOURCE_COUNTED
    )
    _describe_peers(entries, rows)
    return rows


def _describe_peers(entries: Any, rows: Any) -> None:
    """Add what is known of the windows of both sides to the rows of TCP connections."""
    is_ovs = rows["status"] & Status.OVS != 0
    for of_ovs in (False, True):
        which = np.flatnonzero((rows["protocol"] == TCP) & (is_ovs == of_ovs))
        protocol = np.ascontiguousarray(entries["protocol"][which])
        if of_ovs:
            scales = protocol.view(OVS_PEERS)["peer"]["scale"][:, 0]
            offered, unknown = scales & PeerScale.OFFERED != 0, scales & PeerScale.UNKNOWN != 0
            rows["scales"][which] = scales & 0xF
            rows["peer_flags"][which] = offered * PeerFlag.SCALES + unknown * PeerFlag.LIBERAL
        else:
            peers = protocol.view(TCP_PEERS)["peer"][:, 0]
            rows["scales"][which], rows["peer_flags"][which] = peers["scale"], peers["flags"]
