"""A walk meets every connection once, shows it whole, counts and deletes those that a filter means, and no others."""

import ipaddress

import numpy as np
import pytest
import tables
from tables import LATER, NONE, Participant
from zonetrack.kernels import walk
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.ovs_tcp import PeerScale
from zonetrack.kernels.tcp_window import PeerFlag
from zonetrack.kernels.words import u64
from zonetrack.service.connections import packed
from zonetrack.shm.layout import (
    BLOCK_RECORDS,
    CONNECTION,
    FILTER,
    OVS_PEERS,
    SETTINGS_DEFAULT,
    TCP_PEERS,
    UNLIMITED,
    Kind,
    Setting,
    Slab,
    Status,
    Step,
)

NOW = 10_000
WALL_OFFSET = 1_700_000_000_000
MANY = 700 if JIT else 300
WHOLE = 1 << 40


@pytest.fixture
def table():
    table = tables.small(1000, extension_share=500)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


class Walker(Participant):
    """A participant that walks."""

    def __init__(self, table):
        super().__init__(table, Kind.CONTROL)
        self.cursor = np.zeros(1, "u8")

    @property
    def done(self):
        return int(self.cursor[0]) >= self.table.geometry.records(Slab.ENTRIES)

    def _at(self):
        return u64(self.cursor.ctypes.data)

    def collect(self, wanted=None, now_ms=NOW, slots=WHOLE, out_max=2000):
        """One page."""
        out = np.zeros(out_max + 1, CONNECTION)
        out[-1]["mark"] = 0xDEAD  # nothing is written behind the end
        n = walk.collect(
            self.views, everything() if wanted is None else wanted, u64(now_ms), u64(WALL_OFFSET), u64(slots),
            self._at(), u64(out.ctypes.data), u64(out_max),
        )  # fmt: skip
        assert out[-1]["mark"] == 0xDEAD and self.step is Step.NONE
        return out[: int(n)]

    def count(self, wanted=None, now_ms=NOW, slots=WHOLE):
        n = walk.count(self.views, everything() if wanted is None else wanted, u64(now_ms), u64(slots), self._at())
        assert self.step is Step.NONE
        return int(n)

    def delete_some(self, wanted=None, now_ms=NOW, slots=WHOLE):
        n = walk.delete(self.views, everything() if wanted is None else wanted, u64(now_ms), u64(slots), self._at())
        assert self.step is Step.NONE
        return int(n)


@pytest.fixture
def walker(table):
    return Walker(table)


def everything():
    return np.zeros(1, FILTER).view(np.recarray)[0]


def meaning(**fields):
    """Return a FILTER with some fields set."""
    wanted = everything()
    for name, value in fields.items():
        wanted[name] = value
    return wanted


def four(text):
    """Return an IPv4 address as a CONNECTION has it."""
    return [0] * 12 + list(ipaddress.ip_address(text).packed)


def key(low, high, zone=0, protocol=6, family=4):
    """Return a key from two (address, port)."""
    words = []
    for text, _ in (low, high):
        number = int(ipaddress.ip_address(text))
        words += [number >> 64, number & 2**64 - 1]
    return np.array([*words, low[1] << 48 | high[1] << 32 | zone << 16 | protocol << 8 | family], "u8")


# ------------------------------------------------------------------------------------------------ what is shown
@pytest.mark.parametrize("high_opens", [False, True])
def test_a_connection_is_shown_from_the_side_that_opened_it(high_opens, table, me, walker):
    low, high = ("192.0.2.1", 40000), ("198.51.100.1", 80)
    record = int(me.made(key(low, high, zone=5), expiry_ms=NOW + 1234)[0])
    entry = tables.entries(table)[record]
    entry["status"] = Status.SEEN_REPLY | Status.ASSURED | (Status.ORIG_IS_HIGH if high_opens else 0)
    entry["state"], entry["mark"], entry["parent"], entry["created_ms"] = 3, 0xABCD, 99, NOW - 50
    entry["packets"], entry["bytes"] = (3, 2), (1 << 40, 112)
    (shown,) = walker.collect()
    src, dst = (high, low) if high_opens else (low, high)
    for ahead, (source, destination) in (("", (src, dst)), ("reply_", (dst, src))):
        assert shown[f"{ahead}src"].tolist() == four(source[0])
        assert shown[f"{ahead}dst"].tolist() == four(destination[0])
        assert (shown[f"{ahead}sport"], shown[f"{ahead}dport"]) == (source[1], destination[1])
    assert (shown["zone"], shown["protocol"], shown["family"], shown["state"]) == (5, 6, 4, 3)
    assert shown["status"] == Status.SEEN_REPLY | Status.ASSURED
    assert (shown["mark"], shown["parent"], shown["id"]) == (0xABCD, 99, 1 << 32 | record)
    assert (shown["packets"].tolist(), shown["bytes"].tolist()) == ([3, 2], [1 << 40, 112])
    assert (shown["timeout_ms"], shown["start_ms"]) == (1234, NOW - 50 + WALL_OFFSET)
    assert (shown["label"].tolist(), shown["helper"]) == ([0, 0], 0)
    assert walker.done


