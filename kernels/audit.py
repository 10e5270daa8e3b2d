"""Audit: every invariant of the shared table, checked on a live or a dead one, and the first that is broken named.

Who may      while
    audit    a participant of its own, beside anyone (``at_rest`` 0): what is checked then holds in every state, and is
             looked at under the locks that keep it still
             anyone, when nobody runs (``at_rest`` 1): all of it, counts and free lists too

    I1  a LIVE record has a slot for each of its keys, where the directory says
    I2  a key has one LIVE record, or two that packets tell apart (kernels/doubles)
    I3  a slot names no FREE record, stands in its key's pair of lines, and has its key's tag
    I6  counts equal content                                                                    at rest
    I7  slots and LIVE records match one to one; no NEW, no DEAD                                 at rest
    I8  segments and directories are in the pool, empty, or named by exactly one zone            at rest
    I9  no lock is held; a hint is 0 for a free record and never later than expiry for a LIVE one at rest
    X1  expectations in use are on their two chains, others on none                              at rest
    X2  counts of expectations equal content                                                     at rest
    F1  fragments are on the one list that their words name                                      at rest
    F2  counts of fragments equal content                                                        at rest
    F3  a datagram that waits is found by its key                                                at rest
    I10 each FREE record is on exactly one list, each extension on one or of one record          at rest
"""

from __future__ import annotations

from ..shm.layout import (
    DEPTH_MAX,
    GLOBAL,
    LINE_BYTES,
    PARTICIPANT,
    PARTICIPANT_BYTES,
    QUOTA,
    ROSTER_MAX,
    SEGMENT,
    SEGMENT_BYTES,
    SLOTS,
    USED,
    ZONES_MAX,
    Life,
    Slab,
    offset,
)
from . import (
    audit_expectations,
    audit_fragments,
    entries,
    expectations,
    fragments,
    index,
    intents,
    memory,
    segments,
    tuples,
    zones,
)
from .findings import Finding, report
from .jit import inlined, kernel
from .words import FOUR, LOW_16, LOW_32, ONE, THIRTY_TWO, THREE, ZERO, u64

_SEGMENT_SIZE = u64(SEGMENT_BYTES)
_DEPTH = offset(SEGMENT, "depth")
_USED = u64(USED)
_FIVE = u64(5)
_PARTICIPANT_SIZE = u64(PARTICIPANT_BYTES)
_DEPTH_LIMIT = u64(DEPTH_MAX)

quota_at = memory.record_at(QUOTA)
global_at = memory.record_at(GLOBAL)
participant_at = memory.record_at(PARTICIPANT)


@inlined
def _mark(seen, i):
    """Count one more sighting of ``i`` in u8[] ``seen``; returns how many there were before."""
    before = memory.byte(seen + i)
    memory.set_byte(seen + i, before + ONE)
    return before


# ------------------------------------------------------------------------------------------------ locks
@kernel
def _audit_locks(views, out):
    """I9: nobody holds anything."""
    for i in range(views.records[0]):
        holder = memory.acquire32(entries.address(views, u64(i)) + entries.LOCK)
        if holder != ZERO:
            return report(out, Finding.LOCK_HELD, ZERO, u64(i), holder)
    for i in range(views.segment_count):
        holder = memory.acquire32(segments.lock_address(views, u64(i)))
        if holder != ZERO:
            return report(out, Finding.LOCK_HELD, ONE, u64(i), holder)
    for i in range(ZONES_MAX):
        quota = quota_at(views.quotas + u64(i) * u64(LINE_BYTES))
        holder = u64(quota.zone_lock) | u64(quota.count_lock)
        if holder != ZERO:
            return report(out, Finding.LOCK_HELD, u64(2), u64(i), holder)
    holder = memory.acquire32(expectations.lock_address(views))
    if holder != ZERO:
        return report(out, Finding.LOCK_HELD, FOUR, ZERO, holder)
    holder = memory.acquire32(fragments.lock_address(views))
    if holder != ZERO:
        return report(out, Finding.LOCK_HELD, _FIVE, ZERO, holder)
    globals_ = global_at(views.globals)
    if u64(globals_.count_lock) != ZERO:
        return report(out, Finding.LOCK_HELD, THREE, ZERO, u64(globals_.count_lock))
    for i in range(ROSTER_MAX):
        participant = participant_at(views.participants + u64(i) * _PARTICIPANT_SIZE)
        if u64(participant.intent.credit) != ZERO:
            return report(out, Finding.CREDIT, u64(i) + ONE, u64(participant.intent.credit), ZERO)
    return True


