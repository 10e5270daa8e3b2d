"""What a live Open vSwitch and a live Linux said of single packets and short exchanges, through parser and tracker.

Their answers are tests/data/ovs-other-matrix.json and netfilter-other-matrix.json: ICMP and what errors quote, odd UDP, TCP,
SCTP and IP, every other protocol.  The packets are made here as they were made there.  Fragments and waiting have tests of
their own.
"""

import ipaddress
import json
import struct
from itertools import chain
from pathlib import Path

import associations
import pytest
import tracker
from naive_checksum import checksum, pseudo_header
from parsing import parsed_of
from scapy.layers.sctp import SCTP
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting

PROBES = json.loads((Path(__file__).parent / "data" / "ovs-other-matrix.json").read_text())
LINUX = json.loads((Path(__file__).parent / "data" / "netfilter-other-matrix.json").read_text())
LINUX_LABELS = {"NEW/orig": "N>", "ESTABLISHED/reply": "E<", "INVALID": "I", "UNTRACKED": "U"}
LABELS = {"new": "N>", "est": "E>", "est|rpl": "E<", "rel": "R>", "rel|rpl": "R<", "inv": "I"}
ICMP, TCP, UDP, ICMPV6, SCTP_NUMBER = 1, 6, 17, 58, 132
CHECKSUM_AT = {ICMP: 2, TCP: 16, UDP: 6, ICMPV6: 2}
C, S, R = "192.0.2.1", "198.51.100.1", "203.0.113.9"
C6, S6, R6 = "2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::9"
NUMBERS = {
    "icmp": ICMP,
    "icmpv6": ICMPV6,
    "tcp": TCP,
    "udp": UDP,
    "sctp": SCTP_NUMBER,
    "igmp": 2,
    "udplite": 136,
    "dccp": 33,
}


# ---------------------------------------------------------------------------------------------------- packets
def mended(source, target, protocol, upper):
    """Return a transport header and payload with their checksum right, if there is room for one."""
    at = CHECKSUM_AT.get(protocol)
    if at is None or len(upper) < at + 2 or ((protocol == ICMPV6) != (":" in source) and protocol in (ICMP, ICMPV6)):
        return upper
    upper = upper[:at] + b"\0\0" + upper[at + 2 :]
    covered = upper
    if protocol == UDP and 8 <= int.from_bytes(upper[4:6], "big") <= len(upper):
        covered = upper[: int.from_bytes(upper[4:6], "big")]
    ends = [ipaddress.ip_address(end).packed for end in (source, target)]
    pseudo = b"" if protocol == ICMP else pseudo_header(*ends, protocol, len(covered))
    return upper[:at] + (checksum(pseudo + covered) or 0xFFFF).to_bytes(2, "big") + upper[at + 2 :]


def ip(source, target, protocol, upper, mend=True, ttl=64):
    """Return an IPv4 or IPv6 packet."""
    if mend:
        upper = mended(source, target, protocol, upper)
    ends = b"".join(ipaddress.ip_address(end).packed for end in (source, target))
    if ":" in source:
        return struct.pack(">IHBB", 6 << 28, len(upper), protocol, ttl) + ends + upper
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(upper), 1, 0, ttl, protocol, 0) + ends
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + upper


def udp(sport, dport, length=None):
    return struct.pack(">HHHH", sport, dport, 18 if length is None else length, 0) + b"q" * 10


def tcp(sport, dport, bits=2, offset=0x50):
    return struct.pack(">HHIIBBHHH", sport, dport, 1000, 5000, offset, bits, 65535, 0, 0)


def icmp(kind, code=0, identifier=7, data=b"x" * 20):
    return struct.pack(">BBHHH", kind, code, 0, identifier, 1) + data


def first_of_icmp4():
    for kind, code in chain(((kind, 0) for kind in range(45)), ((kind, 1) for kind in (0, 8, 13, 14, 15, 16))):
        yield [ip(C, S, ICMP, icmp(kind, code))]


