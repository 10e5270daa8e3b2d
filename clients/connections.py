"""Connections as people and programs read them: a packed row becomes a dict with Open vSwitch's names, and a table's row.

A page of a dump is rows of the service's CONNECTION record, with a description of its fields; nothing here knows their
order or offsets.  In a dict, what is absent is zero or does not apply.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .errors import RemoteProtocolError

TCP, ICMP, ICMPV6, GRE, SCTP = 6, 1, 58, 47, 132
PROTOCOLS = {
    ICMP: "icmp",
    2: "igmp",
    TCP: "tcp",
    17: "udp",
    33: "dccp",
    GRE: "gre",
    50: "esp",
    51: "ah",
    ICMPV6: "icmpv6",
    SCTP: "sctp",
    136: "udplite",
}
"""Names of the protocols that are tracked by more than their number; others are ``unknown``, beside it."""
PORTS = frozenset({TCP, 17, 33, SCTP, 136})
ANSWERS = {(4, 8): 0, (4, 13): 14, (4, 15): 16, (4, 17): 18, (6, 128): 129, (6, 139): 140}
"""Type of the ICMP message that answers one, by IP version (RFC 792, RFC 950, RFC 4443, RFC 4620)."""
TCP_STATES = (
    *("NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"),
    "SYN_SENT2",
)
"""By the number of the state."""
SCTP_STATES = (
    *("NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECD"),
    *("SHUTDOWN_ACK_SENT", "HEARTBEAT_SENT"),
)
"""By the number of the state."""
PEER_STATES = (
    *("CLOSED", "LISTEN", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "FIN_WAIT_1", "CLOSING", "LAST_ACK"),
    *("FIN_WAIT_2", "TIME_WAIT"),
)
"""States of one side of a TCP connection in the `ovs` profile, by their numbers (Open vSwitch's enum ct_dpif_tcp_state)."""
PEER_FLAGS = {
    "window_scale": 1 << 0,
    "sack_perm": 1 << 1,
    "close_init": 1 << 2,
    "be_liberal": 1 << 3,
    "data_unacknowledged": 1 << 4,
    "maxack_set": 1 << 5,
}
"""What is known of one side's windows, by Open vSwitch's names (CT_DPIF_TCP_FLAGS)."""
COALESCED = {"FIN_WAIT_2": "TIME_WAIT", "SYN_RECV": "ESTABLISHED"}
"""Where Open vSwitch shows one state for both sides, it does not tell these apart."""
STATUS = {
    "seen_reply": 1 << 1,
    "assured": 1 << 2,
    "torn": 1 << 3,
    "helper": 1 << 4,
    "fixed_timeout": 1 << 5,
    "related": 1 << 6,
    "ovs": 1 << 7,
    "source_nat": 1 << 8,
    "destination_nat": 1 << 9,
    "sequence_offsets": 1 << 11,
}
"""Bits of a row's status, by the names that are shown."""
HELPERS = ("", "ftp", "tftp", "sip", "irc", "pptp")
"""By the number of the helper."""
HEADINGS = ("proto", "zone", "source", "destination", "state", "status", "packets", "bytes", "timeout")

Connection = dict[str, Any]
"""A connection as JSON has it."""
Field = Sequence[Any]
"""Name, format as numpy writes it, shape: ``["packets", "<u8", [2]]``."""


# ---------------------------------------------------------------------------------------------------- packed rows
FIELD_ITEMS_MAX = 256
_CODES = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "u8": "Q", "i8": "q"}


