"""Fragments of a translated datagram: all of them go on translated, whoever holds them, and fit together again."""

import foretelling
import gateway
import naive_fragments
import pytest
import tables
from gateway import (
    CLIENT,
    CLIENT6,
    DNAT,
    EST,
    NEW,
    PUBLIC,
    PUBLIC6,
    REL,
    RPL,
    SERVER,
    SERVER6,
    SNAT,
    Path,
    ip,
    rule,
)
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from zonetrack.kernels.jit import JIT
from zonetrack.shm.layout import (
    UNLIMITED,
    CtState,
    FrameFlag,
    Helper,
    Nat,
)
from zonetrack.shm.reasons import Reason

MAC = "02:00:00:00:00:01"
DATA = bytes(i * 7 % 251 for i in range(3001))
HERE = {4: (CLIENT, SERVER), 6: (CLIENT6, SERVER6)}
THERE = {4: (PUBLIC, SERVER), 6: (PUBLIC6, SERVER6)}
TO_PUBLIC = {4: rule(Nat.SOURCE, PUBLIC), 6: rule(Nat.SOURCE, PUBLIC6)}


@pytest.fixture
def table():
    table = tables.small(300, extension_share=1000)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def path(table):
    path = Path(table)
    yield path
    assert naive_fragments.faults(table) == []
    if JIT:  # the interpreter would take seconds to look
        path.settle()


def udp(family, source, sport, destination, dport, data=DATA, **fields):
    return ip(source, destination) / UDP(sport=sport, dport=dport, **fields) / data


def cut(packet, size=1200):
    """Cut a packet into fragments."""
    if IPv6 not in packet:
        packet[IP].id = 77
        return fragment(packet, size)
    whole = IPv6(src=packet.src, dst=packet.dst) / IPv6ExtHdrFragment(id=77) / packet.payload
    return fragment6(IPv6(bytes(whole)), size)


def joined(packets):
    """Put fragments together again as their receiver does."""
    is_six = IPv6 in packets[0]
    parts = {}
    for one in packets:
        layer = one[IPv6ExtHdrFragment] if is_six else one[IP]
        parts[(layer.offset if is_six else layer.frag) * 8] = layer
    data = b""
    for offset in sorted(parts):
        assert offset == len(data)
        data += bytes(parts[offset].payload)
    first = packets[0]
    if is_six:
        return IPv6(bytes(IPv6(src=first.src, dst=first.dst, nh=first[IPv6ExtHdrFragment].nh) / data))
    return IP(bytes(IP(src=first.src, dst=first.dst, id=first.id, proto=first.proto) / data))


def good(packet):
    """Return whether the header checksum of a fragment is right."""
    if IPv6 in packet:
        return True
    again = packet.copy()
    del again.chksum
    return IP(bytes(again)).chksum == packet.chksum


@pytest.mark.parametrize(("family", "order"), [(4, (0, 1, 2)), (4, (2, 1, 0)), (6, (1, 2, 0))])
def test_all_fragments_have_the_other_addresses(path, family, order):
    pieces = cut(udp(family, HERE[family][0], 1000, HERE[family][1], 53))
    assert len(pieces) == 3
    went = path.pass_(*(pieces[i] for i in order), action=TO_PUBLIC[family])
    assert [(state, reason) for state, reason, _ in went] == [(NEW | SNAT, Reason.NONE)] * 3
    packets = [packet for _, _, packet in went]
    assert all((one.src, one.dst) == THERE[family] and good(one) for one in packets)
    whole = joined(packets)
    assert bytes(whole[UDP].payload) == DATA and gateway.is_right(whole)
    assert path.counter(Reason.FRAGMENTS_TRANSLATED) == 3
    back = cut(udp(family, SERVER if family == 4 else SERVER6, 53, THERE[family][0], whole[UDP].sport))
    went = path.pass_(*back)
    assert all((state, one.dst) == (EST | RPL | DNAT, HERE[family][0]) for state, _, one in went)
    answer = joined([packet for _, _, packet in went])
    assert answer[UDP].dport == 1000 and gateway.is_right(answer)


def test_a_port_is_changed_in_the_first_only(path):
    pieces = cut(udp(4, CLIENT, 1000, SERVER, 53))
    went = path.pass_(*pieces, action=rule(Nat.SOURCE, PUBLIC, ports=(5000, 5000)))
    whole = joined([packet for _, _, packet in went])
    assert whole[UDP].sport == 5000 and bytes(whole[UDP].payload) == DATA and gateway.is_right(whole)


