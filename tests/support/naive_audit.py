"""The audit once more, in numpy over whole arrays: what the kernel is compared with, and quick enough after every seed."""

import foretelling
import hashing
import naive_fragments
import numpy as np
import tables
from zonetrack.shm import roster
from zonetrack.shm.layout import (
    CHAINS,
    DUE_UNIT_MS,
    EXPECTATION,
    STEP_BITS,
    USED,
    ExpectationFlag,
    Life,
    Region,
    Slab,
    Status,
    Step,
)

LOW_32 = np.uint64(0xFFFFFFFF)


def faults(table):
    """Return what is wrong with a table on which nobody works, as sentences; none when every invariant holds."""
    return [
        *locks(table),
        *_intents(table),
        *_index(table),
        *_counts(table),
        *_budgets(table),
        *_hints(table),
        *_lists(table),
        *_expectations(table),
        *naive_fragments.faults(table),
    ]


def states(table):
    """Return the Life of each record."""
    return tables.entries(table)["life"] & np.uint64(0xFF)


def locks(table):
    """Return which locks are held, and by whom, as sentences."""
    totals = tables.totals(table)
    for name, words in (
        ("segment", tables.segments(table)["lock"]),
        ("zone", tables.quotas(table)["zone_lock"]),
        ("count", tables.quotas(table)["count_lock"]),
        ("global count", np.array([totals["count_lock"]])),
        ("record", tables.entries(table)["lock"]),
        ("expectations'", np.array([foretelling.header(table)["lock"]])),
    ):
        for at in np.flatnonzero(words):
            yield f"{name} lock {at} is held by {words[at]}"


def _intents(table):
    places = roster.participants(table)
    for at in np.flatnonzero(places["intent"]["step"]):
        step = int(places[at]["intent"]["step"]) & (1 << STEP_BITS) - 1
        yield f"participant {at + 1} is at {Step(step).name}"
    for at in np.flatnonzero(places["intent"]["credit"]):
        yield f"participant {at + 1} has credit {places[at]['intent']['credit']}"
    for at in np.flatnonzero(places["deletes"]):
        yield f"participant {at + 1} has {places[at]['deletes']} deletes to do"


def _named(table):
    """Return what each segment is named for: zone, first bits of its hashes, how many bits; and the directories in use."""
    named, directories = {}, []
    for zone in np.flatnonzero(tables.zones(table)["word"]):
        if not len(tables.directory_of(table, zone)):
            continue
        depth = tables.depth_of(table, zone)
        directories.append(tables.directory_number(table, zone))
        for i, segment in enumerate(tables.directory_of(table, zone).tolist()):
            named.setdefault(segment - 1, []).append((int(zone), i, depth))
    return named, directories


def _index(table):
    named, directories = _named(table)
    segments, owners = tables.segments(table), tables.directory_owners(table)
    prefixes = {}
    for segment, places in named.items():
        if not 0 <= segment < len(segments):
            yield f"zone {places[0][0]} names segment {segment}, which does not exist"
            continue
        zone, first, depth = places[0]
        own = int(segments[segment]["depth"])
        if own > depth or places != [(zone, i, depth) for i in range(first, first + (1 << depth - own))]:
            yield f"segment {segment} of depth {own} is named by {places}"
        elif first % (1 << depth - own):
            yield f"segment {segment} is named by entries that do not share {own} bits"
        if segments[segment]["owner"] != USED:
            yield f"segment {segment} of zone {zone} has owner {segments[segment]['owner']}"
        prefixes[segment] = (zone, first >> depth - own if own <= depth else 0, own)
    for segment in np.flatnonzero(segments["owner"]):
        if segment not in named:
            yield f"segment {segment} with owner {segments[segment]['owner']} is lost"
    for number in np.flatnonzero(owners):
        if number not in directories or owners[number] != USED:
            yield f"directory {number} with owner {owners[number]} is lost"
    for number in directories:
        if owners[number] != USED:
            yield f"directory {number} in use has owner {owners[number]}"
    yield from _slots(table, prefixes)


