"""A table in a file: connections, expectations and how zones are set, with lifetimes as what is left of them.

Records are copied one by one, so a table is saved while its service runs; and they are made anew one by one, so a file is
restored into a table of other sizes, of another layout (service/saved_rows), or one that is in use.  What each of them says
is of one moment; whoever lived all the while is in the file.  Fragments are not.

What is restored goes on as if no time had passed.  Connections may have seen traffic meanwhile, so their TCP windows and
SCTP tags are learned again from the first packets of either side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels import expecting, saving
from ..shm import descriptions, roster, segment
from ..shm.errors import Exists, Missing, SegmentError
from ..shm.layout import (
    ENTRY,
    EXPECTATION,
    EXPECTATION_TABLE,
    EXTENSION,
    FORMAT_VERSION,
    GLOBAL,
    POLICY,
    QUOTA,
    RULE_ZONE_SHIFT,
    UNLIMITED,
    ZONE,
    ExpectationFlag,
    Kind,
    Region,
    Setting,
    Slab,
    Status,
    digest,
)
from ..shm.reasons import Reason
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import burial, half_open, relearning, saved_checks, saved_file, saved_rows, warmup
from .saved_checks import ImpossibleError
from .saved_file import Saved, SavedError, Writer

__all__ = ["SavedError", "restore", "restore_into", "save"]

VERSION = 2
CHUNK = 16_384
"""Records that are copied at once, in some milliseconds."""
ROWS = {"entries": ENTRY, "extensions": EXTENSION, "expectations": EXPECTATION}
SETTINGS = {
    "globals": (GLOBAL, ("limit", "zone_limit_default", "settings")),
    "zones": (ZONE, ("settings", "max_retrans", "policy")),
    "quotas": (
        QUOTA,
        ("limit", "has_limit", "adaptive_start", "adaptive_end", "half_open_limit", "source_limit", "has_sources"),
    ),
    "policies": (POLICY, ("timeout_ms", "name")),
    "helper_rules": (np.dtype("u8"), ()),
}
"""Arrays of CONTROL that say how things are set, and which fields of theirs."""
_SAID_TWICE = (
    (Setting.HALF_OPEN, "half_open_limit"),
    (Setting.SOURCES, "source_limit"),
    (Setting.ADAPTIVE, "adaptive_end"),
)
"""Settings of a zone, and the field of its QUOTA without which they mean nothing."""
_PLACES = (Reason.ADOPTED, Reason.CLASH)
Progress = Callable[[int, int], None]
"""Is told how many records of how many have been gone through."""


def quietly(done: int, of: int) -> None:
    """Tell nobody."""


# ------------------------------------------------------------------------------------------------ out
def save(instance: str, path: Path, progress: Progress = quietly) -> dict[str, Any]:
    """Save the table of an instance, whether its service runs or not.

    Returns:
        ``connections`` and ``bytes`` that were saved.

    Raises:
        SegmentError: there is none, or no place on its roster.
        SavedError: the file cannot be written; what was there before is left.
    """
    warmup.ensure()
    with segment.attach(instance, sealed=True) as held:
        table = held.table
        burial.bury_dead(table)
        me = roster.join(table, Kind.TOOL)
        try:
            with saved_file.written(path, _description(table)) as writer:
                count = _write(table, table.views(me), writer, progress)
                size = writer.finish()
        except OSError as error:
            raise SavedError(f"{path}: cannot be written: {error.strerror}") from error
        finally:
            roster.leave(table, me)
    return {"connections": count, "bytes": size}


def _description(table: Table) -> dict[str, Any]:
    geometry = table.geometry
    return {
        "format": FORMAT_VERSION,
        "digest": f"{digest():016x}",
        "geometry": [geometry.connections, geometry.zones_in_use, geometry.extension_share],
        **of_this_moment(),
        "rows": descriptions.rows(),
        "protocols": descriptions.protocols(),
        "bits": descriptions.numbers(),
    }


def of_this_moment() -> dict[str, Any]:
    """Return what a description says of its file, beside what it says of the table."""
    return {"version": VERSION, "now_ms": now_ms(), "saved_s": time.time()}


def _write(table: Table, views: np.record, writer: Writer, progress: Progress) -> int:
    for name, (dtype, _) in SETTINGS.items():
        writer.part(name, table.array(Region.CONTROL, name, dtype))
    total, count = table.geometry.records(Slab.ENTRIES), 0
    cursor, out, more = np.zeros(1, "u8"), np.zeros(CHUNK, ENTRY), np.zeros(CHUNK, EXTENSION)
    at_cursor, at_out, at_more = (np.uint64(one.ctypes.data) for one in (cursor, out, more))
    chunk = np.uint64(CHUNK)
    while cursor[0] < total:
        n = int(saving.collect(views, np.uint64(now_ms()), chunk, at_cursor, at_out, at_more, chunk))
        if n:
            writer.part("entries", out[:n])
            writer.part("extensions", more[:n][out["extension"][:n] != 0])
        count += n
        progress(int(cursor[0]), total)
    # after the connections: those that foretold them are in the file, or have gone
    foretold = table.array(Region.CONTROL, "expectations", EXPECTATION).copy()
    writer.part("expectations", foretold[foretold["flags"] & np.uint32(ExpectationFlag.IN_USE) != 0])
    return count


# ------------------------------------------------------------------------------------------------ in
def restore(instance: str, path: Path, replace: bool = False, progress: Progress = quietly) -> dict[str, Any]:
    """Put what a file says into a table: that of a service that runs, or a new one, with which the next start goes on.

    Args:
        instance: its name.
        path: of the file.
        replace: whether to discard a table of that name which nobody uses.
        progress: is told how far it is.

    Returns:
        ``connections`` that were restored; of others, how many were ``there`` already, had ``no_room``, had ``expired``, or
        were ``damaged``;
        ``expectations``, and ``saved_s``, when they were saved.

    Raises:
        SavedError: the file cannot be restored; nothing was changed.
        SegmentError: there is a table of that name, or too little memory.
    """
    whole = read(path)
    warmup.ensure()
    if not replace:
        try:
            with segment.attach(instance) as held:
                if any(place.alive for place in roster.present(held.table)):
                    return restore_into(held.table, whole, is_new=False, progress=progress)
        except (Exists, Missing):
            pass
        except SegmentError:  # put away, or unfit: ``create`` says what is there
            pass
    with segment.create(instance, _geometry(whole), replace=replace) as made:
        try:
            told = restore_into(made.table, whole, is_new=True, progress=progress)
            made.seal()
        except BaseException:
            made.unlink()
            raise
    return told


def read(path: Path) -> Saved:
    """Read a file.

    Raises:
        SavedError: it is not whole, says what cannot be, or was saved by a version that did not say what its rows are.
    """
    whole = Saved(path)
    try:
        saved_checks.demand(whole.description, [*ROWS, *SETTINGS])
    except ImpossibleError as error:
        raise SavedError(f"{path}: it says of itself what cannot be: {error}") from None
    if whole.description["version"] != VERSION:
        raise SavedError(
            f"{path}: saved in another way (version {whole.description['version']}, this is {VERSION}): "
            "restore it by the program that saved it"
        )
    return whole


def _geometry(whole: Saved) -> Geometry:
    return Geometry(*whole.description["geometry"])


def restore_into(table: Table, whole: Saved, *, is_new: bool, progress: Progress = quietly) -> dict[str, Any]:
    """Put what a file says into a table.

    Args:
        table: where.
        whole: the file.
        is_new: whether nobody has used it yet: then it is set as the file says, too.
        progress: is told how far it is.

    Returns:
        As ``restore``.
    """
    me = roster.join(table, Kind.TOOL)
    try:
        return _Restoration(table, me, whole, progress).run(is_new)
    finally:
        roster.leave(table, me)


class _Restoration:
    """One, while it runs."""

    def __init__(self, table: Table, me: int, whole: Saved, progress: Progress) -> None:
        self._table, self._views, self._whole, self._progress = table, table.views(me), whole, progress
        self._is_new = False
        told = whole.description
        self._layouts = {
            name: descriptions.laid_out(rows) for name, rows in told["rows"].items() if name in ROWS or name in SETTINGS
        }
        self._later_ms = now_ms() - told["now_ms"]
        self._ids: list[tuple[np.ndarray, np.ndarray]] = []
        """Of connections that are there again: what they were called, and are called now."""
        self._late: list[tuple[np.ndarray, np.ndarray]] = []
        """Those that others have foretold: they come after them."""
        size = self._layouts["entries"].itemsize if "entries" in self._layouts else 1
        self._total = sum(len(part.data) // size for part in whole.parts() if part.name == "entries")
        self._counts = {"connections": 0, "there": 0, "no_room": 0, "expired": 0, "damaged": 0}

    def _demand(self) -> None:
        """See that all parts can be read, before anything is changed.

        Raises:
            SavedError: one cannot.
        """
        path, waiting = self._whole.path, 0
        for name, data in self._whole.parts():
            if name not in self._layouts:
                raise SavedError(f"{path}: {name}: it does not say how that is laid out")
            size = self._layouts[name].itemsize
            if len(data) % size:
                raise SavedError(f"{path}: {name}: not a whole number of rows")
            self._rows(name, data[:size])
            if name == "extensions" and len(data) // size != waiting:
                raise SavedError(f"{path}: extensions: not as many as connections have")
            if name == "entries":
                rows = data.view(self._layouts[name])
                waiting = np.count_nonzero(rows["extension"]) if "extension" in (rows.dtype.names or ()) else 0

    def run(self, is_new: bool) -> dict[str, Any]:
        self._is_new = is_new
        self._demand()
        entries = np.zeros(0, ENTRY)
        foretold = np.zeros(0, EXPECTATION)
        for part in self._whole.parts():
            if part.name == "entries":
                entries = self._rows(part.name, part.data)
            elif part.name == "extensions":
                self._first(entries, self._rows(part.name, part.data))
            elif part.name == "expectations":
                foretold = self._rows(part.name, part.data)
            elif is_new and part.name in SETTINGS:
                self._set(part.name, self._rows(part.name, part.data))
        self._others()
        if is_new:
            self._agree()
        return {
            **self._counts,
            "expectations": self._foretell(foretold),
            "saved_s": self._whole.description["saved_s"],
        }

    def _rows(self, name: str, data: np.ndarray) -> np.ndarray:
        wanted = ROWS[name] if name in ROWS else SETTINGS[name][0]
        told = self._whole.description
        try:
            rows = data.view(self._layouts[name])
            return saved_rows.converted(name, rows, wanted, told["format"], told["bits"], told.get("protocols"))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise SavedError(f"{self._whole.path}: {name}: {error}") from error

    # -------------------------------------------------------------------------------------------- connections
    def _first(self, entries: np.ndarray, extensions: np.ndarray) -> None:
        """Make those of a part that nobody foretold, and put the others by."""
        entries = entries.copy()
        more = np.zeros(len(entries), EXTENSION)
        more[entries["extension"] != 0] = extensions
        for name in ("expiry_ms", "created_ms"):
            entries[name] = _later(entries[name], self._later_ms)
        entries["status"][~self._are_counted(entries)] &= ~np.uint16(Status.SOURCE_COUNTED)
        can_be = saved_checks.connections(entries, more, now_ms())
        self._counts["damaged"] += int((~can_be).sum())
        relearning.mark(entries)
        left = can_be & (entries["expiry_ms"] > now_ms())
        self._counts["expired"] += int((can_be & ~left).sum())
        is_late = left & (entries["parent"] != 0)
        self._late.append((entries[is_late], more[is_late]))
        self._make(entries[left & ~is_late], more[left & ~is_late])

    def _are_counted(self, entries: np.ndarray) -> np.ndarray:
        """Return which connections stay in the count of their source: a start counts all of a table that was not in use."""
        if not self._is_new:
            return np.zeros(len(entries), bool)
        zones = (entries["key"][:, 4] >> np.uint64(16) & np.uint64(0xFFFF)).astype("i8")
        return self._table.array(Region.CONTROL, "quotas", QUOTA)["has_sources"][zones] != 0

    def _make(self, entries: np.ndarray, more: np.ndarray) -> None:
        outcomes = np.zeros(len(entries), "u8")
        rows, extensions, at = (np.uint64(one.ctypes.data) for one in (entries, more, outcomes))
        made = int(saving.put(self._views, rows, extensions, np.uint64(len(entries)), at))
        there = int(np.isin(outcomes, _PLACES).sum())
        self._counts["connections"] += made
        self._counts["there"] += there
        self._counts["no_room"] += len(entries) - made - there
        is_made = outcomes >> np.uint64(32) != 0
        self._ids.append((_id_in_file(entries[is_made]), outcomes[is_made]))
        self._progress(sum(self._counts.values()), self._total)

    def _others(self) -> None:
        """Make those that were foretold, parents first; who has no parent any more has none."""
        entries, more = (
            (np.concatenate(parts) for parts in zip(*self._late, strict=True)) if self._late else (None, None)
        )
        while entries is not None and more is not None and len(entries):
            theirs, ours = self._known()
            known = np.isin(entries["parent"], theirs)
            if not known.any():
                waits = np.isin(entries["parent"], _id_in_file(entries))
                known = ~waits if not waits.all() else np.ones(len(entries), bool)
                entries["parent"][known] = 0
            else:
                entries["parent"][known] = ours[np.searchsorted(theirs, entries["parent"][known])]
            self._make(entries[known], more[known])
            entries, more = entries[~known], more[~known]

    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids in the file, sorted, and what they are called now."""
        theirs, ours = (np.concatenate(parts) for parts in zip(*self._ids, strict=True))
        order = np.argsort(theirs)
        return theirs[order], ours[order]

    # -------------------------------------------------------------------------------------------- the rest
    def _foretell(self, foretold: np.ndarray) -> int:
        """Make the expectations whose parents are there; returns how many."""
        if not len(foretold) or not self._ids:
            return 0
        theirs, ours = self._known()
        rows = foretold[np.isin(foretold["parent"], theirs)].copy()
        rows["parent"] = ours[np.searchsorted(theirs, rows["parent"])]
        rows["expiry_ms"] = _later(rows["expiry_ms"], self._later_ms)
        rows = saved_checks.expectations(rows, now_ms())
        added = 0
        for i in np.argsort(rows["order"]):
            at = np.uint64(rows.ctypes.data + int(i) * EXPECTATION.itemsize)
            reason = expecting.add(self._views, at, np.uint64(len(rows)), np.uint64(now_ms()))
            added += int(reason) == Reason.NONE
        return added

    def _set(self, name: str, rows: np.ndarray) -> None:
        """Set things as the file says."""
        dtype, fields = SETTINGS[name]
        array = self._table.array(Region.CONTROL, name, dtype)
        count = min(len(array), len(rows))
        if not fields:
            array[:count] = rows[:count]
        for field in fields:
            array[field][:count] = rows[field][:count]
        if name == "globals":
            most = self._table.geometry.connections
            array["limit"] = np.where(array["limit"] == UNLIMITED, UNLIMITED, np.minimum(array["limit"], most))

    def _agree(self) -> None:
        """Let zones say that they have budgets and marks where they do: not all of those in the file may have found room."""
        arrays = {name: self._table.array(Region.CONTROL, name, dtype) for name, (dtype, _) in SETTINGS.items()}
        saved_checks.settings(arrays)
        words, quotas, rules = arrays["zones"]["settings"], arrays["quotas"], arrays["helper_rules"]
        half_open.seat_all(quotas)
        for setting, field in _SAID_TWICE:
            has = quotas[field] != 0
            words[has] |= np.uint16(setting)
            words[~has] &= ~np.uint16(setting)
        words &= ~np.uint16(Setting.HELPERS)
        words[rules[rules != 0] >> np.uint64(RULE_ZONE_SHIFT) & np.uint64(0xFFFF)] |= np.uint16(Setting.HELPERS)
        in_use = np.flatnonzero(rules)
        head = self._table.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE)
        head["rules"] = in_use[-1] + 1 if len(in_use) else 0


def _id_in_file(entries: np.ndarray) -> np.ndarray:
    """Return what connections were called when they were saved.

    Their records' numbers are not in the file; ``next`` of a record in use means nothing, and holds them there.
    """
    return (entries["life"] >> np.uint64(32) << np.uint64(32)) | entries["next"]


def _later(moments: np.ndarray, by_ms: int) -> np.ndarray:
    """Return moments by this clock; what was before it began was when it began."""
    return np.maximum(moments.astype("i8") + by_ms, 1).astype("u8")


def now_ms() -> int:
    """Return the moment, as the whole table counts it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000