class Rows:
    """Reads packed rows.

    Args:
        fields: description of a row; numbers are little-endian, and nothing lies between them.

    Raises:
        RemoteProtocolError: a field is of a kind that rows do not have.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        names: list[str | tuple[str, int]] = []
        codes = ["<"]
        for field in fields:
            name, kind, shape = _checked(field)
            code, count = _CODES[kind[1:]], shape[0] if shape else 1
            if code == "B" and shape:
                codes.append(f"{count}s")
                names.append(name)
            else:
                codes.append(f"{count}{code}")
                names += [(name, i) for i in range(count)] if shape else [name]
        if not names or len(names) != len(set(names)):
            raise RemoteProtocolError("rows without fields, or with two of one name")
        self._names = tuple(names)
        self._packed = struct.Struct("".join(codes))

    def count(self, data: bytes) -> int:
        """Return how many rows there are.

        Raises:
            RemoteProtocolError: the bytes are no whole number of rows.
        """
        count, rest = divmod(len(data), self._packed.size)
        if rest:
            raise RemoteProtocolError(f"{len(data)} bytes of rows of {self._packed.size} bytes each")
        return count

    def read(self, data: bytes) -> Iterator[dict[Any, Any]]:
        """Yield each row's values: by name, those of a field with a shape by name and position, bytes as bytes.

        Raises:
            RemoteProtocolError: the bytes are no whole number of rows.
        """
        self.count(data)
        for values in self._packed.iter_unpack(data):
            yield dict(zip(self._names, values, strict=True))


def _checked(field: Any) -> tuple[str, str, Sequence[int]]:
    match field:
        case [str(name), str(kind), [] | [int()] as shape] if (
            kind[:1] in ("<", "|") and kind[1:] in _CODES and all(0 < n <= FIELD_ITEMS_MAX for n in shape)
        ):
            return name, kind, shape
    raise RemoteProtocolError(f"a field {field}, which is nothing that can be shown")


# ---------------------------------------------------------------------------------------------------- dicts
def describe(
    row: Mapping[Any, Any],
    states: Sequence[str] = TCP_STATES,
    status: Mapping[str, int] = STATUS,
    parents: Mapping[int, dict[str, Any]] | None = None,
) -> Connection:
    """Return one connection as a dict.

    Args:
        row: a CONNECTION, as ``Rows.read`` has it.
        states: names of TCP's states, by their numbers.
        status: names of the bits of a row's status.
        parents: what is shown of the parents of related connections, by their ids.
    """
    family, protocol = row["family"], row["protocol"]
    orig = _tuple(row, "", family, protocol)
    reply = _tuple(row, "reply_", family, protocol)
    for way, flow in enumerate((orig, reply)):
        flow["packets"], flow["bytes"] = row["packets", way], row["bytes", way]
    connection: Connection = {
        "proto": PROTOCOLS.get(protocol, "unknown"),
        "proto_num": protocol,
        "zone": row["zone"],
        "orig": orig,
        "reply": reply,
    }
    shown = [name for name, bit in status.items() if row["status"] & bit]
    if protocol == TCP:
        state = row["state"]
        connection |= _peers(state) if "ovs" in shown else {"state": _named(states, state)}
        connection |= _windows(row)
    elif protocol == SCTP and "ovs" not in shown:
        connection["state"] = _named(SCTP_STATES, row["state"])
    connection["status"] = shown
    connection["timeout"] = row["timeout_ms"] // 1000
    if row["mark"]:
        connection["mark"] = row["mark"]
    if labels := row["label", 0] << 64 | row["label", 1]:
        connection["labels"] = hex(labels)
    if row["helper"]:
        connection["helper"] = _named(HELPERS, row["helper"])
    if row["parent"]:
        connection["parent"] = (parents or {}).get(row["parent"], {"id": row["parent"]})
    connection["start"] = row["start_ms"] / 1000
    connection["id"] = row["id"]
    return connection


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _peers(state: int) -> dict[str, str]:
    """Return the states of both sides, and the one that stands for them: that of the side which has come further."""
    orig, reply = state & 0xF, state >> 4
    highest = _named(PEER_STATES, max(orig, reply))
    return {
        "state": COALESCED.get(highest, highest),
        "state_orig": _named(PEER_STATES, orig),
        "state_reply": _named(PEER_STATES, reply),
    }


def _windows(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return what is known of both sides' windows; a service may say nothing of them."""
    found: dict[str, Any] = {}
    nothing = bytes(2)
    for way, scale, bits in zip(
        ("orig", "reply"), row.get("scales", nothing), row.get("peer_flags", nothing), strict=True
    ):
        if scale:
            found[f"wscale_{way}"] = scale
        if flags := [name for name, bit in PEER_FLAGS.items() if bits & bit]:
            found[f"flags_{way}"] = flags
    return found


def address(family: int, packed: bytes) -> str:
    """Return the text of an address of 16 bytes; of IPv4, the last four count."""
    if family == 4:
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


def _tuple(row: Mapping[Any, Any], way: str, family: int, protocol: int) -> dict[str, Any]:
    """Return the tuple of one direction.

    Of an ICMP query the opener's port is the id, the other's type and code; of GRE they are the calls of PPTP.
    """
    found: dict[str, Any] = {
        "src": address(family, row[f"{way}src"]),
        "dst": address(family, row[f"{way}dst"]),
    }
    if protocol in PORTS:
        found["sport"], found["dport"] = row[f"{way}sport"], row[f"{way}dport"]
    elif protocol in (ICMP, ICMPV6):
        kind, code = row["dport"] >> 8, row["dport"] & 0xFF
        if way:
            kind = ANSWERS.get((family, kind), kind)
        found["type"], found["code"] = kind, code
        found["id"] = row["reply_dport"] if way else row["sport"]
    elif protocol == GRE and row["sport"] | row["dport"]:
        found["srckey"], found["dstkey"] = row[f"{way}sport"], row[f"{way}dport"]
    return found


# ---------------------------------------------------------------------------------------------------- rows of a table
def row(connection: Connection) -> tuple[str, ...]:
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
