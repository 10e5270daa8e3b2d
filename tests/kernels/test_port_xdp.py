"""Interfaces whose driver hands frames over: they come where they are, go out as they are, and what cannot be is counted."""

import contextlib
import errno

import numpy as np
import pytest
from eventually import until
from ports import datagrams, udp
from wired import Devices
from wires import Wires
from zonetrack.kernels import port_xdp
from zonetrack.kernels.words import u64
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.xdp import SOL_XDP, STATISTICS, TX_COUNT, XdpPort
from zonetrack.service.ports.xdp_rings import words
from zonetrack.shm.layout import INJECTED
from zonetrack.shm.reasons import Reason

THROUGH = """
in_port=near0 actions=output:near1
in_port=near1 actions=output:near0
"""


class Lab:
    """Interfaces near0 and near1 as ports, at whose other ends a test is, and one worker."""

    def __init__(self, text=THROUGH, count=2, **options):
        self.house = contextlib.ExitStack()
        self.wires = self.house.enter_context(Wires(count))
        try:
            made = [XdpPort(f"near{number}", **options) for number in range(count)]
        except PortError as error:
            self.house.close()
            if error.__cause__ is not None and getattr(error.__cause__, "errno", 0) in (
                errno.ENOSYS,
                errno.EAFNOSUPPORT,
            ):
                pytest.skip(str(error))
            raise
        self.devices = self.house.enter_context(Devices(made, text))

    def record(self, number=0):
        """Return a QUEUE."""
        return self.devices.queues.records[number]

    def xsk(self, number=0):
        """Return where the rings of a port are."""
        return self.devices.ports[number]._own[0]

    def word(self, name, number=0):
        """Return a cursor of a port."""
        return int(words(int(self.xsk(number)[name]))[0])

    def send(self, frames):
        """Send frames into the far end, and wait until each has come or is lost."""
        before = self.word("rx_producer") + self.lost()
        self.wires.send(frames)
        until(lambda: self.word("rx_producer") + self.lost() == before + len(frames))

    def lost(self):
        """Return how many frames the system had no room for."""
        statistics = self.devices.ports[0]._sockets[0].getsockopt(SOL_XDP, STATISTICS, 48)
        return int(np.frombuffer(statistics, "u8")[[0, 3]].sum())

    def is_at_rest(self):
        """Return whether both equations hold of all ports."""
        return all(
            (self.word("fill_producer", number) - self.word("rx_consumer", number)) % 2**32
            == self.xsk(number)["rx_count"]
            and self.word("tx_producer", number) - self.word("sent_consumer", number)
            == self.record(number)["tx"].view(INJECTED)["fresh"]
            for number in range(len(self.devices.ports))
        )


@contextlib.contextmanager
def lab(*args, **options):
    made = Lab(*args, **options)
    with made.house:
        yield made


def long(size):
    return udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 5, 53, bytes(size - 42))


# ------------------------------------------------------------------------------------------------ in and out
def test_frames_come_and_go_whole_and_in_order():
    with lab() as one:
        frames = [*datagrams(40), long(1514)]
        one.wires.send(frames)
        one.devices.take(41)
        assert one.wires.receive(41, 1) == frames
        there, here = one.record(), one.record(1)
        assert there["rx_packets"] == here["tx_packets"] == 41
        assert there["rx_bytes"] == here["tx_bytes"] == sum(map(len, frames))
        assert there["rx_sizes"].sum() == there["bursts"] and here["batches"] == here["tx_sizes"].sum()
        one.wires.send(datagrams(2), 1)
        one.devices.take(2)
        assert one.wires.receive(2) == datagrams(2)
        assert one.is_at_rest()


def test_the_system_has_none_of_them():
    """Nobody answers: neither the interface itself nor whoever listens there sees a frame."""
    with lab("", count=1, zone=7) as one:
        before = one.wires.namespace.run("cat", "/proc/net/snmp")
        one.wires.send(datagrams(5))
        one.devices.take(5)
        assert one.wires.namespace.run("cat", "/proc/net/snmp") == before
        assert one.devices.worker.counter(Reason.INSERT) == 5


