"""The rules that docs/examples holds: each can be loaded, and does what its first lines say."""

import checkout
import pytest
from ruled import Switch
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6ND_NS, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from zonetrack.service import rules_check, rules_file, rules_text
from zonetrack.service.rules import Names
from zonetrack.shm.layout import CtState
from zonetrack.shm.reasons import Reason

EXAMPLES = checkout.ROOT / "docs" / "examples"
NEW, EST = CtState.TRK | CtState.NEW, CtState.TRK | CtState.EST
MACS = {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"}


def ethernet(name="a", **more):
    return Ether(src=MACS[name], dst=MACS["b" if name == "a" else "a"], **more)


def loaded(file, *names, **more):
    """Return a switch with ports of these names that goes by an example."""
    switch = Switch(len(names), **more)
    wanted = Names(dict(zip(names, switch.names.ports.values(), strict=True)))
    rules = rules_file.read((EXAMPLES / file).read_text(), rules_file.format_of(file), wanted)
    switch.load(rules_text.write(rules, switch.names))
    return switch


RULES = sorted(path for path in EXAMPLES.iterdir() if path.suffix != ".py")


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_every_example_can_be_loaded(path):
    assert rules_check.check_file(str(path))["rules"] > 0
    assert path.name in (checkout.ROOT / "docs" / "rules.md").read_text()


def test_every_format_says_the_same():
    """What TOML and JSON show is the same, and part of the lines."""
    read = {
        suffix: rules_file.read(
            (EXAMPLES / f"stateful-firewall.{suffix}").read_text(), form, Names({"lan": 1, "wan": 2})
        )
        for suffix, form in (("rules", "text"), ("toml", "toml"), ("json", "json"))
    }
    assert read["toml"] == read["json"]
    assert all(rule in read["rules"] for rule in read["toml"])


def test_monitor_is_what_happens_without_rules():
    packets = [bytes(ethernet() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=port, dport=53)) for port in (1, 2, 1)]
    with loaded("monitor.rules", "lab", zones=[7]) as switch:
        verdicts, came = switch.through("a", packets)
        assert verdicts["ct_state"].tolist() == [NEW] * 3
        assert verdicts["zone"].tolist() == [7] * 3
        assert sorted(came["a"]) == sorted(packets)
        assert switch.worker.counter(Reason.INSERT) == 2


# ------------------------------------------------------------------------------------------------ stateful firewall
INSIDE, SERVER, OUTSIDE = "192.0.2.1", "192.0.2.10", "198.51.100.1"


def test_firewall_from_inside():
    there = ethernet() / IP(src=INSIDE, dst=OUTSIDE)
    back = ethernet("b") / IP(src=OUTSIDE, dst=INSIDE)
    syn = bytes(there / TCP(sport=5, dport=80, flags="S", seq=100))
    synack = bytes(back / TCP(sport=80, dport=5, flags="SA", seq=900, ack=101))
    with loaded("stateful-firewall.rules", "lan", "wan") as switch:
        assert switch.through("b", [synack])[1] == {"a": [], "b": []}
        assert switch.through("a", [syn])[1] == {"a": [], "b": [syn]}
        assert switch.through("b", [synack])[1] == {"a": [synack], "b": []}
        unreachable = bytes(back / ICMP(type=3, code=1) / IP(src=INSIDE, dst=OUTSIDE) / TCP(sport=5, dport=80, seq=100))
        assert switch.through("b", [unreachable])[1] == {"a": [unreachable], "b": []}
        verdict = switch.through("a", [syn])[0][0]
        assert verdict["zone"] == 1


@pytest.mark.parametrize(
    ("packet", "passes"),
    [
        (IP(src=OUTSIDE, dst=SERVER) / TCP(sport=5, dport=443, flags="S"), True),
        (IP(src=OUTSIDE, dst=SERVER) / TCP(sport=5, dport=80, flags="S"), False),
        (IP(src=OUTSIDE, dst=INSIDE) / TCP(sport=5, dport=443, flags="S"), False),
        (IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5, dport=9999), False),
        (IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5, dport=10000), True),
        (IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5, dport=10999), True),
        (IP(src=OUTSIDE, dst=SERVER) / UDP(sport=5, dport=11000), False),
        (IP(src=OUTSIDE, dst=INSIDE) / ICMP(type=8), True),
        (IP(src=OUTSIDE, dst=INSIDE) / ICMP(type=13), False),
        (IPv6(src="2001:db8:1::1", dst="2001:db8::10") / TCP(sport=5, dport=443, flags="S"), True),
        (IPv6(src="2001:db8:1::1", dst="2001:db8::11") / TCP(sport=5, dport=443, flags="S"), False),
        (IPv6(src="fe80::1", dst="ff02::1:ff00:1") / ICMPv6ND_NS(), True),
        (ARP(), True),
    ],
)  # fmt: skip
def test_firewall_from_outside(packet, passes):
    data = bytes(ethernet("b") / packet)
    with loaded("stateful-firewall.rules", "lan", "wan") as switch:
        assert switch.through("b", [data])[1] == {"a": [data] if passes else [], "b": []}


