"""Frames that are nearly right, or nothing at all, through the whole tracker: every byte of them ends where a page does.

The pages behind each frame, behind what says of frames and verdicts, and behind every region of the table are forbidden,
so whoever reads or writes one byte too far is killed.  Conversations are kept in their order, and changed here and there,
so that what depends on many packets is reached: windows, helpers, translation, fragments that wait.
"""

from __future__ import annotations

import ctypes

import foretelling
import helping
import numpy as np
import tables
from guard import PAGE, Guard, fence
from zonetrack.kernels import burst, late, memory, sweep
from zonetrack.kernels.jit import inlined, kernel
from zonetrack.kernels.words import LOW_8, ONE, THREE, TWO, ZERO, u64
from zonetrack.shm.layout import (
    ACTION,
    FRAME,
    FRAME_BYTES,
    VERDICT,
    VERDICT_BYTES,
    ActionFlag,
    FrameFlag,
    Helper,
    Nat,
    Setting,
)
from zonetrack.shm.reasons import Reason

from .seeds import FRAME_BYTES_MAX, frames

BURST = 32
BURSTS_MAX = 64
"""In one call."""
ZONES = 8
LATE_ROUNDS = 4
SWEEP_SLOTS = u64(512)
AUDIT_EVERY = 100_000
"""Cases between two audits of the whole table."""
SEED = np.dtype([("address", "u8"), ("bytes", "u4"), ("link", "u2"), ("l3", "u1"), ("l4", "u1")])
FUZZ = np.dtype(
    [
        ("address", "u8"),  # of itself
        ("chance", "u8"),  # state of the generator
        ("cursor", "u8"),  # seed that comes next
        ("zone", "u8"),
        ("now_ms", "u8"),
        ("seeds", "u8"),  # address of SEED[seed_count]
        ("seed_count", "u8"),
        ("scratch", "u8"),  # address of two frames' bytes
        ("slots", "u8"),  # address of BURST pairs of pages, the second of each forbidden
        ("frames", "u8"),
        ("verdicts", "u8"),
        ("actions", "u8"),
        ("action_count", "u8"),
        ("strange", "u8"),  # verdicts that cannot be
        ("tracked", "u8"),
        ("reasons", "u8", (256,)),  # how often each was given
    ]
)
fuzz_at, seed_at = memory.record_at(FUZZ), memory.record_at(SEED)
frame_at, verdict_at = memory.record_at(FRAME), memory.record_at(VERDICT)
_SEED_BYTES, _ROOM = u64(SEED.itemsize), u64(FRAME_BYTES_MAX)
_PAGE = u64(PAGE)
_ACTION_BYTES = u64(ACTION.itemsize)
_COMMIT, _TRUSTED = u64(FrameFlag.COMMIT), u64(FrameFlag.CHECKSUM_TRUSTED)
_REASONS = u64(len(Reason))


@inlined
def _draw(fuzz, below):
    """Return a number by chance (xorshift64*, Vigna 2016)."""
    x = u64(fuzz.chance)
    x ^= x >> u64(12)
    x ^= x << u64(25)
    x ^= x >> u64(27)
    fuzz.chance = x
    return (x * u64(0x2545F4914F6CDD1D) >> u64(33)) % below


@kernel
def _number(fuzz, before):
    """Return what a byte becomes."""
    kind = _draw(fuzz, u64(8))
    if kind < TWO:
        return before ^ (ONE << _draw(fuzz, u64(8)))
    if kind == TWO:
        return (before + ONE) & LOW_8
    if kind == THREE:
        return (before - ONE) & LOW_8
    if kind == u64(4):
        return ZERO
    if kind == u64(5):
        return LOW_8
    return _draw(fuzz, u64(256))


