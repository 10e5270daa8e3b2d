"""What must hold: in every state (I1-I6) and at rest (I7-I9)."""

from __future__ import annotations

from .words import (
    DEAD,
    DIRECTORIES,
    FREE,
    LIVE,
    NEW,
    OWN_SHIFT,
    SLOTS,
    SOURCE_SHIFT,
    USED,
    Entry,
    Step,
    hash_of,
    incarnation_of,
    index_of,
    is_far,
    keys_of,
    owner_of,
    record_of,
    slot_word,
    source_of,
    state_of,
    tag_of,
    where,
    zone_of,
)

COUNTED_NEW = frozenset((Step.RESERVED, Step.CLEARED, Step.UNCOUNT))
"""Steps at which a NEW record is in the count."""


def present(table, memory, at_rest=False):
    """Return the set of keys in the index, as bits; or a sentence that says what is broken (I1, I2).

    A key has one LIVE record, or two: one whose own it is, which has another for its replies, and one whose replies have
    it and come from the far end.  From OWN_SHIFT on stand the keys that some record has as its own.
    """
    bits = 0
    replied = lone = 0
    for record in range(table.records):
        if state_of(memory[table.life + record]) != LIVE:
            continue
        keys = keys_of(memory[table.key + record])
        inside = 0
        for place, key in enumerate(keys):
            depth, offset = where(memory[table.zone + zone_of(key)])
            segment = memory[table.directory + offset + index_of(key, depth)] - 1 if offset else -1
            first = table.slot + segment * SLOTS
            if segment >= 0 and slot_word(key, record) in memory[first : first + SLOTS]:
                inside += 1
                mine = OWN_SHIFT + key if place == 0 else key
                apart = len(keys) > 1 if place == 0 else is_far(memory[table.key + record])
                others = (bits >> (OWN_SHIFT + key) & 1) + (replied >> key & 1)
                if others and ((bits if place == 0 else replied) >> mine & 1 or not apart or lone >> key & 1):
                    return f"key {key} has two live records in the index"
                bits |= 1 << key
                if place == 0:
                    bits |= 1 << mine
                else:
                    replied |= 1 << key
                if not apart:
                    lone |= 1 << key
        if inside != len(keys):
            slots = memory[table.slot : table.slot + table.segments * SLOTS]
            detached = inside == 0 and any(slot and record_of(slot) == record for slot in slots)
            if at_rest or not (table.flusher and detached):
                return f"live record {record} is in the index under {inside} of its {len(keys)} keys"
    return bits


def wrong_counts(table, memory):
    """Return what is wrong with a count that is not locked (I6), or None: it is exact in every state."""
    return _wrong_zones(table, memory) or _wrong_sources(table, memory)