def _slots(table, prefixes):
    slots = tables.slots(table)
    entries, extensions = tables.entries(table), tables.extensions(table)
    where, at = np.nonzero(slots)
    words = slots[where, at]
    wanted = []
    live = np.flatnonzero(states(table) == Life.LIVE)
    keys = [(int(r), entries[r]["key"]) for r in live]
    own = len(keys)
    keys += [(r, extensions[entries[r]["extension"] - 1]["reply_key"]) for r, _ in keys if entries[r]["extension"]]
    two = {r for r, key in keys[own:] if key[4]}
    keys = [(r, key) for r, key in keys if key[4]]
    hashes = (
        hashing.hash_keys(table.header[0]["secret"].tobytes(), np.array([key for _, key in keys], "u8")) if keys else []
    )
    seen = {}
    for n, ((record, key), hash_) in enumerate(zip(keys, hashes, strict=True)):
        others = [seen.setdefault((tuple(key.tolist()), n < own), record)]
        its_own = seen.get((tuple(key.tolist()), True))
        if n >= own and its_own is not None:  # fine where the replies come from the other end than that one's opener
            opener = int(entries["status"][its_own]) & Status.ORIG_IS_HIGH != 0
            replier = int(entries["status"][record]) & Status.REPLIER_IS_HIGH != 0
            others += [] if its_own in two and opener != replier else [its_own]
        for other in others:
            if other != record:
                yield f"records {other} and {record} have the key {key.tolist()}"
        wanted.append((record, int(hash_), int(key[4]) >> 16 & 0xFFFF))
    found = {}
    for segment, i, word in zip(where.tolist(), at.tolist(), words.tolist(), strict=True):
        found.setdefault(((word & 0xFFFFFFFF) - 1, word >> 32), []).append((segment, i))
    for record, hash_, zone in wanted:
        places = found.pop((record, hash_ >> 32), [])
        if len(places) != 1:
            yield f"record {record} has slots {places} for one key"
            continue
        segment, i = places[0]
        of, prefix, depth = prefixes.get(segment, (None, 0, 0))
        if of != zone or hash_ >> 64 - depth != prefix:
            yield f"record {record} stands in segment {segment}, which is named for {prefixes.get(segment)}"
        if i // 16 != (hash_ & 15) // 2:
            yield f"record {record} stands in slot {i} of segment {segment}, outside its pair of lines"
    for (record, _), places in found.items():
        state = Life(int(states(table)[record])).name if record < len(entries) else "outside"
        yield f"slots {places} name record {record}, which is {state}"
    for record in np.flatnonzero((states(table) == Life.NEW) | (states(table) == Life.DEAD)):
        yield f"record {record} is left {Life(int(states(table)[record])).name}"


def _counts(table):
    entries = tables.entries(table)
    zones = entries["key"][states(table) == Life.LIVE][:, 4] >> np.uint64(16) & np.uint64(0xFFFF)
    content = np.bincount(zones.astype(int), minlength=len(tables.quotas(table)))
    counts = tables.quotas(table)["count"]
    for zone in np.flatnonzero(counts != content):
        yield f"zone {zone} counts {counts[zone]}, but has {content[zone]}"
    if tables.totals(table)["count"] != content.sum():
        yield f"the global count is {tables.totals(table)['count']}, but there are {content.sum()}"


def _budgets(table):
    entries = tables.entries(table)
    live = entries[states(table) == Life.LIVE]
    zones = live["key"][:, 4] >> np.uint64(16) & np.uint64(0xFFFF)
    if table.seats:
        waiting = zones[live["status"] & Status.SEEN_REPLY == 0]
        limits = tables.quotas(table)["half_open_limit"]
        for zone in np.flatnonzero(limits):
            if np.count_nonzero(waiting == zone) > limits[zone]:
                yield f"zone {zone} has {np.count_nonzero(waiting == zone)} half-open connections of {limits[zone]}"
    if table.sources:
        is_in = live["status"] & Status.SOURCE_COUNTED != 0
        is_high = live["status"] & Status.ORIG_IS_HIGH != 0
        source = np.where(is_high[:, None], live["key"][:, 2:4], live["key"][:, 0:2])
        each = np.column_stack([source, zones])[is_in]
        content = np.sort(np.unique(each, axis=0, return_counts=True)[1]).tolist()
        cells = table.sources.cells
        counts = np.sort(cells[cells != 0] & np.uint64(0xFFFFFF)).tolist()
        if counts != content:
            yield f"sources count {counts}, but have {content}"
        limit = int(tables.quotas(table)["source_limit"].max())
        if content and content[-1] > limit:
            yield f"a source has {content[-1]} connections of {limit}"