@kernel
def _change(fuzz, seed, data, size):
    """Change bytes: mostly those of headers and of the beginning of what they carry."""
    for _ in range(ONE + _draw(fuzz, u64(4))):
        kind = _draw(fuzz, u64(8))
        at = _draw(fuzz, max(size, ONE))
        if kind < TWO:
            at = u64(seed.l3) + _draw(fuzz, u64(40))
        elif kind < u64(5):
            at = u64(seed.l4) + _draw(fuzz, u64(40))
        elif kind == u64(5):
            at = _draw(fuzz, u64(24))
        if at < size:
            memory.set_byte(data + at, _number(fuzz, memory.byte(data + at)))


@kernel
def _make(fuzz, i):
    """Make the frame of place ``i`` of a burst."""
    if _draw(fuzz, u64(4)) == ZERO:
        fuzz.cursor = _draw(fuzz, u64(fuzz.seed_count))
    else:
        fuzz.cursor = (u64(fuzz.cursor) + ONE) % u64(fuzz.seed_count)
    seed = seed_at(u64(fuzz.seeds) + u64(fuzz.cursor) * _SEED_BYTES)
    data, size = u64(fuzz.scratch), u64(seed.bytes)
    memory.copy(data, u64(seed.address), size)
    frame = frame_at(u64(fuzz.frames) + i * u64(FRAME_BYTES))
    kind = _draw(fuzz, u64(16))
    cut = wire = size
    if kind == ZERO:  # nothing but noise
        cut = wire = _draw(fuzz, u64(200))
        for k in range(cut):
            memory.set_byte(data + u64(k), _draw(fuzz, u64(256)))
    elif kind == ONE:  # the end of another
        other = seed_at(u64(fuzz.seeds) + _draw(fuzz, u64(fuzz.seed_count)) * _SEED_BYTES)
        first = _draw(fuzz, size)
        if first < u64(other.bytes):
            memory.copy(data + first, u64(other.address) + first, u64(other.bytes) - first)
            cut = wire = u64(other.bytes)
    elif kind == TWO:  # moved by some bytes
        by = ONE + _draw(fuzz, u64(8))
        at = _draw(fuzz, size)
        memory.copy(data + _ROOM, data + at, size - at)
        memory.copy(data + at + by, data + _ROOM, size - at)
        cut = wire = size + by
    elif kind == THREE:  # cut
        cut = wire = _draw(fuzz, size + ONE)
    elif kind == u64(4):  # snapped
        cut = _draw(fuzz, size + ONE)
    elif kind == u64(5):  # as long as it says, or as it does not say
        wire = _draw(fuzz, u64(4096))
    if kind > u64(2) and kind < u64(11):
        _change(fuzz, seed, data, size)
    frame.captured_bytes, frame.wire_bytes = cut, wire
    frame.address = u64(fuzz.slots) + i * TWO * _PAGE + _PAGE - cut
    memory.copy(u64(frame.address), data, cut)
    frame.link = u64(seed.link) if _draw(fuzz, u64(32)) != ZERO else _draw(fuzz, u64(12))
    frame.zone = u64(fuzz.zone) if _draw(fuzz, u64(16)) != ZERO else _draw(fuzz, u64(ZONES))
    frame.flags = (_COMMIT if _draw(fuzz, u64(8)) != ZERO else ZERO) | (
        _TRUSTED if _draw(fuzz, u64(4)) != ZERO else ZERO
    )
    frame.action = ZERO
    if _draw(fuzz, TWO) == ZERO:
        frame.action = u64(fuzz.actions) + _draw(fuzz, u64(fuzz.action_count)) * _ACTION_BYTES
    frame.ticket = i


@kernel
def make(address, n):
    """Make a burst of ``n`` frames; returns what is to be done after it: sweep where it is 0."""
    fuzz = fuzz_at(address)
    if _draw(fuzz, u64(32)) == ZERO:
        fuzz.zone = _draw(fuzz, u64(ZONES))
    fuzz.now_ms = u64(fuzz.now_ms) + _draw(fuzz, u64(200) if _draw(fuzz, u64(256)) != ZERO else u64(1 << 20))
    for i in range(n):
        _make(fuzz, u64(i))
    return _draw(fuzz, u64(4))


