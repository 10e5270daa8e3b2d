"""What belongs together goes to one worker, and the work is spread."""

import collections
import ipaddress

import conversations
import fragmented
import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from zonetrack.kernels import shards
from zonetrack.shm.layout import FRAME, PARSED, SETTINGS_DEFAULT, Link


def shard(packet, count, zone=0):
    """Return the shard of a packet, and what the parser wrote."""
    data = np.frombuffer(bytes(packet), "u1").copy()
    frame, parsed = np.zeros(1, FRAME).view(np.recarray)[0], np.zeros(1, PARSED).view(np.recarray)[0]
    frame.address, frame.captured_bytes, frame.wire_bytes = data.ctypes.data, data.size, data.size
    frame.link, frame.zone = Link.RAW_IP, zone
    return int(shards.shard_of(frame, np.uint64(SETTINGS_DEFAULT), parsed, np.uint64(count)))


STREAMS = {
    "tcp": conversations.tcp("192.0.2.1", "198.51.100.1", 40000, 80),
    "two of the same hosts": [
        *conversations.dns("192.0.2.1", "198.51.100.1", 1),
        *conversations.tcp("198.51.100.1", "192.0.2.1", 9, 25),
    ],
    "an error, by whomever": conversations.refused("192.0.2.1", "198.51.100.1", "203.0.113.1", 6000),
    "ping": conversations.ping("192.0.2.1", "198.51.100.1", 7),
    "ping over IPv6": conversations.ping("2001:db8::1", "2001:db8:1::1", 7),
    "to itself": [IP(src="192.0.2.1", dst="192.0.2.1") / UDP(sport=sport, dport=9) for sport in (8, 9, 10)],
}


@pytest.mark.parametrize("packets", STREAMS.values(), ids=STREAMS)
def test_what_belongs_together_goes_to_one_worker(packets):
    packets = list(packets)
    for count in (2, 3, 7, 128):
        assert len({shard(packet, count) for packet in packets}) == 1


def test_address_pairs_are_spread():
    packets = [
        IP(src=f"192.0.2.{i}", dst=f"198.51.100.{j}") / UDP(sport=1, dport=2)
        for i in range(1, 21)
        for j in range(1, 21)
    ]
    found = collections.Counter(shard(packet, 4) for packet in packets)
    assert sorted(found) == [0, 1, 2, 3]
    assert min(found.values()) > 60  # of 100; with a good hash less than once in 10,000 pairs of addresses


def test_one_worker_has_it_all():
    assert shard(IP(src="192.0.2.1", dst="198.51.100.1") / UDP(), 1) == 0


@pytest.mark.parametrize("junk", [b"", b"\x45", bytes(60), bytes(Ether())])
def test_what_cannot_be_read_goes_somewhere(junk):
    assert 0 <= shard(junk, 3) < 3


@pytest.mark.parametrize("family", [4, 6])
def test_fragments_of_a_datagram_go_where_their_hosts_go(family):
    hosts = (bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])) if family == 4 else (b"\x20" * 16, b"\x30" * 16)
    source, destination = hosts
    there = fragmented.cut(bytes(3000), 1400, 2800, family=family, source=source, destination=destination)
    back = fragmented.cut(bytes(3000), 1400, 2800, family=family, source=destination, destination=source)
    network = IP if family == 4 else IPv6
    source, destination = (str(ipaddress.ip_address(host)) for host in hosts)
    whole = network(src=source, dst=destination) / UDP(sport=1, dport=2)
    for count in (2, 3, 7, 128):
        found = {shard(piece.frame[14:], count) for piece in there + back}
        assert found == {shard(whole, count)}
