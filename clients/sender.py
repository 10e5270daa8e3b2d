"""One sender of made-up traffic: its private memory, its STREAM, and what it says when a verdict was wrong."""

from __future__ import annotations

import numpy as np

from ..shm.layout import BURST_PACKETS_MAX, FRAME, LINE_BYTES, VERDICT, CtState, FrameFlag, Link
from ..shm.reasons import Reason
from .traffic import DATA, PACKETS, SAMPLE, SAMPLES_MAX, STREAM, WIRE_BYTES, Packet

SLOT_BYTES = LINE_BYTES
"""A frame's place in the sender's memory: one cache line, so that 32 of them stay in the nearest cache."""


def _constant() -> bytes:
    """Return the bytes that all frames begin as: Ethernet addresses, IPv4 without options, TTL 64, and the data."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    ip = bytes.fromhex("4500 0000 0000 4000 4006 0000") + bytes(8)
    return (ethernet + ip + bytes(20) + DATA).ljust(SLOT_BYTES, b"\0")


_CONSTANT = _constant()


class Sender:
    """The private memory of one sender, and its STREAM."""

    def __init__(self, seed: int, burst_packets: int, stream: np.record | None = None) -> None:
        """Allocate frames and lists, and write the constant bytes of every frame.

        Args:
            seed: 64 bits; the same seed and number make the same packets.
            burst_packets: packets in a call, 1 to BURST_PACKETS_MAX.
            stream: STREAM to use, for instance one that another process watches; its own without.
        """
        if not 1 <= burst_packets <= BURST_PACKETS_MAX:
            raise ValueError(f"a burst has 1 to {BURST_PACKETS_MAX} packets, not {burst_packets}")
        n = BURST_PACKETS_MAX
        block = np.zeros(SLOT_BYTES * (n + 1), "u1")
        aligned = block[-block.ctypes.data % SLOT_BYTES :]
        self.slots = aligned[: SLOT_BYTES * n].reshape(n, SLOT_BYTES)
        self.frames = np.zeros(n, FRAME)
        self.verdicts = np.zeros(n, VERDICT)
        self.lists = np.zeros((3, n), "u8")
        self.stream = np.zeros(1, STREAM).view(np.recarray)[0] if stream is None else stream
        self.slots[:] = np.frombuffer(_CONSTANT, "u1")
        self.frames["address"] = self.slots.ctypes.data + SLOT_BYTES * np.arange(n, dtype="u8")
        self.frames["captured_bytes"] = self.frames["wire_bytes"] = WIRE_BYTES
        self.frames["link"] = Link.ETHERNET
        for name, array in (("frames", self.frames), ("verdicts", self.verdicts)):
            self.stream[name] = array.ctypes.data
        self.samples = np.zeros(SAMPLES_MAX, SAMPLE)
        self.stream["samples"] = self.samples.ctypes.data
        for name, numbers in zip(("pending", "passed", "busy"), self.lists, strict=True):
            self.stream[name] = numbers.ctypes.data
        self.set(seed=seed, burst=burst_packets, budget=burst_packets, zones=1, count=1)
        self.commits(True)

    def commits(self, yes: bool) -> None:
        """Say whether packets that have no connection shall make one."""
        self.frames["flags"] = FrameFlag.COMMIT if yes else 0

    def set(self, **fields: int) -> None:
        """Set fields of the stream."""
        for name, value in fields.items():
            self.stream[name] = value

    def send(self, first: Packet, last: Packet | None = None, sent_bytes: int = 0, rounds: int = 1) -> None:
        """Begin a run through the stream's numbers with the packets from ``first`` to ``last``.

        In more rounds than one, ``first`` is DATA, and each second round is of its DATA_ACK.
        """
        last = first if last is None else last
        self.set(packet_first=first, packet_last=last, sent_bytes=sent_bytes, next=0, waiting=0, finished=0)
        self.set(rounds=rounds - 1)

    def send_to(self, numbers: np.ndarray, packet: Packet, sent_bytes: int = 0) -> None:
        """Begin a run with one packet of each of the connections listed, u64[n], n <= the burst."""
        self.send(packet, sent_bytes=sent_bytes)
        self.lists[0][: len(numbers)] = numbers
        self.set(waiting=len(numbers), end=0)

    def take_samples(self) -> np.ndarray:
        """Return the conversations noted since the last call, SAMPLE[n]."""
        samples = self.samples[: int(self.stream["sampled"])].copy()
        self.set(sampled=0)
        return samples

    @property
    def done(self) -> bool:
        """Whether every number was sent, in every round, and none waits."""
        stream = self.stream
        return bool(stream["next"] == stream["end"] and stream["waiting"] == 0 and stream["rounds"] == 0)

    def complaint(self) -> str | None:
        """Return what was wrong with the first packet that got another verdict than its row says; None if none did."""
        if not self.stream["errors"]:
            return None
        row = PACKETS[int(self.stream["wrong_packet"])]
        ct_state, reason = int(self.stream["wrong_verdict"]) & 0xFF, int(self.stream["wrong_verdict"]) >> 8
        expected, found = state_names(row.ct_state), state_names(ct_state)
        return (
            f"{int(self.stream['errors'])} packets with a wrong verdict, the first of them {row.packet.name} of "
            f"connection {int(self.stream['wrong_number'])}: expected {expected}, found {found}"
            f" ({Reason(reason).name.lower()})"
        )


def state_names(ct_state: int) -> str:
    """Return the names of ct_state bits, joined by ``|``."""
    return "|".join(bit.name.lower() for bit in CtState if ct_state & bit) or "nothing"
