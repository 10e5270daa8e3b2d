"""Which connections a filter means: each part of it, among connections that nothing but that part tells apart."""

import ipaddress

import numpy as np
import pytest
import tables
from tables import Participant
from zonetrack.kernels import entries
from zonetrack.kernels.filters import fits
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.service import filters
from zonetrack.shm.layout import Status


@kernel
def means(views, wanted, record):
    return fits(views, wanted, entries.address(views, record))


def key(low="192.0.2.1", high="198.51.100.1", ports=(40000, 80), zone=0, protocol=6):
    """Return a key whose first endpoint opens the connection."""
    words = []
    for text in (low, high):
        number = int(ipaddress.ip_address(text))
        words += [number >> 64, number & 2**64 - 1]
    family = ipaddress.ip_address(low).version
    return np.array([*words, ports[0] << 48 | ports[1] << 32 | zone << 16 | protocol << 8 | family], "u8")


CONNECTIONS = {
    "usual": key(),
    "zone": key(zone=5),
    "udp": key(protocol=17),
    "client": key("192.0.3.1"),
    "server": key(high="198.51.101.1"),
    "v6": key("2001:db8::1", "2001:db8::2"),
    "sport": key(ports=(40001, 80)),
    "dport": key(ports=(40000, 81)),
    "ping": key(ports=(40000, 40001), protocol=1),
    "marked": key(ports=(40002, 82)),
    "answered": key(ports=(40003, 83)),
    "state": key(ports=(40004, 84)),
    "turned": key(ports=(40005, 85)),
}


@pytest.fixture(scope="module")
def table():
    table = tables.small(100, zones=8)
    me = Participant(table)
    table.names = dict(zip(CONNECTIONS, me.made(np.array(list(CONNECTIONS.values()))).tolist(), strict=True))
    table.me = me
    found = tables.entries(table)
    found["status"][table.names["answered"]] |= Status.SEEN_REPLY
    found["status"][table.names["turned"]] |= Status.ORIG_IS_HIGH
    found["mark"][table.names["marked"]] = 0x15
    found["state"][table.names["state"]] = 3
    return table


def but(*names):
    return [name for name in CONNECTIONS if name not in names]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, but()),
        ({"zone": 5}, ["zone"]),
        ({"proto": "udp"}, ["udp"]),
        ({"proto": 1}, ["ping"]),
        ({"src": "192.0.3.0/24"}, ["client"]),
        ({"dst": "198.51.101.0/24"}, ["server"]),
        ({"src": "198.51.100.1"}, ["turned"]),
        ({"reply_src": "192.0.2.0/24"}, ["turned"]),
        ({"reply_dst": "192.0.3.1"}, ["client"]),
        ({"src": "2001:db8::/32"}, ["v6"]),
        ({"src": "0.0.0.0/0"}, but("v6")),
        ({"sport": 40001}, ["sport"]),
        ({"dport": 81}, ["dport"]),
        ({"dport": 40005}, ["turned"]),
        ({"mark": 0x15}, ["marked"]),
        ({"mark": "0x10/0xf0"}, ["marked"]),
        ({"unreplied": True}, but("answered")),
        ({"state": "ESTABLISHED"}, ["state"]),
        ({"src": "192.0.2.0/24", "sport": 40000, "dport": 80, "zone": 0, "proto": "tcp"}, ["usual", "server"]),
    ],
    ids=str,
)
def test_what_is_under_a_mask_must_be_equal(table, wanted, names):
    record = filters.read("filter", wanted).record
    assert [name for name, number in table.names.items() if means(table.me.views, record, u64(number))] == names