# ------------------------------------------------------------------------------------------------ tenants
def test_tenants_never_meet():
    """The same addresses in two VLANs are two connections, in two zones; an answer in the wrong one is none."""

    def packet(vlan, way=0):
        there = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=5, dport=53)
        back = IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=53, dport=5)
        return bytes(ethernet("ab"[way]) / Dot1Q(vlan=vlan) / (back if way else there))

    with loaded("tenants.rules", "one", "two", "three") as switch:
        verdicts, came = switch.through("a", [packet(5)])
        assert (verdicts["zone"].tolist(), came["b"], came["c"]) == ([5], [packet(5)], [packet(5)])
        verdicts, came = switch.through("b", [packet(6, 1), packet(5, 1)])
        assert verdicts["ct_state"].tolist() == [NEW, EST | CtState.RPL]
        assert verdicts["zone"].tolist() == [6, 5]
        assert came == {"a": [packet(6, 1), packet(5, 1)], "b": [], "c": [packet(6, 1)]}  # learned in VLAN 5 only
        untagged = bytes(ethernet() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP())
        assert switch.through("a", [untagged])[1] == {"a": [], "b": [], "c": []}


# ------------------------------------------------------------------------------------------------ translated
HOST, SERVICE, PEER = "10.0.0.5", "10.0.0.10", "198.51.100.7"
PUBLIC = {f"203.0.113.{number}" for number in range(1, 5)}


def tcp(name, src, dst, sport, dport, flags, seq=0, ack=0):
    """Return a segment that comes in at a port."""
    return bytes(
        ethernet(name)
        / IP(src=src, dst=dst)
        / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, window=9000)
    )


def went(frames):
    """Return the one frame that went out, read; its checksums are right."""
    (data,) = frames
    packet = Ether(data)
    again = packet.copy()
    del again[IP].chksum, again[TCP].chksum
    assert bytes(again) == data
    return packet


def ends(packet):
    """Return who sends to whom."""
    return packet[IP].src, packet[TCP].sport, packet[IP].dst, packet[TCP].dport


def converse(switch, src, dst, there, back):
    """Open a connection through a switch, and see both ends: returns what arrives of the SYN, and of its answer."""
    out, come = ("a", "b") if there == "a" else ("b", "a")
    syn = went(switch.through(out, [tcp(out, src, dst, 4000, back, "S", 100)])[1][come])
    src_seen, sport_seen, dst_seen, dport_seen = ends(syn)
    answer = tcp(come, dst_seen, src_seen, dport_seen, sport_seen, "SA", 900, 101)
    synack = went(switch.through(come, [answer])[1][out])
    last = went(switch.through(out, [tcp(out, src, dst, 4000, back, "A", 101, 901)])[1][come])
    assert ends(last) == ends(syn)
    return ends(syn), ends(synack)


def test_gateway():
    with loaded("nat-gateway.rules", "lan", "wan", extension_share=1000) as switch:
        sent, answered = converse(switch, HOST, PEER, "a", 80)
        assert sent[0] in PUBLIC and sent[1] >= 1024 and sent[2:] == (PEER, 80)
        assert answered == (PEER, 80, HOST, 4000)
        sent, answered = converse(switch, PEER, "203.0.113.1", "b", 443)
        assert sent == (PEER, 4000, SERVICE, 443)
        assert answered == ("203.0.113.1", 443, PEER, 4000)
        stranger = tcp("b", PEER, "203.0.113.1", 4001, 80, "S", 1)
        assert switch.through("b", [stranger])[1] == {"a": [], "b": []}


def test_two_routers():
    with loaded("two-routers.rules", "lan", "wan", extension_share=1000) as switch:
        sent, answered = converse(switch, HOST, PEER, "a", 80)
        assert sent[0] == "203.0.113.1" and sent[2:] == (PEER, 80)
        assert answered == (PEER, 80, HOST, 4000)
        sent, answered = converse(switch, PEER, "203.0.113.10", "b", 80)
        assert sent == (PEER, 4000, SERVICE, 80)
        assert answered == ("203.0.113.10", 80, PEER, 4000)