def _hints(table):
    entries, due = tables.entries(table), tables.due(table)
    live = states(table) == Life.LIVE
    latest = np.maximum(entries["expiry_ms"] // np.uint64(DUE_UNIT_MS), np.uint64(1))
    for record in np.flatnonzero(due != entries["hint"]):
        yield f"record {record}: hint {due[record]} beside, {entries[record]['hint']} in the entry"
    for record in np.flatnonzero(live & ((due == 0) | (due > latest))):
        yield f"record {record} has hint {due[record]}, but expires at {latest[record]}"
    for record in np.flatnonzero(~live & (due != 0)):
        yield f"record {record} is not live, but has hint {due[record]}"


def _chains(table, slab):
    """Return the first record + 1 of each chain, with a name."""
    places = roster.participants(table)
    for at in np.flatnonzero(places["front"][:, slab]):
        yield f"front of {at + 1}", int(places[at]["front"][slab])
    for at in np.flatnonzero(places["back"][:, slab]):
        yield f"back of {at + 1}", int(places[at]["back"][slab])
    for i in np.flatnonzero(tables.pool(table, slab)):
        word = int(tables.pool(table, slab)[i])
        if word >> 48:
            yield f"pool word {i} of {word >> 48}", 0
        yield f"pool word {i}", word & 0xFFFFFFFF


def _lists(table):
    used = {
        Slab.ENTRIES: states(table) != Life.FREE,
        Slab.EXTENSIONS: np.isin(
            np.arange(len(tables.extensions(table))),
            tables.entries(table)["extension"][states(table) != Life.FREE].astype(int) - 1,
        ),
    }
    for slab, following in (
        (Slab.ENTRIES, tables.entries(table)["next"]),
        (Slab.EXTENSIONS, tables.extensions(table)["next"]),
    ):
        free = np.zeros(len(following), int)
        links = following.tolist()
        for name, first in _chains(table, slab):
            length = 0
            while first and length <= len(links):
                free[first - 1] += 1
                first = links[first - 1]
                length += 1
            if length > len(links):
                yield f"{slab.name}: {name} is a ring"
        for record in np.flatnonzero(free + used[slab] != 1):
            yield f"{slab.name} {record} is on {free[record]} lists{' and in use' if used[slab][record] else ''}"


def _expectations(table):
    records = table.array(Region.CONTROL, "expectations", EXPECTATION)
    in_use = records["flags"] & ExpectationFlag.IN_USE != 0
    for kind, heads in enumerate(table.array(Region.CONTROL, "expectation_chains", "u4").reshape(2, CHAINS)):
        links = records["next"][:, kind].tolist()
        times = np.zeros(len(records), int)
        for chain in np.flatnonzero(heads):
            named, length = int(heads[chain]), 0
            while named and length <= len(links):
                times[named - 1] += 1
                named, length = links[named - 1], length + 1
            if length > len(links):
                yield f"chain {chain} of kind {kind} is a ring"
        for at in np.flatnonzero(times != in_use):
            yield f"expectation {at} is on {times[at]} chains of kind {kind}{' and in use' if in_use[at] else ''}"
    zones = records["last"][in_use] >> np.uint64(16) & np.uint64(0xFFFF)
    content = np.bincount(zones.astype(int), minlength=len(tables.zones(table)))
    counts = tables.zones(table)["expectations"]
    for zone in np.flatnonzero(counts != content):
        yield f"zone {zone} counts {counts[zone]} expectations, but has {content[zone]}"
    header = foretelling.header(table)
    if header["count"] != content.sum() or header["version"] % 2:
        yield f"of {content.sum()} expectations {header['count']} are counted, version {header['version']}"
