"""Frames of `load forward`: each says when it was sent, and whoever receives it counts how long it was on its way.

    offer    send frames of all flows in turn, stamped, out of a device
    stamp    write the moment into frames that somebody else sends
    collect  receive frames from a device, and note their age
    note     note the age of frames that were received otherwise

Ages are counted in microseconds, one place each; what is older than the last place stands there.
"""

from __future__ import annotations

import numpy as np

from ..kernels import memory, moments, ports
from ..kernels.jit import kernel
from ..kernels.words import ONE, ZERO, u64
from ..shm.layout import FRAME, FRAME_BYTES, FRAME_SLOT_BYTES, FrameFlag, Link

STAMP = 42
"""Where it stands: behind Ethernet, IPv4 and UDP."""
FRAME_MIN, FRAME_MAX = 60, 1514
AGES = 1 << 16
BURSTS_MAX = 4
"""Of one call: a receiver that takes no more than it sends falls behind."""
COUNTS = np.dtype([("packets", "u8"), ("sum_ns", "u8"), ("min_ns", "u8"), ("max_ns", "u8"), ("ages", "u8", (AGES,))])
"""What came, and how old it was."""

frame_at = memory.record_at(FRAME)
counts_at = memory.record_at(COUNTS)
_STAMP, _FRAME, _SLOT = u64(STAMP), u64(FRAME_BYTES), u64(FRAME_SLOT_BYTES)
_AGES, _LAST = u64(32), u64(AGES - 1)
_US = u64(1_000)


@kernel
def stamp(frames, count, spec):
    """Write the moment into frames.

    Args:
        frames: address of FRAME[count].
        count: u64.
        spec: address of a TIMESPEC.
    """
    now = moments.now_ns(spec)
    for i in range(count):
        memory.set_le64(u64(frame_at(frames + u64(i) * _FRAME).address) + _STAMP, now)


@kernel
def offer(address, frames, flows, first, count, spec, verdict):
    """Send frames of a ring of flows out of a device, together.

    Args:
        address: of the QUEUE.
        frames: address of FRAME[flows].
        flows: u64.
        first: u64, number of the first packet; it is of flow ``first % flows``.
        count: u64.
        spec: address of a TIMESPEC.
        verdict: address of a VERDICT.

    Returns:
        How many there was room for.
    """
    now = moments.now_ns(spec)
    sent = ZERO
    for i in range(count):
        frame = frame_at(frames + (first + u64(i)) % flows * _FRAME)
        memory.set_le64(u64(frame.address) + _STAMP, now)
        if ports.put(address, frame, verdict) != ZERO:
            break
        sent += ONE
    ports.tx_burst(address)
    return sent


@kernel
def _count(counts, sent_ns, now):
    at = counts_at(counts)
    age = now - sent_ns if now > sent_ns else ZERO
    at.packets = at.packets + ONE
    at.sum_ns = at.sum_ns + age
    at.min_ns = min(u64(at.min_ns), age)
    at.max_ns = max(u64(at.max_ns), age)
    place = counts + _AGES + (min(age // _US, _LAST) << u64(3))
    memory.set_le64(place, memory.le64(place) + ONE)


@kernel
def collect(loop, address, counts, spec):
    """Receive from a device, and note the age of frames; returns how many there were.

    A burst ends where a block of its ring does, so several make up for what is sent meanwhile.
    """
    total = ZERO
    for _ in range(BURSTS_MAX):
        count = ports.rx_burst(loop, address)
        if count == ZERO:
            break
        now = moments.now_ns(spec)
        for i in range(count):
            _count(counts, memory.le64(u64(frame_at(loop.frames + u64(i) * _FRAME).address) + _STAMP), now)
        ports.release(address)
        total += count
    return total


@kernel
def note(slots, count, counts, spec):
    """Note the age of frames that stand in slots, one after the other."""
    now = moments.now_ns(spec)
    for i in range(count):
        _count(counts, memory.le64(slots + u64(i) * _SLOT + _STAMP), now)


def flows_of(count: int, frame_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a frame of UDP for each of some flows, FRAME[count], and the bytes that they point to."""
    block = np.zeros((count, FRAME_SLOT_BYTES), "u1")
    for number in range(count):
        block[number, :frame_bytes] = np.frombuffer(_datagram(number, frame_bytes), "u1")
    frames = np.zeros(count, FRAME)
    frames["address"] = block.ctypes.data + FRAME_SLOT_BYTES * np.arange(count, dtype="u8")
    frames["captured_bytes"] = frames["wire_bytes"] = frame_bytes
    frames["link"], frames["flags"] = Link.ETHERNET, FrameFlag.COMMIT | FrameFlag.QUIET
    return frames, block


def _datagram(number: int, frame_bytes: int) -> bytes:
    """Return a frame of UDP without a UDP checksum (RFC 768), from a host and port by number to one server."""
    size = frame_bytes - 14
    head = b"\x45\0" + size.to_bytes(2, "big") + b"\0\0\0\0\x40\x11\0\0" + bytes((10, 1, number >> 8, number & 0xFF))
    head += bytes((10, 2, 0, 1))
    total = sum(int.from_bytes(head[at : at + 2], "big") for at in range(0, 20, 2)) % 0xFFFF
    head = head[:10] + (0xFFFF - total).to_bytes(2, "big") + head[12:]
    udp = (1024 + number).to_bytes(2, "big") + (9).to_bytes(2, "big") + (size - 20).to_bytes(2, "big") + b"\0\0"
    return (bytes.fromhex("020000000002 020000000001 0800") + head + udp).ljust(frame_bytes, b"\0")


def ages_of(counts: np.ndarray) -> dict[str, float]:
    """Return the figures of what came, in microseconds."""
    packets = int(counts["packets"])
    if not packets:
        return {}
    reached = np.cumsum(counts["ages"])

    def part(share: float) -> int:
        return int(np.searchsorted(reached, np.ceil(share * packets)))

    return {
        "min_us": int(counts["min_ns"]) / 1_000,
        "avg_us": int(counts["sum_ns"]) / packets / 1_000,
        "p50_us": part(0.50),
        "p99_us": part(0.99),
        "max_us": int(counts["max_ns"]) / 1_000,
    }
