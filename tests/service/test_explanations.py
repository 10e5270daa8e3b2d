"""Every reason is explained, with numbers, and the settings that would have accepted a packet are the ones that do."""

import json

import numpy as np
import pytest
import tables
from associations import OPENED, raw
from bursts import CLIENT, ROUTER, SERVER, Bench, tcp, udp
from scapy.all import ICMP, IP, TCP, Ether, IPerror, Raw, UDPerror
from zonetrack.service import arrivals, explanations, relearning
from zonetrack.service.explanations import ROWS
from zonetrack.service.samples import Samples
from zonetrack.service.zone_settings import SWITCHES, ZoneSettings
from zonetrack.shm.layout import CtState, Setting
from zonetrack.shm.reasons import Reason


def handshake(scale=None, sack=False):
    """The opening of CLIENT:40000 to SERVER:80, after which both have a window of 8192."""
    packets = tcp("S", 1000), tcp("SA", 5000, 1001, reply=True), tcp("A", 1001, 5001)
    for packet in packets[:2]:
        packet[TCP].options = [("WScale", scale)] * (scale is not None) + [("SAckOK", b"")] * sack
    return list(packets)


def wrong(packet, layer):
    packet = Ether(bytes(packet))
    packet[layer].chksum ^= 0x1111
    return packet


def error(quoted):
    return Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / quoted


def data(seq, ack, length=500):
    return tcp("PA", seq, ack) / Raw(bytes(length))


def sctp(side, chunks, tag=None):
    return Ether() / IP(raw(side, chunks, tag))


