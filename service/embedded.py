"""The tracker inside a program: a table of its own, frames or a capture in, numpy arrays of verdicts and connections out.

    from zonetrack.service.embedded import Tracker

    with Tracker() as tracker:
        verdicts = tracker.capture("capture.pcap")         # one row a packet
        connections = tracker.connections()                # one row a connection, as in a dump

``attach`` looks at the table of a running service instead: nothing is written there, no lock is taken, so what a connection
has counted may be of two moments.  A tracker belongs to one thread.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence

import numpy as np

from ..clients.connections import Connection, Rows, describe
from ..clients.errors import FailedError, UnknownParameterError
from ..kernels import replay, sweep, walk
from ..kernels.clock import BEGIN_MS
from ..shm import roster, segment
from ..shm.layout import (
    CLOCK,
    CONNECTION,
    ENTRY,
    EXTENSION,
    FRAME,
    REPLAY,
    VERDICT,
    FrameFlag,
    Kind,
    Life,
    Region,
    Slab,
    Status,
)
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import connections, filters, leaving
from .captures import Capture
from .helper_rules import HelperRules
from .parameters import hint, nearest
from .replay import Scratch, record
from .runner import now_ms
from .zone_settings import READERS, ZoneSettings

CONNECTIONS_DEFAULT = 65_536
RUN_RECORDS = np.uint64(1 << 12)
SWEEP_SLOTS = np.uint64(1 << 17)
EXTENSION_SHARE = 1_000
"""Extension records per 1,000 connections: any of them may get a helper."""
LOOKS_MAX = 8
"""Copies of a connection that changes while it is copied."""
_PCAP_NANOSECONDS, _ETHERNET = 0xA1B23C4D, 1


class Tracker:
    """A table in this process, and one who tracks packets in it."""

    def __init__(
        self,
        max_connections: int = CONNECTIONS_DEFAULT,
        *,
        zones: int = 16,
        helpers: dict[str, list[int]] | None = None,
        **settings: bool | int | str,
    ) -> None:
        """Make an empty table.

        Args:
            max_connections: that it holds.
            zones: that may have connections at once.
            helpers: ports of control channels by helper, in zone 0: ``{"ftp": [21]}``.
            settings: how packets are judged, as ``zonetrack zones set`` has it: ``profile="ovs"``, ``loose=False``.

        Raises:
            UnknownParameterError: there is no such setting.
            BadParameterError: or it has no such value.
        """
        for name in settings:
            if name not in READERS:
                raise UnknownParameterError(
                    f"there is no setting {name!r}{hint(nearest(name, READERS))}", {"parameter": name}
                )
        self.table = segment.anonymous(Geometry(max_connections, zones, EXTENSION_SHARE))
        ZoneSettings(self.table).set_all({name: READERS[name](name, value) for name, value in settings.items()})
        if helpers:
            HelperRules(self.table).set(0, helpers)
        self._me: int | None = roster.join(self.table, Kind.TOOL)
        self._views = self.table.views(self._me)
        self._clock, self._state, self._scratch = record(CLOCK), record(REPLAY), Scratch()
        self._scratch.lend(self._state)
        self._state["shards"] = 1

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the table.  Twice is as good as once."""
        if self._me is not None:
            leaving.leave(self.table, self._me, self._views)
            self._me = None

    @property
    def now_ms(self) -> np.uint64:
        """The moment, as the table counts it: that of the latest packet."""
        return np.uint64(max(BEGIN_MS, int(self._clock["now_ms"][0])))

    # -------------------------------------------------------------------------------------------- packets in
    def track(
        self, frames: Sequence[bytes], *, zone: int = 0, times_ns: Sequence[int] | None = None, commit: bool = True
    ) -> np.ndarray:
        """Track Ethernet frames, and return what was said of each, VERDICT[n].

        Args:
            frames: as they were on the wire.
            zone: that they are in.
            times_ns: when each came, since 1970; None: all of them now.
            commit: make connections for those that belong to none.
        """
        if times_ns is None:
            times_ns = [time.time_ns()] * len(frames)
        pieces = [struct.pack("<IHHiIII", _PCAP_NANOSECONDS, 2, 4, 0, 0, 0x40000, _ETHERNET)]
        for frame, moment in zip(frames, times_ns, strict=True):
            seconds, nanoseconds = divmod(moment, 1_000_000_000)
            pieces += [struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)), bytes(frame)]
        with Capture("frames", zone, FrameFlag.COMMIT if commit else 0, b"".join(pieces)) as capture:
            return self._run(capture, len(frames))

    def capture(self, path: str, *, zone: int = 0) -> np.ndarray:
        """Track the packets of a capture, pcap or pcapng, by its own clock; return what was said of each, VERDICT[n].

        Raises:
            CaptureError: the file cannot be read, or not to its end; what comes before that was tracked.
        """
        frame, clock, packets = record(FRAME), record(CLOCK), 0
        with Capture(path, zone, FrameFlag.COMMIT) as capture:
            while not capture.ended:
                packets += int(replay.count(capture.walk, clock[0], frame[0], RUN_RECORDS))
            capture.rewind()
            verdicts = self._run(capture, packets)
            capture.check()
        return verdicts

    def _run(self, capture: Capture, packets: int) -> np.ndarray:
        if self._me is None:
            raise FailedError("the tracker is closed")
        verdicts = np.zeros(packets, VERDICT)
        self._state["results"], self._state["results_count"] = verdicts.ctypes.data, packets
        self._state["packets"] = 0
        began = int(self._clock["first_ns"][0])
        while not capture.ended:
            moment = replay.run(self._views, capture.walk, self._clock[0], self._state[0], RUN_RECORDS)
            sweep.sweep(self._views, np.uint64(moment), SWEEP_SLOTS)
        if not began:
            self.table.header["wall_offset_ms"] = int(self._clock["first_ns"][0]) // 1_000_000 - BEGIN_MS
        return verdicts

    # -------------------------------------------------------------------------------------------- connections out
    def connections(self, **filter: object) -> np.ndarray:
        """Return the connections that there are, CONNECTION[n]; keywords as of ``dump``: ``zone=5, proto="tcp"``."""
        wanted = filters.read("filter", filter)
        records = self.table.geometry.records(Slab.ENTRIES)
        out, cursor = np.empty(records, CONNECTION), np.zeros(1, "u8")
        offset_ms = np.int64(self.table.header[0]["wall_offset_ms"]).astype(np.uint64)
        addresses = np.uint64(cursor.ctypes.data), np.uint64(out.ctypes.data)
        if self._me is None:
            raise FailedError("the tracker is closed")
        found = walk.collect(
            self._views, wanted.record, self.now_ms, offset_ms, np.uint64(records), *addresses, np.uint64(records)
        )
        return out[: int(found)].copy()

    def describe(self, **filter: object) -> Iterator[Connection]:
        """Yield the connections as dicts, as JSON has them."""
        return described(self.connections(**filter))


