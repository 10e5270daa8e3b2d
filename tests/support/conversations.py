"""Conversations as captures hold them: frames of several hosts, in the order in which a link carried them."""

from capture_files import Packet, pcap
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether

START_NS = 1_767_225_600 * 10**9
MS = 10**6


def tcp(client, server, sport, dport, seq=1000, ack=5000):
    """Yield a TCP connection from SYN to the last ACK, with a request and an answer."""
    there = lambda **fields: IP(src=client, dst=server) / TCP(sport=sport, dport=dport, **fields)  # noqa: E731
    back = lambda **fields: IP(src=server, dst=client) / TCP(sport=dport, dport=sport, **fields)  # noqa: E731
    yield there(flags="S", seq=seq)
    yield back(flags="SA", seq=ack, ack=seq + 1)
    yield there(flags="A", seq=seq + 1, ack=ack + 1)
    yield there(flags="PA", seq=seq + 1, ack=ack + 1) / b"request"
    yield back(flags="PA", seq=ack + 1, ack=seq + 8) / b"an answer"
    yield there(flags="FA", seq=seq + 8, ack=ack + 10)
    yield back(flags="FA", seq=ack + 10, ack=seq + 9)
    yield there(flags="A", seq=seq + 9, ack=ack + 11)


TCP_LABELS = ["N>", "E<", "E>a", "E>a", "E<a", "E>a", "E<a", "E>a"]


def dns(client, server, sport):
    """Yield a question and its answer."""
    yield IP(src=client, dst=server) / UDP(sport=sport, dport=53) / b"question"
    yield IP(src=server, dst=client) / UDP(sport=53, dport=sport) / b"answer"


def refused(client, server, router, sport):
    """Yield a datagram, and a router's word that its port cannot be reached."""
    datagram = IP(src=client, dst=server) / UDP(sport=sport, dport=7) / b"anybody there?"
    yield datagram
    yield IP(src=router, dst=client) / ICMP(type=3, code=3) / bytes(datagram)[:28]


def ping(client, server, identifier):
    """Yield an echo and its answer, over IPv4 or IPv6."""
    if ":" in client:
        yield IPv6(src=client, dst=server) / ICMPv6EchoRequest(id=identifier, seq=1)
        yield IPv6(src=server, dst=client) / ICMPv6EchoReply(id=identifier, seq=1)
    else:
        yield IP(src=client, dst=server) / ICMP(type=8, id=identifier, seq=1)
        yield IP(src=server, dst=client) / ICMP(type=0, id=identifier, seq=1)


def mixed(hosts=6):
    """Return packets of several conversations of each of some hosts, interleaved."""
    streams = []
    for host in range(1, hosts + 1):
        client = f"192.0.2.{host}"
        streams += [
            tcp(client, "198.51.100.1", 40000, 80),
            tcp(client, "198.51.100.2", 40000 + host, 443),
            dns(client, "198.51.100.53", 5000 + host),
            refused(client, "198.51.100.1", "203.0.113.1", 6000),
            ping(client, "198.51.100.1", host),
            ping(f"2001:db8::{host}", "2001:db8:1::1", host),
        ]
    packets = []
    while streams:
        streams = [stream for stream in streams if (packet := next(stream, None)) and not packets.append(packet)]
    return packets


def captured(packets, step_ns=MS // 3):
    """Return packets as they go into a file, in Ethernet frames, ``step_ns`` apart."""
    return [
        Packet(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet), START_NS + i * step_ns)
        for i, packet in enumerate(packets)
    ]


def write(path, packets, step_ns=MS // 3):
    """Write packets as a capture; returns the path as a string."""
    path.write_bytes(pcap(captured(packets, step_ns))[0])
    return str(path)
