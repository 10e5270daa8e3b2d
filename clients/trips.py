"""Made-up TCP packets that go through several zones, one after the other, and may be translated on the way.

A connection is a number.  Seed and number give its client, and its sequence numbers; all connections go to one server:

    client 10.0.0.0/8 (24 bits), port 32768-65535 (15) | server 198.18.0.1, port 8192

A *stage* is one look at the tracker: a zone, whether to commit, what is asked of the connection.  All packets of a burst go
through a stage before any goes through the next, each as the stage before left it.  How a packet came out in the end is
kept, for its answer is made of that: so whoever answers sees what the other end would.

Frames and loop share a room because numba recompiles a kernel when *its* file changes, not when a file it calls into does.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..kernels import burst, checksum, draws, memory, stages
from ..kernels.jit import inlined, kernel
from ..kernels.words import LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64
from ..shm.layout import (
    BURST_PACKETS_MAX,
    FRAME,
    FRAME_BYTES,
    LINE_BYTES,
    NO_RECORD,
    VERDICT,
    VERDICT_BYTES,
    FrameFlag,
    Link,
    Way,
)
from ..shm.reasons import Reason
from .sender import state_names

WIRE_BYTES = 60
BUSY_TRIES_MAX = 100_000
"""How often a burst is sent again whose lock was busy, yielding in between, before that is an error."""


class Leg(IntEnum):
    """The packets of a trip, as rows of LEGS."""

    SYN = 0
    SYN_ACK = 1
    ACK = 2


class Row(NamedTuple):
    """What a packet is made of; ``opened`` and ``answered`` as in clients/traffic."""

    leg: Leg
    way: Way
    flags: int
    opened: int
    answered: int


# fmt: off
LEGS = (
    Row(Leg.SYN,     Way.ORIG,  0x02, 0, 0),
    Row(Leg.SYN_ACK, Way.REPLY, 0x12, 1, 0),
    Row(Leg.ACK,     Way.ORIG,  0x10, 1, 1),
)
# fmt: on
_ROWS = np.array([row[1:] for row in LEGS], "u8")
_ROWS.setflags(write=False)
_WAY, _FLAGS, _OPENED, _ANSWERED = range(4)

STAGE = np.dtype(
    [
        ("action", "u8"),  # address of an ACTION, 0: nothing is asked
        ("zone", "u4"),
        ("flags", "u4"),  # FrameFlag bits
        ("ct_state", "u4"),  # that its verdict must have
        ("has_record", "u4"),  # 1: there must be a connection then, 0: there must be none
    ],
    align=True,
)
STAGES_MAX = 16

TUPLE = np.dtype([("addresses", "u8"), ("ports", "u8")])
"""How a packet came out: source 32 | destination 32, ports likewise in 16 bits each; all 0: not at all."""

TRIP = np.dtype(
    [
        # private memory of the traveller
        ("frames", "u8"),  # address of FRAME[BURST_PACKETS_MAX]
        ("verdicts", "u8"),  # address of VERDICT[BURST_PACKETS_MAX]
        ("numbers", "u8"),  # address of u64[BURST_PACKETS_MAX]: those of the burst, in the end those to be sent again
        ("outcomes", "u8"),  # address of u64[BURST_PACKETS_MAX], of the burst
        ("stages", "u8"),  # address of STAGE[stage_count]
        ("stage_count", "u8"),
        ("tuples", "u8"),  # address of TUPLE[..], by number from `tuples_first` on; 0: nothing is kept
        ("tuples_first", "u8"),
        # what to send
        ("seed", "u8"),
        ("burst", "u8"),
        ("budget", "u8"),  # packets after which `travel` returns
        ("leg", "u8"),  # Leg
        ("first", "u8"),  # number of the first connection
        ("count", "u8"),  # how many numbers there are
        ("random", "u8"),  # state of the generator that draws numbers; 0: in order
        ("end", "u8"),  # numbers to send
        ("alone", "u8"),  # 1: make frames, but track nothing
        # how it goes
        ("next", "u8"),
        ("waiting", "u8"),  # how many of `numbers` are to be sent again
        ("tries", "u8"),  # how often in a row
        ("packets", "u8"),
        ("retries", "u8"),
        ("exhausted", "u8"),  # packets for which there was no tuple
        ("skipped", "u8"),  # answers to such packets, which there are not
        ("errors", "u8"),
        ("wrong_number", "u8"),  # of the first error: the connection ...
        ("wrong_stage", "u8"),  # ... the stage, the number of stages for the frame that came out ...
        ("wrong_verdict", "u8"),  # ... and ct_state | reason << 8
    ],
    align=True,
)
"""One traveller: where its memory is, what it sends, how it goes.  Private to a process."""

_trip_at = memory.record_at(TRIP)
_stage_at, _frame_at, _verdict_at, _tuple_at = (memory.record_at(dtype) for dtype in (STAGE, FRAME, VERDICT, TUPLE))
_STAGE, _FRAME, _VERDICT, _TUPLE = (u64(size) for size in (STAGE.itemsize, FRAME_BYTES, VERDICT_BYTES, TUPLE.itemsize))
_NO_RECORD = u64(NO_RECORD)
_FINE, _AGAIN, _EXHAUSTED, _WRONG = ZERO, ONE, u64(2), u64(3)

_BITS = u64((1 << 39) - 1)
_ODD_1, _ODD_2, _ODD_3 = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB), u64(0xD6E8FEB86659FD93)
_HALF = u64(20)
_CLIENT, _CLIENT_BITS = u64(0x0A000000), u64((1 << 24) - 1)
_CLIENT_PORT, _CLIENT_PORT_SHIFT = u64(0x8000), u64(24)
SERVER, SERVER_PORT = 0xC6120001, 8192
_SERVER, _SERVER_PORT = u64(SERVER), u64(SERVER_PORT)
_ADDRESSES_AT, _PORTS_AT, _ACK_AT, _TTL_AT, _CHECKSUM_AT = (u64(n) for n in (26, 34, 42, 22, 50))
_TTL_TCP, _TCP_SUM = u64(64 << 24 | 6 << 16), u64(6 + 20)
_IP_SUM = u64(0x4500 + 40 + 0x4000 + (64 << 8 | 6))
_FIVE_WORDS, _WINDOW, _ACK_FLAG = u64(0x50000000), u64(0xFFFF), u64(0x10)
_GOLDEN = u64(0x9E3779B97F4A7C15)


@inlined
def _scramble(number, seed):
    """Return 39 bits that become the client of a connection; others for each number below 2**39."""
    x = ((number ^ seed) * _ODD_1) & _BITS
    x = ((x ^ (x >> _HALF)) * _ODD_2) & _BITS
    return x ^ (x >> _HALF)


@inlined
def _addresses(x):
    return ((_CLIENT | (x & _CLIENT_BITS)) << THIRTY_TWO) | _SERVER


@inlined
def _ports(x):
    return ((_CLIENT_PORT | (x >> _CLIENT_PORT_SHIFT)) << SIXTEEN) | _SERVER_PORT


@inlined
def _turned(addresses, ports):
    """Return a tuple the other way round."""
    return (addresses >> THIRTY_TWO) | (addresses << THIRTY_TWO), (ports >> SIXTEEN) | ((ports & LOW_16) << SIXTEEN)


@inlined
def _write(frame, addresses, ports, seq, ack, flags):
    flags_window = _FIVE_WORDS | flags << SIXTEEN | _WINDOW
    hosts = (addresses >> THIRTY_TWO) + (addresses & LOW_32)
    memory.set_be32(frame + _TTL_AT, _TTL_TCP | checksum.complement(_IP_SUM + hosts))
    memory.set_be64(frame + _ADDRESSES_AT, addresses)
    memory.set_be64(frame + _PORTS_AT, ports << THIRTY_TWO | seq)
    memory.set_be64(frame + _ACK_AT, ack << THIRTY_TWO | flags_window)
    memory.set_be16(frame + _CHECKSUM_AT, checksum.complement(_TCP_SUM + hosts + ports + seq + ack + flags_window))


@kernel
def _write_burst(trip, count):
    """Write the frames of a burst; an answer to what never came out becomes one to nobody."""
    seed, leg = trip.seed, trip.leg
    way, flags, opened, answered = _ROWS[leg, _WAY], _ROWS[leg, _FLAGS], _ROWS[leg, _OPENED], _ROWS[leg, _ANSWERED]
    for i in range(count):
        number = memory.le64(trip.numbers + (u64(i) << THREE))
        x = _scramble(number, seed)
        initial = (x ^ _GOLDEN) * _ODD_3
        opener, responder = ((initial & LOW_32) + opened) & LOW_32, ((initial >> THIRTY_TWO) + answered) & LOW_32
        frame = u64(_frame_at(trip.frames + u64(i) * _FRAME).address)
        if way == ZERO:
            ack = responder if flags & _ACK_FLAG != ZERO else ZERO
            _write(frame, _addresses(x), _ports(x), opener, ack, flags)
        else:
            kept = _tuple_at(trip.tuples + (number - trip.tuples_first) * _TUPLE)
            addresses, ports = _turned(u64(kept.addresses), u64(kept.ports))
            _write(frame, addresses, ports, responder, opener, flags)


@inlined
def _note(trip, number, stage, verdict):
    if trip.errors == ZERO:
        trip.wrong_number = number
        trip.wrong_stage = stage
        trip.wrong_verdict = u64(verdict.ct_state) | u64(verdict.reason) << u64(8)
    trip.errors += ONE


@inlined
def _may_be_sent_again(reason):
    """Return whether a verdict means that there was no room, or no lock, at this moment."""
    return u64(Reason.FULL) <= reason <= u64(Reason.SLAB_FULL) or reason == u64(Reason.BUSY)


@kernel
def _judge(trip, number, count):
    """Hold the verdicts of a burst against what a stage expects."""
    stage = _stage_at(trip.stages + number * _STAGE)
    expected, has_record = u64(stage.ct_state), u64(stage.has_record) != ZERO
    for i in range(count):
        verdict = _verdict_at(trip.verdicts + u64(i) * _VERDICT)
        reason = u64(verdict.reason)
        right = u64(verdict.ct_state) == expected and reason == ZERO
        if right and (u64(verdict.record) != _NO_RECORD) == has_record:
            continue
        at = trip.outcomes + (u64(i) << THREE)
        if memory.le64(at) != _FINE:
            continue
        if _may_be_sent_again(reason):
            memory.set_le64(at, _AGAIN)
        elif reason == u64(Reason.NAT_EXHAUSTED):
            memory.set_le64(at, _EXHAUSTED)
        else:
            memory.set_le64(at, _WRONG)
            _note(trip, memory.le64(trip.numbers + (u64(i) << THREE)), number, verdict)


@kernel
def _settle(trip, count):
    """Keep how packets came out, see whether answers came home; returns how many are to be sent again."""
    again = ZERO
    forth = _ROWS[trip.leg, _WAY] == ZERO
    for i in range(count):
        number = memory.le64(trip.numbers + (u64(i) << THREE))
        outcome = memory.le64(trip.outcomes + (u64(i) << THREE))
        frame = u64(_frame_at(trip.frames + u64(i) * _FRAME).address)
        addresses, ports = memory.be64(frame + _ADDRESSES_AT), memory.be32(frame + _PORTS_AT)
        if outcome == _AGAIN:
            memory.set_le64(trip.numbers + (again << THREE), number)
            again += ONE
        elif forth:
            if trip.tuples != ZERO:
                kept = _tuple_at(trip.tuples + (number - trip.tuples_first) * _TUPLE)
                kept.addresses = addresses if outcome == _FINE else ZERO
                kept.ports = ports if outcome == _FINE else ZERO
            if outcome == _EXHAUSTED:
                trip.exhausted += ONE
        elif outcome == _FINE:
            x = _scramble(number, trip.seed)
            home, home_ports = _turned(_addresses(x), _ports(x))
            if addresses != home or ports != home_ports:
                _note(trip, number, trip.stage_count, _verdict_at(trip.verdicts + u64(i) * _VERDICT))
    return again


@inlined
def _draw(trip):
    """Return the number of the next connection."""
    if trip.random == ZERO:
        return trip.first + trip.next
    trip.random = draws.after(trip.random)
    return trip.first + draws.below(trip.random, trip.count)


@inlined
def _is_lost(trip, number):
    """Return whether a packet would answer one that never came out."""
    if _ROWS[trip.leg, _WAY] == ZERO:
        return False
    return u64(_tuple_at(trip.tuples + (number - trip.tuples_first) * _TUPLE).addresses) == ZERO


@kernel
def travel(views, address, now_ms):
    """Send bursts through all stages until the budget is used or everything was sent.

    Args:
        views: VIEWS of the participant in whose name the packets are tracked.
        address: u64, of a TRIP; says what, and is told how it goes.
        now_ms: u64, monotonic milliseconds, for all bursts of this call.

    Returns:
        Whether there is more to send.
    """
    trip = _trip_at(address)
    stop = trip.packets + trip.budget
    while trip.packets < stop:
        count = trip.waiting
        while count < trip.burst and trip.next < trip.end:
            number = _draw(trip)
            trip.next += ONE
            if _is_lost(trip, number):
                trip.skipped += ONE
                continue
            memory.set_le64(trip.numbers + (count << THREE), number)
            count += ONE
        if count == ZERO:
            return False
        _write_burst(trip, count)
        trip.packets += count
        if trip.alone != ZERO:
            trip.waiting = ZERO
            continue
        for i in range(count):
            memory.set_le64(trip.outcomes + (u64(i) << THREE), _FINE)
        for k in range(trip.stage_count):
            stage = _stage_at(trip.stages + u64(k) * _STAGE)
            for i in range(count):
                frame = _frame_at(trip.frames + u64(i) * _FRAME)
                frame.zone, frame.flags, frame.action = stage.zone, stage.flags, stage.action
                if k != 0:
                    stages.keep(views, u64(i), u64(stage.zone), _verdict_at(trip.verdicts + u64(i) * _VERDICT))
            burst.track_burst(views, trip.frames, count, now_ms, trip.verdicts)
            _judge(trip, u64(k), count)
        trip.waiting = _settle(trip, count)
        if trip.waiting != ZERO:
            trip.retries += trip.waiting
            trip.tries += ONE
            if trip.tries > u64(BUSY_TRIES_MAX):
                trip.errors += trip.waiting
                trip.waiting = ZERO
            memory.relax()
        else:
            trip.tries = ZERO
    return True


class Stage(NamedTuple):
    """One look at the tracker, and the verdict that it must give."""

    zone: int
    ct_state: int
    has_record: bool
    commit: bool = False
    action: np.ndarray | None = None  # ACTION[1], kept by whoever travels


def _constant() -> bytes:
    """Return the bytes that all frames begin as: Ethernet addresses, IPv4 without options, TTL 64."""
    ethernet = bytes.fromhex("020000000002 020000000001 0800")
    return (ethernet + bytes.fromhex("4500 0028 0000 4000 4006 0000")).ljust(LINE_BYTES, b"\0")


class Traveller:
    """The private memory of one who sends packets on trips, and its TRIP."""

    def __init__(self, seed: int, burst_packets: int, tuples: np.ndarray | None = None, tuples_first: int = 0) -> None:
        """Allocate frames and lists.

        Args:
            seed: the same seed and number make the same packets; 39 bits of it count.
            burst_packets: packets in a call, 1 to BURST_PACKETS_MAX.
            tuples: TUPLE[n], in which is kept how packets came out.
            tuples_first: number of the connection that the first of these belongs to.
        """
        n = BURST_PACKETS_MAX
        block = np.zeros(LINE_BYTES * (n + 1), "u1")
        self.slots = block[-block.ctypes.data % LINE_BYTES :][: LINE_BYTES * n].reshape(n, LINE_BYTES)
        self.slots[:] = np.frombuffer(_constant(), "u1")
        self.frames = np.zeros(n, FRAME)
        self.frames["address"] = self.slots.ctypes.data + LINE_BYTES * np.arange(n, dtype="u8")
        self.frames["captured_bytes"] = self.frames["wire_bytes"] = WIRE_BYTES
        self.frames["link"] = Link.ETHERNET
        self.verdicts = np.zeros(n, VERDICT)
        self.numbers, self._outcomes = np.zeros(n, "u8"), np.zeros(n, "u8")
        self._stages, self._kept = np.zeros(STAGES_MAX, STAGE), []
        self._tuples = tuples
        self.trip = np.zeros(1, TRIP)
        for name in ("frames", "verdicts", "numbers"):
            self.trip[name] = getattr(self, name).ctypes.data
        self.trip["outcomes"], self.trip["stages"] = self._outcomes.ctypes.data, self._stages.ctypes.data
        if tuples is not None:
            self.trip["tuples"], self.trip["tuples_first"] = tuples.ctypes.data, tuples_first
        self.set(seed=seed & int(_BITS), burst=burst_packets, budget=burst_packets, count=1)
        self.address = u64(self.trip.ctypes.data)

    def __getitem__(self, name: str) -> int:
        return int(self.trip[name][0])

    def set(self, **fields: int) -> None:
        """Set fields of the trip."""
        for name, value in fields.items():
            self.trip[name] = value

    def aim(self, leg: Leg, stages: Sequence[Stage], first: int, count: int, end: int = 0, random: int = 0) -> None:
        """Begin a trip of one packet of each of some connections.

        Args:
            leg: the packet.
            stages: that it goes through.
            first: number of the first connection.
            count: how many there are.
            end: how many packets; as many as connections when 0.
            random: state of the generator that draws connections, 0: in order.
        """
        self._put(stages)
        self.set(leg=leg, first=first, count=count, end=end or count, random=random, next=0, waiting=0, tries=0)

    def aim_at(self, numbers: np.ndarray, leg: Leg, stages: Sequence[Stage]) -> None:
        """Begin a trip of one packet of each of these connections, u64[n], n <= BURST_PACKETS_MAX."""
        self._put(stages)
        self.numbers[: len(numbers)] = numbers
        self.set(leg=leg, next=0, end=0, waiting=len(numbers), tries=0)

    def _put(self, stages: Sequence[Stage]) -> None:
        self._kept = [stage.action for stage in stages]
        for row, stage in zip(self._stages, stages, strict=False):
            row["action"] = 0 if stage.action is None else stage.action.ctypes.data
            row["zone"], row["ct_state"], row["has_record"] = stage.zone, stage.ct_state, stage.has_record
            row["flags"] = FrameFlag.COMMIT if stage.commit else 0
        self.set(stage_count=len(stages))

    def complaint(self) -> str | None:
        """Return what was wrong with the first packet that did not become what it should; None if all did."""
        if not self["errors"]:
            return None
        number, stage, verdict = self["wrong_number"], self["wrong_stage"], self["wrong_verdict"]
        leg = Leg(self["leg"]).name
        if stage == self["stage_count"]:
            return f"{self['errors']} packets went astray, the first of them {leg} of connection {number}"
        row = self._stages[stage]
        return (
            f"{self['errors']} packets with a wrong verdict, the first of them {leg} of connection {number} in zone "
            f"{row['zone']}: expected {state_names(int(row['ct_state']))}, found {state_names(verdict & 0xFF)} "
            f"({Reason(verdict >> 8).name.lower()})"
        )
