"""Capture files that were altered, through the reader and the tracker; behind each stands a forbidden page."""

from __future__ import annotations

import ctypes
import itertools
import random
from functools import cache

import numpy as np
import tables
from capture_files import ETHERNET, KUZNETZOV, PCAP_NS, PCAP_US, RAW, Packet, Pcapng, pcap
from guard import PAGE, Guard
from zonetrack.kernels import burst, replay
from zonetrack.kernels.words import u64
from zonetrack.service.captures import Capture, CaptureError
from zonetrack.service.replay import record
from zonetrack.shm.layout import BURST_PACKETS_MAX, CLOCK, FRAME, FRAME_BYTES, VERDICT, FrameFlag

from . import mutation, seeds

ROOM = 16 * PAGE
RECORDS_MAX = 4096


@cache
def files() -> tuple[bytes, ...]:
    """Return files that are right, of every kind that is read."""
    packets = [Packet(one.data, 1_700_000_000_000_000_000 + 1_000 * i) for i, one in enumerate(seeds.frames()[::9])]
    made = [
        pcap(packets, order=order, magic=magic, linktype=linktype)[0]
        for order, magic, linktype in itertools.product("<>", (PCAP_US, PCAP_NS, KUZNETZOV), (ETHERNET, RAW))
    ]
    for order in "<>":
        file = Pcapng().section(order).interface(resolution=9, offset_s=7).interface(RAW, snaplen=100)
        for i, packet in enumerate(packets[:6]):
            file.packet(packet, packet.time_ns, i % 2).packet_old(packet, packet.time_ns // 1000, 0).packet_simple(
                packet
            )
        made.append(file.section(order).interface().packet(packets[0], 1).file)
    return tuple(made)


class World:
    """A table, and a place for a file."""

    def __init__(self):
        self.table = tables.small()
        self.worker = tables.Participant(self.table)
        self.guard = Guard(ROOM)
        self.clock, self.frame = record(CLOCK), record(FRAME)
        self.verdicts = np.zeros(BURST_PACKETS_MAX, VERDICT)
        self.packets = self.refused = 0

    def read(self, data):
        """Read a file, twice, and track what is in it."""
        address = self.guard.place(data)
        content = (ctypes.c_char * len(data)).from_address(address)
        try:
            with Capture("x", flags=FrameFlag.COMMIT, content=content) as capture:
                while not capture.ended:
                    replay.count(capture.walk, self.clock[0], self.frame[0], u64(RECORDS_MAX))
                capture.rewind()
                for frames, _ in capture.slices():
                    self._track(frames)
                capture.check()
        except CaptureError as error:
            assert error.what and 0 <= error.offset <= len(data)
            self.refused += 1

    def _track(self, frames):
        for first in range(0, len(frames), BURST_PACKETS_MAX):
            n = min(BURST_PACKETS_MAX, len(frames) - first)
            at = u64(frames.ctypes.data + first * FRAME_BYTES)
            burst.track_burst(self.worker.views, at, u64(n), u64(1000), u64(self.verdicts.ctypes.data))
            self.packets += n


def world(seed, cases, tick):
    """Read so many files."""
    made, chance = World(), random.Random(seed)
    for _ in range(cases):
        made.read(mutation.octets(chance, chance.choice(files()))[:ROOM])
        tick()
    made.worker.run()
    tables.assert_at_rest(made.table)
    return f"{made.refused:,} refused, {made.packets:,} packets tracked"
