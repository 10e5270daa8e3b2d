"""What is known of a set of ports: which are taken, until the set is another's place or a connection lets one go."""

from ipaddress import ip_address

import numpy as np
import pytest
import tables
from tables import Participant
from zonetrack.kernels import taken_ports, tuples
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import PORT_MAP_WORDS, Status

ALL = (1 << 64) - 1


@kernel
def _take(ports, port):
    taken_ports.take(ports, port)


@kernel
def _free_in(ports, word, first, last):
    return taken_ports.free_in(ports, word, first, last)


@kernel
def _hash_key(views, key):
    return tuples.hash_key(views, key)


@pytest.fixture
def me():
    return Participant(tables.small())


def map_of(me, identity):
    return u64(taken_ports.of(me.views, u64(identity)))


def is_free(ports, port):
    return int(_free_in(ports, u64(port >> 6), u64(port), u64(port))) == 1 << (port & 63)


def test_a_word_has_the_ports_of_a_range_only():
    words = np.zeros(PORT_MAP_WORDS, "u8")
    ports = u64(words.ctypes.data)
    _take(ports, u64(130))
    assert int(_free_in(ports, u64(2), u64(129), u64(131))) == 0b1010
    assert int(_free_in(ports, u64(2), u64(0), u64(65535))) == ALL - (1 << 2)
    assert int(_free_in(ports, u64(2), u64(191), u64(192))) == 1 << 63
    assert int(_free_in(ports, u64(1023), u64(0), u64(65535))) == ALL


def test_sets_that_share_a_place_do_not_share_what_is_known(me):
    ports = map_of(me, 64 + 5)
    _take(ports, u64(77))
    assert not is_free(map_of(me, 64 + 5), 77)
    assert map_of(me, 6) != ports
    assert not is_free(map_of(me, 64 + 5), 77)
    assert map_of(me, 128 + 5) == ports and is_free(ports, 77)


@pytest.mark.parametrize("replier_is_high", [False, True])
def test_a_port_that_is_let_go_is_free(replier_is_high, me):
    server, public = int(ip_address("10.0.0.9")), int(ip_address("192.0.2.1"))
    low, high = (public, server) if replier_is_high else (server, public)
    rest = 3 << 16 | 6 << 8 | 4

    def key_with(port):
        ports = (port, 80) if replier_is_high else (80, port)
        return np.array([0, low, 0, high, ports[0] << 48 | ports[1] << 32 | rest], "u8")

    without, second = key_with(0), key_with(20_001)
    ports = map_of(me, _hash_key(me.views, u64(without.ctypes.data)))
    for port in (80, 20_000, 20_001):
        _take(ports, u64(port))
    replier = int(Status.REPLIER_IS_HIGH) if replier_is_high else 0
    taken_ports.let_go(me.views, u64(second.ctypes.data), u64(int(Status.DESTINATION_NAT) | replier))
    assert not is_free(ports, 20_001)  # it has the port of a destination
    taken_ports.let_go(me.views, u64(second.ctypes.data), u64(int(Status.SOURCE_NAT) | replier))
    assert is_free(ports, 20_001) and not is_free(ports, 20_000) and not is_free(ports, 80)


def test_who_knows_nothing_of_a_set_is_told_nothing(me):
    second = np.array([0, 1, 0, 2, 80 << 48 | 5 << 32 | 0x0604], "u8")
    ports = map_of(me, int(_hash_key(me.views, u64(second.ctypes.data))) ^ 64)
    _take(ports, u64(5))
    taken_ports.let_go(me.views, u64(second.ctypes.data), u64(int(Status.SOURCE_NAT)))
    assert not is_free(ports, 5)