@pytest.mark.parametrize("ovs", [False, True])
def test_windows_are_shown_as_each_profile_has_them(ovs, table, me, walker):
    record = int(me.made(key(("192.0.2.1", 40000), ("198.51.100.1", 80)))[0])
    entry = tables.entries(table)[record]
    if ovs:
        entry["status"] = Status.OVS
        entry["protocol"].view(OVS_PEERS)["peer"]["scale"] = PeerScale.OFFERED | 7, PeerScale.UNKNOWN
    else:
        peers = entry["protocol"].view(TCP_PEERS)["peer"]
        peers["scale"], peers["flags"] = (3, 14), (PeerFlag.SCALES | PeerFlag.SACKS, PeerFlag.LIBERAL)
    (shown,) = walker.collect()
    expected = ([7, 0], [PeerFlag.SCALES, PeerFlag.LIBERAL]) if ovs else ([3, 14], [0x03, PeerFlag.LIBERAL])
    assert (shown["scales"].tolist(), shown["peer_flags"].tolist()) == expected
    (twin,) = packed(np.array([entry]), np.array([record]), NOW, WALL_OFFSET)
    assert shown.tobytes() == twin.tobytes()
    entry["key"][4] = int(entry["key"][4]) & ~0xFF00 | 17 << 8
    walker.cursor[0] = 0
    (shown,) = walker.collect()
    assert not shown["scales"].any() and not shown["peer_flags"].any()


def test_an_ipv6_address_has_all_its_bytes_and_an_extension_its_label(table, me, walker):
    low, high = ("2001:db8::1", 1), ("2001:db8:ffff::2", 65535)
    record = int(me.made(key(low, high, family=6), key(low, ("2001:db8:ffff::3", 7), family=6))[0])
    extension = tables.extensions(table)[int(tables.entries(table)[record]["extension"]) - 1]
    extension["label"], extension["helper"] = (1 << 63, 5), 7
    (shown,) = walker.collect()
    assert bytes(shown["src"]) == ipaddress.ip_address(low[0]).packed
    assert bytes(shown["dst"]) == ipaddress.ip_address(high[0]).packed
    assert (shown["sport"], shown["dport"], shown["family"]) == (1, 65535, 6)
    assert (shown["label"].tolist(), shown["helper"]) == ([1 << 63, 5], 7)


@pytest.mark.parametrize("replier_is_high", [False, True])
def test_a_translated_connection_is_shown_and_found_by_the_tuple_of_its_replies(replier_is_high, table, me, walker):
    low, high, public = ("10.0.0.1", 40000), ("198.51.100.1", 80), ("192.0.2.100", 1024)
    replies = key(public, high) if replier_is_high else key(high, public)
    record = int(me.made(key(low, high), replies)[0])
    tables.entries(table)["status"][record] = Status.SOURCE_NAT | (Status.REPLIER_IS_HIGH if replier_is_high else 0)
    (shown,) = walker.collect()
    assert (shown["src"].tolist(), shown["dst"].tolist()) == (four(low[0]), four(high[0]))
    assert (shown["reply_src"].tolist(), shown["reply_dst"].tolist()) == (four(high[0]), four(public[0]))
    assert (shown["sport"], shown["dport"], shown["reply_sport"], shown["reply_dport"]) == (40000, 80, 80, 1024)
    assert shown["status"] == Status.SOURCE_NAT
    for place, text, fits in ((3, public[0], 1), (3, low[0], 0), (2, high[0], 1), (0, low[0], 1)):
        walker.cursor[0] = 0
        assert walker.count(address_filter(place, text, 32)) == fits


def test_a_timeout_that_no_field_can_hold_is_the_longest_there_is(me, walker):
    me.made(tables.keys(1), expiry_ms=NOW + (1 << 34))
    assert walker.collect()["timeout_ms"].tolist() == [2**32 - 1]


