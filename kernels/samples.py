"""The latest packets that got a reason, with what they were compared with: a ring of each participant, read by anybody.

    remember   under the record's lock: what the packet was compared with
    take       after the verdict: the packet, and what was said of it

A sample's number is odd while it is written (W1), so that a reader who sees the same even number before and after his copy
(service/samples) has a whole one.  One that its writer died over stays odd, and is written again by who has its place next.
"""

from __future__ import annotations

from ..shm.layout import (
    KEY_WORDS,
    LINE_BYTES,
    NO_RECORD,
    PARTICIPANT,
    SAMPLE,
    SAMPLE_BYTES,
    SAMPLES_MAX,
    PacketKind,
    SampleFlag,
    Way,
    offset,
)
from ..shm.reasons import Reason
from . import counters, entries, links, memory, tcp_window, zones
from .jit import inlined, kernel
from .stages import ERROR, key_of, parsed_of
from .tcp_window import peer_address, peer_at
from .verdicts import verdict_at
from .words import EIGHT, LOW_8, ONE, SIXTEEN, THREE, ZERO, u64

sample_at = memory.record_at(SAMPLE)

_SIZE = u64(SAMPLE_BYTES)
_MASK = u64(SAMPLES_MAX - 1)
_NUMBER = offset(SAMPLE, "number")
_KEY = offset(SAMPLE, "key")
_CONTENTS = offset(SAMPLE, "contents")
_TAKEN = offset(PARTICIPANT, "samples")
_LINE = u64(LINE_BYTES)
_LAST_KEY_WORD = u64(8 * (KEY_WORDS - 1))
_NO_RECORD = u64(NO_RECORD)
_FOUND, _QUOTED = u64(SampleFlag.FOUND), u64(SampleFlag.QUOTED)
_TCP = u64(PacketKind.TCP)
_REPLY = u64(Way.REPLY)
assert SampleFlag.HIGH_IS_SOURCE == 2


@inlined
def _next(views):
    """Begin the next sample (W1), or go on with it; return its address."""
    n = memory.read64(views.intent + _TAKEN)
    at = views.own_samples + (n & _MASK) * _SIZE
    if memory.read64(at + _NUMBER) != n + n + ONE:
        memory.write64(at + _NUMBER, n + n + ONE)
        memory.fence_full()
        sample_at(at).record = _NO_RECORD
    return at


@kernel
def remember(views, entry, record):
    """Keep what a packet was compared with: the record of its connection, whose lock is held."""
    memory.seldom()
    at = _next(views)
    sample = sample_at(at)
    fields = entries.entry_at(entry)
    memory.copy(at + _CONTENTS, entry + entries.PROTOCOL, _LINE)
    sample.record = record
    sample.incarnation = entries.incarnation_of(memory.read64(entry + entries.LIFE))
    sample.status = fields.status
    sample.policy = fields.policy


@kernel
def _keep_packet(at, frame):
    """Keep the beginning of a packet, from its IP header on if it has one; return the bytes that there were of it."""
    start, captured = u64(frame.address), u64(frame.captured_bytes)
    found = links.find(u64(frame.link), start, captured)
    if found & LOW_8 != ZERO:
        start += found >> EIGHT
        captured -= found >> EIGHT
    memory.set_bytes(at + _CONTENTS, ZERO, LINE_BYTES)
    memory.copy(at + _CONTENTS, start, min(captured, _LINE))
    return captured


@kernel
def take(views, frame, i, now_ms, verdict_address):
    """Keep packet ``i`` of the burst, and what was said of it.

    Args:
        views: record of shm.views.
        frame: its FRAME.
        i: u64, its place in the burst; PARSED is there.
        now_ms: u64.
        verdict_address: u64, address of its VERDICT.

    Concurrency:
        Nothing is held.
    """
    memory.seldom()
    parsed = parsed_of(views, i)
    verdict = verdict_at(verdict_address)
    at = _next(views)
    sample = sample_at(at)
    flags = ZERO
    record = u64(verdict.record)
    if record != _NO_RECORD and u64(sample.record) == record and u64(sample.incarnation) == u64(verdict.incarnation):
        flags = _FOUND
    kind = u64(parsed.kind)
    sample.captured_bytes = parsed.ip_bytes
    if flags == ZERO:
        sample.captured_bytes = _keep_packet(at, frame)
        sample.status = ZERO
        sample.policy = ZERO
    sample.record = record
    sample.incarnation = verdict.incarnation
    memory.copy(at + _KEY, key_of(views, i, kind), u64(8 * KEY_WORDS))
    if u64(parsed.reason) != u64(Reason.NONE):
        word = (u64(parsed.zone) << SIXTEEN) | (u64(parsed.protocol) << EIGHT) | u64(parsed.family)
        memory.set_le64(at + _KEY + _LAST_KEY_WORD, word)
    if kind == ERROR:
        flags |= _QUOTED | (u64(parsed.inner_high_is_source) << ONE)
    else:
        flags |= u64(parsed.high_is_source) << ONE
    sample.now_ms = now_ms
    sample.packet = memory.le64(views.counters + (u64(Reason.PACKETS) << THREE)) + i + ONE
    sample.seq = parsed.seq
    sample.ack = parsed.ack
    sample.sack = parsed.ack
    way = u64(verdict.direction)
    if flags & _FOUND != ZERO and kind == _TCP and way <= _REPLY:
        receiver = peer_at(peer_address(at + _CONTENTS, ONE - way))
        sample.sack = tcp_window.sack_of(parsed, u64(receiver.flags))
    sample.payload_bytes = parsed.payload_bytes
    sample.ip_bytes = parsed.ip_bytes
    sample.l4_bytes = parsed.l4_bytes
    sample.timeout_ms = verdict.timeout_ms
    sample.icmp_word = parsed.icmp_word
    sample.settings = zones.settings_of(views, u64(parsed.zone))
    sample.win = parsed.win
    sample.tcp_flags = parsed.tcp_flags
    sample.state = verdict.state
    sample.reason = verdict.reason
    sample.ct_state = verdict.ct_state
    sample.way = way
    sample.kind = kind
    sample.flags = flags
    n = memory.read64(views.intent + _TAKEN)
    memory.release64(at + _NUMBER, n + n + u64(2))
    memory.release64(views.intent + _TAKEN, n + ONE)
    counters.count(views, Reason.SAMPLED)