def test_one_burst_makes_two_whole(path):
    one, two = cut(udp(4, CLIENT, 1000, SERVER, 53)), cut(udp(4, CLIENT, 1001, SERVER, 53, DATA[::-1]))
    for piece in two:
        piece.id = 78
    mixed = [piece for pair in zip(one, two, strict=True) for piece in pair]
    went = [packet for _, _, packet in path.pass_(*mixed, action=TO_PUBLIC[4])]
    for number, data in ((77, DATA), (78, DATA[::-1])):
        whole = joined([packet for packet in went if packet.id == number])
        assert whole.src == PUBLIC and bytes(whole[UDP].payload) == data and gateway.is_right(whole)


def test_whoever_holds_one_sends_it_on_translated(table, path):
    other = Path(table)
    first, second, last = cut(udp(4, CLIENT, 1000, SERVER, 53))
    assert other.pass_(first, action=TO_PUBLIC[4]) == [] and path.pass_(second, action=TO_PUBLIC[4]) == []
    went = path.pass_(last, action=TO_PUBLIC[4]) + other.late()
    assert [state for state, _, _ in went] == [NEW | SNAT] * 3
    assert gateway.is_right(joined([packet for _, _, packet in went]))


@pytest.mark.parametrize("checksum", [0, 0x1234])
def test_no_checksum_and_a_sum_of_the_pseudo_header(path, checksum):
    packet = udp(4, CLIENT, 1000, SERVER, 53, chksum=checksum)
    went = path.pass_(*cut(packet), action=TO_PUBLIC[4], flags=FrameFlag.CHECKSUM_PARTIAL | FrameFlag.CHECKSUM_TRUSTED)
    whole = joined([one for _, _, one in went])
    changed = sum(int.from_bytes(bytes(IP(src=PUBLIC))[12 + i : 14 + i], "big") for i in (0, 2)) - sum(
        int.from_bytes(bytes(IP(src=CLIENT))[12 + i : 14 + i], "big") for i in (0, 2)
    )
    assert whole[UDP].chksum == (0 if checksum == 0 else (checksum + changed) % 0xFFFF)


def test_tcp_and_a_large_ping(path):
    segment = ip(CLIENT, SERVER) / TCP(sport=1000, dport=80, flags="S", seq=5, window=8192) / DATA
    whole = joined([one for _, _, one in path.pass_(*cut(segment), action=TO_PUBLIC[4])])
    assert whole.src == PUBLIC and gateway.is_right(whole)
    ping = ip(CLIENT, SERVER) / ICMP(id=7) / DATA
    whole = joined([one for _, _, one in path.pass_(*cut(ping), action=TO_PUBLIC[4])])
    assert whole.src == PUBLIC and gateway.is_right(whole)
    pong = ip(SERVER, PUBLIC) / ICMP(type=0, id=whole[ICMP].id) / DATA
    whole = joined([one for _, _, one in path.pass_(*cut(pong))])
    assert (whole.dst, whole[ICMP].id) == (CLIENT, 7) and gateway.is_right(whole)


def test_an_error_in_fragments_about_a_translated_packet(path):
    [(_, _, sent)] = path.pass_(ip(CLIENT, SERVER) / UDP(sport=1000, dport=53) / DATA[:1400], action=TO_PUBLIC[4])
    error = ip("192.0.2.254", PUBLIC) / ICMP(type=3, code=1) / bytes(sent)
    went = path.pass_(*cut(error, 600))
    assert all(state == REL | RPL | DNAT and one.dst == CLIENT for state, _, one in went)
    whole = joined([one for _, _, one in went])
    assert (whole[IPerror].src, whole[IPerror].dst) == (CLIENT, SERVER) and gateway.is_right(whole)


def test_what_is_not_translated_keeps_every_byte(path):
    pieces = cut(udp(4, CLIENT, 1000, SERVER, 53))
    went = path.pass_(*pieces)
    assert sorted(bytes(packet) for _, _, packet in went) == sorted(map(bytes, pieces))
    assert path.counter(Reason.FRAGMENTS_TRANSLATED) == 0


def test_a_message_that_would_get_longer_does_not_go_on(table, path):
    foretelling.set_rules(table, (Helper.SIP, 17, 0, 5060))
    lines = (b"INVITE sip:b@x SIP/2.0", b"Via: SIP/2.0/UDP 10.0.0.1", b"CSeq: 1 INVITE", b"X: " + bytes(2000), b"", b"")
    went = path.pass_(*cut(udp(4, CLIENT, 5060, SERVER, 5060, b"\r\n".join(lines))), action=TO_PUBLIC[4])
    assert {(state, reason) for state, reason, _ in went} == {(CtState.INV, Reason.HELPER_NO_ROOM)}
