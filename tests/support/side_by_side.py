"""Two routers that translate, the kernel's and this one: the same packets in, the same packets out, but for chosen ports.

Hosts talk through either router, each by what arrives at it.
"""

from __future__ import annotations

import gateway
import kernel_nat
from gateway import TRANSLATE, ip, is_right
from scapy.layers.inet import ICMP, IP, TCP, UDP, TCPerror
from scapy.layers.inet6 import IPv6, _ICMPv6
from zonetrack.shm.layout import CtState, FrameFlag, Nat

CLIENT, OTHER_CLIENT = "10.0.0.1", "10.0.0.2"
SERVER, OTHER_SERVER = "198.51.100.1", "198.51.100.2"
ROUTER, PUBLIC, SECOND, VIRTUAL = "203.0.113.1", "203.0.113.200", "203.0.113.201", "203.0.113.80"
ON_THE_WAY = "198.51.100.254"
CLIENT6, OTHER_CLIENT6, SERVER6, ON_THE_WAY6 = "fd00::1", "fd00::2", "2001:db8:1::1", "2001:db8:1::fe"
ROUTER6, PUBLIC6, VIRTUAL6 = "2001:db8:ffff::1", "2001:db8:ffff::100", "2001:db8:ffff::80"
GRE = 47
HELPER = """
table ip help {
  ct helper ftp-h { type "ftp" protocol tcp; }
  ct helper tftp-h { type "tftp" protocol udp; }
  ct helper sip-h { type "sip" protocol udp; }
  ct helper irc-h { type "irc" protocol tcp; }
  ct helper pptp-h { type "pptp" protocol tcp; }
  chain pre {
    type filter hook prerouting priority -180; policy accept;
    tcp dport 21 ct helper set "ftp-h"
    udp dport 69 ct helper set "tftp-h"
    udp dport 5060 ct helper set "sip-h"
    tcp dport 6667 ct helper set "irc-h"
    tcp dport 1723 ct helper set "pptp-h"
  }
}
"""
RULES = """
table %s translate {
  chain pre { type nat hook prerouting priority -100; %s; }
  chain post { type nat hook postrouting priority 100; %s; }
}
"""
FAMILIES = {4: "ip", 6: "ip6"}


class Kernel:
    """The kernel's way."""

    def __init__(self, pre, post, version=4):
        hosts, address = ([CLIENT, OTHER_CLIENT], [SERVER, OTHER_SERVER, ON_THE_WAY, VIRTUAL]), ROUTER
        if version == 6:
            hosts, address = ([CLIENT6, OTHER_CLIENT6], [SERVER6, ON_THE_WAY6, VIRTUAL6]), ROUTER6
        self.router = kernel_nat.Router(*hosts, address, HELPER + RULES % (FAMILIES[version], pre, post))
        self.close = self.router.close

    def send(self, side, packet):
        return self.router.send(side, packet)

    def send_parts(self, side, packets):
        """Send the fragments of a datagram; returns those that come out."""
        return self.router.send_parts(side, packets)


class Own:
    """This tracker's way."""

    def __init__(self, action):
        self.gateway, self.action = gateway.Gateway(), action
        self.close = self.gateway.settle

    def is_for_rule(self, packet):
        """Return whether a packet of a client is one for the rule: of what is brought to a server, only that."""
        return packet.dst in (VIRTUAL, VIRTUAL6) or not self.action["nat"][0] & Nat.DESTINATION

    def send(self, side, packet):
        action = self.action if side == 0 and self.is_for_rule(packet) else TRANSLATE
        went = self.gateway.send(packet, action, flags=FrameFlag.FRESH)
        assert not went.ct_state & CtState.INV, (went.reason, packet)
        assert is_right(went.packet), "a checksum is wrong"  # the kernel leaves some to the device
        return went.packet

    def send_parts(self, side, packets):
        """Send the fragments of a datagram, one burst each; returns those that go on."""
        action = self.action if side == 0 and self.is_for_rule(packets[0]) else TRANSLATE
        came = []
        for packet in packets:
            came += self.gateway.bench.pass_(packet, action=action, flags=FrameFlag.FRESH)
        assert not any(state & CtState.INV for state, _, _ in came), came
        return [packet for _, _, packet in came]


class Trace:
    """What came out of a router, in words that do not depend on the ports it has chosen."""

    def __init__(self, path):
        self.path, self.seen, self.chosen = path, [], {}
        self.range = None

    def port(self, number, plain):
        """Return a port that somebody has named as it is, and one that was chosen by its place among those."""
        if number in plain:
            return number
        return f"chosen {self.chosen.setdefault(number, len(self.chosen))}"

    def send(self, side, packet, plain):
        """Send a packet; ``plain`` are the ports and identifiers that are not the router's to choose."""
        went = self.path.send(side, packet)
        said = [went.src, went.dst]
        layer = went.payload
        while layer:
            if isinstance(layer, IP | IPv6):
                said += [layer.src, layer.dst]
            for name in ("sport", "dport", "id"):
                if name in layer.fields and not isinstance(layer, IP | IPv6):
                    said.append(self.port(layer.fields[name], plain))
            if isinstance(layer, TCP | TCPerror):
                said += [str(layer.flags), layer.seq, layer.ack, bytes(layer.payload)]
            if isinstance(layer, UDP) or (isinstance(layer, IP) and layer.proto == GRE):
                said.append(bytes(layer.payload))
            if isinstance(layer, ICMP | _ICMPv6):
                said += [layer.type, layer.code]
            layer = layer.payload
        self.seen.append(said)
        return went


class Talk:
    """Two hosts that speak TCP through a router, each by what arrives at it."""

    def __init__(self, trace, client=CLIENT, server=SERVER, sport=40000, dport=80, plain=()):
        self.trace = trace
        self.plain = {sport, dport, *plain}
        self.ends, self.peers = [(client, sport), None], [(server, dport), None]
        self.sent, self.arrived = [1000, 9000], [0, 0]
        went = self.say(0, flags="S")
        self.ends[1], self.peers[1] = (went.dst, went[TCP].dport), (went.src, went[TCP].sport)
        self.say(1, flags="SA")
        self.say(0, flags="A")

    def say(self, side, data=b"", flags="PA", seq=None):
        (source, sport), (destination, dport) = self.ends[side], self.peers[side]
        numbers = {"seq": self.sent[side] if seq is None else seq, "ack": self.arrived[side], "window": 8192}
        packet = ip(source, destination) / TCP(sport=sport, dport=dport, flags=flags, **numbers) / data
        went = self.trace.send(side, packet, self.plain)
        if seq is None:
            self.sent[side] += len(data) + sum(flag in flags for flag in "SF")
        tcp = went[TCP]
        self.arrived[1 - side] = tcp.seq + len(bytes(tcp.payload)) + sum(flag in flags for flag in "SF")
        return went

    def part(self):
        self.say(0, flags="FA")
        self.say(1, flags="FA")
        self.say(0, flags="A")


def both(scenario, pre="", post="", action=TRANSLATE, version=4):
    """Play a scenario through either router, and return what came out of each."""
    traces = []
    for path in (Kernel(pre, post, version), Own(action)):
        try:
            trace = Trace(path)
            scenario(trace)
        finally:
            path.close()
        traces.append(trace)
    kernels, own = traces
    assert own.seen == kernels.seen
    return [list(trace.chosen) for trace in traces]