# ------------------------------------------------------------------------------------------------ which are met
@pytest.mark.parametrize(("slots", "out_max"), [(WHOLE, 2000), (WHOLE, 37), (64, 2000), (100, 7), (1, 1)])
def test_pages_of_any_length_meet_each_connection_once(slots, out_max, me, walker):
    number = MANY if slots > 1 else 20
    records = me.made(tables.keys(number, zone=1))
    seen, calls = [], 0
    while not walker.done:
        page = walker.collect(slots=slots, out_max=out_max)
        seen += (page["id"] & np.uint64(0xFFFFFFFF)).tolist()
        calls += 1
        assert calls < 5000
    assert sorted(seen) == sorted(records.tolist())


@pytest.mark.parametrize("slots", [WHOLE, 100])
def test_counting_in_slices_comes_to_the_same(slots, me, walker):
    me.made(tables.keys(MANY, zone=1))
    total = 0
    while not walker.done:
        total += walker.count(slots=slots)
    assert total == MANY


def test_what_has_expired_or_gone_is_not_met(table, me, walker):
    keys = tables.keys(30, zone=1)
    me.made(keys[:10], expiry_ms=NOW)
    me.made(keys[10:20], expiry_ms=NOW + 1)
    me.made(keys[20:])
    me.mark(keys[25:])  # DEAD, still in the index
    assert len(walker.collect()) == 15
    me.run()
    me.remove(keys[20:25])
    walker.cursor[0] = 0
    assert walker.count() == 10


def test_where_nothing_expires_what_is_past_its_moment_is_met(table, me, walker):
    me.made(tables.keys(3, zone=1), expiry_ms=5)
    tables.zones(table)["settings"][1] = SETTINGS_DEFAULT | Setting.NO_EXPIRY
    assert walker.collect()["timeout_ms"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("cursor", ["end", "beyond"])
def test_a_cursor_at_the_end_or_beyond_meets_nothing(cursor, table, me, walker):
    me.made(tables.keys(3))
    place = table.geometry.records(Slab.ENTRIES) + (0 if cursor == "end" else 1 << 50)
    walker.cursor[0] = place
    assert (len(walker.collect()), walker.count(), walker.delete_some()) == (0, 0, 0)
    assert walker.cursor[0] == place


def test_an_empty_table_is_done_at_once(walker):
    assert len(walker.collect()) == 0
    assert walker.done


# ------------------------------------------------------------------------------------------------ filters
LOW, HIGH = ("192.0.2.1", 40000), ("198.51.100.1", 80)


def address_filter(place, text, bits):
    """Return a FILTER of an IPv4 prefix at src 0, dst 1, reply_src 2 or reply_dst 3."""
    wanted = everything()
    mask = (2**32 - 1) << (32 - bits) & 2**32 - 1
    wanted["address_mask"][2 * place + 1] = mask
    wanted["address"][2 * place + 1] = int(ipaddress.ip_address(text)) & mask
    return wanted


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (meaning(last=5 << 16, last_mask=0xFFFF << 16), True),
        (meaning(last=6 << 16, last_mask=0xFFFF << 16), False),
        (meaning(last=6 << 8 | 4, last_mask=0xFFFF), True),
        (meaning(last=17 << 8, last_mask=0xFF00), False),
        (meaning(mark=0x10, mark_mask=0xF0), True),
        (meaning(mark=0x20, mark_mask=0xF0), False),
        (meaning(ports=80 << 16, ports_mask=0xFFFF << 16), True),  # the high endpoint opened it
        (meaning(ports=40000 << 16, ports_mask=0xFFFF << 16), False),
        (meaning(ports=40000, ports_mask=0xFFFF), True),
        (meaning(states=1 << 3), True),
        (meaning(states=1 << 3 | 1 << 9), True),
        (meaning(states=1 << 4), False),
        (meaning(ovs_states=1 << 3), False),
        (meaning(status=Status.SEEN_REPLY, status_mask=Status.SEEN_REPLY), True),
        (meaning(status=0, status_mask=Status.SEEN_REPLY), False),
        (address_filter(0, "198.51.100.1", 32), True),
        (address_filter(0, "198.51.100.77", 24), True),
        (address_filter(0, "192.0.2.1", 32), False),
        (address_filter(1, "192.0.2.1", 32), True),
        (address_filter(1, "192.0.3.1", 24), False),
        (address_filter(2, "192.0.2.1", 32), True),
        (address_filter(3, "198.51.0.0", 16), True),
        (address_filter(3, "192.0.2.1", 32), False),
    ],
)
def test_what_is_under_a_mask_must_be_equal(wanted, fits, table, me, walker):
    record = int(me.made(key(LOW, HIGH, zone=5))[0])
    entry = tables.entries(table)[record]
    entry["status"], entry["state"], entry["mark"] = Status.ORIG_IS_HIGH | Status.SEEN_REPLY, 3, 0x15
    assert len(walker.collect(wanted)) == fits
    walker.cursor[0] = 0
    assert walker.count(wanted) == fits
    walker.cursor[0] = 0
    assert walker.delete_some(wanted) == fits
    assert tables.totals(table)["count"] == (not fits)