# ------------------------------------------------------------------------------------------------ index
@kernel
def _audit_links(views, out):
    """I10, before anyone follows them: what a record names as its extension is one."""
    for i in range(views.records[0]):
        extension = memory.read32(entries.address(views, u64(i)) + entries.EXTENSION_LINK)
        if extension > views.records[1]:
            return report(out, Finding.LIST, u64(Slab.EXTENSIONS), extension - ONE, u64(i))
    return True


@inlined
def _slot_hash(views, record, slot):
    """Return the hash of the key that a slot of a record stands for; 0 when it is of neither."""
    entry = entries.address(views, record)
    tag = slot >> THIRTY_TWO
    hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)
    if segments.tag_of(hash_) == tag:
        return hash_
    second = entries.second_key(views, entry)
    if second == ZERO:
        return ZERO
    hash_ = tuples.hash_key(views, second)
    return hash_ if segments.tag_of(hash_) == tag else ZERO


@inlined
def _is_live(views, record):
    life = memory.acquire64(entries.address(views, record) + entries.LIFE)
    return entries.state_of(life) == u64(Life.LIVE)


@inlined
def _reply_alike(views, one, other):
    """Return whether the replies to a connection have the own key of another, and cannot be told from that one's packets."""
    entry, replies = entries.address(views, one), entries.second_key(views, entries.address(views, other))
    if replies == ZERO or not tuples.equal(entry + tuples.ENTRY_KEY, replies):
        return False
    has_one_key = entries.second_key(views, entry) == ZERO
    return has_one_key or index.replies_like(entries.address(views, other), entry)


@inlined
def _same_key(views, record, other):
    """Return whether two records have a key in common, and packets with it do not tell them apart."""
    mine, its = entries.address(views, record), entries.address(views, other)
    if tuples.equal(mine + tuples.ENTRY_KEY, its + tuples.ENTRY_KEY):
        return True
    first, second = entries.second_key(views, mine), entries.second_key(views, its)
    if first != ZERO and second != ZERO and tuples.equal(first, second):
        return True
    return _reply_alike(views, record, other) or _reply_alike(views, other, record)


@kernel
def _audit_duplicates(views, segment, at, slot, zone, out):
    """I2: no other slot of the pair names another LIVE record with the same key."""
    record = (slot & LOW_32) - ONE
    base = segments.slots_address(views, segment)
    pair = at // u64(16) * u64(16)
    for i in range(16):
        other = memory.acquire64(base + ((pair + u64(i)) << THREE))
        same_tag = other != ZERO and other >> THIRTY_TWO == slot >> THIRTY_TWO
        if same_tag and other != slot and _same_key(views, record, (other & LOW_32) - ONE):
            if _is_live(views, record) and _is_live(views, (other & LOW_32) - ONE):
                return report(out, Finding.DUPLICATE, record, (other & LOW_32) - ONE, zone)
    return True


@kernel
def _audit_segment(views, segment, zone, word, slots_seen, out):
    """I1 to I3 for the slots of one segment, whose lock is held or which nobody uses."""
    base = segments.slots_address(views, segment)
    for i in range(SLOTS):
        slot = memory.acquire64(base + u64(8 * i))
        if slot == ZERO:
            continue
        record = (slot & LOW_32) - ONE
        if slot & LOW_32 == ZERO or record >= views.records[0]:
            return report(out, Finding.SLOT_OUTSIDE, segment, u64(i), record)
        life = memory.acquire64(entries.address(views, record) + entries.LIFE)
        if entries.state_of(life) == u64(Life.FREE):
            return report(out, Finding.SLOT_FREE, segment, u64(i), record)
        hash_ = _slot_hash(views, record, slot)
        line = segments.home_line(views, segment, hash_)
        at = base + u64(8 * i)
        if hash_ == ZERO or (at ^ line) & ~u64(2 * LINE_BYTES - 1) != ZERO:
            return report(out, Finding.SLOT_TAG, segment, u64(i), record)
        if segments.segment_of(views, word, hash_) != segment + ONE:
            return report(out, Finding.SLOT_PREFIX, segment, u64(i), record)
        if slots_seen != ZERO:
            _mark(slots_seen, record)
        if not _audit_duplicates(views, segment, u64(i), slot, zone, out):
            return False
    return True


