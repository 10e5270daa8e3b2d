"""Frames made byte by byte: TCP in IPv4 in Ethernet with any numbers, and right checksums."""

from __future__ import annotations

import struct

FLAGS = dict(zip("FSRPAUEC", (1 << i for i in range(8)), strict=True))
ADDRESSES, PORTS = (bytes([192, 0, 2, 1]), bytes([198, 51, 100, 1])), (40000, 80)


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def tcp(
    flags: str,
    seq: int,
    ack: int = 0,
    *,
    reply: bool = False,
    win: int = 8192,
    options: bytes = b"",
    payload: bytes = b"",
    ports: tuple[int, int] = PORTS,
    addresses: tuple[bytes, bytes] = ADDRESSES,
) -> bytes:
    """Return a frame of the conversation between two addresses and ports, the first of which opens it."""
    options += b"\0" * (-len(options) % 4)
    source, destination = reversed(addresses) if reply else addresses
    source_port, destination_port = reversed(ports) if reply else ports
    bits = sum(FLAGS[flag] for flag in flags)
    numbers = (source_port, destination_port, seq % 2**32, ack % 2**32, (5 + len(options) // 4) << 4, bits, win, 0, 0)
    segment = bytearray(struct.pack(">HHIIBBHHH", *numbers) + options + payload)
    pseudo = source + destination + struct.pack(">HH", 6, len(segment))
    segment[16:18] = struct.pack(">H", _checksum(pseudo + segment))
    ip = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 7, 0x4000, 64, 6, 0) + source + destination)
    ip[10:12] = struct.pack(">H", _checksum(bytes(ip)))
    return bytes.fromhex("020000000002 020000000001 0800") + bytes(ip) + bytes(segment)
