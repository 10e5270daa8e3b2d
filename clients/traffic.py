"""Made-up TCP conversations: any packet of any connection as a whole frame, and the loop that sends them in bursts.

A connection is a 64-bit number.  Seed and number give its tuple and its initial sequence numbers, so nothing is kept
between its packets: any packet of any connection can be made at any time, by any process.  The number becomes a
tuple by a bijection of 64 bits, so no two numbers of a seed share one:

    client 10.0.0.0/8 (24 bits), port 32768-65535 (15) | server 198.18.0.0/15 (17, RFC 2544), port 8192-8447 (8)

A frame has 60 bytes, the shortest that Ethernet sends: no TCP options, and room for 6 bytes of data (else padding).
Its constant bytes are written once; a packet costs six stores and two sums, in which 32-bit words stand for the 16-bit
ones of RFC 1071 (section 2, "parallel summation").

Frames and loop share a room because numba recompiles a kernel when *its* file changes, not when a file it calls into
does: in a room of its own the loop would go on sending yesterday's frames.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..kernels import burst, carry, checksum, draws, memory
from ..kernels.jit import inlined, kernel
from ..kernels.words import EIGHT, LOW_8, LOW_32, ONE, SIXTEEN, THIRTY_TWO, THREE, ZERO, u64
from ..shm.layout import (
    FRAME,
    FRAME_BYTES,
    LINE_BYTES,
    NO_RECORD,
    VERDICT,
    VERDICT_BYTES,
    CtState,
    Way,
    offset,
)
from ..shm.reasons import Reason

WIRE_BYTES = 60
DATA = b"zonetr"
"""Payload of every packet that has one."""


class Packet(IntEnum):
    """The packets of a conversation, as rows of PACKETS."""

    SYN = 0
    SYN_ACK = 1
    ACK = 2
    RST = 3
    DATA = 4
    ANSWER = 5
    ANSWER_ACK = 6
    DATA_ACK = 7
    FIN = 8
    FIN_BACK = 9
    LAST_ACK = 10
    EITHER = 11
    PROBE = 12


class Row(NamedTuple):
    """What a packet is made of, and the verdict it must get.

    ``opened`` and ``answered`` are how far the opener's and the responder's sequence number stand beyond their initial
    ones; the sender's goes into ``seq``, the other's into ``ack``.
    """

    packet: Packet
    way: Way
    flags: int
    opened: int
    answered: int
    payload_bytes: int
    ct_state: int
    has_record: bool


_FIN, _SYN, _RST, _PSH, _ACK = 0x01, 0x02, 0x04, 0x08, 0x10
_N = len(DATA)
_NEW = CtState.TRK | CtState.NEW
_EST = CtState.TRK | CtState.EST
_RPL = CtState.TRK | CtState.EST | CtState.RPL

# fmt: off
PACKETS = (  # packet           way        flags        opened answered payload ct_state has_record
    Row(Packet.SYN,        Way.ORIG,  _SYN,        0,     0,       0,      _NEW,    True),
    Row(Packet.SYN_ACK,    Way.REPLY, _SYN | _ACK, 1,     0,       0,      _RPL,    True),
    Row(Packet.ACK,        Way.ORIG,  _ACK,        1,     1,       0,      _EST,    True),
    Row(Packet.RST,        Way.ORIG,  _RST | _ACK, 1,     1,       0,      _EST,    True),
    # data from both sides, all of it acknowledged
    Row(Packet.DATA,       Way.ORIG,  _PSH | _ACK, 1,     1,       _N,     _EST,    True),
    Row(Packet.ANSWER,     Way.REPLY, _PSH | _ACK, 1+_N,  1,       _N,     _RPL,    True),
    Row(Packet.ANSWER_ACK, Way.ORIG,  _ACK,        1+_N,  1+_N,    0,      _EST,    True),
    # data from the opener only
    Row(Packet.DATA_ACK,   Way.REPLY, _ACK,        1,     1,       0,      _RPL,    True),
    Row(Packet.FIN,        Way.ORIG,  _FIN | _ACK, 1,     1,       0,      _EST,    True),
    Row(Packet.FIN_BACK,   Way.REPLY, _FIN | _ACK, 2,     1,       0,      _RPL,    True),
    Row(Packet.LAST_ACK,   Way.ORIG,  _ACK,        2,     2,       0,      _EST,    True),
    # DATA or ANSWER once more, drawn for each packet: after ANSWER_ACK it changes no state and shortens no timeout
    Row(Packet.EITHER,     Way.ORIG,  _PSH | _ACK, 1,     1+_N,    _N,     _EST,    True),
    # a SYN of which no record is made
    Row(Packet.PROBE,      Way.ORIG,  _SYN,        0,     0,       0,      _NEW,    False),
)
# fmt: on
_ROWS = np.array([row[1:] for row in PACKETS], "u8")
_ROWS.setflags(write=False)
_WAY, _FLAGS, _OPENED, _ANSWERED, _PAYLOAD, _CT_STATE, _HAS_RECORD = range(7)

SAMPLE = np.dtype([("number", "u8"), ("finished_ms", "u8")], align=True)
"""A conversation that shall be looked up again, and the moment of its last packet."""
SAMPLES_MAX = 256
SAMPLE_STRIDE = 1000

STREAM = np.dtype(
    [
        # private memory of the sender
        ("frames", "u8"),  # address of FRAME[BURST_PACKETS_MAX]
        ("verdicts", "u8"),  # address of VERDICT[BURST_PACKETS_MAX]
        ("pending", "u8"),  # addresses of u64[BURST_PACKETS_MAX]: numbers that wait to be sent (again) ...
        ("passed", "u8"),  # ... whose last packet got the verdict it should
        ("busy", "u8"),  # ... that met a busy lock in the middle of their conversation
        ("samples", "u8"),  # address of SAMPLE[SAMPLES_MAX]
        # what to send
        ("seed", "u8"),
        ("iteration", "u8"),  # changes the sequence numbers when tuples are used again
        ("zones", "u8"),  # connection n is in zone zone_first + (n + zone_offset) % zones
        ("zone_offset", "u8"),
        ("zone_first", "u8"),
        ("burst", "u8"),  # packets in a call, up to BURST_PACKETS_MAX
        ("budget", "u8"),  # packets after which `drive` returns
        ("first", "u8"),  # number of the first connection
        ("count", "u8"),  # how many numbers there are
        ("random", "u8"),  # state of the generator that draws numbers; 0: in order
        ("end", "u8"),  # numbers to send
        ("packet_first", "u8"),  # Packet: all from this one ...
        ("packet_last", "u8"),  # ... to this one, before the next burst
        ("sent_bytes", "u8"),  # data that the opener has sent before
        ("rounds", "u8"),  # times that all numbers are gone through again, with DATA_ACK and DATA in turn
        ("alone", "u8"),  # 1: make frames, but track nothing
        ("carrier", "u8"),  # address of a CARRIER to a service that tracks them; 0: they are tracked here
        ("sampling", "u8"),  # 1: note in `samples` when each 1,000th conversation was finished
        # how it goes
        ("next", "u8"),  # numbers drawn so far
        ("waiting", "u8"),  # how many of them stand in `pending`
        ("finished", "u8"),  # conversations that got as far as `packet_last`
        ("sampled", "u8"),  # length of `samples`; whoever reads them sets it to 0
        ("packets", "u8"),  # sent, repeated ones too
        ("retries", "u8"),  # sent again: the commit was refused, or a lock was busy
        ("refusal", "u8"),  # Reason of the last of these
        ("errors", "u8"),  # packets with another verdict than their row says
        ("wrong_number", "u8"),  # of the first error: the connection ...
        ("wrong_packet", "u8"),  # ... Packet ...
        ("wrong_verdict", "u8"),  # ... and ct_state | reason << 8
        ("calls_ns", "u8"),  # time of the calls in which packets were sent
        ("reserved", "u8", (4,)),
    ],
    align=True,
)
"""One sender: where its memory is, what it sends, how it goes.  Parameters of a call, never part of a table."""
assert STREAM.itemsize % LINE_BYTES == 0, "senders of one array must not share cache lines"

_frame_at = memory.record_at(FRAME)
_sample_at = memory.record_at(SAMPLE)

_FRAME_SIZE, _VERDICT_SIZE = u64(FRAME_BYTES), u64(VERDICT_BYTES)
_NO_RECORD, _RECORD = u64(NO_RECORD), offset(VERDICT, "record")
assert offset(VERDICT, "ct_state") == 0 and offset(VERDICT, "reason") == 1
_SAMPLE_SIZE, _SAMPLE_STRIDE, _SAMPLES_MAX = u64(SAMPLE.itemsize), u64(SAMPLE_STRIDE), u64(SAMPLES_MAX)
_DATA, _DATA_ACK, _DATA_BYTES = u64(Packet.DATA), u64(Packet.DATA_ACK), u64(len(DATA))
_BUSY_TRIES = 10_000
"""How often a conversation that has begun is sent to a busy lock, yielding in between, before that is an error."""

# The bijection: xor with the seed, odd multipliers (of splitmix64) and xor-shifts can each be undone.
_ODD_1, _ODD_2 = u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
_ODD_3, _GOLDEN = u64(0xD6E8FEB86659FD93), u64(0x9E3779B97F4A7C15)
_CLIENT, _CLIENT_BITS = u64(0x0A000000), u64((1 << 24) - 1)
_CLIENT_PORT, _CLIENT_PORT_BITS, _CLIENT_PORT_SHIFT = u64(0x8000), u64((1 << 15) - 1), u64(24)
_SERVER, _SERVER_BITS, _SERVER_SHIFT = u64(0xC6120000), u64((1 << 17) - 1), u64(39)
_SERVER_PORT, _SERVER_PORT_SHIFT = u64(8192), u64(56)

# Offsets in a frame, and the words that the sums begin with.
_IP_LENGTH_AT, _TTL_AT, _ADDRESSES_AT, _PORTS_AT, _ACK_AT, _CHECKSUM_AT = (u64(n) for n in (16, 22, 26, 34, 42, 50))
_TTL_TCP = u64(64 << 24 | 6 << 16)
_IP_SUM = u64(0x4500 + 0x4000 + (64 << 8 | 6))
_HEADERS, _TCP_HEADER = u64(40), u64(20)
_TCP_SUM = u64(6)
_DATA_SUM = u64(sum(int.from_bytes(DATA[i : i + 2], "big") for i in range(0, len(DATA), 2)))
_FIVE_WORDS, _WINDOW = u64(0x50000000), u64(0xFFFF)  # of header; and the largest window that needs no scaling
_ACK_FLAG = u64(_ACK)
_JITTER = u64(1023)  # less window, so that a repeated packet does not count as a retransmission
_TOP_BIT = u64(63)
_JITTER_SHIFT = u64(40)


@inlined
def _scramble(number, seed):
    """Return the 64 bits that become the tuple of a connection; another for each number."""
    x = (number ^ seed) * _ODD_1
    x = (x ^ (x >> THIRTY_TWO)) * _ODD_2
    return x ^ (x >> THIRTY_TWO)


@inlined
def _write(frame, x, iteration, way, flags, window, opened, answered, payload_bytes):
    """Write what is not constant in a frame: lengths, addresses, ports, numbers, flags, and both checksums."""
    initial = (x + iteration * _GOLDEN) * _ODD_3
    opener = ((initial & LOW_32) + opened) & LOW_32
    responder = ((initial >> THIRTY_TWO) + answered) & LOW_32
    client = _CLIENT | (x & _CLIENT_BITS)
    server = _SERVER | ((x >> _SERVER_SHIFT) & _SERVER_BITS)
    client_port = _CLIENT_PORT | ((x >> _CLIENT_PORT_SHIFT) & _CLIENT_PORT_BITS)
    server_port = _SERVER_PORT + (x >> _SERVER_PORT_SHIFT)
    forth = way == ZERO
    addresses = client << THIRTY_TWO | server if forth else server << THIRTY_TWO | client
    ports = client_port << SIXTEEN | server_port if forth else server_port << SIXTEEN | client_port
    seq = opener if forth else responder
    ack = responder if forth else opener
    ack = ack if flags & _ACK_FLAG != ZERO else ZERO
    flags_window = _FIVE_WORDS | flags << SIXTEEN | window
    hosts = client + server
    tcp = _TCP_SUM + _TCP_HEADER + payload_bytes + hosts + ports + seq + ack + flags_window
    tcp += _DATA_SUM if payload_bytes != ZERO else ZERO
    ip_bytes = _HEADERS + payload_bytes
    memory.set_be16(frame + _IP_LENGTH_AT, ip_bytes)
    memory.set_be32(frame + _TTL_AT, _TTL_TCP | checksum.complement(_IP_SUM + ip_bytes + hosts))
    memory.set_be64(frame + _ADDRESSES_AT, addresses)
    memory.set_be64(frame + _PORTS_AT, ports << THIRTY_TWO | seq)
    memory.set_be64(frame + _ACK_AT, ack << THIRTY_TWO | flags_window)
    memory.set_be16(frame + _CHECKSUM_AT, checksum.complement(tcp))


@kernel
def write_burst(stream, numbers, count, packet):
    """Write one packet of each of some connections into the sender's frames.

    Args:
        stream: STREAM of the sender.
        numbers: address of u64[count], the connections.
        count: frames to write, up to BURST_PACKETS_MAX.
        packet: Packet, the same of each.
    """
    seed, iteration, zones, zone_offset = stream.seed, stream.iteration, stream.zones, stream.zone_offset
    zone_first = stream.zone_first
    way, flags, payload_bytes = _ROWS[packet, _WAY], _ROWS[packet, _FLAGS], _ROWS[packet, _PAYLOAD]
    opened, answered = _ROWS[packet, _OPENED] + stream.sent_bytes, _ROWS[packet, _ANSWERED]
    either = packet == u64(Packet.EITHER)
    nonce = stream.packets
    for i in range(count):
        number = memory.le64(numbers + (u64(i) << THREE))
        frame = _frame_at(stream.frames + u64(i) * _FRAME_SIZE)
        frame.zone = zone_first + (number + zone_offset) % zones if zones > ONE else zone_first
        x = _scramble(number, seed)
        if either:
            drawn = (x ^ (nonce + u64(i))) * _ODD_1
            back = drawn >> _TOP_BIT != ZERO
            window = _WINDOW - ((drawn >> _JITTER_SHIFT) & _JITTER)
            if back:
                _write(frame.address, x, iteration, ONE, flags, window, answered, opened, payload_bytes)
            else:
                _write(frame.address, x, iteration, ZERO, flags, window, opened, answered, payload_bytes)
        else:
            _write(frame.address, x, iteration, way, flags, _WINDOW, opened, answered, payload_bytes)


@inlined
def _may_be_sent_again(reason):
    """Return whether a verdict means that there was no room, or no lock, at this moment."""
    return u64(Reason.FULL) <= reason <= u64(Reason.SLAB_FULL) or reason == u64(Reason.BUSY)


@inlined
def _are_right(verdicts, count, expected, reply, has_record):
    """Return whether all verdicts of a burst are one of two, without a reason, and with a record or without."""
    wrong = False
    for i in range(count):
        at = verdicts + u64(i) * _VERDICT_SIZE
        said = memory.le16(at)
        wrong |= (said != expected) & (said != reply)
        wrong |= (memory.le32(at + _RECORD) != _NO_RECORD) != has_record
    return not wrong


@kernel
def _judge(stream, numbers, count, packet, again, passed):
    """Sort the connections of a burst by their verdicts: ``passed``, ``again`` or wrong; either may be ``numbers``.

    Returns:
        How many passed, how many must be sent again.
    """
    expected = _ROWS[packet, _CT_STATE]
    has_record = _ROWS[packet, _HAS_RECORD] != ZERO
    reply = expected | u64(CtState.RPL) if packet == u64(Packet.EITHER) else expected
    if _are_right(stream.verdicts, count, expected, reply, has_record):
        if passed != numbers:
            memory.copy(passed, numbers, count << THREE)
        return count, ZERO
    passed_count = again_count = ZERO
    for i in range(count):
        number = memory.le64(numbers + (u64(i) << THREE))
        at = stream.verdicts + u64(i) * _VERDICT_SIZE
        said = memory.le16(at)
        right = (said == expected) | (said == reply)  # and without a reason
        if right & ((memory.le32(at + _RECORD) != _NO_RECORD) == has_record):
            memory.set_le64(passed + (passed_count << THREE), number)
            passed_count += ONE
            continue
        ct_state, reason = said & LOW_8, said >> EIGHT
        if _may_be_sent_again(reason):
            memory.set_le64(again + (again_count << THREE), number)
            again_count += ONE
            stream.refusal = reason
        else:
            if stream.errors == ZERO:
                stream.wrong_number = number
                stream.wrong_packet = packet
                stream.wrong_verdict = ct_state | reason << u64(8)
            stream.errors += ONE
    stream.retries += again_count
    return passed_count, again_count


@kernel
def _send(views, stream, numbers, count, packet, now_ms, again, passed):
    """Send one packet of each of some connections, and judge the verdicts; returns what ``_judge`` does."""
    write_burst(stream, numbers, count, packet)
    stream.packets += count
    if stream.alone != ZERO:
        return count, ZERO
    if stream.carrier == ZERO:
        burst.track_burst(views, stream.frames, count, now_ms, stream.verdicts)
    else:
        memory.set_bytes(stream.verdicts, ZERO, count * _VERDICT_SIZE)  # those of packets that are lost stay so
        carry.carry_burst(stream.carrier, stream.frames, count, stream.verdicts)
    return _judge(stream, numbers, count, packet, again, passed)


@kernel
def _converse(views, stream, count, packet, now_ms):
    """Send one packet of each of the first ``count`` connections in ``passed``, which stay there in passing.

    Who meets a busy lock here has a record already, so waiting helps: its holder must get a core.

    Returns:
        How many passed.
    """
    passed_count, busy_count = _send(views, stream, stream.passed, count, packet, now_ms, stream.busy, stream.passed)
    for _ in range(_BUSY_TRIES):
        if busy_count == ZERO:
            return passed_count
        memory.relax()
        behind = stream.passed + (passed_count << THREE)
        more, busy_count = _send(views, stream, stream.busy, busy_count, packet, now_ms, stream.busy, behind)
        passed_count += more
    stream.errors += busy_count
    return passed_count


@inlined
def _draw(stream):
    """Return the number of the next connection."""
    if stream.random == ZERO:
        return stream.first + stream.next
    stream.random = draws.after(stream.random)
    return stream.first + draws.below(stream.random, stream.count)


@kernel
def _note_samples(stream, count, now_ms):
    """Note which of the first ``count`` connections in ``passed`` shall be looked up again."""
    for i in range(count):
        number = memory.le64(stream.passed + (u64(i) << THREE))
        if number % _SAMPLE_STRIDE == ZERO and stream.sampled < _SAMPLES_MAX:
            sample = _sample_at(stream.samples + stream.sampled * _SAMPLE_SIZE)
            sample.number = number
            sample.finished_ms = now_ms
            stream.sampled += ONE


@inlined
def _begin_round(stream):
    """Go through all numbers again: after DATA with its DATA_ACK, after that with the next DATA."""
    was_data = stream.packet_first == _DATA
    packet = _DATA_ACK if was_data else _DATA
    stream.packet_first = packet
    stream.packet_last = packet
    stream.sent_bytes += _DATA_BYTES if was_data else ZERO
    stream.rounds -= ONE
    stream.next = ZERO


@kernel
def drive(views, stream, now_ms):
    """Send bursts until the budget is used, everything is sent, or some commit was refused.

    Args:
        views: VIEWS of the participant in whose name the packets are tracked.
        stream: STREAM of the sender; says what, and is told how it goes.
        now_ms: u64, monotonic milliseconds, for all bursts of this call.

    Returns:
        Whether something was refused and waits: let time pass, sweep, and call again.
    """
    stop = stream.packets + stream.budget
    while stream.packets < stop:
        waiting = stream.waiting
        while waiting < stream.burst and stream.next < stream.end:
            memory.set_le64(stream.pending + (waiting << THREE), _draw(stream))
            stream.next += ONE
            waiting += ONE
        if waiting == ZERO:
            if stream.rounds == ZERO:
                return False
            _begin_round(stream)
            continue
        packet = stream.packet_first
        count, waiting = _send(views, stream, stream.pending, waiting, packet, now_ms, stream.pending, stream.passed)
        while packet < stream.packet_last and count > ZERO:
            packet += ONE
            count = _converse(views, stream, count, packet, now_ms)
        stream.finished += count
        stream.waiting = waiting
        if stream.sampling != ZERO:
            _note_samples(stream, count, now_ms)
        if waiting > ZERO:
            return True
    return False
