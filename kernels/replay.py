"""The loop of a replay worker: walk a capture, keep the packets of the own shard, track them burst by burst.

Every worker walks over every packet, for only so does each know what time it is; it parses those that are not its own
no further than their addresses.  The packets of a burst share a millisecond: a burst ends when the clock moves, when it
is full, and with the call.
"""

from __future__ import annotations

from ..shm.layout import FRAME, FRAME_BYTES, PARSED, REPLAY_BURST_PACKETS, VERDICT_BYTES
from . import burst, clock, fragments, late, memory, packet, shards, zones
from .capture import Fault, advance
from .jit import inlined, kernel
from .words import LOW_32, ONE, THREE, ZERO, u64

frame_at = memory.record_at(FRAME)
parsed_at = memory.record_at(PARSED)

_FRAME = u64(FRAME_BYTES)
_VERDICT = u64(VERDICT_BYTES)
_BURST = u64(REPLAY_BURST_PACKETS)
LATE_ROUNDS_MAX = 64


@inlined
def _tell(replay, place, verdict):
    """Put a verdict in its place; a file that has grown since its packets were counted has more than there are places."""
    if place < u64(replay.results_count):
        memory.copy(u64(replay.results) + place * _VERDICT, verdict, _VERDICT)


@kernel
def _tell_late(views, replay, now_ms):
    """Put the verdicts on fragments that waited in their places."""
    memory.apart()
    for _ in range(LATE_ROUNDS_MAX):
        n = late.collect(views, now_ms)
        if n == ZERO:
            break
        for k in range(n):
            fragment = fragments.fragment(views, late.number_of(views, u64(k)))
            _tell(replay, u64(fragments.fragment_at(fragment).ticket), fragment + fragments.VERDICT)


@kernel
def _track(views, replay, now_ms):
    """Track the packets gathered, at ``now_ms``, and put their verdicts in their places."""
    count = u64(replay.gathered)
    if count == ZERO:
        return
    burst.track_burst(views, u64(replay.frames), count, now_ms, u64(replay.verdicts))
    if u64(replay.results_count) != ZERO:
        for i in range(count):
            place = memory.le64(u64(replay.places) + (u64(i) << THREE))
            _tell(replay, place, u64(replay.verdicts) + u64(i) * _VERDICT)
    if fragments.waits_for(views):
        _tell_late(views, replay, now_ms)
    replay.tracked = u64(replay.tracked) + count
    replay.gathered = ZERO


@inlined
def _is_own(views, replay):
    if u64(replay.shards) == ONE:
        return True
    incoming, parsed = frame_at(u64(replay.incoming)), parsed_at(u64(replay.parsed))
    settings = zones.settings_of(views, u64(incoming.zone))
    return shards.shard_of(incoming, settings, parsed, u64(replay.shards)) == u64(replay.shard)


@inlined
def _gather(replay, place):
    at = u64(replay.gathered)
    memory.copy(u64(replay.frames) + at * _FRAME, u64(replay.incoming), _FRAME)
    frame_at(u64(replay.frames) + at * _FRAME).ticket = place & LOW_32
    memory.set_le64(u64(replay.places) + (at << THREE), place)
    replay.gathered = at + ONE


@kernel
def run(views, capture, time, replay, records_budget):
    """Track the next packets of a capture that belong to this worker.

    Args:
        views: record of shm.views of the worker.
        capture: CAPTURE after `capture.begin`.
        time: CLOCK, zero before the first packet of all.
        replay: REPLAY; its addresses, `results_count`, `shard` and `shards` are the caller's.
        records_budget: records of the file to look at, at most.

    Returns:
        `now_ms` of the latest packet. The walk goes on there until `capture.fault` is set.

    Concurrency:
        Beside any others on the table of `views`; the places of `results` are written by one worker each.
    """
    for _ in range(records_budget):
        found = advance(capture, frame_at(u64(replay.incoming)))
        if u64(capture.fault) != u64(Fault.NONE):
            break
        if found == ZERO:
            continue
        place = u64(replay.packets)
        replay.packets = place + ONE
        before_ms = u64(time.now_ms)
        clock.tick(time, u64(capture.time_ns))
        if u64(time.now_ms) != before_ms:
            _track(views, replay, before_ms)
        if _is_own(views, replay):
            _gather(replay, place)
            if u64(replay.gathered) == _BURST:
                _track(views, replay, u64(time.now_ms))
    _track(views, replay, u64(time.now_ms))
    return u64(time.now_ms)


@kernel
def read(frame, zone, settings, parsed):
    """Parse a packet for who wants to tell of it.

    Args:
        frame: u64, address of its FRAME.
        zone: u64.
        settings: u64, how the zone is set.
        parsed: u64, address of a PARSED, out.
    """
    packet.parse(frame_at(frame), zone, settings, parsed_at(parsed))


@kernel
def count(capture, time, frame, records_budget):
    """Count the next packets of a capture, and let the clock run over them.

    Args:
        capture: CAPTURE after `capture.begin`.
        time: CLOCK.
        frame: FRAME, scratch.
        records_budget: records of the file to look at, at most.

    Returns:
        How many packets there were.
    """
    found = ZERO
    for _ in range(records_budget):
        packets = advance(capture, frame)
        if u64(capture.fault) != u64(Fault.NONE):
            break
        if packets != ZERO:
            clock.tick(time, u64(capture.time_ns))
            found += ONE
    return found
