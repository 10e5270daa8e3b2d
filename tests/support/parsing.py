"""The parser seen from Python: bytes in, what it found out; and what it should have found, worked out naively."""

import ipaddress
from typing import NamedTuple

import numpy as np
from segments import Parsed
from zonetrack.kernels import memory, packet
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FRAME, PARSED, FrameFlag, Link, PacketKind, Setting
from zonetrack.shm.reasons import Reason

EXAMPLES = 400 if JIT else 40
"""Random examples a test; the interpreter is slower by a factor of hundreds."""

frame_at = memory.record_at(FRAME)
parsed_at = memory.record_at(PARSED)


@kernel
def _parse(frame, zone, settings, parsed):
    packet.parse(frame_at(frame), zone, settings, parsed_at(parsed))


class Found(NamedTuple):
    """A PARSED in Python's words."""

    reason: Reason
    kind: PacketKind
    family: int
    protocol: int
    ip_bytes: int
    key: tuple
    high_is_source: int
    can_reply: int
    l4: int  # offset from the frame's first byte
    l4_bytes: int
    payload_bytes: int
    options_bytes: int
    seq: int
    ack: int
    win: int
    tcp_flags: int
    icmp_word: int
    inner_key: tuple
    inner_high_is_source: int


POISON = 0xA5
NOTHING = (0, 0, 0, 0, 0)


def parse_at(
    address, captured, *, wire=None, link=Link.ETHERNET, zone=0, verify=True, ovs=False, trusted=False, poison=POISON
):
    """Return what the parser finds in ``captured`` bytes at ``address``; ``poison`` is what the record held before."""
    frame = np.zeros(1, FRAME)
    frame["address"] = address
    frame["captured_bytes"] = captured
    frame["wire_bytes"] = captured if wire is None else wire
    frame["link"] = link
    frame["flags"] = FrameFlag.CHECKSUM_TRUSTED if trusted else 0
    parsed = np.full(PARSED.itemsize, poison, np.uint8).view(PARSED)
    _parse(u64(frame.ctypes.data), u64(zone), settings_of(verify, ovs), u64(parsed.ctypes.data))
    p = parsed[0]
    plain = {name: int(p[name]) for name in Found._fields if PARSED[name].shape == ()}
    plain |= {name: tuple(int(word) for word in p[name]) for name in ("key", "inner_key")}
    plain["reason"] = Reason(plain["reason"])
    plain["kind"] = PacketKind(plain["kind"])
    if plain["reason"] == Reason.NONE:
        plain["l4"] -= address
    return Found(**plain)


def settings_of(verify, ovs):
    """Return the settings of a zone as a kernel takes them."""
    return u64((Setting.CHECKSUM if verify else 0) | (Setting.OVS if ovs else 0))


def parsed_of(data, *, verify=True, ovs=False):
    """Return PARSED[1] of an IP packet as the tracker takes it; it keeps the bytes alive to which it points."""
    octets = np.frombuffer(bytes(data), np.uint8).copy()
    frame, parsed = np.zeros(1, FRAME), np.zeros(1, PARSED).view(Parsed)
    frame["address"], frame["link"] = octets.ctypes.data, Link.RAW_IP
    frame["captured_bytes"] = frame["wire_bytes"] = len(octets)
    _parse(u64(frame.ctypes.data), u64(0), settings_of(verify, ovs), u64(parsed.ctypes.data))
    parsed.header = octets
    return parsed


def parse(data, **how):
    """Return what the parser finds in a frame; how: as in `parse_at`."""
    data = np.frombuffer(bytes(data) or b"\0", np.uint8)[: len(bytes(data))]
    return parse_at(data.ctypes.data, len(data), **how)


class Tuple(NamedTuple):
    """A packet's tuple as a person writes it, and so the direction."""

    src: str
    src_port: int
    dst: str
    dst_port: int
    protocol: int

    def reversed(self):
        return Tuple(self.dst, self.dst_port, self.src, self.src_port, self.protocol)


def key_of(tuple_, zone=0):
    """Return the key of a tuple, and whether its source is the key's second endpoint."""
    src, dst = ipaddress.ip_address(tuple_.src), ipaddress.ip_address(tuple_.dst)
    source, target = (int(src), tuple_.src_port), (int(dst), tuple_.dst_port)
    low, high = sorted((source, target))
    words = [low[0] >> 64, low[0] % 2**64, high[0] >> 64, high[0] % 2**64]
    last = low[1] << 48 | high[1] << 32 | zone << 16 | tuple_.protocol << 8 | src.version
    return (*words, last), int(source > target)


def assert_tuple(found, tuple_, zone=0):
    """Fail unless a packet was found fit to be tracked, as of this tuple and direction."""
    assert found.reason == Reason.NONE
    assert (found.key, found.high_is_source) == key_of(tuple_, zone)
    assert (found.protocol, found.family) == (tuple_.protocol, ipaddress.ip_address(tuple_.src).version)
    assert found.can_reply == (tuple_ != tuple_.reversed())
