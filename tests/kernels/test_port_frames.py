"""Network interfaces whose frames are handed over one by one: in order, whole, again and again round the ring."""

import contextlib
import socket

import numpy as np
import pytest
from eventually import until
from ports import datagrams, udp
from wired import Devices
from wires import Wires
from zonetrack.kernels import port_frames
from zonetrack.kernels.words import u64
from zonetrack.service.ports.prompt import PromptPort
from zonetrack.shm.layout import FRAMES
from zonetrack.shm.reasons import Reason

THROUGH = """
in_port=near0 actions=output:near1
in_port=near1 actions=output:near0
"""


@contextlib.contextmanager
def gateway(text=THROUGH, count=2, mtu=1500, **options):
    with contextlib.ExitStack() as house:
        wires = house.enter_context(Wires(count, mtu))
        made = Devices([PromptPort(f"near{number}", ring_mb=1, **options) for number in range(count)], text)
        house.enter_context(made)
        made.wires = wires
        yield made


def long(size):
    return udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53, bytes(size - 42))


def ring_of(made):
    return made.queues.records[0]["rx"].view(FRAMES)


def test_frames_come_and_go_round_and_round_the_ring():
    with gateway() as made:
        for turn in range(9):  # 1 MiB has 512 places
            frames = [*datagrams(99, first=99 * turn), long(1514)]
            made.wires.send(frames)
            made.take(100)
            assert made.wires.receive(100, 1) == frames
        there, here = made.queues.records
        assert there["rx_packets"] == here["tx_packets"] == 900
        assert there["rx_bytes"] == here["tx_bytes"] and there["rx_sizes"].sum() == there["bursts"]
        assert ring_of(made)["count"] == 512 and ring_of(made)["returned"] == ring_of(made)["position"] == 900


@pytest.mark.parametrize("kind", [0x8100, 0x88A8])
def test_a_tag_that_the_system_took_out_is_put_back(kind):
    with gateway("dl_vlan=7 actions=output:near1") as made:
        frames = [one[:12] + kind.to_bytes(2, "big") + b"\0\7" + one[12:] for one in datagrams(3)]
        made.wires.send(frames)
        made.take(3)
        assert made.queues.records[0]["rx_bytes"] == made.queues.records[1]["tx_bytes"] == sum(map(len, frames))


def test_a_checksum_left_to_the_device_is_filled_in():
    with gateway() as made:
        run = made.wires.namespace.run
        run("ip", "addr", "add", "192.0.2.1/24", "dev", "far0")
        run("ip", "neigh", "add", "192.0.2.2", "lladdr", "02:00:00:00:00:02", "dev", "far0")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"hello!", ("192.0.2.2", 9))
        made.take(1)
        (frame,) = made.wires.receive(1, 1)
        pseudo = frame[26:34] + b"\0\x11\0\x0e" + frame[34:48]
        words = sum(int.from_bytes(pseudo[i : i + 2], "big") for i in range(0, len(pseudo), 2))
        assert words % 0xFFFF == 0 and frame[40:42] != b"\0\0"


def test_a_ring_that_is_full_loses_what_comes_and_a_frame_that_is_too_long_its_end():
    with gateway("", count=1) as made:
        made.wires.send([long(1400)] * 600)
        there, taken = made.queues.records[0], 0

        def all_told():
            nonlocal taken
            taken += made.poll()
            made.loop.look()
            return taken + there["rx_dropped"] == 600

        until(all_told)
        assert taken >= 512 and there["rx_dropped"] > 0
        made.wires.namespace.run("ip", "link", "set", "far0", "mtu", "4000")
        made.wires.namespace.run("ip", "link", "set", "near0", "mtu", "4000")
        made.wires.send([long(3000)])
        made.take(1)
        assert made.queues.records[0]["rx_truncated"] == 1
        assert made.worker.counter(Reason.INSERT) == 1


def test_the_next_worker_goes_on_behind_what_the_last_had_in_hand():
    with gateway() as made:
        made.wires.send(datagrams(40))
        memory = np.frombuffer(made.ports[0]._memory[0], "u1")
        until(lambda: memory[39 * 2048] & 1)
        assert port_frames.rx_burst(made.loop.record, u64(made.queues.records.ctypes.data)) == 32
        made.take_over()
        made.loop.look()
        assert made.queues.records[0]["rx_dropped"] == 32
        made.take(8)
        assert made.wires.receive(8, 1) == datagrams(40)[32:]
        assert not memory[: 40 * 2048].reshape(40, 2048)[:, :4].any()  # all given back
