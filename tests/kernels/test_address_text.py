"""Addresses as text: what Python's ipaddress takes is taken, what it refuses is refused, and nothing beyond is looked at."""

import ipaddress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import address_text
from zonetrack.kernels.words import u64


def at(text):
    """Return the addresses of begin and end of a text, which a page of digits follows: who reads on goes wrong."""
    buffer = np.frombuffer(text + b"1" * 64, "u1").copy()
    at.kept = buffer
    return u64(buffer.ctypes.data), u64(buffer.ctypes.data + len(text))


def v4(text):
    value, good = address_text.ipv4(*at(text))
    return int(value) if good else None


def v6(text):
    high, low, good = address_text.ipv6(*at(text))
    return int(high) << 64 | int(low) if good else None


def expected(text, version):
    try:
        address = ipaddress.ip_address(text.decode())
    except (ValueError, UnicodeDecodeError):
        return None
    return int(address) if address.version == version and "%" not in text.decode() else None


@pytest.mark.parametrize(
    "text",
    [
        b"192.0.2.1",
        b"255.255.255.255",
        b"0.0.0.0",
        b"256.1.1.1",
        b"1.2.3",
        b"1.2.3.4.",
        b"01.2.3.4",
        b"1..2.3",
        b"",
        b"1.2.3.4x",
    ],
)
def test_ipv4(text):
    assert v4(text) == expected(text, 4)


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"::",
            b"::1",
            b"1::",
            b"2001:db8::1",
            b"1:2:3:4:5:6:7:8",
            b"1:2:3:4:5:6:7::",
            b"::2:3:4:5:6:7:8",
            b"FE80::aBcD",
        ),
        *(
            b"",
            b":",
            b"1",
            b"1:",
            b":1",
            b"1::2::3",
            b"1:2:3:4:5:6:7:8:9",
            b"1:2:3:4:5:6:7:8::",
            b"12345::",
            b"g::",
            b":::",
        ),
        *(b"1:2:3:4:5:6:7", b"1:2:3:4::5:6:7:8", b"::ffff:1.2.3.4x", b"1::2:"),
    ],
)
def test_ipv6(text):
    assert v6(text) == expected(text, 6)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**128 - 1), st.booleans())
def test_every_ipv6_address_is_read(number, long):
    address = ipaddress.IPv6Address(number)
    assert v6((address.exploded if long else address.compressed).encode()) == (
        number if "." not in address.compressed or long else None
    )


@settings(max_examples=200, deadline=None)
@given(st.text("0123456789abcdef:", max_size=20))
def test_what_is_no_ipv6_address_is_refused(text):
    assert v6(text.encode()) == expected(text.encode(), 6)


@settings(max_examples=100, deadline=None)
@given(st.text("0123456789.", max_size=16))
def test_what_is_no_ipv4_address_is_refused(text):
    assert v4(text.encode()) == expected(text.encode(), 4)


def test_numbers():
    def read(text, digits=5):
        begin, end = at(text)
        value, after = address_text.number(begin, end, digits)
        return None if value == address_text.NONE else int(value), int(after - begin)

    assert read(b"123,") == (123, 3) and read(b"") == (None, 0) and read(b"x1") == (None, 0)
    assert read(b"65536999") == (65536, 5) and read(b"42") == (42, 2)


def test_characters():
    begin, end = at(b"abc")
    assert (
        address_text.find(begin, end, u64(ord("c"))) == begin + 2
        and address_text.find(begin, end, u64(ord("1"))) == end
    )
    assert [chr(int(address_text.lower(u64(ord(c))))) for c in "aZ[@1"] == ["a", "z", "[", "@", "1"]
