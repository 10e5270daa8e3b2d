"""A packet tracked in rehearsal: in a table of its own, which has a copy of its connection and is set as the real one is.

So what becomes of a packet need not be reckoned by somebody else than the tracker: its connection is made, gets its tuple,
its helper reads what the packet says, writes it anew and foretells others; and the packets after it find all of that.
Nothing of it is in the real table, from which only copies are taken: of a connection when a packet of it comes for the
first time, and of expectations where a packet meets one.

A range of ports is empty here: a connection gets the tuple that it would get while others have not taken it.

Concurrency: one thread's, like its views.  What is copied is of one moment.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ..kernels import expecting, preview, saving
from ..kernels.words import u64
from ..shm import roster, segment
from ..shm.layout import (
    BLOCK_RECORDS,
    ENTRY,
    EXPECTATION_TABLE,
    EXPECTATIONS_MAX,
    EXTENSION,
    FIELDS,
    FRAME,
    FRAME_SLOT_BYTES,
    GLOBAL,
    NO_RECORD,
    OVS_PEERS,
    QUOTA,
    TCP_PEERS,
    UNLIMITED,
    VERDICT,
    ZONE,
    CtState,
    FrameFlag,
    Helper,
    Kind,
    Link,
    Region,
    Setting,
    Status,
)
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import described, expectations, saved
from .rule_matches import TCP, TCP_FLAGS

CONNECTIONS = 4 * BLOCK_RECORDS
ENDS = ("src", "dst", "sport", "dport")
_BUDGETS = Setting.HALF_OPEN | Setting.SOURCES | Setting.ADAPTIVE
_TRANSLATED = CtState.SNAT | CtState.DNAT
_SYN, _ACK = TCP_FLAGS["syn"], TCP_FLAGS["ack"]


class Tracked(NamedTuple):
    """What became of a packet."""

    verdict: np.void
    label: int
    """Of its connection."""
    data: bytes
    """The frame as it goes on."""
    fields: dict[str, int]
    """What there is of it that can be translated, where it was."""
    known: int = 0
    """The public id of its connection in the real table, 0: it is not there."""
    is_made: bool = False
    """Whether its connection was made for it."""
    shifts: tuple[int, int] = (0, 0)
    """What its sequence number and its acknowledgment change by."""
    helper: Helper = Helper.NONE
    """Who reads, and where it is translated writes, the messages of its connection."""
    foretold: tuple[dict[str, Any], ...] = ()
    """Connections that were foretold because of it, as clients are shown them."""


def now_ms() -> np.uint64:
    """Return the moment, as tables count it."""
    return u64(time.monotonic_ns() // 1_000_000)


class Rehearsal:
    """A table in which packets are tracked in thought."""

    def __init__(self, table: Table, views: np.record) -> None:
        """Take up the real table.

        Args:
            table: the real one.
            views: of the participant of it that asks.
        """
        self._real, self._real_views = table, views
        self._own = segment.anonymous(Geometry(CONNECTIONS, 1, 1000), secret=np.asarray(views["secret"]).tobytes())
        self._views = self._own.views(roster.join(self._own, Kind.TOOL))
        self._ids: dict[int, int] = {}
        """Public ids: of a copy, and of what it is a copy of; of what was made here, and 0."""
        self._set()

    def _set(self) -> None:
        """Have all set as it is in the real table, but for limits and budgets."""
        for name, (dtype, fields) in saved.SETTINGS.items():
            theirs, ours = (one.array(Region.CONTROL, name, dtype) for one in (self._real, self._own))
            for field in fields:
                ours[field] = theirs[field]
            if not fields:
                ours[:] = theirs
        tables = [one.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE) for one in (self._own, self._real)]
        tables[0]["rules"] = tables[1]["rules"]
        control = self._own.array(Region.CONTROL, "globals", GLOBAL)
        control["limit"] = control["zone_limit_default"] = UNLIMITED
        control["settings"] &= ~np.uint32(_BUDGETS)
        self._own.array(Region.CONTROL, "quotas", QUOTA)["has_limit"] = 0
        self._own.array(Region.CONTROL, "zones", ZONE)["settings"] &= ~np.uint16(_BUDGETS)

    # -------------------------------------------------------------------------------------------- copies
    @staticmethod
    def _judged(views: np.record, data: bytes, zone: int) -> np.void:
        """Return what would be said of a packet in a table, VERDICT."""
        held = np.frombuffer(bytearray(data), "u1")
        frame, verdict, copy = np.zeros(1, FRAME), np.zeros(1, VERDICT), np.zeros(preview.COPY_BYTES // 8, "u8")
        fields = np.zeros(1, FIELDS)
        frame["address"], frame["captured_bytes"] = held.ctypes.data, len(data)
        frame["wire_bytes"], frame["link"], frame["zone"] = len(data), Link.ETHERNET, zone
        at = (u64(array.ctypes.data) for array in (frame, copy, fields, verdict))
        preview.judge(views, next(at), now_ms(), next(at), next(at), next(at))
        return verdict[0]

    def _find(self, data: bytes, zone: int) -> np.void:
        """Have a copy of a packet's connection here, if there is one; returns as ``_judged`` of this table."""
        found = self._judged(self._views, data, zone)
        if found["record"] != NO_RECORD:
            return found
        real = self._judged(self._real_views, data, zone)
        if real["record"] != NO_RECORD:
            self._copy(int(real["record"]))
        elif real["ct_state"] & CtState.REL:
            self._foretell(zone)
        else:
            return found
        return self._judged(self._views, data, zone)

    def _copy(self, record: int) -> int:
        """Copy a connection of the real table; returns its public id here, 0 where there is none."""
        entry, more, cursor = np.zeros(1, ENTRY), np.zeros(1, EXTENSION), np.array([record], "u8")
        at, out, out_more = (u64(array.ctypes.data) for array in (cursor, entry, more))
        if not saving.collect(self._real_views, now_ms(), u64(1), at, out, out_more, u64(1)):
            return 0
        known = int(entry["life"][0]) >> 32 << 32 | record
        for copy, original in self._ids.items():
            if original == known:
                return copy
        entry["parent"], entry["status"] = 0, entry["status"] & ~np.uint16(Status.SOURCE_COUNTED)
        outcome = np.zeros(1, "u8")
        saving.put(self._views, out, out_more, u64(1), u64(outcome.ctypes.data))
        copy = int(outcome[0]) if int(outcome[0]) >> 32 else 0
        if copy:
            self._ids[copy] = known
        return copy

    def _foretell(self, zone: int) -> None:
        """Copy the expectations of a zone, and the connections that have foretold them."""
        rows = expectations.copied(self._real)
        for row in rows[rows["last"] >> 16 & 0xFFFF == zone]:
            made = np.array([row])
            made["parent"] = self._copy(int(row["parent"]) & 0xFFFFFFFF)
            if made["parent"][0]:
                expecting.add(self._views, u64(made.ctypes.data), u64(EXPECTATIONS_MAX), now_ms())

    # -------------------------------------------------------------------------------------------- tracking
    def track(self, data: bytes, zone: int, action: np.ndarray | None, commit: bool, numbered: bool) -> Tracked:
        """Track a packet, and say what became of it.

        Args:
            data: the frame.
            zone: to track it in.
            action: ACTION[1], what is asked of its connection.
            commit: whether it may make one.
            numbered: whether its numbers are its own; else a segment of TCP gets those that come next.
        """
        before = self._find(data, zone)
        way = int(before["direction"])
        if before["record"] != NO_RECORD and before["protocol"] == TCP and not numbered:
            data = self._next(data, self._entry(before), way)
        latest = max((int(one["order"]) for one in expectations.copied(self._own)), default=0)
        moment = now_ms()
        verdict, data, ends = self._play(data, zone, action, commit, moment)
        if verdict["record"] == NO_RECORD:
            return Tracked(verdict, 0, data, ends)
        identity = int(verdict["incarnation"]) << 32 | int(verdict["record"])
        is_made, known = identity not in self._ids, self._ids.setdefault(identity, 0)
        entry = self._entry(verdict)
        extension, shifts = self._extension(entry), (0, 0)
        if ends and entry["status"] & Status.SEQUENCE_OFFSETS:
            offsets = extension["sequence_offset"]
            shifts = int(offsets[way][2]), -int(offsets[1 - way][2])
        foretold = (one for one in expectations.copied(self._own) if one["order"] > latest)
        return Tracked(
            verdict,
            int(extension["label"][0]) << 64 | int(extension["label"][1]),
            data,
            ends,
            known,
            is_made,
            shifts,
            Helper(int(extension["helper"])) if entry["status"] & Status.HELPER else Helper.NONE,
            tuple(expectations.described(one, {}, int(moment)) for one in foretold),
        )

    def _play(
        self, data: bytes, zone: int, action: np.ndarray | None, commit: bool, moment: np.uint64
    ) -> tuple[np.void, bytes, dict[str, int]]:
        """Have the tracker take a packet; returns what it says, the frame, and where it is from and for if that is new."""
        frame, verdict, fields = np.zeros(1, FRAME), np.zeros(1, VERDICT), np.zeros(1, FIELDS)
        held = np.zeros(FRAME_SLOT_BYTES, "u1")
        held[: len(data)] = np.frombuffer(data, "u1")
        frame["address"], frame["captured_bytes"], frame["wire_bytes"] = held.ctypes.data, len(data), len(data)
        frame["link"], frame["zone"] = Link.ETHERNET, zone
        frame["flags"] = FrameFlag.ROOM | FrameFlag.FRESH | (FrameFlag.COMMIT if commit else 0)
        frame["action"] = 0 if action is None else action.ctypes.data
        at = [u64(array.ctypes.data) for array in (frame, fields, verdict)]
        preview.play(self._views, at[0], moment, at[1], at[2])
        ends: dict[str, int] = {}
        if verdict[0]["ct_state"] & _TRANSLATED:
            each = {name: fields[name][0] for name in ENDS}
            ends = {name: int(one) if one.ndim == 0 else int(one[0]) << 64 | int(one[1]) for name, one in each.items()}
        return verdict[0], held[: frame["captured_bytes"][0]].tobytes(), ends

    def _entry(self, verdict: np.void) -> np.void:
        """Return the ENTRY of this table that a verdict names."""
        return self._own.array(Region.ENTRIES, "entries", ENTRY)[int(verdict["record"])]

    def _extension(self, entry: np.void) -> np.void:
        """Return a copy of a connection's EXTENSION; one of nothing where it has none."""
        link = int(entry["extension"])
        rows = self._own.array(Region.EXTENSIONS, "extensions", EXTENSION)
        return (rows if link else np.zeros(1, EXTENSION))[link - 1].copy()

    def _next(self, data: bytes, entry: np.void, way: int) -> bytes:
        """Return a segment with the numbers that come next in its connection, as its sender counts them."""
        flags = described.flags_of(data)
        if flags & _SYN and not flags & _ACK:
            return data
        peers, is_ovs = entry["protocol"].tobytes(), entry["status"] & Status.OVS
        ends = np.frombuffer(peers, OVS_PEERS if is_ovs else TCP_PEERS)[0]["peer"]["seqlo" if is_ovs else "end"]
        offsets = self._extension(entry)["sequence_offset"]
        shift = int(offsets[1 - way][2]) if entry["status"] & Status.SEQUENCE_OFFSETS else 0
        own = max(1, int(ends[way]) - (1 if flags & _SYN else 0))
        return described.numbered(data, own, (int(ends[1 - way]) + shift) & 0xFFFFFFFF)
