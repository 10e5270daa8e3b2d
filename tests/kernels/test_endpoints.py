"""Both directions of a connection write one key, and say which of them they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES, Tuple, key_of
from zonetrack.kernels import endpoints
from zonetrack.kernels.endpoints import Order
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64

PORTS = {6, 17, 33, 132, 136}


@kernel
def _write_key(words, key):
    return endpoints.write_key(
        words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7], words[8], key
    )


@kernel
def _has_ports(protocol):
    return endpoints.has_ports(protocol)


def write(src, src_port, dst, dst_port, family=6, zone=0, protocol=17):
    words = np.array([src >> 64, src % 2**64, src_port, dst >> 64, dst % 2**64, dst_port, zone, protocol, family], "u8")
    key = np.zeros(5, "u8")
    order = Order(int(_write_key(words, key)))
    return tuple(int(word) for word in key), order


words = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
addresses = st.builds(lambda high, low: high << 64 | low, words, words)
ports = st.one_of(st.integers(0, 2), st.integers(0, 65535))


@settings(max_examples=EXAMPLES, deadline=None)
@given(addresses, ports, addresses, ports)
def test_one_key_for_both_directions(src, src_port, dst, dst_port):
    key, order = write(src, src_port, dst, dst_port)
    back, other = write(dst, dst_port, src, src_port)
    assert back == key
    low, high = sorted(((src, src_port), (dst, dst_port)))
    assert (key[0] << 64 | key[1], key[4] >> 48) == low
    assert (key[2] << 64 | key[3], key[4] >> 32 & 0xFFFF) == high
    if (src, src_port) == (dst, dst_port):
        assert order == other == Order.EQUAL
    else:
        assert order == ((src, src_port) > (dst, dst_port))
        assert {order, other} == {Order.SOURCE_FIRST, Order.SOURCE_SECOND}


def test_the_last_word_tells_zone_protocol_and_family_apart():
    seen = {
        write(1, 1, 2, 2, family, zone, protocol)[0]
        for family in (4, 6)
        for zone in (0, 1, 255, 256, 65535)
        for protocol in (0, 1, 6, 255)
    }
    assert len(seen) == 2 * 5 * 4


def test_the_naive_twin_agrees():
    key, order = write(0x0A000001, 1000, 0x0A000002, 80, family=4, zone=7, protocol=6)
    assert (key, order) == key_of(Tuple("10.0.0.1", 1000, "10.0.0.2", 80, 6), zone=7)


@pytest.mark.parametrize("protocol", range(256))
def test_protocols_with_ports(protocol):
    assert bool(_has_ports(u64(protocol))) == (protocol in PORTS)