QUOTED = IPerror(src=CLIENT, dst=SERVER) / UDPerror(sport=9, dport=53) / b"12345678"
SCENES = {
    "ip checksum": ({}, [wrong(udp(), IP)], Reason.L3CSUM_ERR, ["IPv4 header checksum 0x", " expected"]),
    "checksum": ({}, [wrong(tcp("S", 1), TCP)], Reason.L4CSUM_ERR, ["the tcp checksum is wrong"]),
    "no flags": ({}, [tcp("", 1)], Reason.INVALID_TCP_FLAGS, ["no host sends the flags none"]),
    "xmas": ({}, [*handshake(), tcp("FSRPAU", 1001, 5001)], Reason.INVALID_TCP_FLAGS, ["flags FSRPAU"]),
    "fin first": ({}, [tcp("FA", 1, 1)], Reason.TCP_NEW_REFUSED, ["FIN of no connection that is known"]),
    "strict": ({"loose": False}, [tcp("A", 1, 1)], Reason.TCP_NEW_REFUSED, ["does not pick up in the middle"]),
    "no answer": (
        {},
        [tcp("S", 1000), tcp("A", 1001, 5001)],
        Reason.TCP_STATE,
        ["in state SYN_SENT no ACK from the opener is expected"],
    ),
    "beyond": (
        {},
        [*handshake(), data(9500, 5001)],
        Reason.TCP_SEQ_ABOVE,
        [f"seq 9500..10000 beyond what {SERVER} granted (highest acceptable 9193 = highest ack + window of {SERVER})"],
    ),
    "beyond a scaled window": (
        {},
        [*handshake(scale=7), tcp("A", 5001, 1001, reply=True), data(2_000_000, 5001)],
        Reason.TCP_SEQ_ABOVE,
        [f"highest acceptable {1001 + (8192 << 7)} = highest ack + window of {SERVER}; window scale 7"],
    ),
    "never sent": (
        {},
        [*handshake(), tcp("A", 1001, 7001)],
        Reason.TCP_ACK_ABOVE,
        [f"ack 7001 is 2000 beyond the highest acceptable 5001 (all that {SERVER} has sent)"],
    ),
    "old data": (
        {},
        [*handshake(), data(1001, 5001, 100), tcp("A", 5001, 1101, reply=True), data(4294960000, 5001, 100)],
        Reason.TCP_SEQ_BELOW,
        [f"end 4294960100 is 105 below the lowest acceptable {(1101 - 8192) % 2**32}"],
    ),
    "old ack": (
        {},
        [
            *handshake(),
            *(tcp("A", 5001 + 8000 * n, 1001, reply=True) / Raw(bytes(8000)) for n in range(1)),
            tcp("A", 1001, 4294900000),
        ],
        Reason.TCP_ACK_BELOW,
        ["66000 back is as old as an ack may be"],
    ),
    "stale reset": (
        {},
        [*handshake(), data(1001, 5001), tcp("A", 5001, 1501, reply=True), tcp("R", 1400)],
        Reason.TCP_RST_SEQ,
        [f"RST with seq 1400, {SERVER} has acknowledged 1501: 101 below"],
    ),
    "reset after its own syn": (
        {},
        [*handshake(), data(1001, 5001), tcp("A", 5001, 1501, reply=True), tcp("S", 900), tcp("R", 1502)],
        Reason.TCP_RST_SEQ,
        ["has acknowledged 1501: not exactly that"],
    ),
    "challenge": ({}, [*handshake(), tcp("S", 90000)], Reason.TCP_SYN_CHALLENGE, ["its receiver will tell"]),
    "echo reply": ({}, [Ether() / IP(src=CLIENT, dst=SERVER) / ICMP(type=0)], Reason.ICMP_UNMATCHED, ["no request"]),
    "error": ({}, [error(QUOTED)], Reason.ICMP_UNMATCHED, [f"{CLIENT}:9 > {SERVER}:53 udp"]),
    "type": ({}, [Ether() / IP(src=CLIENT, dst=SERVER) / ICMP(type=40)], Reason.ICMP_TYPE, ["opens nothing"]),
    "quoted nothing": ({}, [error(Raw(b"x"))], Reason.ICMP_INNER, ["cannot be read"]),
    "sctp data first": ({}, [sctp("c", "DATA")], Reason.SCTP_STATE, ["DATA of no association that is known"]),
    "sctp heartbeat": (
        {},
        [sctp("c", "HEARTBEAT"), sctp("s", "SHUTDOWN_ACK")],
        Reason.SCTP_STATE,
        ["in state HEARTBEAT_SENT no SHUTDOWN_ACK from the other side is expected"],
    ),
    "sctp tag": (
        {},
        [*(sctp(*step.split()) for step in OPENED), sctp("c", "DATA", 0xDEAD)],
        Reason.SCTP_TAG,
        ["tag 0x0000dead, 0x2222bbbb expected from the opener"],
    ),
    "sctp init with a tag": ({}, [sctp("c", "INIT", 7)], Reason.SCTP_TAG, ["tag 0x00000007: an INIT carries none"]),
    "sctp chunks": ({}, [sctp("c", ("INIT", "DATA"))], Reason.SCTP_CHUNK, ["do not go together"]),
    "ovs window": (
        {"profile": "ovs"},
        [*handshake(), data(19500, 5001)],
        Reason.TCP_SEQ_CHK_FAILED,
        [f"end 20000 is {20000 - 9193} beyond the highest acceptable 9193 (highest ack + window of {SERVER})"],
    ),
    "ovs reset": (
        {"profile": "ovs"},
        [*handshake(), tcp("R", 1100)],
        Reason.TCP_SEQ_CHK_FAILED,
        [f"seq 1100 is 99 beyond the highest acceptable 1001 (a RST must be within 1 of what {CLIENT} has sent)"],
    ),
    "ovs old ack": (
        {"profile": "ovs"},
        [*handshake(), tcp("A", 1001, 4294860000)],
        Reason.TCP_SEQ_CHK_FAILED,
        ["67035 back is as old as an ack may be"],
    ),
}
"""By name: how the zone is set, packets, of which the last gets the reason, and words of the explanation."""


def play(settings, packets):
    """Return the verdict of the last packet, and its sample."""
    bench = Bench(tables.small(300))
    if settings:
        ZoneSettings(bench.table).set(4, settings)
    for packet in packets:
        verdict = bench.track(packet, zone=4)[0]
    samples = Samples(bench.table).of(bench.me)
    return verdict, samples[-1] if len(samples) else None


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_is_explained(scene):
    settings, packets, reason, words = SCENES[scene]
    verdict, sample = play(settings, packets)
    assert Reason(verdict["reason"]) == reason
    told = explanations.explain(arrivals.of_sample(sample))
    assert told["reason"] == reason.name.lower() and told["rule"] == ROWS[reason.name].rule
    assert [word for word in words if word not in told["expected"]] == [], told["expected"]
    assert told["fate"] == ("invalid" if verdict["ct_state"] & CtState.INV else "let by")
    assert json.loads(json.dumps(told)) == told
    if told["bounds"] and told["fate"] == "invalid" and reason is not Reason.TCP_RST_SEQ:
        assert not all(bound["holds"] for bound in told["bounds"])


