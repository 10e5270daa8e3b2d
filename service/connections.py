"""Connections as people and programs read them: an ENTRY becomes a dict with Open vSwitch's names, and a table's row.

What is absent is zero or does not apply.  A listing has its connections in the order in which they were opened, so that
it is the same whichever worker made them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..kernels.icmp_types import MESSAGES, Role
from ..kernels.tcp_states import Tcp
from ..shm.layout import ENTRY, HEADER, Life, Region, Status
from ..shm.views import Table

TCP = 6
PROTOCOLS = {
    1: "icmp",
    2: "igmp",
    TCP: "tcp",
    17: "udp",
    33: "dccp",
    47: "gre",
    50: "esp",
    51: "ah",
    58: "icmpv6",
    132: "sctp",
    136: "udplite",
}
"""Names of the protocols that are tracked by more than their number; others are ``unknown``, beside it."""
PORTS = {TCP, 17, 33, 132, 136}
ICMP = {1, 58}
ANSWERS = {(m.family, m.request): m.type for m in MESSAGES if m.role is Role.ANSWER}
HEADINGS = ("proto", "zone", "source", "destination", "state", "status", "packets", "bytes", "timeout")


def listed(table: Table, now_ms: int, expired: bool = False) -> Iterator[dict[str, Any]]:
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
    indices = np.flatnonzero(shown)
    keys = entries["key"][indices]
    order = np.lexsort((*keys.T, entries["created_ms"][indices]))
    wall_offset_ms = int(np.frombuffer(table.regions[Region.CONTROL], HEADER, 1)["wall_offset_ms"][0])
    for index in indices[order]:
        yield describe(entries[index], int(index), now_ms, wall_offset_ms)


def describe(entry: Any, index: int, now_ms: int, wall_offset_ms: int) -> dict[str, Any]:
    """Return one connection as a dict.

    Args:
        entry: an ENTRY, as numpy has it.
        index: of its record.
        now_ms: what its timeout counts from.
        wall_offset_ms: wall clock minus `now_ms`.
    """
    key = [int(word) for word in entry["key"]]
    family, protocol, zone = key[4] & 0xFF, key[4] >> 8 & 0xFF, key[4] >> 16 & 0xFFFF
    low = (address(family, key[0], key[1]), key[4] >> 48)
    high = (address(family, key[2], key[3]), key[4] >> 32 & 0xFFFF)
    status = int(entry["status"])
    opener, other = (high, low) if status & Status.ORIG_IS_HIGH else (low, high)
    orig, reply = tuples(family, protocol, opener, other)
    for way, flow in enumerate((orig, reply)):
        flow["packets"], flow["bytes"] = int(entry["packets"][way]), int(entry["bytes"][way])
    connection: dict[str, Any] = {"proto": PROTOCOLS.get(protocol, "unknown"), "proto_num": protocol, "zone": zone}
    connection |= {"orig": orig, "reply": reply}
    if protocol == TCP:
        connection["state"] = Tcp(int(entry["state"])).name
    connection["status"] = [bit.name.lower() for bit in Status if status & bit and bit is not Status.ORIG_IS_HIGH]
    connection["timeout"] = max(0, int(entry["expiry_ms"]) - now_ms) // 1000
    if entry["mark"]:
        connection["mark"] = int(entry["mark"])
    connection["start"] = (int(entry["created_ms"]) + wall_offset_ms) / 1000
    connection["id"] = int(entry["life"]) >> 32 << 32 | index
    return connection


def address(family: int, high: int, low: int) -> str:
    """Return the text of an address of a key."""
    if family == 4:
        return socket.inet_ntop(socket.AF_INET, low.to_bytes(4, "big"))
    return socket.inet_ntop(socket.AF_INET6, high.to_bytes(8, "big") + low.to_bytes(8, "big"))


def tuples(
    family: int, protocol: int, opener: tuple[str, int], other: tuple[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both tuples of a connection, from its endpoints: (address, port).

    Of an ICMP query the opener's port is the id, the other's is the type and code of the request.
    """
    orig: dict[str, Any] = {"src": opener[0], "dst": other[0]}
    reply: dict[str, Any] = {"src": other[0], "dst": opener[0]}
    if protocol in PORTS:
        orig |= {"sport": opener[1], "dport": other[1]}
        reply |= {"sport": other[1], "dport": opener[1]}
    elif protocol in ICMP:
        kind, code = other[1] >> 8, other[1] & 0xFF
        orig |= {"type": kind, "code": code, "id": opener[1]}
        reply |= {"type": ANSWERS.get((family, kind), kind), "code": code, "id": opener[1]}
    return orig, reply


def row(connection: dict[str, Any]) -> tuple[str, ...]:
    """Return a connection as the cells below ``HEADINGS``."""
    orig, reply = connection["orig"], connection["reply"]
    source, destination = endpoint(orig["src"], orig.get("sport")), endpoint(orig["dst"], orig.get("dport"))
    if "type" in orig:
        destination += " type {type} code {code} id {id}".format(**orig)
    return (
        connection["proto"] if connection["proto"] != "unknown" else str(connection["proto_num"]),
        str(connection["zone"]),
        source,
        destination,
        connection.get("state", ""),
        " ".join(connection["status"]),
        f"{orig['packets']:,} / {reply['packets']:,}",
        f"{orig['bytes']:,} / {reply['bytes']:,}",
        str(connection["timeout"]),
    )


def endpoint(text: str, port: int | None) -> str:
    """Return an address with its port, if there is one."""
    if port is None:
        return text
    return f"[{text}]:{port}" if ":" in text else f"{text}:{port}"