@pytest.mark.parametrize(
    ("state", "fits"),
    [(0x24, True), (0x42, True), (0x44, True), (0x22, False), (0x47, False), (0x04, True), (0xFF, False)],
)
def test_in_the_ovs_profile_the_higher_state_of_both_sides_counts(state, fits, table, me, walker):
    record = int(me.made(key(LOW, HIGH))[0])
    entry = tables.entries(table)[record]
    entry["status"], entry["state"] = Status.OVS, state
    assert len(walker.collect(meaning(ovs_states=1 << 4, states=0xFFFF))) == fits


@pytest.mark.parametrize(("protocol", "fits"), [(17, True), (1, False), (58, False)])
def test_what_stands_in_the_place_of_icmp_ports_is_no_port(protocol, fits, me, walker):
    me.made(key(("192.0.2.1", 77), ("198.51.100.1", 2048), protocol=protocol))
    assert walker.count(meaning(ports=2048, ports_mask=0xFFFF)) == fits
    walker.cursor[0] = 0
    assert walker.count(meaning(last=protocol << 8, last_mask=0xFF00)) == 1


# ------------------------------------------------------------------------------------------------ deleting
@pytest.mark.parametrize("slots", [WHOLE, 64])
def test_deleting_takes_those_that_are_meant_and_no_others(slots, table, me, walker):
    mine, others = tables.keys(MANY // 2, zone=1), tables.keys(MANY // 2, zone=2)
    me.made(mine)
    kept = me.made(others)
    deleted = 0
    while not walker.done:
        deleted += walker.delete_some(meaning(last=1 << 16, last_mask=0xFFFF << 16), slots=slots)
    assert deleted == len(mine)
    assert set(me.find(mine).tolist()) == {NONE}
    assert me.find(others).tolist() == kept.tolist()
    assert (tables.quotas(table)["count"][1], tables.quotas(table)["count"][2]) == (0, len(others))
    tables.assert_at_rest(table)


def test_records_with_two_keys_go_whole(table, me, walker):
    me.made(tables.keys(150, zone=1), tables.keys(150, zone=1, low=2))
    assert walker.delete_some() == 150
    assert tables.totals(table)["count"] == 0
    tables.assert_at_rest(table)


def test_deleting_stands_still_when_its_list_waits_for_a_lock_and_goes_on_later(table, me, walker):
    me.made(tables.keys(MANY, zone=1))
    with tables.held(tables.quotas(table)[1], "count_lock"):
        first = walker.delete_some()
        place = int(walker.cursor[0])
        assert 0 < first < MANY and not walker.done
        assert (walker.delete_some(), int(walker.cursor[0])) == (0, place)
    assert first + walker.delete_some() == MANY
    assert walker.done
    tables.assert_at_rest(table)


# ------------------------------------------------------------------------------------------------ locks not had
def test_a_record_whose_holder_died_is_shown_as_torn_and_not_deleted(table, me, walker):
    records = me.made(tables.keys(5))
    stuck = tables.entries(table)[int(records[2])]
    with tables.held(stuck):
        page = walker.collect()
        assert len(page) == 5
        torn = page["status"] & Status.TORN != 0
        assert (page["id"][torn] & np.uint64(0xFFFFFFFF)).tolist() == [int(records[2])]
        walker.cursor[0] = 0
        assert walker.delete_some() == 4
        assert stuck["lock"] == 255
    walker.cursor[0] = 0
    assert walker.collect()["status"].tolist() == [0]
    tables.assert_at_rest(table)


def test_a_walk_leaves_no_lock_and_changes_nothing(table, me, walker):
    me.made(tables.keys(MANY), expiry_ms=LATER)
    before = tables.entries(table).tobytes()
    walker.collect()
    assert tables.entries(table).tobytes() == before
    tables.assert_at_rest(table)


def test_the_first_of_the_next_page_is_met_where_the_page_was_full(me, walker):
    me.made(tables.keys(BLOCK_RECORDS + 10))
    assert len(walker.collect(out_max=5)) == 5
    assert len(walker.collect(out_max=2000)) == BLOCK_RECORDS + 5