@kernel
def look(address, n):
    """Count what verdicts say, and those that cannot be."""
    fuzz = fuzz_at(address)
    for i in range(n):
        verdict = verdict_at(u64(fuzz.verdicts) + u64(i) * u64(VERDICT_BYTES))
        reason = u64(verdict.reason)
        fuzz.reasons[reason] += ONE
        if reason >= _REASONS or u64(verdict.zone) >= u64(ZONES) or u64(verdict.direction) > ONE:
            fuzz.strange = u64(fuzz.strange) + ONE
    fuzz.tracked = u64(fuzz.tracked) + n


def actions():
    """Return what rules may ask of a connection, ACTION[n]."""
    made = np.zeros(12, ACTION)
    first = [0x00000000, 0xCB0071C8]
    for i, nat in enumerate((Nat.SOURCE, Nat.DESTINATION, Nat.SOURCE | Nat.RANDOM, Nat.SOURCE | Nat.PERSISTENT)):
        made["nat"][i] = Nat.APPLY | nat
        made["nat_first"][i] = made["nat_last"][i] = first
    made["nat_last"][0][1] += 3
    made["nat_ports"][0], made["nat_ports"][2] = (1024, 1030), (5000, 65535)
    made["nat"][4:7] = Nat.APPLY
    made["nat"][5] = Nat.APPLY | Nat.SOURCE
    made["nat_first"][5] = made["nat_last"][5] = [0x20010DB800020000, 0x200]
    made["flags"][6] = made["flags"][7] = ActionFlag.FORCE
    made["mark"][7:9], made["mark_mask"][7:9] = 0xABCD, (0xFF, 0xFFFFFFFF)
    made["label"][8], made["label_mask"][8] = (1, 2), (3, 3)
    made["helper"][9:] = Helper.FTP, Helper.SIP, Helper.TFTP
    made["policy"][9] = 1
    return made