@kernel
def _audit_word(views, zone, word, out):
    """I8 for a zone's word: it names a directory of its depth."""
    depth = zones.depth_of(word)
    directory = zones.directory_of(word)
    first = views.directory_offset[depth] if depth <= _DEPTH_LIMIT else ZERO
    beyond = views.directory_offset[depth + ONE] if depth <= _DEPTH_LIMIT else ZERO
    if directory < first or directory >= beyond or (directory - first) & ((ONE << depth) - ONE) != ZERO:
        return report(out, Finding.DIRECTORY_OUTSIDE, zone, directory, depth)
    return True


@kernel
def _audit_directory(views, zone, word, segments_seen, directories_seen, out):
    """I8 for a zone's directory: its owner, and that each segment is named by neighbouring entries, as many as it must."""
    if not _audit_word(views, zone, word, out):
        return False
    depth = zones.depth_of(word)
    directory = zones.directory_of(word)
    owner = memory.acquire32(segments.directory_owner(views, depth, directory))
    if owner != _USED:
        return report(out, Finding.DIRECTORY_OWNER, zone, directory, owner)
    _mark(directories_seen, segments.directory_number(views, depth, directory))
    entry = ZERO
    while entry < ONE << depth:
        named = memory.acquire32(views.directories + (directory + entry) * FOUR)
        if named == ZERO or named > views.segment_count:
            return report(out, Finding.ENTRY_OUTSIDE, zone, entry, named)
        segment = named - ONE
        owner = memory.acquire32(segments.owner_address(views, segment))
        if owner != _USED:
            return report(out, Finding.SEGMENT_OWNER, segment, owner, zone)
        own_depth = memory.acquire32(views.segments + segment * _SEGMENT_SIZE + _DEPTH)
        if own_depth > depth:
            return report(out, Finding.SEGMENT_DEPTH, segment, own_depth, zone)
        span = ONE << (depth - own_depth)
        if entry & (span - ONE) != ZERO:
            return report(out, Finding.SEGMENT_SPAN, segment, entry, zone)
        for i in range(span):
            if memory.acquire32(views.directories + (directory + entry + u64(i)) * FOUR) != named:
                return report(out, Finding.SEGMENT_SPAN, segment, entry + u64(i), zone)
        if _mark(segments_seen, segment) != ZERO:
            return report(out, Finding.SEGMENT_SHARED, segment, zone, ZERO)
        entry += span
    return True


@kernel
def _audit_pools(views, segments_seen, directories_seen, out):
    """I8 for what no zone names: it is in the pool, and its slots are empty."""
    for i in range(views.segment_count):
        segment = u64(i)
        if memory.byte(segments_seen + segment) != ZERO:
            continue
        owner = memory.acquire32(segments.owner_address(views, segment))
        if owner != ZERO:
            return report(out, Finding.SEGMENT_LOST, segment, owner, ZERO)
        base = segments.slots_address(views, segment)
        for j in range(SLOTS):
            if memory.acquire64(base + u64(8 * j)) != ZERO:
                return report(out, Finding.SEGMENT_DIRTY, segment, u64(j), ZERO)
    for i in range(views.directory_first[DEPTH_MAX + 1]):
        if memory.byte(directories_seen + u64(i)) == ZERO:
            owner = memory.acquire32(views.directory_owners + u64(4 * i))
            if owner != ZERO:
                return report(out, Finding.DIRECTORY_LOST, u64(i), owner, ZERO)
    return True


# ------------------------------------------------------------------------------------------------ records
@kernel
def _audit_record(views, record, slots_seen, content, out):
    """I7 and I9 for one record, at rest; counts it in its zone's content."""
    entry = entries.address(views, record)
    life = memory.acquire64(entry + entries.LIFE)
    state = entries.state_of(life)
    slots = memory.byte(slots_seen + record)
    hint = memory.read32(views.due + record * FOUR)
    if state == u64(Life.FREE):
        if hint != ZERO:
            return report(out, Finding.HINT, record, hint, ZERO)
        return True
    if state != u64(Life.LIVE):
        return report(out, Finding.RECORD_UNFINISHED, record, state, entries.owner_of(life))
    keys = ONE if entries.second_key(views, entry) == ZERO else u64(2)
    if slots != keys:
        return report(out, Finding.SLOTS_MISSING, record, slots, keys)
    expiry = entries.due_units(memory.read64(entry + entries.EXPIRY))
    if hint == ZERO or hint > expiry or hint != memory.read32(entry + entries.HINT):
        return report(out, Finding.HINT, record, hint, expiry)
    at = content + tuples.zone_of(entry + tuples.ENTRY_KEY) * FOUR
    memory.set_le32(at, memory.le32(at) + ONE)
    return True


