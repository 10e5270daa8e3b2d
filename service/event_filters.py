"""Which events a client means: the FILTER of a walk, on rows of events, column by column."""

from __future__ import annotations

import numpy as np

from ..clients.connections import ICMP, ICMPV6
from ..shm.layout import EventKind, Status
from .filters import ADDRESSES, Wanted

KINDS = {kind.name.lower(): kind for kind in EventKind}


def mask(rows: np.ndarray, kinds: int, wanted: Wanted) -> np.ndarray:
    """Return which rows are meant, bool[n].

    Args:
        rows: EVENT_ROW[n].
        kinds: EventKind bits.
        wanted: of their connections.
    """
    found = rows["kind"] & np.uint8(kinds) != 0
    if not wanted.names:
        return found
    record = wanted.record
    last = rows["zone"].astype("u8") << 16 | rows["protocol"].astype("u8") << 8 | rows["family"]
    low = np.uint64(0xFFFFFFFF)  # the ports in this word are compared below
    found &= last & record["last_mask"] & low == record["last"] & low
    found &= rows["mark"] & record["mark_mask"] == record["mark"]
    found &= rows["status"] & record["status_mask"] == record["status"]
    if record["states"] or record["ovs_states"]:
        found &= _in_state(rows, int(record["states"]), int(record["ovs_states"]))
    if record["ports_mask"]:
        ports = rows["sport"].astype("u4") << 16 | rows["dport"]
        found &= (ports & record["ports_mask"] == record["ports"]) & ~np.isin(rows["protocol"], (ICMP, ICMPV6))
    for place, name in enumerate(ADDRESSES):
        words = np.ascontiguousarray(rows[name]).view(">u8").reshape(-1, 2)
        for i in range(2):
            bits = record["address_mask"][2 * place + i]
            if bits:
                found &= words[:, i] & bits == record["address"][2 * place + i]
    return found


def _in_state(rows: np.ndarray, states: int, ovs_states: int) -> np.ndarray:
    is_ovs = rows["status"] & Status.OVS != 0
    state = rows["state"].astype("u4")
    of_peers = np.maximum(state & 15, state >> 4)
    return np.where(is_ovs, ovs_states >> of_peers & 1, states >> np.minimum(state, 15) & 1) != 0