@pytest.mark.parametrize("scene", [scene for scene, (_, _, reason, _) in SCENES.items() if "challenge" not in scene])
def test_the_settings_that_are_named_accept_it_and_no_others(scene):
    settings, packets, _, _ = SCENES[scene]
    verdict, sample = play(settings, packets)
    named = set(explanations.explain(arrivals.of_sample(sample))["accepted_with"])
    if not verdict["ct_state"] & CtState.INV:
        assert not named  # it was let by
        return
    accepting = set()
    before = ZoneSettings(tables.small(300)).of(0) | settings
    for name in SWITCHES:
        wanted = not before[name]
        changed, _ = play(settings | {name: wanted}, packets)
        if not changed["ct_state"] & CtState.INV:
            accepting.add(f"{name}={'on' if wanted else 'off'}")
    assert named == accepting


# ------------------------------------------------------------------------------------------------ all of them
OF_PACKETS = [reason for reason in Reason if 0 < reason < Reason.INSERT] + [Reason.TCP_SEQ_CHK_BYPASS]


@pytest.mark.parametrize("reason", OF_PACKETS)
@pytest.mark.parametrize("found", [False, True])
def test_every_reason_has_a_row_that_copes_with_little(reason, found):
    _, sample = play({}, [*handshake(), data(9500, 5001)])
    sample["reason"] = reason
    if not found:
        sample["flags"], sample["contents"], sample["captured_bytes"] = 0, 0, 3
    told = explanations.explain(arrivals.of_sample(sample))
    assert told["reason"] == reason.name.lower() and told["expected"] and told["rule"]


UNSEEN = {
    "tcp": (
        {},
        handshake(),
        data(1 << 30, 5001),
        ["seq 1073741824, ack 5001 would have been refused", "windows are learned"],
    ),
    "ovs": ({"profile": "ovs"}, handshake(), data(1 << 30, 5001), ["seq 1073741824", "windows are learned"]),
    "sctp": (
        {},
        [sctp(*step.split()) for step in OPENED],
        sctp("c", "DATA", 0xDEAD),
        ["tag 0x0000dead", "tags are learned"],
    ),
}
"""By name: how the zone is set, packets that were seen, and the next one, after some that nobody saw."""


@pytest.mark.parametrize("scene", UNSEEN)
def test_what_is_accepted_for_nobody_saw_what_was_before_it_says_so(scene):
    settings, seen, packet, words = UNSEEN[scene]
    bench = Bench(tables.small(300))
    if settings:
        ZoneSettings(bench.table).set(4, settings)
    bench.track(*seen, zone=4)
    assert relearning.mark_all(bench.table) == 1
    verdict = bench.track(packet, zone=4)[0]
    assert not verdict["ct_state"] & CtState.INV and verdict["ct_state"] & CtState.EST
    told = explanations.explain(arrivals.of_sample(Samples(bench.table).of(bench.me)[-1]))
    assert (told["fate"], told["reason"], told["accepted_with"]) == ("accepted", "relearned", [])
    assert [word for word in words if word not in told["expected"]] == [], told["expected"]
    assert bench.counter(Reason.RELEARNED) == 1 and bench.counter(Reason.INVALID) == 0


def test_a_limit_is_named_with_its_zone():
    bench = Bench(tables.small(300))
    quotas = tables.quotas(bench.table)
    quotas["limit"][4], quotas["has_limit"][4] = 0, 1
    bench.track(udp(), zone=4)
    told = explanations.explain(arrivals.of_sample(Samples(bench.table).of(bench.me)[-1]))
    assert (told["fate"], told["reason"], told["id"]) == ("not committed", "zone_full", None)
    assert told["accepted_with"] == ["a higher limit: zonetrack limits set --zone 4 N", "on_full=early_drop"]


def test_every_setting_that_is_named_is_one():
    _, sample = play({}, [*handshake(), data(9500, 5001)])
    for name, row in ROWS.items():
        sample["reason"] = Reason[name] if name in Reason.__members__ else Reason.TCP_SEQ_ABOVE
        for words in row.accepted_with(arrivals.of_sample(sample)):
            setting, equals, _ = words.partition("=")
            assert not equals or setting in (*SWITCHES, "profile", "on_full", "half_open", "per_source"), words
    assert Setting.OVS  # what `profile` stands for
    assert np.all([row.rule for row in ROWS.values()])
