"""Packet sockets of low latency: opened with their rings, told as what they are, handed on to another process."""

import os

from eventually import until
from ports import datagrams
from wires import Wires
from zonetrack.service.ports import opening, specs, telling
from zonetrack.service.ports.prompt import PromptPort
from zonetrack.shm.layout import FRAMES, PLACES, PortKind
from zonetrack.shm.queues import Queues


def test_places_are_laid_out():
    with Wires() as wires:
        wires.namespace.run("ip", "link", "set", "near0", "mtu", "3000")
        with opening.open_port(specs.read("afpacket:near0,latency=low,ring_mb=2"), "none", 2) as made:
            queues = Queues([made], workers=2)
            assert queues.records["kind"].tolist() == [PortKind.FRAMES] * 2
            ring = queues.records["rx"].view(FRAMES)[0]
            assert (ring["frame_bytes"], ring["count"]) == (4096, 512)
            assert queues.records["tx"].view(PLACES)["place_bytes"].tolist() == [4096, 4096]
            (told,) = telling.tell(queues, [[0], [1]])
            assert (told["kind"], told["latency"]) == ("afpacket", "low")


def test_another_process_goes_on_with_it():
    with Wires() as wires:
        made = PromptPort("near0", ring_mb=1)
        wires.send(datagrams(3))
        other = PromptPort("near0", ring_mb=1, descriptors=[os.dup(one) for one in made.descriptors()])
        made.unlink()
        until(lambda: [other._memory[0][2048 * place] & 1 for place in range(4)] == [1, 1, 1, 0])
        other.unlink()