def first_of_icmp6():
    for kind in (*range(8), *range(126, 162), 200, 255):
        yield [ip(C6, S6, ICMPV6, icmp(kind))]
    for kind in (128, 129):
        yield [ip(C6, S6, ICMPV6, icmp(kind, 1))]
    yield [ip(C, S, ICMPV6, icmp(128))]
    yield [ip(C6, S6, ICMP, icmp(8))]


def pairs():
    for protocol, client, server, kinds in (
        (ICMP, C, S, ((8, 0), (13, 14), (15, 16), (17, 18))),
        (ICMPV6, C6, S6, ((128, 129), (139, 140))),
    ):
        for request, answer in kinds:
            sides = {"c": (client, server), "s": (server, client)}
            steps = (("c", request, 7), ("c", request, 7), ("s", answer, 7), ("c", request, 7), ("s", answer, 8))
            steps += (("s", request, 7), ("c", answer, 7))
            yield [ip(*sides[side], protocol, icmp(kind, 0, number)) for side, kind, number in steps]


def errors():
    for protocol, client, server, router, third, kinds in (
        (ICMP, C, S, R, "192.0.2.99", (3, 4, 5, 11, 12)),
        (ICMPV6, C6, S6, R6, "2001:db8:1::99", (1, 2, 3, 4, 137)),
    ):
        sent, back = ip(client, server, UDP, udp(5000, 6000)), ip(server, client, UDP, udp(6000, 5000))
        unknown = ip(client, server, UDP, udp(5999, 6000))

        def error(source, target, quote, kind, code=0, protocol=protocol):
            return ip(source, target, protocol, struct.pack(">BBHI", kind, code, 0, 0) + quote)

        for kind in kinds:
            yield [
                sent,
                error(server, client, sent, kind),
                error(router, client, sent, kind),
                error(router, client, sent, kind, 3),
                error(router, client, unknown, kind),
                error(router, third, sent, kind),
                back,
                error(client, server, back, kind),
                error(router, client, sent, kind),
            ]
        header, kind = 20 if protocol == ICMP else 40, kinds[0]
        syn = ip(client, server, TCP, tcp(4000, 80))
        echo = ip(client, server, protocol, icmp(8 if protocol == ICMP else 128))
        yield [
            sent,
            syn,
            echo,
            *(error(router, client, syn[: header + size], kind) for size in (20, 19, 8, 7, 4, 0)),
            *(error(router, client, sent[: header + size], kind) for size in (18, 8, 7)),
            *(error(router, client, echo[: header + size], kind) for size in (28, 8, 7)),
            error(router, client, sent[:-1] + b"?", kind),
            error(router, client, error(server, client, sent, kind), kind),
            error(router, client, ip(client, server, 99, b"1234567890"), kind),
            error(router, client, b"", kind),
        ]


def protocols():
    for protocol in (*range(145), 253, 254, 255):
        if protocol not in (ICMP, TCP, UDP, ICMPV6, SCTP_NUMBER, 44):
            yield [ip(C, S, protocol, bytes(24))]
    for protocol in (4, 41, 47, 50, 59, 89, 97, 103, 112, 115, 135, 136, 139, 140, 253, 255):
        yield [ip(C6, S6, protocol, bytes(24))]
    for protocol in (47, 50, 33, 136, 2):
        there, back = ip(C, S, protocol, bytes(24)), ip(S, C, protocol, bytes(24))
        yield [there, there, back, ip(C, S, protocol, b"z" * 24)]


def odd_udp():
    good, good6 = (mended(*ends, UDP, udp(5000, 6000)) for ends in ((C, S), (C6, S6)))
    for ends, upper in (
        ((C, S), good),
        ((C, S), good[:6] + b"\0\0" + good[8:]),
        ((C, S), good[:6] + b"\1\1" + good[8:]),
        ((C6, S6), good6),
        ((C6, S6), good6[:6] + b"\0\0" + good6[8:]),
    ):
        yield [ip(*ends, UDP, upper, mend=False)]
    for length in (12, 8, 7, 0, 30):
        yield [ip(C, S, UDP, udp(5000, 6000, length))]
    yield [ip(C, S, UDP, good[:4], mend=False)]
    yield [ip(C, S, UDP, udp(0, 6000))]
    yield [ip(C, S, UDP, udp(5000, 0))]