def _wrong_sources(table, memory):
    """The count of each source, whose zone's lock nobody holds, is the records that say they are in it."""
    counts: dict[int, int] = {}
    for record in range(table.records if table.cells else 0):
        if memory[table.counted + record]:
            if state_of(memory[table.life + record]) == FREE:
                return f"record {record} is free, and in the count of a source"
            source = source_of(keys_of(memory[table.key + record])[0])
            counts[source] = counts.get(source, 0) + 1
    cells: dict[int, int] = {}
    for cell in memory[table.cell : table.cell + table.cells]:
        if cell:
            source, count = cell >> SOURCE_SHIFT, cell & ((1 << SOURCE_SHIFT) - 1)
            if source in cells:
                return f"source {source} has two cells"
            if count > table.budget:
                return f"source {source} has {count}, more than its budget"
            cells[source] = count
    for source in counts.keys() | cells.keys():
        locked = memory[table.count_lock + (source - 1) // 2]
        if not locked and counts.get(source, 0) != cells.get(source, 0):
            return f"the count of source {source} is {cells.get(source, 0)}, but {counts.get(source, 0)} are in"
    return None


def _wrong_zones(table, memory):
    total = 0
    for zone in range(table.zones):
        count = memory[table.count + zone]
        if count > table.limit:
            return f"count {count} of zone {zone} is over the limit"
    if table.total_limit and memory[table.total] > table.total_limit:
        return f"the global count {memory[table.total]} is over the limit"
    for zone in range(table.zones):
        count = memory[table.count + zone]
        if memory[table.count_lock + zone]:
            return None
        content = _content(table, memory, zone)
        if count != content:
            return f"count of zone {zone} is {count}, but {content} are reserved, live or not yet freed"
        total += count
    if table.total_limit and not memory[table.total_lock] and memory[table.total] != total:
        return f"the global count is {memory[table.total]}, but {total} are counted"
    return None


def _content(table, memory, zone):
    content = 0
    for record in range(table.records):
        if _counted(table, memory, record):
            content += zone_of(keys_of(memory[table.key + record])[0]) == zone
    if table.credits:
        for actor in range(1, table.actors + 1):
            if memory[table.intent(actor, "credit_zone")] == zone:
                spending = memory[table.intent(actor, "step")] == Step.SPEND
                content += memory[table.intent(actor, "before" if spending else "credit")]
    return content


def _counted(table, memory, record):
    """Whether a record is in the count: LIVE, reserved, or not yet taken out of it."""
    word = memory[table.life + record]
    state = state_of(word)
    if state == NEW:
        return memory[table.intent(owner_of(word), "step")] in COUNTED_NEW
    return state == LIVE or (state == DEAD and not _uncounted(table, memory, owner_of(word), record, word))


def _uncounted(table, memory, owner, record, word):
    """Whether a DEAD record's owner has taken it out of the count."""
    if (
        memory[table.intent(owner, "step")] == Step.UNCOUNTED
        and memory[table.intent(owner, "record")] == record + 1
        and memory[table.intent(owner, "incarnation")] == incarnation_of(word)
    ):
        return True
    return any(
        memory[table.delete(owner, i, "record")] == record
        and memory[table.delete(owner, i, "incarnation")] == incarnation_of(word)
        and memory[table.delete(owner, i, "step")] == Entry.UNCOUNTED
        for i in range(memory[table.intent(owner, "deletes")] if table.deletes else 0)
    )


def audit(table, memory):
    """Return what is wrong with a table at rest, or None."""
    for word, name in enumerate(table.names):
        if "_lock[" in name and memory[word]:
            return f"{name} held by {memory[word]}"
        if name.startswith("intent") and memory[word]:
            if name.endswith(".credit"):
                return f"{name}: {memory[word]} not given back"
            if name.endswith(".deletes"):
                return f"{name}: {memory[word]} not worked off"
    return (
        _wrong_pools(table, memory)
        or _wrong_records(table, memory)
        or _wrong_content(table, memory)
        or _text(present(table, memory, at_rest=True))
    )


def _text(found):
    return found if isinstance(found, str) else None


def _wrong_pools(table, memory):
    named: dict[int, list[int]] = {}
    directories = []
    for zone in range(table.zones):
        depth, offset = where(memory[table.zone + zone])
        if offset:
            directories.append(offset)
            if memory[table.directory_owner + offset] != USED:
                return f"directory {offset} of zone {zone} is in the pool"
            for i in range(1 << depth):
                named.setdefault(memory[table.directory + offset + i] - 1, []).append(zone)
    for segment in range(table.segments):
        owner, zones = memory[table.segment_owner + segment], named.get(segment, [])
        if owner != (USED if zones else 0):
            return f"segment {segment}: owner {owner}, named by zones {zones}"
        if len(set(zones)) > 1:
            return f"segment {segment} is in two zones"
    for offset in DIRECTORIES[1] + DIRECTORIES[2]:
        if memory[table.directory_owner + offset] and offset not in directories:
            return f"directory {offset} is lost"
    return None


def _wrong_records(table, memory):
    slots: dict[int, list[int]] = {}
    for slot in memory[table.slot : table.slot + table.segments * SLOTS]:
        if slot:
            slots.setdefault(record_of(slot), []).append(tag_of(slot))
    for record in range(table.records):
        state = state_of(memory[table.life + record])
        if state in (NEW, DEAD):
            return f"record {record} is left in state {state}"
        keys = keys_of(memory[table.key + record]) if state == LIVE else ()
        if sorted(slots.get(record, [])) != sorted(hash_of(key) for key in keys):
            return f"record {record}: state {state}, keys {keys}, slots {slots.get(record)}"
        if table.cells and bool(keys) != bool(memory[table.counted + record]):
            return f"record {record}: state {state}, in the count of its source: {memory[table.counted + record]}"
        if table.hints:
            expiry, hint = memory[table.expiry + record], memory[table.due + record]
            if hint > (expiry if keys else 0):
                return f"record {record}: state {state}, hint {hint} later than expiry {expiry}"
    return None


def _wrong_content(table, memory):
    total = 0
    for zone in range(table.zones):
        live = [r for r in range(table.records) if state_of(memory[table.life + r]) == LIVE]
        content = sum(zone_of(keys_of(memory[table.key + r])[0]) == zone for r in live)
        total += content
        if memory[table.count + zone] != content:
            return f"zone {zone}: count {memory[table.count + zone]}, content {content}"
    if table.total_limit and memory[table.total] != total:
        return f"global count {memory[table.total]}, content {total}"
    return None