@kernel
def _audit_counts(views, content, out):
    """I6: what is counted is there."""
    total = ZERO
    for i in range(ZONES_MAX):
        here = memory.le32(content + u64(4 * i))
        total += here
        if zones.count_of(views, u64(i)) != here:
            return report(out, Finding.ZONE_COUNT, u64(i), zones.count_of(views, u64(i)), here)
    if zones.global_count(views) != total:
        return report(out, Finding.GLOBAL_COUNT, zones.global_count(views), total, ZERO)
    return True


# ------------------------------------------------------------------------------------------------ free lists
@kernel
def _audit_list(views, slab, first, count, where, listed, out):
    """Walk one list of free records and mark each; the count of an empty list means nothing."""
    if first == ZERO:
        return True
    length = ZERO
    while first != ZERO:
        record = first - ONE
        if record >= views.records[slab] or _mark(listed, record) != ZERO or length > views.records[slab]:
            return report(out, Finding.LIST, slab, record, where)
        length += ONE
        if slab == u64(Slab.ENTRIES):
            life = memory.acquire64(entries.address(views, record) + entries.LIFE)
            if entries.state_of(life) != u64(Life.FREE):
                return report(out, Finding.LIST, slab, record, where)
        first = memory.read32(entries.next_word(views, slab, record))
    if length != count:
        return report(out, Finding.LIST_COUNT, slab, where, count)
    return True


@kernel
def _audit_lists(views, slab, listed, out):
    """I10: every list of a slab, then that each record without a connection was on one."""
    for i in range(ROSTER_MAX):
        participant = participant_at(views.participants + u64(i) * _PARTICIPANT_SIZE)
        where = u64(i) + ONE
        if not _audit_list(
            views, slab, u64(participant.front[slab]), u64(participant.front_count[slab]), where, listed, out
        ) or not _audit_list(
            views, slab, u64(participant.back[slab]), u64(participant.back_count[slab]), where, listed, out
        ):
            return False
    for i in range(views.pool_words[slab]):
        chain = memory.acquire64(views.pool[slab] + u64(8 * i))
        count = (chain >> entries.CHAIN_COUNT_SHIFT) & LOW_16
        if not _audit_list(views, slab, chain & LOW_32, count, u64(i), listed, out):
            return False
    if slab == u64(Slab.EXTENSIONS):
        for i in range(views.records[0]):
            extension = memory.read32(entries.address(views, u64(i)) + entries.EXTENSION_LINK)
            if extension != ZERO and _mark(listed, extension - ONE) != ZERO:
                return report(out, Finding.LIST, slab, extension - ONE, u64(i))
    for i in range(views.records[slab]):
        if memory.byte(listed + u64(i)) == ZERO and not (slab == u64(Slab.ENTRIES) and _is_live(views, u64(i))):
            return report(out, Finding.LOST, slab, u64(i), ZERO)
    return True


# ------------------------------------------------------------------------------------------------ the two audits
@kernel
def audit_at_rest(views, segments_seen, directories_seen, slots_seen, content, listed, expected, expected_seen, out):
    """Check every invariant of a table that nobody is working on.

    Args:
        segments_seen, directories_seen, slots_seen: addresses of zeroed u8, one for each segment, directory, record.
        content: address of zeroed u32[ZONES_MAX].
        listed: address of zeroed u8, one for each entry and then one for each extension.
        expected: address of zeroed u32[ZONES_MAX].
        expected_seen: address of zeroed u8[EXPECTATIONS_MAX].
        out: address of u64[4]: the Finding and its three numbers.

    Returns:
        True when nothing is broken.
    """
    report(out, Finding.NONE, ZERO, ZERO, ZERO)
    if not _audit_locks(views, out) or not _audit_links(views, out):
        return False
    for i in range(ZONES_MAX):
        zone = u64(i)
        word = zones.load_word(views, zone)
        if zones.directory_of(word) == ZERO:
            continue
        if not _audit_directory(views, zone, word, segments_seen, directories_seen, out):
            return False
        for j in range(ONE << zones.depth_of(word)):
            entry = views.directories + (zones.directory_of(word) + u64(j)) * FOUR
            segment = memory.read32(entry)
            if j > 0 and memory.read32(entry - FOUR) == segment:
                continue
            if not _audit_segment(views, segment - ONE, zone, word, slots_seen, out):
                return False
    if not _audit_pools(views, segments_seen, directories_seen, out):
        return False
    for i in range(views.records[0]):
        if not _audit_record(views, u64(i), slots_seen, content, out):
            return False
    return (
        _audit_counts(views, content, out)
        and audit_expectations.audit(views, expected, expected_seen, u64(ZONES_MAX), out)
        and audit_fragments.audit(views, out)
        and _audit_lists(views, u64(Slab.ENTRIES), listed, out)
        and _audit_lists(views, u64(Slab.EXTENSIONS), listed + views.records[0], out)
    )


