"""What a burst does before anything is decided: read every frame, and have memory fetched for all of them.

    parse     every frame, and hash its key; one that was just tracked in another zone, and kept, only the latter
    locate    its lines in the index, and fetch the first
    glance    look for the tag in those lines, fetch the record that it points to; or see that there is none
    fetch     that record into the first level, a few packets before its turn

Nothing here takes a lock or changes the table.  What ``glance`` names is a hint; that there is nothing is more, a miss
confirmed as ``index.find`` does it.

Locate and glance are short loops of their own: a prefetch whose page is not in the TLB holds up what follows it until the
page walk is done, and only in a loop of a few instructions are enough walks under way at once.  ``glance`` fetches a record
into the second level, for a core has some sixteen line fill buffers, and three lines for each of 32 packets at once would
wait for them.
"""

from __future__ import annotations

from ..shm.layout import FRAME, FRAME_BYTES, LINE_BYTES, PARSED, PARSED_BYTES, CtState, PacketKind
from ..shm.reasons import Reason
from . import endpoints, entries, index, memory, packet, plain, segments, tuples, zones
from .jit import inlined, kernel
from .words import ONE, ZERO, u64

AHEAD = u64(7)
"""Packets before its turn at which a packet's record is fetched from the second level into the first."""

ERROR = u64(PacketKind.ICMP_ERROR)

_FRAME_SIZE = u64(FRAME_BYTES)
PARSED_SIZE = u64(PARSED_BYTES)
_LINE = u64(LINE_BYTES)
_TWO_LINES = u64(2 * LINE_BYTES)
_NONE = u64(Reason.NONE)
_TRANSLATED = u64(CtState.SNAT) | u64(CtState.DNAT)

frame_at = memory.record_at(FRAME)
parsed_at = memory.record_at(PARSED)


@inlined
def frame_of(frames, i):
    """Return FRAME ``i`` of a burst."""
    return frame_at(frames + i * _FRAME_SIZE)


@inlined
def parsed_of(views, i):
    """Return what is known of packet ``i`` of the burst."""
    return parsed_at(views.parsed + i * PARSED_SIZE)


@inlined
def key_at(at, kind):
    """Return the address of the key that the packet is looked up by whose PARSED stands at an address."""
    return at + (tuples.PARSED_INNER_KEY if kind == ERROR else tuples.PARSED_KEY)


@inlined
def key_of(views, i, kind):
    """Return the address of the key that packet ``i`` is looked up by."""
    return key_at(views.parsed + i * PARSED_SIZE, kind)


@inlined
def rehash(views, at):
    """Hash the key of a packet anew, and forget what was found or chosen for another key.

    Args:
        at: u64, address of its PARSED, whose ``kind`` says which key.
    """
    parsed = parsed_at(at)
    parsed.hash = tuples.hash_key(views, key_at(at, u64(parsed.kind)))
    parsed.candidate = ZERO
    parsed.found = ZERO
    parsed.foreseen = ZERO


@kernel
def _parse(views, frame, at, zone, settings, kept):
    """Parse any frame, if what is known of it was not kept, and hash its key."""
    memory.apart()
    parsed = parsed_at(at)
    if kept != ZERO:
        tuples.set_zone(key_at(at, ZERO), zone)
    else:
        packet.parse(frame, zone, settings, parsed)
    parsed.plain = ZERO
    parsed.found = ZERO
    if u64(parsed.reason) == _NONE:
        rehash(views, at)


@inlined
def parse(views, frame_address, at):
    """Parse a frame and hash its key.

    Args:
        frame_address: u64, address of its FRAME.
        at: u64, address of its PARSED, out.
    """
    parsed, frame = parsed_at(at), frame_at(frame_address)
    zone = u64(frame.zone)
    kept = u64(parsed.kept)
    settings = zones.settings_of(views, zone)
    parsed.zone = zone
    parsed.candidate = ZERO
    parsed.foreseen = ZERO
    parsed.kept = ZERO
    if kept != ZERO or not plain.read(views, frame, zone, settings, at):
        _parse(views, frame, at, zone, settings, kept)


@inlined
def keep(views, i, zone, verdict):
    """Have what was read of packet ``i`` stand for the next one at its place: the same frame, to be tracked in ``zone``.

    Only the caller knows that it is: not another, and no fragment.  Here it is seen that nothing of the packet was changed,
    and that nothing of it would be read otherwise.

    Args:
        zone: u64, where it is tracked next.
        verdict: VERDICT of it.
    """
    parsed = parsed_of(views, i)
    same = zones.settings_of(views, u64(parsed.zone)) == zones.settings_of(views, zone)
    as_it_was = u64(verdict.ct_state) & _TRANSLATED == ZERO and u64(verdict.reason) | u64(parsed.reason) == _NONE
    # what an error quotes, and a call, belong to the zone
    of_itself = u64(parsed.kind) != ERROR and u64(parsed.protocol) != endpoints.GRE
    parsed.kept = u64(same and as_it_was and of_itself)


@inlined
def locate(views, at):
    """Fetch the home line of a packet, by the address of its PARSED: one key in fourteen stands in the other of the pair."""
    parsed = parsed_at(at)
    line = ZERO
    if u64(parsed.reason) == _NONE:
        hash_ = u64(parsed.hash)
        word = zones.load_word(views, u64(parsed.zone))
        parsed.zone_word = word
        if zones.directory_of(word) != ZERO:
            segment = segments.segment_of(views, word, hash_)
            if segment != ZERO:
                line = segments.home_line(views, segment - ONE, hash_)
                memory.prefetch(line)
                parsed.segment = segment
    parsed.line = line


@inlined
def glance(views, at):
    """Fetch the record whose tag stands in the lines of a packet; or the lock under which it would be made.

    Args:
        at: u64, address of its PARSED.
    """
    parsed = parsed_at(at)
    line = u64(parsed.line)
    parsed.entry = at
    if line == ZERO:
        return
    tag = segments.tag_of(u64(parsed.hash))
    candidate = index.glance(views, u64(parsed.zone), u64(parsed.zone_word), line, tag)
    parsed.candidate = candidate
    if candidate == index.ABSENT:
        if u64(parsed.plain) != plain.ASKS:
            memory.prefetch(segments.lock_address(views, u64(parsed.segment) - ONE))
    elif candidate != ZERO:
        entry = entries.address(views, candidate - ONE)
        parsed.entry = entry
        parsed.found = ONE
        memory.prefetch_far(entry)
        memory.prefetch_far(entry + _LINE)
        memory.prefetch_far(entry + _TWO_LINES)


@inlined
def is_still_absent(views, parsed):
    """Look again for the connection that the glance did not find: whether there is none, for certain, at this moment.

    Whoever gives a packet another key forgets the candidate: it was looked for where the old one would stand.
    """
    tag = segments.tag_of(u64(parsed.hash))
    found = index.glance(views, u64(parsed.zone), u64(parsed.zone_word), u64(parsed.line), tag)
    return found == index.ABSENT


@inlined
def fetch(views, at):
    """Fetch the record that a packet, by its PARSED, will probably find into the first level."""
    entry = u64(parsed_at(at).entry)
    memory.prefetch(entry)
    memory.prefetch(entry + _LINE)
    memory.prefetch(entry + _TWO_LINES)
