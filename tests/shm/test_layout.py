"""Every shared record: its size, where its hot fields are, that no enum outgrows its field, and the digest of it all."""

import itertools
from enum import IntEnum

import numpy as np
import pytest
from zonetrack.service import rules_compile
from zonetrack.shm import events, layout, queues, rulebook, seats, sources

SIZES = {
    "HEADER": 120,
    "ENTRY": 192,
    "TCP_PEER": 20,
    "TCP_PEERS": 64,
    "OVS_PEER": 12,
    "OVS_PEERS": 64,
    "SCTP_ASSOCIATION": 64,
    "EXTENSION": 128,
    "SEGMENT": 64,
    "ZONE": 16,
    "QUOTA": 64,
    "POLICY": 256,
    "GLOBAL": 64,
    "INTENT": 64,
    "PARTICIPANT": 1216,
    "DELETE": 16,
    "SAMPLE": 192,
    "ZONE_REASON": 16,
    "STORE": 128,
    "HOLDER": 8,
    "DATAGRAM": 80,
    "FRAGMENT": 64,
    "PORT": 64,
    "RING": 384,
    "FTP_STATE": 44,
    "PPTP_STATE": 44,
    "SIP_STATE": 44,
    "EXPECTATION": 128,
    "EXPECTATION_TABLE": 64,
    "VERDICT": 24,
    "DESCRIPTOR": 48,
}


def ends(dtype):
    """Return the first and one past the last byte of each field."""
    return {name: (place, place + field.itemsize) for name, (field, place, *_) in dtype.fields.items()}


def test_what_is_kept_beside_a_table_is_in_a_digest_too(monkeypatch):
    """Whoever takes over memory that is laid out in another way has to notice: each of its records is known."""
    kept = {id(one) for one in (*layout.SHARED.values(), *layout.BESIDE.values())}
    own = {
        "CACHED",
        "CARRIER",
        "DESCRIPTOR",
        "FRAME",
        "HEADER",
        "OUTBOX",
        "OUTLET",
        "PASSAGE",
        "PIPE",
        "POLL",
        "POLLED",
    }
    own |= {"TIMESPEC", "VERDICT", "WAIT", "WAITING", "XSK"}  # private to a process
    for room in (queues, rulebook, events, seats, sources, rules_compile):
        for name, value in vars(room).items():
            assert not isinstance(value, np.dtype) or id(value) in kept or name in own, (room.__name__, name)
    table, beside = layout.digest(), layout.digest_beside()
    for name in layout.BESIDE:
        with monkeypatch.context() as patch:
            patch.setitem(layout.BESIDE, name, np.dtype([("other", "u8")]))
            assert layout.digest_beside() != beside, name
            assert layout.digest() == table, name
    assert layout.digest_beside() == beside


def test_every_shared_record_has_the_size_that_is_written_down():
    assert {name: dtype.itemsize for name, dtype in layout.SHARED.items()} == SIZES


@pytest.mark.parametrize("name", layout.SHARED)
def test_fields_fill_their_record_and_lie_on_their_own_size(name):
    dtype = layout.SHARED[name]
    spans = sorted(ends(dtype).values())
    assert spans[0][0] == 0
    assert spans[-1][1] == dtype.itemsize
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert all(place % field.base.alignment == 0 for field, place, *_ in dtype.fields.values())


@pytest.mark.parametrize("name", layout.SHARED)
def test_numbers_are_in_host_order(name):
    def leaves(dtype):
        base = dtype.base
        return [leaf for field, *_ in base.fields.values() for leaf in leaves(field)] if base.fields else [base]

    assert all(leaf.isnative and leaf.kind in "iu" for leaf in leaves(layout.SHARED[name]))


@pytest.mark.parametrize(
    ("dtype", "fields", "line"),
    [
        (layout.ENTRY, ("key", "life", "expiry_ms", "lock", "status", "state", "policy"), 0),
        (layout.ENTRY, ("protocol",), 1),
        (layout.ENTRY, ("packets", "bytes", "created_ms", "parent", "mark", "extension", "next", "hint"), 2),
        (layout.PARTICIPANT, ("intent",), 0),
        (layout.PARTICIPANT, ("pid", "attendance", "start_ticks", "kind", "deletes", "clock_ms", "sweep_cursor"), 1),
        (layout.PARTICIPANT, ("front", "front_count", "back", "back_count"), 2),
        (layout.GLOBAL, ("count_lock", "count", "limit", "zone_limit_default"), 0),
        (layout.SEGMENT, ("lock", "owner", "depth", "zone"), 0),
    ],
)
def test_what_is_used_together_lies_in_one_cache_line(dtype, fields, line):
    for field in fields:
        begin, end = ends(dtype)[field]
        assert (begin // layout.LINE_BYTES, (end - 1) // layout.LINE_BYTES) == (line, line), field


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (layout.ENTRY, layout.LINE_BYTES),
        (layout.EXTENSION, layout.LINE_BYTES),
        (layout.SEGMENT, layout.LINE_BYTES),
        (layout.QUOTA, layout.LINE_BYTES),
        (layout.GLOBAL, layout.LINE_BYTES),
        (layout.PARTICIPANT, layout.LINE_BYTES),
    ],
)
def test_records_of_different_writers_share_no_cache_line(dtype, sizes):
    assert dtype.itemsize % sizes == 0


