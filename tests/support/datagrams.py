"""Bursts of datagrams and TCP segments that parse into given keys."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from zonetrack.shm.layout import FRAME, FrameFlag, Link

TCP, UDP = 6, 17
FLAGS = {"F": 0x01, "S": 0x02, "R": 0x04, "A": 0x10}
OPENER, ANSWERER = 1000, 5000
"""First sequence numbers of the low and the high endpoint."""
ETHERNET = bytes(12) + b"\x08\x00"
"""What stands before an IPv4 packet there."""


class Packet(NamedTuple):
    """One packet: its key, whether a connection shall be made for it, and for TCP its flags.

    It goes from the key's low endpoint to the high one; back again when ``reply``.  ``seq`` and ``ack`` are how far a
    segment is beyond the first number of each side, and ``payload`` its bytes.
    """

    key: np.ndarray
    commit: bool = True
    flags: str = ""
    reply: bool = False
    seq: int = 0
    ack: int = 0
    payload: int = 0


def wire(packet: Packet) -> bytes:
    """Return a raw IPv4 packet."""
    _, low, _, high, last = (int(word) for word in packet.key)
    ends, ports = (low, high), (last >> 48, last >> 32 & 0xFFFF)
    if packet.reply:
        ends, ports = ends[::-1], ports[::-1]
    if packet.flags:
        seq, ack = (ANSWERER, OPENER + 1) if packet.reply else (OPENER, ANSWERER + 1)
        bits = sum(FLAGS[flag] for flag in packet.flags)
        seq, ack = seq + ("S" not in packet.flags) + packet.seq, ack + packet.ack if "A" in packet.flags else 0
        transport = struct.pack("!HHIIHHHH", *ports, seq, ack, 5 << 12 | bits, 65535, 0, 0) + bytes(packet.payload)
    else:
        transport = struct.pack("!HHHH", *ports, 8, 0)
    protocol = TCP if packet.flags else UDP
    return struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0, *ends) + transport


def burst(packets: list[Packet], link: Link = Link.RAW_IP) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return FRAME[n] of the packets, and what has to be kept as long as they are used."""
    frames = np.zeros(len(packets), FRAME)
    before = ETHERNET if link == Link.ETHERNET else b""
    kept = [np.frombuffer(before + wire(packet), "u1").copy() for packet in packets]
    for frame, data, packet in zip(frames, kept, packets, strict=True):
        frame["address"] = data.ctypes.data
        frame["captured_bytes"] = frame["wire_bytes"] = len(data)
        frame["zone"] = int(packet.key[4]) >> 16 & 0xFFFF
        frame["link"] = link
        frame["flags"] = FrameFlag.CHECKSUM_TRUSTED | (FrameFlag.COMMIT if packet.commit else 0)
    return frames, kept
