"""What a caller says becomes what the wire has, as the service reads it; what cannot be is refused at home."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import BadParameterError, UnknownParameterError
from zonetrack.clients.filters import Filter, wire_filter
from zonetrack.service import filters as served


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ({}, {}),
        ({"zone": None, "proto": None}, {}),
        ({"zone": 0}, {"zone": 0}),
        ({"zone": "0x10"}, {"zone": 16}),
        ({"proto": "tcp"}, {"proto": 6}),
        ({"proto": "ICMPv6"}, {"proto": 58}),
        ({"proto": 200}, {"proto": 200}),
        ({"proto": "47"}, {"proto": 47}),
        ({"src": "192.0.2.1"}, {"src": "192.0.2.1"}),
        ({"src": "192.0.2.77/24"}, {"src": "192.0.2.0/24"}),
        ({"dst": "2001:DB8:0:0::1"}, {"dst": "2001:db8::1"}),
        ({"reply_src": "::ffff/0"}, {"reply_src": "::/0"}),
        ({"reply_dst": "2001:db8::1/127"}, {"reply_dst": "2001:db8::/127"}),
        ({"sport": 65535, "dport": 0}, {"sport": 65535, "dport": 0}),
        ({"state": "established"}, {"state": "ESTABLISHED"}),
        ({"state": "cookie_wait"}, {"state": "COOKIE_WAIT"}),
        ({"state": "Closing"}, {"state": "CLOSING"}),
        ({"mark": 5}, {"mark": [5, 0xFFFFFFFF]}),
        ({"mark": "0x5/0xf"}, {"mark": [5, 15]}),
        ({"mark": (1, 3)}, {"mark": [1, 3]}),
        ({"unreplied": True}, {"unreplied": True}),
    ],
)
def test_what_is_sent(said, sent):
    assert wire_filter(**said) == sent
    served.read("filter", sent)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        *(({"zone": value}, "zone: a number from 0 to 65535, not ") for value in (65536, -1, "x", "", 1.5, True, [])),
        *(({"sport": value}, "sport: a number from 0 to 65535, not ") for value in (65536, "http")),
        *(({"proto": value}, "proto: a number from 0 to 255, or one of icmp, igmp") for value in (256, "xtp", b"", "")),
        *(
            ({"src": value}, "src: an IPv4 or IPv6 address, or address/prefix, not ")
            for value in ("", "192.0.2", "192.0.2.1.5", "host", "::g", 5, "/24", "192.0.2.0 /24")
        ),
        *(({"dst": f"192.0.2.0/{length}"}, "dst: a number from 0 to 32") for length in ("33", "", "-1", "x", "0x8")),
        ({"dst": "::/129"}, "dst: a number from 0 to 128"),
        *(({"state": value}, "state: one of NONE, SYN_SENT") for value in ("OPEN", 3, "")),
        *(({"mark": value}, "mark: a number") for value in (-1, 1 << 32, "1/", "/1", "1/2/3", (1, 2, 3), "x")),
        *(({"unreplied": value}, "unreplied: True or False") for value in (1, "yes")),
    ],
)
def test_what_cannot_be_is_refused(said, wanted):
    with pytest.raises(BadParameterError, match=wanted) as refused:
        wire_filter(**said)
    assert refused.value.detail == {"parameter": next(iter(said))}


def test_an_unknown_filter_is_refused_with_those_that_there_are():
    with pytest.raises(UnknownParameterError, match="sorce: not a filter; there are zone, proto, src, dst"):
        wire_filter(sorce="192.0.2.1")


def test_both_sides_know_the_same_filters():
    assert set(Filter.__annotations__) == set(served.READERS)


@given(st.ip_addresses(), st.data())
def test_prefixes_are_those_of_the_standard_library(address, data):
    length = data.draw(st.integers(0, address.max_prefixlen))
    network = ipaddress.ip_network(f"{address}/{length}", strict=False)
    sent = wire_filter(src=f"{address}/{length}")["src"]
    assert ipaddress.ip_network(sent) == network
    assert ipaddress.ip_address(wire_filter(src=str(address))["src"]) == address