@pytest.mark.parametrize(
    ("enum", "dtype", "field"),
    [
        (layout.Region, layout.HEADER, "region"),
        (layout.SegmentState, layout.HEADER, "state"),
        (layout.Status, layout.ENTRY, "status"),
        (layout.Setting, layout.ZONE, "settings"),
        (layout.Kind, layout.PARTICIPANT, "kind"),
        (layout.Attendance, layout.PARTICIPANT, "attendance"),
        (layout.CtState, layout.VERDICT, "ct_state"),
        (layout.Way, layout.VERDICT, "direction"),
        (layout.VerdictFlag, layout.VERDICT, "flags"),
        (layout.Link, layout.FRAME, "link"),
        (layout.FrameFlag, layout.FRAME, "flags"),
        (layout.PacketKind, layout.PARSED, "kind"),
    ],
)
def test_an_enum_fits_its_field(enum, dtype, field):
    limit = np.iinfo(dtype.fields[field][0].base).max
    assert all(0 <= member <= limit for member in enum)
    assert sum(member for member in enum if member.bit_count() == 1) <= limit


def test_words_that_are_packed_have_room_for_their_parts():
    assert max(layout.Step) < 1 << layout.STEP_BITS
    assert 2 * layout.BEFORE_BITS + layout.STEP_BITS <= 64
    assert max(layout.Life) < 1 << 8
    assert layout.ROSTER_MAX < layout.USED  # an owner id is none of the two words beside it
    assert layout.BLOCK_RECORDS < 1 << layout.POOL_OWNER_SHIFT - layout.POOL_COUNT_SHIFT
    assert layout.USED < 1 << 64 - layout.POOL_OWNER_SHIFT
    assert layout.CONNECTIONS_MAX < 1 << layout.POOL_COUNT_SHIFT
    assert layout.DEPTH_MAX < 1 << layout.ZONE_DEPTH_BITS


def test_offsets_are_words_that_kernels_take_in():
    place = layout.offset(layout.ENTRY, "packets")
    assert isinstance(place, np.uint64)
    assert place == 128


# ------------------------------------------------------------------------------------------------ digest
def test_the_digest_is_the_same_each_time():
    assert layout.digest() == layout.digest()
    assert 0 < layout.digest() < 1 << 64


def rows(dtype):
    return [(name, dtype[name]) for name in dtype.names]


@pytest.mark.parametrize("name", layout.SHARED)
def test_the_digest_changes_with_a_field_s_name_type_and_place(monkeypatch, name):
    before = {layout.digest()}
    (first, kind), *others = rows(layout.SHARED[name])
    changes = [
        [("another", kind), *others],
        [(first, np.dtype((np.void, kind.itemsize))), *others],
        [*others, (first, kind)],
        [(first, kind), *others, ("more", "u8")],
    ]
    for change in changes[: None if others else 2]:
        monkeypatch.setitem(layout.SHARED, name, np.dtype(change))
        assert layout.digest() not in before
        before.add(layout.digest())


@pytest.mark.parametrize("name", ["FORMAT_VERSION", "ROSTER_MAX", "BLOCK_RECORDS", "SLOTS", "DUE_UNIT_MS", "USED"])
def test_the_digest_changes_with_a_constant(monkeypatch, name):
    before = layout.digest()
    monkeypatch.setattr(layout, name, getattr(layout, name) + 1)
    assert layout.digest() != before


@pytest.mark.parametrize("name", ["Life", "Status", "Step", "Attendance", "Region", "Slab"])
def test_the_digest_changes_with_an_enum(monkeypatch, name):
    before = layout.digest()
    members = {member.name: member.value for member in getattr(layout, name)}
    monkeypatch.setattr(layout, name, IntEnum(name, {**members, "MORE": 63}))
    assert layout.digest() != before