@kernel
def _audit_live_record(views, record, out):
    """I1 for one record beside anyone: LIVE before and after its segments were locked, so it must have its slots."""
    entry = entries.address(views, record)
    life = memory.acquire64(entry + entries.LIFE)
    if entries.state_of(life) != u64(Life.LIVE):
        return True
    hash_ = tuples.hash_key(views, entry + tuples.ENTRY_KEY)  # trusted only if the life below is the same
    second = entries.second_key(views, entry)
    second_hash = tuples.hash_key(views, second) if second != ZERO else hash_
    word = zones.load_word(views, tuples.zone_of(entry + tuples.ENTRY_KEY))
    if zones.directory_of(word) == ZERO:
        return True
    first_segment = segments.segment_of(views, word, hash_)
    second_segment = segments.segment_of(views, word, second_hash)
    if first_segment == ZERO or second_segment == ZERO:
        return True
    low = min(first_segment, second_segment) - ONE
    high = max(first_segment, second_segment) - ONE
    if not segments.lock_pair(views, low, high):
        return report(out, Finding.BUSY, record, low, high)
    good = True
    if zones.load_word(views, tuples.zone_of(entry + tuples.ENTRY_KEY)) == word:
        has_both = segments.has_slot(views, first_segment - ONE, hash_, record)
        if second != ZERO:
            has_both = has_both and segments.has_slot(views, second_segment - ONE, second_hash, record)
        if not has_both and memory.acquire64(entry + entries.LIFE) == life:
            good = report(out, Finding.SLOTS_MISSING, record, ZERO, ZERO)
    segments.unlock_pair(views, low, high)
    intents.done(views)
    return good


@kernel
def _audit_live_segment(views, zone, word, segment, out):
    """I1 to I3 for one segment beside anyone, under its lock, if the zone still names it."""
    if not segments.lock_pair(views, segment, segment):
        return report(out, Finding.BUSY, segment, segment, segment)
    good = True
    if zones.load_word(views, zone) == word:
        good = _audit_segment(views, segment, zone, word, ZERO, out)
    segments.unlock_pair(views, segment, segment)
    intents.done(views)
    return good


@kernel
def audit_live(views, out):
    """Check, beside others at work, what holds in every state: I1, I2, I3.

    Args:
        views: of a participant that does nothing else meanwhile.
        out: address of u64[4]: the Finding and its three numbers.

    Returns:
        True when nothing was found broken.

    Concurrency:
        One segment's lock at a time (two for a record with two keys), for as long as its slots are read.
    """
    report(out, Finding.NONE, ZERO, ZERO, ZERO)
    if not _audit_links(views, out):
        return False
    for i in range(ZONES_MAX):
        zone = u64(i)
        word = zones.load_word(views, zone)
        if zones.directory_of(word) == ZERO:
            continue
        if not _audit_word(views, zone, word, out):
            return False
        for j in range(ONE << zones.depth_of(word)):
            named = memory.acquire32(views.directories + (zones.directory_of(word) + u64(j)) * FOUR)
            if named == ZERO or named > views.segment_count or zones.load_word(views, zone) != word:
                break  # split or flushed meanwhile; the next audit sees it
            if not _audit_live_segment(views, zone, word, named - ONE, out):
                return False
    for i in range(views.records[0]):
        if not _audit_live_record(views, u64(i), out):
            return False
    return True
