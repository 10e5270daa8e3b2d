"""Actions: mark, label, policy and force are done to the connections of packets that are committed, and to no others."""

import numpy as np
import pytest
import tables
from asked import ALL_32, ALL_128, action, label_of
from bursts import CLIENT, ROUTER, SERVER, Bench, tcp, udp
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.all import ICMP, IP, Ether, IPerror, UDPerror
from zonetrack.kernels.timeouts import Timeout
from zonetrack.service.policies import Policies
from zonetrack.shm.layout import NO_RECORD, CtState, Helper, Status, VerdictFlag
from zonetrack.shm.reasons import Reason

NEW = CtState.TRK | CtState.NEW
EST = CtState.TRK | CtState.EST
REPLY = CtState.TRK | CtState.EST | CtState.RPL
LABEL = 0x0123456789ABCDEF_FEDCBA9876543210


@pytest.fixture
def bench():
    made = Bench(tables.small(300))
    yield made
    made.settle()


def entry_of(bench, verdict):
    return tables.entries(bench.table)[int(verdict["record"])]


# ------------------------------------------------------------------------------------------------ marks and labels
def test_a_connection_that_is_made_has_all_of_it(bench):
    asked = action(mark=0xFFFF, mark_mask=0x0FF0, label=LABEL, label_mask=0xFF << 64 | 0xFF, policy=9)
    (verdict,) = bench.track(udp(), action=asked)
    entry = entry_of(bench, verdict)
    assert (entry["mark"], entry["policy"], verdict["mark"]) == (0x0FF0, 9, 0x0FF0)
    assert label_of(bench.table, verdict["record"]) == LABEL & (0xFF << 64 | 0xFF)


def test_a_connection_that_there_is_is_changed_under_the_mask(bench):
    (made,) = bench.track(udp(), action=action(mark=0xA5A5, mark_mask=ALL_32))
    assert label_of(bench.table, made["record"]) is None
    verdicts = bench.track(udp(reply=True), action=action(mark=0xFF, mark_mask=0x0F, label=LABEL, label_mask=ALL_128))
    assert verdicts["mark"].tolist() == [0xA5AF] == [entry_of(bench, made)["mark"]]
    assert label_of(bench.table, made["record"]) == LABEL
    bench.track(udp(), action=action(label=0, label_mask=0xFF))
    assert label_of(bench.table, made["record"]) == LABEL & ~0xFF
    assert bench.track(udp())["mark"].tolist() == [0xA5AF]


@given(st.lists(st.tuples(*[st.integers(0, ALL_32)] * 2, *[st.integers(0, ALL_128)] * 2), min_size=1, max_size=4))
@settings(max_examples=8, deadline=None)
def test_marks_and_labels_are_what_masks_make_of_them(changes):
    bench = Bench(tables.small(300))
    mark = label = 0
    for value, mask, wide, wide_mask in changes:
        asked = action(mark=value, mark_mask=mask, label=wide, label_mask=wide_mask)
        (verdict,) = bench.track(udp(), action=asked)
        mark, label = mark & ~mask | value & mask, label & ~wide_mask | wide & wide_mask
        assert (verdict["mark"], label_of(bench.table, verdict["record"]) or 0) == (mark, label)


def test_the_label_of_a_record_that_is_used_again_is_gone(bench):
    (first,) = bench.track(udp(), action=action(label=LABEL, label_mask=ALL_128))
    bench.track(tcp("S", 1), now_ms=10_000_000)  # what has expired is found out about when it is looked for
    bench.track(udp(), now_ms=10_000_000)
    bench.settle()
    verdicts = bench.track(*(udp(port) for port in range(40)), now_ms=10_000_001, action=action(label=1, label_mask=1))
    assert {label_of(bench.table, record) for record in verdicts["record"]} == {1}
    assert first["record"] in verdicts["record"]


def test_an_error_about_a_connection_is_part_of_it(bench):
    bench.track(udp())
    quoted = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=1234, dport=53) / b"12345678"
    error = Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / quoted
    (verdict,) = bench.track(error, action=action(mark=7, mark_mask=7))
    assert verdict["ct_state"] & CtState.REL and verdict["mark"] == 7
    assert bench.track(udp())["mark"].tolist() == [7]


# ------------------------------------------------------------------------------------------------ what changes nothing
def test_a_lookup_without_commit_changes_nothing(bench):
    everything = action(force=True, mark=1, mark_mask=1, label=1, label_mask=1, policy=5)
    (verdict,) = bench.track(udp(), commit=False, action=everything)
    assert (verdict["ct_state"], verdict["record"], verdict["flags"]) == (NEW, NO_RECORD, 0)
    (made,) = bench.track(udp())
    before = bytes(tables.entries(bench.table)[int(made["record"])])
    (reply,) = bench.track(udp(reply=True), commit=False, action=everything)
    assert reply["ct_state"] == REPLY and reply["mark"] == 0 and reply["record"] == made["record"]
    entry = entry_of(bench, made)
    assert (entry["mark"], entry["extension"], entry["policy"]) == (0, 0, 0) and bytes(entry) != before
    assert bench.count() == 1


def test_a_packet_that_is_invalid_changes_nothing(bench):
    (made, *_) = bench.track(tcp("S", 1000), tcp("SA", 5000, 1001, reply=True), tcp("A", 1001, 5001))
    (verdict,) = bench.track(tcp("A", 1001, 9001), action=action(mark=1, mark_mask=1, label=1, label_mask=1))
    assert verdict["ct_state"] & CtState.INV
    assert entry_of(bench, made)["mark"] == 0 and label_of(bench.table, made["record"]) is None


