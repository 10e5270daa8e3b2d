"""What the tracker would say is what it then says; and saying it changes nothing."""

import asked
import conversations
import numpy as np
import pytest
import tables
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from zonetrack.clients.port import frames_of
from zonetrack.kernels import burst, preview
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import ENTRY_BYTES, FIELDS, PARTICIPANT, VERDICT, CtState, FrameFlag, Region
from zonetrack.shm.reasons import Reason

NOW_MS = 1_000_000
SAME = ("ct_state", "reason", "direction", "protocol", "zone", "mark", "state")


class Desk:
    def __init__(self):
        self.table = tables.small(500, extension_share=1000)
        self.worker, self.asker = tables.Participant(self.table), tables.Participant(self.table)
        self.copy, self.fields = np.zeros(preview.COPY_BYTES // 8, "u8"), np.zeros(1, FIELDS)

    def judge(self, data, now_ms=NOW_MS):
        """Return what the tracker would say."""
        frames, kept = frames_of([data])
        verdict = np.zeros(1, VERDICT)
        at = (u64(array.ctypes.data) for array in (frames, self.copy, self.fields, verdict))
        preview.judge(self.asker.views, next(at), u64(now_ms), next(at), next(at), next(at))
        del kept
        return verdict[0]

    def track(self, data, commit=True, now_ms=NOW_MS, action=None):
        """Return what it says."""
        frames, kept = frames_of([data])
        frames["action"] = 0 if action is None else action.ctypes.data
        frames["flags"] = FrameFlag.COMMIT if commit else 0
        verdict = np.zeros(1, VERDICT)
        burst.track_burst(self.worker.views, u64(frames.ctypes.data), u64(1), u64(now_ms), u64(verdict.ctypes.data))
        del kept
        return verdict[0]

    def bytes(self):
        """Return all of the table but the asker's own line."""
        participants = self.table.array(Region.CONTROL, "participants", PARTICIPANT)
        own = participants[self.asker.me - 1].copy()
        participants[self.asker.me - 1] = np.zeros((), PARTICIPANT)
        found = [bytes(self.table.regions[region]) for region in Region]
        participants[self.asker.me - 1] = own
        return found


def packets():
    """Return conversations of many kinds, and what is invalid in them."""
    ends = IP(src="10.0.0.1", dst="10.0.0.2")
    back = IP(src="10.0.0.2", dst="10.0.0.1")
    udp = ends / UDP(sport=1, dport=2)
    made = [captured.data for captured in conversations.captured(conversations.mixed(2))]
    made += [
        bytes(Ether() / one)
        for one in (
            udp,
            back / ICMP(type=3, code=1) / udp,
            back / ICMP(type=3, code=1) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=9, dport=9),
            back / UDP(sport=2, dport=1),
            ends / TCP(sport=7, dport=8, flags="SF"),
            ends / TCP(sport=7, dport=8, flags="S", seq=1),
            back / TCP(sport=8, dport=7, flags="SA", seq=5, ack=9_000_000),
            back / ICMP(type=0, id=77),
        )
    ]
    return made


def test_it_says_what_the_tracker_then_says():
    desk = Desk()
    for data in packets():
        foreseen, said = desk.judge(data), desk.track(data)
        assert [int(foreseen[name]) for name in SAME if name != "state"] == [
            int(said[name]) for name in SAME if name != "state"
        ]
    assert desk.worker.counter(Reason.INVALID) >= 3


def test_nothing_becomes_of_it():
    desk = Desk()
    for data in packets()[::3]:
        before = desk.bytes()
        desk.judge(data)
        assert desk.bytes() == before
        desk.track(data)
    assert desk.worker.counter(Reason.INSERT) >= 3


def test_an_expired_connection_is_none():
    desk = Desk()
    data = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2))
    desk.track(data)
    assert desk.judge(data)["record"] == desk.track(data)["record"]
    late = desk.judge(data, NOW_MS + 10_000_000)
    assert (late["ct_state"], late["record"]) == (CtState.TRK | CtState.NEW, 0xFFFFFFFF)


def test_the_label_comes_with_it():
    desk = Desk()
    data = bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2))
    desk.track(data, action=asked.action(label=7 << 64 | 9, label_mask=asked.ALL_128, mark=5, mark_mask=asked.ALL_32))
    assert desk.judge(data)["mark"] == 5
    assert desk.copy[ENTRY_BYTES // 8 :].tolist() == [7, 9]
    desk.judge(bytes(Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=3)))
    assert desk.copy[ENTRY_BYTES // 8 :].tolist() == [0, 0]


@pytest.mark.parametrize("data", [b"", b"\x00" * 13, bytes(Ether(type=0x88CC) / b"x")])
def test_what_is_no_packet(data):
    desk = Desk()
    assert desk.judge(data)["reason"] == desk.track(data)["reason"] != Reason.NONE