def odd_tcp():
    yield [ip(C, S, TCP, tcp(0, 80))]
    yield [ip(C, S, TCP, tcp(4000, 0))]
    yield [ip(C, S, TCP, tcp(4000, 80, offset=0x40))]
    yield [ip(C, S, TCP, tcp(4000, 80, offset=0xF0))]
    yield [ip(C, S, TCP, tcp(4000, 80)[:19], mend=False)]
    yield [ip(C, S, TCP, tcp(4000, 80), mend=False)]
    yield [ip(C, C, TCP, tcp(4000, 4000))]
    for bits in range(64):
        yield [ip(C, S, TCP, tcp(4000, 80, bits))]


def odd_ip():
    upper = udp(5000, 6000)
    good = ip(C, S, UDP, upper)
    yield [good]
    yield [good + bytes(20)]
    yield [good + bytes(300)]
    yield [good[:-4]]
    yield [good[:10] + b"\0\1" + good[12:]]
    yield [good[:2] + b"\0\0" + good[4:]]
    yield [b"\x44" + good[1:]]
    yield [good[:15]]
    yield [ip(C, S, UDP, upper, ttl=0)]
    for source, target in (("0.0.0.0", S), ("127.0.0.1", "127.0.0.1"), (C, "255.255.255.255"), (C, "224.0.0.251")):
        yield [ip(source, target, UDP, upper)]
    upper, fill = mended(C6, S6, UDP, upper), b"\x01\x04" + bytes(4)
    for first, headers in (
        (0, b"\x11\0" + fill),
        (60, b"\x11\0" + fill),
        (43, b"\x11\2\0\0" + bytes(20)),
        (43, b"\x11\2\0\1" + bytes(20)),
        (51, b"\x11\4" + bytes(22)),
        (44, b"\x11\0" + bytes(6)),
        (44, b"\x11\0\0\1" + bytes(4)),
        (44, b"\x11\0\0\x10" + bytes(4)),
        (0, b"\x3c\0" + fill + b"\x11\0" + fill),
        (0, b"\x11\xc8" + fill),
        (135, b"\x11\0" + fill),
    ):
        yield [ip(C6, S6, first, headers + upper)]
    yield [ip(C6, S6, UDP, upper)[:-4]]


def sctp(sport, tag, chunks):
    return ip(C, S, SCTP_NUMBER, bytes(SCTP(sport=sport, dport=3868, tag=tag) / chunks))


def odd_sctp():
    good = bytearray(sctp(30001, 0, associations.init(1)))
    good[28] ^= 1
    yield [bytes(good)]
    yield [sctp(30001, 0, b"")]
    yield [sctp(30001, 0, associations.chunk(1, bytes(16), length=0))]
    yield [sctp(30001, 0, associations.chunk(1, bytes(16), length=200))]
    yield [sctp(0, 0, associations.init(1))]


GROUPS = {
    "icmp4_first": first_of_icmp4,
    "icmp6_first": first_of_icmp6,
    "icmp_pairs": pairs,
    "icmp_errors": errors,
    "ip_protos": protocols,
    "udp_odd": odd_udp,
    "tcp_odd": odd_tcp,
    "ip_odd": odd_ip,
    "sctp_odd": odd_sctp,
}
ELSEWHERE = {
    "ovs": "its version",
    "udp": "tests/kernels/test_ovs_flows.py",
    "sctp": "below",
    "fragments": "of datagrams, not of packets",
}


# ---------------------------------------------------------------------------------------------------- what became of them
def world_of_ovs():
    return tracker.Tracker(settings=SETTINGS_WORD_DEFAULT | Setting.OVS)