class World:
    """A table with a fence, the frames' places, and what there is to draw from."""

    def __init__(self, seed):
        self.table = tables.small(connections=1500, zones=ZONES, extension_share=300)
        fence(self.table)
        self.workers = [tables.Participant(self.table) for _ in range(2)]
        self._set_zones()
        self._seeds = [np.frombuffer(one.data, "u1") for one in frames()]
        self._list = np.zeros(len(self._seeds), SEED)
        for line, one, data in zip(self._list, frames(), self._seeds, strict=True):
            line["address"], line["bytes"] = data.ctypes.data, len(data)
            line["link"], line["l3"], line["l4"] = one.link, one.l3, one.l4
        self._scratch, self._actions = np.zeros(4 * FRAME_BYTES_MAX, "u1"), actions()
        self._slots = [Guard(PAGE, pairs=BURST), Guard(PAGE), Guard(PAGE)]
        self._fuzz = np.zeros(1, FUZZ)
        self.fuzz = self._fuzz.view(np.recarray)[0]
        self.fuzz["address"] = self._fuzz.ctypes.data
        self.fuzz["chance"] = np.uint64((seed * 0x9E3779B97F4A7C15 + 1) & ((1 << 64) - 1)) | np.uint64(1)
        self.fuzz["now_ms"] = 1_000_000
        self.fuzz["seeds"], self.fuzz["seed_count"] = self._list.ctypes.data, len(self._list)
        self.fuzz["scratch"], self.fuzz["slots"] = self._scratch.ctypes.data, self._slots[0].base
        self.fuzz["frames"] = self._slots[1].end - BURST * FRAME_BYTES
        self.fuzz["verdicts"] = self._slots[2].end - BURST * VERDICT_BYTES
        self.fuzz["actions"], self.fuzz["action_count"] = self._actions.ctypes.data, len(self._actions)

    def _set_zones(self):
        """Every zone judges in its own way; some are nearly full."""
        rules = [(helper, *of, zone) for zone in range(4) for helper, of in helping.PORTS.items()]
        foretelling.set_rules(self.table, *((helper, protocol, zone, port) for helper, protocol, port, zone in rules))
        settings = tables.zones(self.table)["settings"]
        for zone in range(ZONES):
            bits = int(settings[zone])
            bits |= Setting.OVS if zone & 1 else 0
            bits |= Setting.BE_LIBERAL if zone & 2 else 0
            bits &= ~Setting.CHECKSUM if zone & 4 else 0xFFFF
            settings[zone] = bits & ~Setting.SEQ_CHECK if zone == 6 else bits
        tables.set_limit(self.table, 3, 40)
        tables.set_limit(self.table, 5, 200)
        settings[5] = int(settings[5]) & ~Setting.EARLY_DROP

    def go(self, packets):
        """Track so many packets, or some fewer, by a worker after the other; fails if a verdict cannot be."""
        own, n = self.fuzz["address"], u64(min(BURST, packets))
        frames, verdicts = self.fuzz["frames"], self.fuzz["verdicts"]
        for number in range(packets // int(n)):
            views = self.workers[number >> 3 & 1].views
            after = make(own, n)
            now_ms = u64(self.fuzz["now_ms"])
            burst.track_burst(views, frames, n, now_ms, verdicts)
            look(own, n)
            for _ in range(LATE_ROUNDS):
                if not late.collect(views, now_ms):
                    break
            if not after:
                sweep.sweep(views, now_ms, SWEEP_SLOTS)
        assert self.fuzz["strange"] == 0, f"{self.fuzz['strange']} verdicts that cannot be"
        return packets // int(n) * int(n)

    def cut(self, seed, snapped, cuts):
        """Track a seed cut at each of some bytes, BURST at most; its headers say what they said.

        Args:
            seed: one of `frames`.
            snapped: whether the rest of it was on the wire.
            cuts: bytes that are left.
        """
        there = np.frombuffer((ctypes.c_char * (BURST * FRAME_BYTES)).from_address(int(self.fuzz["frames"])), FRAME)
        for i, cut in enumerate(cuts):
            at = self._slots[0].base + 2 * i * PAGE + PAGE - cut
            ctypes.memmove(at, seed.data, cut)
            wire = len(seed.data) if snapped else cut
            there[i] = (at, cut, wire, 0, seed.link, FrameFlag.COMMIT | FrameFlag.CHECKSUM_TRUSTED, i, 0)
        n, views = u64(len(cuts)), self.workers[0].views
        burst.track_burst(views, self.fuzz["frames"], n, u64(self.fuzz["now_ms"]), self.fuzz["verdicts"])
        look(self.fuzz["address"], n)
        late.collect(views, u64(self.fuzz["now_ms"]))

    def settle(self):
        """Finish what is under way; then nothing is broken."""
        for worker in self.workers:
            worker.run()
        tables.assert_at_rest(self.table)

    def drain(self):
        """Let everything expire: nothing is left."""
        now_ms = int(self.fuzz["now_ms"])
        for _ in range(8):
            now_ms += 1 << 32
            for worker in self.workers:
                worker.sweep(now_ms)
                late.collect(worker.views, u64(now_ms))
        self.settle()
        left = int(tables.totals(self.table)["count"])
        assert left == 0, f"{left} connections are counted when all have expired"

    def reasons(self):
        """Return how often each reason was given."""
        return {Reason(i): int(n) for i, n in enumerate(self.fuzz["reasons"]) if n}


def world(seed, cases, tick):
    """Track so many frames, auditing now and then; then let all expire."""
    made, since = World(seed), 0
    while (left := cases - int(made.fuzz["tracked"])) > 0:
        done = made.go(min(left, BURST * BURSTS_MAX))
        tick(done)
        since += done
        if since >= AUDIT_EVERY:
            since = 0
            made.settle()
    made.settle()
    made.drain()
    reasons = made.reasons()
    return f"{len(reasons)} reasons, {reasons.get(Reason.NONE, 0) / cases:.0%} tracked"
