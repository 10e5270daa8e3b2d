"""TCP segments and datagrams as the parser leaves them, from the words of a network engineer.

    segments.tcp("c", "SA", seq=5000, ack=1001, win=65160, options="mss1460 sackok ws7")

Sides: ``c`` is the key's low endpoint, ``s`` its high one.  Options: mssN, wsN, sackok, tsN/N, sackN-N (one block; more
with commas), nop, or hex bytes as ``0x0303``.
"""

from __future__ import annotations

import struct

import numpy as np
from zonetrack.shm.layout import PARSED, PacketKind

CLIENT, SERVER = 0xC0000201, 0xC6336401
PORTS = {"c": 40000, "s": 80}
FLAGS = {"F": 0x01, "S": 0x02, "R": 0x04, "P": 0x08, "A": 0x10, "U": 0x20, "E": 0x40, "C": 0x80}
HEADER_BYTES = 20


class Parsed(np.ndarray):
    """PARSED[1] that keeps the bytes alive to which it points."""

    header: np.ndarray


def _blank(side: str, protocol: int, kind: PacketKind, payload_bytes: int, header_bytes: int) -> Parsed:
    parsed = np.zeros(1, PARSED).view(Parsed)
    packet = parsed[0]
    last = PORTS["c"] << 48 | PORTS["s"] << 32 | protocol << 8 | 4
    packet["key"] = (0, CLIENT, 0, SERVER, last)
    packet["kind"], packet["protocol"], packet["family"] = kind, protocol, 4
    packet["high_is_source"], packet["can_reply"] = side == "s", 1
    packet["payload_bytes"] = payload_bytes
    packet["l4_bytes"] = header_bytes + payload_bytes
    packet["ip_bytes"] = 20 + header_bytes + payload_bytes
    return parsed


def options_bytes(options: str) -> bytes:
    """Return TCP options as they are on the wire, padded with the end of the list."""
    wire = b""
    for option in options.split():
        if option.startswith("0x"):
            wire += bytes.fromhex(option[2:])
        elif option.startswith("mss"):
            wire += struct.pack("!BBH", 2, 4, int(option[3:]))
        elif option.startswith("ws"):
            wire += struct.pack("!BBB", 3, 3, int(option[2:]))
        elif option == "sackok":
            wire += b"\x04\x02"
        elif option.startswith("sack"):
            edges = [int(edge) for block in option[4:].split(",") for edge in block.split("-")]
            wire += struct.pack(f"!BB{len(edges)}I", 5, 2 + 4 * len(edges), *edges)
        elif option.startswith("ts"):
            wire += struct.pack("!BBII", 8, 10, *(int(value) for value in option[2:].split("/")))
        elif option == "nop":
            wire += b"\x01"
        else:
            raise ValueError(f"not a TCP option: {option!r}")
    return wire + bytes(-len(wire) % 4)


def tcp(side: str, flags: str, seq: int, ack: int = 0, win: int = 65535, length: int = 0, options: str = "") -> Parsed:
    """Return a TCP segment from the client (``c``) or the server (``s``)."""
    wire = options_bytes(options)
    parsed = _blank(side, 6, PacketKind.TCP, length, HEADER_BYTES + len(wire))
    parsed.header = np.frombuffer(bytes(HEADER_BYTES) + wire, "u1").copy()
    packet = parsed[0]
    packet["l4"] = parsed.header.ctypes.data
    packet["options_bytes"] = len(wire)
    packet["seq"], packet["ack"], packet["win"] = seq % 2**32, ack % 2**32, win
    packet["tcp_flags"] = sum(FLAGS[flag] for flag in flags)
    return parsed


def flow(side: str, protocol: int = 17, length: int = 10) -> Parsed:
    """Return a packet of a protocol without states."""
    return _blank(side, protocol, PacketKind.FLOW, length, 8)


def query(side: str, kind: int, family: int = 4, code: int = 0, identifier: int = 77) -> Parsed:
    """Return an ICMP or ICMPv6 query or answer of type ``kind``."""
    parsed = _blank(side, 1 if family == 4 else 58, PacketKind.ICMP_QUERY, 8, 8)
    packet = parsed[0]
    packet["icmp_word"] = kind << 24 | code << 16 | identifier
    packet["family"] = family
    return parsed


def error(side: str, quoted: Parsed) -> Parsed:
    """Return an ICMP error from one side about a packet that it was sent."""
    parsed = _blank(side, 1, PacketKind.ICMP_ERROR, 28, 8)
    packet = parsed[0]
    packet["inner_key"] = quoted[0]["key"]
    packet["inner_high_is_source"] = quoted[0]["high_is_source"]
    return parsed