class Watched:
    """The table of a running service, which is only looked at."""

    def __init__(self, instance: str) -> None:
        self._instance = segment.attach(instance, sealed=True)
        self.table: Table = self._instance.table

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Look no more."""
        self._instance.close()

    def _moment(self) -> int:
        """Return the moment to judge expiry by."""
        return int(now_ms())

    def connections(self, zone: int | None = None) -> np.ndarray:
        """Return the connections that have not expired, CONNECTION[n], of a zone or of all."""
        entries = self.table.array(Region.ENTRIES, "entries", ENTRY)
        moment = self._moment()
        candidates = np.flatnonzero(self.table.array(Region.DUE, "due", "u4")[: len(entries)])
        copy, steady = entries[candidates], np.zeros(len(candidates), bool)
        for _ in range(LOOKS_MAX):
            again = entries[candidates]
            changed = (again["life"] != copy["life"]) | (again["key"] != copy["key"]).any(axis=1)
            steady = ~changed
            copy = again
            if steady.all():
                break
        shown = steady & (copy["life"] & 0xFF == Life.LIVE) & (copy["expiry_ms"] > moment)
        if zone is not None:
            shown &= copy["key"][:, -1] >> 16 & 0xFFFF == zone
        copy, records = copy[shown], candidates[shown]
        rows = connections.packed(copy, records, moment, int(self.table.header[0]["wall_offset_ms"]))
        rows["status"] &= ~np.uint16(Status.REPLIER_IS_HIGH)
        self._extend(copy, rows)
        return rows

    def _extend(self, entries: np.ndarray, rows: np.ndarray) -> None:
        """Add what stands in extensions: label, helper, and the tuple of replies of what is translated."""
        have = np.flatnonzero(entries["extension"])
        if not len(have):
            return
        extensions = self.table.array(Region.EXTENSIONS, "extensions", EXTENSION)[entries["extension"][have] - 1]
        rows["helper"][have], rows["label"][have] = extensions["helper"], extensions["label"]
        has_second = extensions["reply_key"][:, -1] != 0
        which, keys = have[has_second], extensions["reply_key"][has_second]
        ends = keys[:, :4].astype(">u8").view("u1").reshape(len(keys), 2, 16)
        ports = np.stack((keys[:, 4] >> 48, keys[:, 4] >> 32 & 0xFFFF), axis=1)
        high = (entries["status"][which] & Status.REPLIER_IS_HIGH != 0).astype(int)
        places = np.arange(len(keys))
        rows["reply_src"][which], rows["reply_dst"][which] = ends[places, high], ends[places, 1 - high]
        rows["reply_sport"][which], rows["reply_dport"][which] = ports[places, high], ports[places, 1 - high]

    def describe(self, zone: int | None = None) -> Iterator[Connection]:
        """Yield the connections as dicts, as JSON has them."""
        return described(self.connections(zone))


def attach(instance: str = segment.INSTANCE_DEFAULT) -> Watched:
    """Look at the table of a running service, by its instance.

    Raises:
        SegmentError: there is none, or it is of another version.
    """
    return Watched(instance)


def described(rows: np.ndarray) -> Iterator[Connection]:
    """Yield rows as dicts."""
    return map(describe, Rows(connections.FIELDS).read(rows.tobytes()))