def test_places_are_used_again_and_again():
    """Three times as many frames as there are places to receive in, and as there are to send from."""
    with lab(ring=64) as one:
        for turn in range(TX_COUNT // 50):
            frames = datagrams(60, first=60 * turn)
            one.wires.send(frames)
            one.devices.take(60)
            assert one.wires.receive(60, 1) == frames
        assert one.word("rx_consumer") == 60 * (TX_COUNT // 50) > 3 * 64
        assert one.word("sent_consumer", 1) == 60 * (TX_COUNT // 50) - TX_COUNT
        assert one.is_at_rest()


def test_what_is_translated_is_taken_along():
    text = "in_port=near0,ip actions=ct(commit,zone=1,nat(src=192.0.2.9)),output:near1"
    with lab(text) as one:
        one.wires.send([udp(b"\x0a\0\0\1", b"\x0a\0\0\2", 1000, 53, b"x")])
        one.devices.take(1)
        assert one.wires.receive(1, 1) == [udp(b"\xc0\0\2\x09", b"\x0a\0\0\2", 1000, 53, b"x")]


# ------------------------------------------------------------------------------------------------ losses
def test_a_ring_that_is_full_loses_what_comes_and_says_why():
    with lab("", count=1, ring=64) as one:
        one.send(datagrams(100))
        one.devices.take(64)
        one.devices.loop.look()
        record = one.record()
        assert (record["rx_packets"], record["rx_dropped"]) == (64, 36)
        full, starved, abandoned, bad = record["causes"].tolist()
        assert (full + starved, abandoned, bad) == (36, 0, 0)
        one.wires.send(datagrams(3))
        assert one.devices.take(3) == 3


def test_a_frame_that_is_too_long_is_not_sent():
    with lab() as one:
        one.wires.namespace.run("ip", "link", "set", "near1", "mtu", "1400")
        one.devices.loop.look()
        one.wires.send([long(1414), long(1415)])
        one.devices.take(2)
        assert [len(frame) for frame in one.wires.receive(1, 1)] == [1414]
        assert one.record(1)["tx_too_long"] == one.devices.worker.counter(Reason.OUTPUT_TOO_LONG) == 1


def test_while_an_interface_is_down_frames_wait_then_are_refused_and_go_when_it_is_up():
    with lab() as one:
        one.wires.namespace.run("ip", "link", "set", "near1", "down")
        for turn in range(11):
            one.wires.send(datagrams(100, first=100 * turn))
            one.devices.take(100)
        there = one.record(1)
        assert (there["tx_packets"], there["pending"], there["tx_full"]) == (0, TX_COUNT, 1100 - TX_COUNT)
        assert there["tx_failed"] > 0 and one.devices.worker.counter(Reason.OUTPUT_FULL) == 1100 - TX_COUNT
        one.devices.loop.look()
        one.wires.namespace.run("ip", "link", "set", "near1", "up")

        def have_left():
            one.devices.poll()
            return there["pending"] == 0

        until(have_left)
        assert one.word("tx_consumer", 1) == one.word("tx_producer", 1) and there["tx_packets"] == TX_COUNT
        assert len(one.wires.receive(900, 1)) == 900


# ------------------------------------------------------------------------------------------------ who comes after
@pytest.mark.parametrize("died", ["before it gave places back", "between R1 and R2", "after it"])
def test_the_next_worker_goes_on_where_the_last_died_receiving(died):
    with lab(ring=64) as one:
        address = u64(one.devices.queues.records.ctypes.data)
        one.send(datagrams(40))
        assert port_xdp.rx_burst(one.devices.loop.record, address) == 32
        consumer = words(int(one.xsk()["rx_consumer"]))
        if died != "before it gave places back":
            port_xdp.release(address)
            if died == "between R1 and R2":
                consumer[0] = 0
        one.devices.take_over()
        assert one.is_at_rest() and one.word("rx_consumer") == 32
        one.devices.loop.look()
        assert one.record()["rx_dropped"] == (32 if died == "before it gave places back" else 0)
        one.devices.take(8)
        assert one.wires.receive(8, 1) == datagrams(40)[32:]
        one.wires.send(datagrams(60))
        one.devices.take(60)
        assert one.wires.receive(60, 1) == datagrams(60)
        assert one.record()["rx_dropped"] == (32 if died == "before it gave places back" else 0)


@pytest.mark.parametrize("used", [5, TX_COUNT])
def test_the_next_worker_sends_what_the_last_had_put(used):
    """It died between R3 and R4: what says which place was taken is one behind."""
    with lab() as one:
        for turn in range(0, used, 64):
            count = min(64, used - turn)
            one.wires.send(datagrams(count))
            one.devices.take(count)
            one.wires.receive(count, 1)
        xsk, kept = one.xsk(1), one.record(1)["tx"].view(INJECTED)
        place = int(kept["fresh"]) if used < TX_COUNT else int(words(int(xsk["sent_entries"]), "u8")[0] // 2048) - 4096
        start = int(xsk["frames"]) + (4096 + place) * 2048
        (frame,) = datagrams(1, first=999)
        words(start, "u1", len(frame))[:] = np.frombuffer(frame, "u1")
        entry = words(int(xsk["tx_entries"]) + 16 * (used % TX_COUNT), "u8", 2)
        entry[:] = (4096 + place) * 2048, len(frame)
        words(int(xsk["tx_producer"]))[0] = used + 1
        one.devices.take_over()
        assert one.wires.receive(1, 1) == [frame]
        assert one.is_at_rest()
        one.wires.send(datagrams(3))
        one.devices.take(3)
        assert one.wires.receive(3, 1) == datagrams(3)
