"""What a packet must be like, in words: each word is read and written again; what cannot hold is refused with words."""

import pytest
from zonetrack.service import rule_matches
from zonetrack.service.rules import Masked, Names, Span

NAMES = Names({"lan": 1, "wan": 2})
MAX_128 = (1 << 128) - 1
IP, IPV6, TCP = Masked(0x800, 0xFFFF), Masked(0x86DD, 0xFFFF), Masked(6, 0xFF)
UDP = Masked(17, 0xFF)


def pairs(text):
    """Return the words of a text, each with its value."""
    return [(word, value if sign else None) for word, sign, value in (one.partition("=") for one in text.split(","))]


def read(text):
    """Return what is asked for."""
    return rule_matches.read(pairs(text), NAMES)


def write(match):
    """Return what is asked for as text."""
    return ",".join(word if value is None else f"{word}={value}" for word, value in rule_matches.words(match, NAMES))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("ip", {"eth_type": IP}),
        ("arp", {"eth_type": Masked(0x806, 0xFFFF)}),
        ("tcp6", {"eth_type": IPV6, "protocol": TCP}),
        ("dl_type=0x88cc", {"eth_type": Masked(0x88CC, 0xFFFF)}),
        ("ip,nw_proto=47", {"eth_type": IP, "protocol": Masked(47, 0xFF)}),
        ("in_port=wan", {"in_port": Masked(2, 0xFFFF)}),
        ("dl_vlan=5", {"vlan": Masked(0x1005, 0x1FFF)}),
        ("dl_vlan=0xffff", {"vlan": Masked(0, 0x1000)}),
        ("vlan_tci=0x1000/0x1000", {"vlan": Masked(0x1000, 0x1000)}),
        ("ip,nw_src=10.1.0.0/16", {"eth_type": IP, "src": Masked(0x0A010000, 0xFFFF0000)}),
        ("ip,nw_dst=10.0.0.1/255.0.0.255", {"eth_type": IP, "dst": Masked(0x0A000001, 0xFF0000FF)}),
        ("ipv6,ipv6_dst=2001:db8::/32", {"eth_type": IPV6, "dst": Masked(0x20010DB8 << 96, 0xFFFFFFFF << 96)}),
        ("ipv6,ipv6_src=::1", {"eth_type": IPV6, "src": Masked(1, MAX_128)}),
        ("tcp,tp_dst=80", {"eth_type": IP, "protocol": TCP, "dport": Masked(80, 0xFFFF)}),
        ("udp,tp_src=1024-2047", {"eth_type": IP, "protocol": UDP, "sport": Span(1024, 2047)}),
        ("tcp,tp_dst=1024/0xfc00", {"eth_type": IP, "protocol": TCP, "dport": Masked(1024, 0xFC00)}),
        ("icmp,icmp_type=8,icmp_code=0",
         {"eth_type": IP, "protocol": Masked(1, 0xFF), "sport": Masked(8, 0xFFFF), "dport": Masked(0, 0xFFFF)}),
        ("icmp6,icmpv6_type=128", {"eth_type": IPV6, "protocol": Masked(58, 0xFF), "sport": Masked(128, 0xFFFF)}),
        ("tcp,tcp_flags=+syn-ack", {"eth_type": IP, "protocol": TCP, "tcp_flags": Masked(2, 18)}),
        ("ip,ip_frag=later", {"eth_type": IP, "frag": Masked(3, 3)}),
        ("ct_state=-new+trk", {"ct_state": Masked(0x20, 0x21)}),
        ("ct_zone=7", {"zone": Masked(7, 0xFFFF)}),
        ("ct_mark=0x2/0x6", {"mark": Masked(2, 6)}),
        ("ct_label=0x10000000000000000", {"label": Masked(1 << 64, MAX_128)}),
    ],
)  # fmt: skip
def test_words_are_read_and_written_again(text, match):
    assert read(text) == match
    assert write(match) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("dl_type=0x0800,nw_proto=6,tcp_dst=80", "tcp,tp_dst=80"),
        ("ct_state=0x20/0x21", "ct_state=-new+trk"),
        ("ct_state=new|trk", "ct_state=+new-est-rel-rpl-inv+trk-snat-dnat"),
        ("in_port=1", "in_port=lan"),
        ("ct_mark=0/0,ip", "ip"),
        ("ip,nw_src=10.1.2.3/8", "ip,nw_src=10.0.0.0/8"),
        ("dl_vlan=5/0xfff", "dl_vlan=5"),
        ("udp,udp_src=53", "udp,tp_src=53"),
        ("tcp,tcp_flags=0x002", "tcp,tcp_flags=0x2"),
    ],
)
def test_other_spellings(text, canonical):
    assert write(read(text)) == canonical
    assert read(canonical) == read(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nw_srcc=1", "unknown field 'nw_srcc': nearest is 'nw_src'"),
        ("nw_src=10.0.0.1", "nw_src needs ip or icmp or tcp or udp or sctp beside it"),
        ("ipv6,nw_src=10.0.0.1", "nw_src needs ip"),
        ("ip,tp_dst=80", "tp_dst needs tcp or tcp6 or udp or udp6 or sctp or sctp6 beside it"),
        ("tcp,udp_dst=80", "udp_dst needs udp or udp6 beside it"),
        ("icmp6,icmp_type=8", "icmp_type needs icmp beside it"),
        ("tcp,udp", "udp and tcp cannot both hold"),
        ("ct_zone=1,ct_zone=2", "ct_zone is said twice"),
        ("tcp,tp_dst=80,tcp_dst=81", "tcp_dst and tp_dst cannot both hold"),
        ("tcp,tp_dst", "tp_dst needs a value"),
        ("tcp,tp_dst=90-80", "a range goes from the lower port to the higher one"),
        ("tcp,tp_dst=70000", "expected a number up to 0xffff, found 70000"),
        ("ip,nw_src=10.0.0.0/33", "a prefix has up to 32 bits"),
        ("ip,nw_src=10.0.0.256", "expected an IPv4 address"),
        ("ct_state=+foo", "there is no flag 'foo': new, est, rel, rpl, inv, trk, snat, dnat"),
        ("ct_state=+new-new", "new is said twice"),
        ("ct_mark=2/1", "0x2 is outside of the mask"),
        ("dl_vlan=4096", "expected a VLAN up to 4095"),
        ("vlan_tci=0x2000/0xe000", "the priority in a tag is not looked at"),
        ("in_port=dmz", "there is no port 'dmz': 1 is lan, 2 is wan"),
        ("ip,ip_frag=some", "expected one of no, yes, first, later, not_later"),
    ],
)
def test_what_cannot_be_is_refused(text, complaint):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert complaint in str(caught.value)
