"""Datagrams in fragments: made by hand, sent in any order, and what becomes of each, at once or later."""

from __future__ import annotations

import struct
from typing import NamedTuple

import bursts
import naive_checksum
import naive_fragments
import numpy as np
import tables
from zonetrack.kernels import burst, late
from zonetrack.kernels.jit import kernel
from zonetrack.shm import segment
from zonetrack.shm.layout import (
    FRAGMENT,
    FRAME,
    SETTINGS_DEFAULT,
    STORE,
    VERDICT,
    ZONE,
    CtState,
    FrameFlag,
    Link,
    Region,
    Setting,
    VerdictFlag,
)
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry

SOURCE, DESTINATION = bytes([192, 0, 2, 1]), bytes([198, 51, 100, 1])
SOURCE6, DESTINATION6 = bytes.fromhex("20010db8" + "00" * 11 + "01"), bytes.fromhex("20010db8" + "00" * 11 + "02")
UDP, TCP, ICMP = 17, 6, 1
FRAGMENT_HEADER = 44


class Piece(NamedTuple):
    """A fragment: which of the datagram's data it has, and what its headers say."""

    data: bytes
    offset: int = 0
    more: bool = False
    id: int = 7
    family: int = 4
    protocol: int = UDP
    source: bytes = b""
    destination: bytes = b""
    extensions: tuple[tuple[int, bytes], ...] = ()
    """IPv6 headers before the fragment header, each with its number and its bytes but the first, which names the next."""
    link: bytes = b"\x02" * 12
    """Ethernet addresses and VLAN tags."""
    captured: int | None = None
    """Bytes of the frame that were captured."""

    @property
    def frame(self) -> bytes:
        """The whole frame, on Ethernet."""
        if self.family == 4:
            word = self.offset // 8 | (0x2000 if self.more else 0)
            header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(self.data), self.id, word, 64, self.protocol, 0)
            header += (self.source or SOURCE) + (self.destination or DESTINATION)
            checksum = naive_checksum.checksum(header)
            return self.link + b"\x08\x00" + header[:10] + checksum.to_bytes(2, "big") + header[12:] + self.data
        numbers = [number for number, _ in self.extensions] + [FRAGMENT_HEADER]
        before = b"".join(
            bytes([following]) + rest for following, (_, rest) in zip(numbers[1:], self.extensions, strict=True)
        )
        before += struct.pack("!BBHI", self.protocol, 0, self.offset | self.more, self.id)
        header = struct.pack("!IHBB", 6 << 28, len(before) + len(self.data), numbers[0], 64)
        addresses = (self.source or SOURCE6) + (self.destination or DESTINATION6)
        return self.link + b"\x86\xdd" + header + addresses + before + self.data


def udp(size: int, sport: int = 1000, dport: int = 53, checksum: int | None = 0, family: int = 4) -> bytes:
    """Return a UDP datagram of ``size`` bytes in all; by default without checksum in IPv4, and with the right one in IPv6.

    Args:
        size: of header and data.
        sport: port.
        dport: port.
        checksum: what stands there; None is the right one.
        family: 4 or 6.
    """
    data = bytes(i % 251 for i in range(size - 8))
    whole = struct.pack("!HHHH", sport, dport, size, 0) + data
    if checksum is None or family == 6:
        ends = SOURCE + DESTINATION if family == 4 else SOURCE6 + DESTINATION6
        checksum = naive_checksum.checksum(ends + struct.pack("!HH", UDP, size) + whole)
    return whole[:6] + struct.pack("!H", checksum) + whole[8:]


def cut(data: bytes, *ends: int, **fields) -> list[Piece]:
    """Cut a datagram's data at some places, each a multiple of 8, into pieces."""
    starts, stops = (0, *ends), (*ends, len(data))
    return [
        Piece(data[start:stop], start, stop != len(data), **fields) for start, stop in zip(starts, stops, strict=True)
    ]


