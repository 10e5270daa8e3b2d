"""Capture files made by hand, byte by byte, and the packets that a reader must find in them."""

import struct
from dataclasses import dataclass, field

ETHERNET, RAW = 1, 101
PCAP_US, PCAP_NS, KUZNETZOV = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34


@dataclass
class Packet:
    """A packet as it goes into a file: what was captured, when, and how long it was on the wire."""

    data: bytes
    time_ns: int = 0
    wire: int | None = None
    linktype: int = ETHERNET

    @property
    def wire_bytes(self):
        return len(self.data) if self.wire is None else self.wire


def pcap(packets, *, order="<", magic=PCAP_US, snaplen=262144, linktype=ETHERNET, version=(2, 4)):
    """Return a pcap file, and the offset at which each of its records begins."""
    file = struct.pack(order + "IHHiIII", magic, *version, 0, 0, snaplen, linktype)
    unit, tail, starts = (1 if magic == PCAP_NS else 1000), (b"\0" * 8 if magic == KUZNETZOV else b""), []
    for packet in packets:
        starts.append(len(file))
        seconds, rest = divmod(packet.time_ns, 10**9)
        lengths = (len(packet.data), packet.wire_bytes)
        if version < (2, 3):
            lengths = lengths[::-1]
        file += struct.pack(order + "IIII", seconds, rest // unit, *lengths) + tail + packet.data
    return file, starts


def padded(data):
    """Return ``data`` with zeros up to 32 bits."""
    return data + b"\0" * (-len(data) % 4)


@dataclass
class Pcapng:
    """A pcapng file that grows by blocks, in one byte order at a time."""

    order: str = "<"
    file: bytes = b""
    starts: list = field(default_factory=list)

    def block(self, kind, body, trailer=None, length=None):
        """Append a block; ``trailer`` and ``length`` are lies, if any."""
        self.starts.append(len(self.file))
        body = padded(body)
        length = len(body) + 12 if length is None else length
        trailer = length if trailer is None else trailer
        self.file += struct.pack(self.order + "II", kind, length) + body + struct.pack(self.order + "I", trailer)
        return self

    def section(self, order=None, major=1, magic=0x1A2B3C4D):
        self.order = order or self.order
        return self.block(0x0A0D0D0A, struct.pack(self.order + "IHHq", magic, major, 0, -1))

    def interface(self, linktype=ETHERNET, snaplen=0, resolution=None, offset_s=None, options=b""):
        if resolution is not None:
            options += self.option(9, bytes([resolution]))
        if offset_s is not None:
            options += self.option(14, struct.pack(self.order + "q", offset_s))
        if options:
            options += self.option(0, b"")
        return self.block(1, struct.pack(self.order + "HHI", linktype, 0, snaplen) + options)

    def option(self, code, value):
        return struct.pack(self.order + "HH", code, len(value)) + padded(value)

    def packet(self, packet, ticks, interface=0, captured=None):
        captured = len(packet.data) if captured is None else captured
        head = struct.pack(
            self.order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, captured, packet.wire_bytes
        )
        return self.block(6, head + packet.data)

    def packet_old(self, packet, ticks, interface=0):
        head = struct.pack(
            self.order + "HHIIII", interface, 7, ticks >> 32, ticks & 0xFFFFFFFF, len(packet.data), packet.wire_bytes
        )
        return self.block(2, head + packet.data)

    def packet_simple(self, packet):
        return self.block(3, struct.pack(self.order + "I", packet.wire_bytes) + packet.data)
