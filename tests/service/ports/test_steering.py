"""Both directions of a flow, its fragments and the errors about it come to one queue, and flows are spread over all."""

import random
import struct

import pytest
from eventually import until
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Dot1Q, Ether
from wires import Wires
from zonetrack.service.ports import steering
from zonetrack.service.ports.packet import BLOCK_BYTES, PacketPort
from zonetrack.shm.layout import QUEUE
from zonetrack.shm.queues import Queues

QUEUES, FLOWS = 4, 60
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def four(there, back, number):
    """Return what belongs together in IPv4: both directions, fragments, errors."""
    port = 1000 + number
    packet = IP(src=there, dst=back) / TCP(sport=port, dport=80, flags="S")
    router = IP(src="203.0.113.9", dst=there)
    return [
        packet,
        IP(src=back, dst=there) / TCP(sport=80, dport=port, flags="SA"),
        IP(src=there, dst=back, proto=17, flags="MF") / UDP(sport=port, dport=9) / bytes(16),
        IP(src=there, dst=back, proto=17, frag=3) / bytes(16),
        *(router / ICMP(type=kind) / packet for kind in steering.ERRORS_4),
        IP(src=there, dst=back) / ICMP(type=8),
    ]


def six(there, back, number):
    """Return the same in IPv6."""
    packet = IPv6(src=there, dst=back) / UDP(sport=1000 + number, dport=53)
    return [
        packet,
        IPv6(src=back, dst=there) / UDP(sport=53, dport=1000 + number),
        IPv6(src=there, dst=back) / IPv6ExtHdrFragment(offset=3, nh=17) / bytes(16),
        IPv6(src="2001:db8:9::9", dst=there) / ICMPv6DestUnreach() / packet,
    ]


def taken(made):
    """Return what each queue of a port has: the bytes of its frames, by a walk of its first blocks."""
    queues = Queues([made])
    found = []
    for number in range(made.queues):
        memory, frames = memoryview(made._memory[number]), []
        for block in range(0, len(memory), BLOCK_BYTES):
            status, packets, first = struct.unpack_from("III", memory, block + 8)
            at = block + first
            for _ in range(packets if status & 1 else 0):
                after, _, _, snapped = struct.unpack_from("IIII", memory, at)
                start = at + struct.unpack_from("H", memory, at + 24)[0]
                frames.append(bytes(memory[start : start + snapped]))
                at += after
        found.append(frames)
    assert queues.records.dtype == QUEUE
    return found


@pytest.mark.parametrize("family", ["four", "six"])
@pytest.mark.parametrize("link", [ETHERNET, ETHERNET / Dot1Q(vlan=7)])
def test_what_belongs_together_comes_to_one_queue(family, link):
    rng = random.Random(1)
    with Wires() as wires, PacketPort("near0", queues=QUEUES) as made:
        sent, frames = {}, []
        for number in range(FLOWS):
            if family == "four":
                ends = [f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(1, 255)}" for _ in range(2)]
                packets = four(*ends, number)
            else:
                ends = [f"2001:db8::{rng.randrange(65536):x}:{rng.randrange(65536):x}" for _ in range(2)]
                packets = six(*ends, number)
            for packet in packets:
                bare = bytes(packet)
                sent[bare] = number
                frames.append(bytes(link / packet))
        wires.send(frames)
        # blocks that are not full come after a millisecond
        until(
            lambda: sum(map(len, taken(made))) == len(sent),
            lambda: f"{sum(map(len, taken(made)))} of {len(sent)} frames",
        )
        queue_of = {}
        for queue, frames in enumerate(taken(made)):
            for frame in frames:
                queue_of.setdefault(sent[frame[14:]], set()).add(queue)
        assert all(len(queues) == 1 for queues in queue_of.values()), queue_of
        spread = [sum(1 for queues in queue_of.values() if queues == {queue}) for queue in range(QUEUES)]
        assert min(spread) >= FLOWS // QUEUES // 3, spread


def test_jumps_lead_to_lines_that_there_are():
    program = steering.assemble(steering.PROGRAM)
    for number, (code, then, otherwise, k) in enumerate(program):
        if code & 7 == 5:
            jumps = (k,) if code == steering.JA else (then, otherwise)
            assert all(jump >= 0 and number + 1 + jump < len(program) for jump in jumps)