class Fate(NamedTuple):
    """What became of a fragment."""

    state: str
    """Names of ct_state bits without trk; ``held`` while it waits."""
    reason: Reason


HELD = Fate("held", Reason.NONE)


def fate(verdict) -> Fate:
    """Read a VERDICT."""
    if verdict["flags"] & VerdictFlag.HELD:
        return HELD
    names = [bit.name.lower() for bit in CtState if bit is not CtState.TRK and int(verdict["ct_state"]) & bit]
    return Fate("|".join(names), Reason(int(verdict["reason"])))


def refused(reason: Reason) -> Fate:
    """Return the fate of what is invalid."""
    return Fate("inv", reason)


NEW, EST, REPLY = Fate("new", Reason.NONE), Fate("est", Reason.NONE), Fate("est|rpl", Reason.NONE)


@kernel
def collect(views, now_ms):
    """Collect, as a loop of packets does it."""
    return late.collect(views, now_ms)


def table(connections: int = 300, zones: int = 4):
    """Return a small table."""
    return segment.anonymous(Geometry(connections, zones, 0))


class Bench(bursts.Bench):
    """A participant that tracks fragments, each with the number of when it came as its ticket."""

    def __init__(self, on=None, settings: int | None = None) -> None:
        super().__init__(table() if on is None else on)
        self.sent = 0
        if settings is not None:
            self.table.array(Region.CONTROL, "zones", ZONE)["settings"] = settings

    def send(self, *pieces, now_ms: int = 1000, zone: int = 0) -> list[Fate]:
        """Track pieces, or whole frames, as one burst; returns what becomes of each."""
        buffers = [np.frombuffer(bytes(getattr(piece, "frame", piece)), "u1").copy() for piece in pieces]
        frames, verdicts = np.zeros(len(buffers), FRAME), np.zeros(len(buffers), VERDICT)
        for frame, buffer, piece in zip(frames, buffers, pieces, strict=True):
            frame["address"], frame["wire_bytes"] = buffer.ctypes.data, buffer.size
            frame["captured_bytes"] = getattr(piece, "captured", None) or buffer.size
            frame["zone"], frame["link"], frame["flags"] = zone, Link.ETHERNET, FrameFlag.COMMIT
            frame["ticket"] = self.sent
            self.sent += 1
        at = [np.uint64(array.ctypes.data) for array in (frames, verdicts)]
        burst.track_burst(self.views, at[0], np.uint64(len(buffers)), np.uint64(now_ms), at[1])
        return [fate(verdict) for verdict in verdicts]

    def late(self, now_ms: int = 1000) -> dict[int, Fate]:
        """Collect verdicts that come late, by ticket."""
        found = {}
        fragments = self.table.array(Region.FRAGMENTS, "fragments", FRAGMENT)
        scratch = naive_fragments.scratch(self.views)
        while collect(self.views, np.uint64(now_ms)):
            for number in scratch["late"][: int(scratch["late_count"])]:
                one = fragments[int(number)]
                assert int(one["ticket"]) not in found
                found[int(one["ticket"])] = fate(one["verdict"])
        return found

    def fates(self, *bursts_, now_ms: int = 1000, zone: int = 0) -> list[Fate]:
        """Track bursts, collecting after each; returns what becomes of each piece in the end."""
        first, said = self.sent, {}
        for pieces in bursts_:
            at = self.sent
            said |= dict(enumerate(self.send(*pieces, now_ms=now_ms, zone=zone), at)) | self.late(now_ms)
        return [said[n] for n in range(first, self.sent)]

    @property
    def store(self) -> np.void:
        """The STORE."""
        return self.table.array(Region.FRAGMENTS, "store", STORE)[0]

    def settle(self) -> None:
        """Nothing waits any more, and nothing is broken."""
        assert naive_fragments.faults(self.table) == []
        assert self.store["count"] == 0
        with tables.zones_that_matter():
            super().settle()


OVS = int(SETTINGS_DEFAULT | Setting.OVS)