def table_of(world):
    """Return a tuple per connection: protocol, state of TCP, seconds to live."""
    rows = []
    for connection in world.table.values():
        seen = world.seen("", connection, tracker.Reason.NONE)
        protocol = int(connection.entry["key"][4]) >> 8 & 0xFF
        rows.append((protocol, seen.state if protocol == TCP else None, seen.timeout_s))
    return sorted(rows, key=str)


def expected(rows):
    """Return the same of the rows of a probe."""
    return sorted(
        (
            (
                NUMBERS.get(row["proto"]) or int(row["proto"]),
                f"{row['state_orig']}/{row['state_reply']}" if "state_orig" in row else None,
                row["timeout"],
            )
            for row in rows
        ),
        key=str,
    )


def same(seen, wanted):
    """Whether two tables are alike; measured seconds may lag."""
    return len(seen) == len(wanted) and all(
        one[:2] == other[:2] and 0 <= one[2] - other[2] <= 1 for one, other in zip(seen, wanted, strict=True)
    )


@pytest.mark.parametrize("group", GROUPS)
def test_as_the_live_switch(group):
    for packets, probe in zip(GROUPS[group](), PROBES[group], strict=True):
        world = world_of_ovs()
        steps = [step for step in probe if "ct_state" in step]
        for packet, step in zip(packets, steps, strict=True):
            seen = world.track(parsed_of(packet, ovs=True))
            if step["ct_state"] == ".":
                assert seen.reason == tracker.Reason.FRAGMENT, step["do"]
                continue
            assert seen.label == LABELS[step["ct_state"]], (step["do"], seen)
            assert same(table_of(world), expected(step["table"])), (step["do"], table_of(world), step["table"])


@pytest.mark.parametrize("state", associations.LED)
def test_sctp_has_no_states(state):
    probes = [probe for probe in PROBES["sctp"] if probe["state"].partition("(")[0] == state]
    assert len(probes) == 48
    for probe in probes:
        world = world_of_ovs()
        for step in associations.LED[state]:
            world.track(associations.packet(*step.split(), ovs=True))
        side, tag = {"orig": "c", "reply": "s"}[probe["dir"]], 0xDEADBEEF if probe["tag"] == "wrong tag" else None
        seen = world.track(associations.packet(side, probe["chunk"], tag, ovs=True))
        assert seen.label == LABELS[probe["ct_state"]], probe
        assert 0 <= seen.timeout_s - probe["timeout"] <= 1, probe


def test_no_probe_is_forgotten():
    assert set(PROBES) == set(GROUPS) | set(ELSEWHERE)


# ---------------------------------------------------------------------------------------------------- Linux
@pytest.mark.parametrize(("family", "ends", "protocol"), [(4, (C, S), ICMP), (6, (C6, S6), ICMPV6)])
def test_the_first_icmp_message_as_live_linux(family, ends, protocol):
    for kind, verdict, entries in LINUX[f"icmp{family}_first"]:
        world = tracker.Tracker()
        seen = world.track(parsed_of(ip(*ends, protocol, icmp(kind))))
        assert (seen.label, len(world.table)) == (LINUX_LABELS[verdict], len(entries)), kind


@pytest.mark.parametrize(("request_", "answer", "asked", "answered", "other"), LINUX["icmp4_pairs"])
def test_pairs_of_icmp_as_live_linux(request_, answer, asked, answered, other):
    world = tracker.Tracker()
    steps = ((C, S, request_, 7, asked), (S, C, answer, 7, answered), (S, C, answer, 8, other))
    for source, target, kind, identifier, verdict in steps:
        seen = world.track(parsed_of(ip(source, target, ICMP, icmp(kind, 0, identifier))))
        assert seen.label == LINUX_LABELS[verdict]


def test_every_other_protocol_as_live_linux():
    for protocol, verdict, entries in LINUX["ip_protos"]:
        world = tracker.Tracker()
        seen = world.track(parsed_of(ip(C, S, protocol, bytes(24))))
        assert seen.label == LINUX_LABELS[verdict], protocol
        assert len(world.table) == len(entries), protocol
        assert all(0 <= seen.timeout_s - timeout_s <= 1 for _, timeout_s in entries), protocol