def test_the_policy_of_a_connection_that_there_is_stays(bench):
    (made,) = bench.track(udp())
    bench.track(udp(), action=action(policy=5))
    assert entry_of(bench, made)["policy"] == 0


def test_a_packet_that_the_limit_refuses_has_no_connection_to_change(bench):
    tables.set_limit(bench.table, 0, 0)
    (verdict,) = bench.track(udp(), action=action(mark=1, mark_mask=1, label=1, label_mask=1))
    assert (verdict["ct_state"], verdict["reason"], verdict["mark"]) == (NEW, Reason.ZONE_FULL, 0)


# ------------------------------------------------------------------------------------------------ policies
def test_the_policy_of_an_action_rules_from_the_first_packet_on(bench):
    policies = Policies(bench.table)
    policies.set(5, {Timeout.UDP: 7_000, Timeout.UDP_STREAM: 9_000})
    (first,) = bench.track(udp(), action=action(policy=5))
    assert first["timeout_ms"] == 7_000
    policies.set(5, {Timeout.UDP: 3_000})
    assert bench.track(udp())["timeout_ms"].tolist() == [3_000]  # as it is now, at the next refresh
    assert bench.track(udp(99), action=action(policy=0))["timeout_ms"].tolist() == [30_000]


def test_the_helper_of_an_action_is_given_to_what_is_made(bench):
    (made,) = bench.track(udp(), action=action(helper=Helper.TFTP, label=5, label_mask=7))
    assert entry_of(bench, made)["status"] & Status.HELPER
    link = entry_of(bench, made)["extension"]
    assert tables.extensions(bench.table)["helper"][link - 1] == Helper.TFTP
    assert label_of(bench.table, made["record"]) == 5
    (other,) = bench.track(udp(99))
    bench.track(udp(99), action=action(helper=Helper.TFTP))
    assert not entry_of(bench, other)["status"] & Status.HELPER


# ------------------------------------------------------------------------------------------------ force
def test_force_makes_the_sender_the_opener(bench):
    (made, _) = bench.track(udp(), udp(reply=True))
    (forced,) = bench.track(udp(reply=True), action=action(force=True, mark=3, mark_mask=3))
    assert forced["ct_state"] == NEW and forced["flags"] == VerdictFlag.COMMITTED and forced["mark"] == 3
    assert (forced["record"], forced["incarnation"]) != (made["record"], made["incarnation"])
    assert bench.track(udp())["ct_state"].tolist() == [REPLY]
    bench.settle()
    assert bench.count() == 1


def test_force_of_the_opener_changes_nothing(bench):
    (made, _) = bench.track(udp(), udp(reply=True))
    (verdict,) = bench.track(udp(), action=action(force=True))
    assert verdict["ct_state"] == EST and verdict["record"] == made["record"]


def test_force_of_what_cannot_open_ends_the_connection(bench):
    bench.track(tcp("S", 1000), tcp("SA", 5000, 1001, reply=True))
    (verdict,) = bench.track(tcp("SA", 5000, 1001, reply=True), action=action(force=True))
    assert Reason(verdict["reason"]) is Reason.TCP_NEW_REFUSED
    bench.settle()
    assert bench.count() == 0


def test_force_in_a_burst_sees_what_came_before_it(bench):
    verdicts = bench.track(udp(), udp(reply=True), udp(), action=action(force=True))
    assert verdicts["ct_state"].tolist() == [NEW, NEW, NEW]  # each answers the one before
    bench.settle()
    assert bench.count() == 1


def test_force_of_what_is_not_tracked_is_nothing(bench):
    quoted = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=1234, dport=53) / b"12345678"
    bench.track(udp())
    error = Ether() / IP(src=SERVER, dst=CLIENT) / ICMP(type=3, code=1) / quoted
    cut = Ether(bytes(udp(reply=True))[:30])
    verdicts = bench.track(error, cut, action=action(force=True))
    assert bool(verdicts["ct_state"][0] & CtState.REL) and bench.count() == 1


# ------------------------------------------------------------------------------------------------ when there is no room
@pytest.fixture
def poor():
    """A bench of a table without extension records."""
    made = Bench(tables.small(300, extension_share=0))
    yield made
    made.settle()


def test_no_connection_is_made_without_the_label_that_it_shall_have(poor):
    (verdict,) = poor.track(udp(), action=action(label=1, label_mask=1))
    assert (verdict["ct_state"], verdict["reason"]) == (NEW, Reason.EXTENSION_FULL)
    assert (verdict["record"], poor.count()) == (NO_RECORD, 0)


def test_a_connection_that_there_is_stays_without_a_label(poor):
    poor.track(udp())
    (verdict,) = poor.track(udp(), action=action(label=1, label_mask=1, mark=2, mark_mask=2))
    assert (verdict["ct_state"], verdict["reason"], verdict["mark"]) == (NEW, Reason.EXTENSION_FULL, 2)
    assert poor.counter(Reason.EXTENSION_FULL) == 1


def test_extensions_come_home(bench):
    most = int(bench.views["records"][1])
    for round_ in range(3):
        now_ms = 1000 + round_ * 10_000_000
        ports = range(1000, 1000 + most // 2)
        verdicts = np.concatenate(
            [bench.track(udp(port), now_ms=now_ms, action=action(label=port, label_mask=ALL_128)) for port in ports]
        )
        assert not verdicts["reason"].any()
        assert [label_of(bench.table, record) for record in verdicts["record"]] == list(ports)
    bench.settle()
