"""A table of another layout, which an earlier version of this program left: saved as it is, and taken over into a new one.

The file comes first, so nothing is lost whatever becomes of the rest: it is a saved table like any other, which this
version restores and the earlier one too.  Processes of that version which have outlived their keeper are ended in order
before; of operations that others died over nothing is known, so what they had locked is read as it stands.

    the file cannot be written        nothing is touched, and the service does not start
    the file cannot be restored       the service starts with an empty table, and says where the file is
    it is killed in between           the next start goes on with what there is; ``zonetrack restore`` adds the others
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..clients import address
from ..shm import segment
from ..shm.errors import SegmentError
from ..shm.foreign import Foreign
from ..shm.segment import Instance
from ..shm.sizing import Geometry
from . import log, orphans, saved, saved_file, warmup
from .config import Config
from .saved_file import SavedError, Writer

STATE_DIRECTORY = "STATE_DIRECTORY"
"""Variable in which systemd says where a service keeps what outlives a boot: systemd.exec(5)."""
_NEEDED = ("life", "next", "extension", "key", "expiry_ms", "status")
"""Fields of a connection without which there is nothing to be taken over."""
_log = log.logger("keeper")


class Away(NamedTuple):
    """A table of another layout that was saved."""

    file: Path
    layout: str
    """Digest of its layout."""


def put_away(config: Config) -> Away:
    """Save the table that is there, and end processes that have outlived their keeper.

    Args:
        config: of the service.

    Raises:
        SegmentError: what is there cannot be read, or somebody owns it; nothing was touched.
        SavedError: the file cannot be written; processes were ended, the table is as it was.
        StillRunningError: one of them does not end.
    """
    with Foreign(config.instance) as old:
        left = orphans.of(config.instance)
        if left is not None:
            orphans.end(left, config.drain_ms / 1_000)
        away = Away(_directory(config) / f"{config.instance}.{old.digest:016x}.saved", f"{old.digest:016x}")
        count = save(old, away.file)
    _log.warning(
        "the table that was left is of another layout: it was saved in %s, and is converted",
        away.file,
        extra=log.facts(connections=count, layout=away.layout),
    )
    return away


def take_over(config: Config, wanted: Geometry, away: Away) -> tuple[Instance, dict[str, Any]]:
    """Make a new table in the place of the one that was saved, with what that had.

    Args:
        config: of the service.
        wanted: sizes of the new table.
        away: the one that was saved.

    Returns:
        The new one, and what became of it in plain values: see opening.Held.

    Raises:
        SegmentError: there is too little memory, or somebody owns the instance now; the log names the file.
    """
    about = {"file": str(away.file), "layout": away.layout}
    try:
        made = segment.create(config.instance, wanted, replace=True)
    except SegmentError:
        _log.error("what was in the table is in %s: start with --restore", away.file)
        raise
    try:
        warmup.ensure()
        told = saved.restore_into(made.table, saved.read(away.file), is_new=True)
    except BaseException as error:
        made.unlink()
        made.close()
        if not isinstance(error, SavedError):
            raise
        _log.error("it cannot be converted: %s; the service starts with an empty table, %s is kept", error, away.file)
        return segment.create(config.instance, wanted), {"from": "new", "why": str(error), **about}
    _log.info("converted the table that was left", extra=log.facts(**told))
    return made, {"from": "converted", **about, **told}


def _directory(config: Config) -> Path:
    """Return where files of tables are kept."""
    named = config.save_directory or os.environ.get(STATE_DIRECTORY, "").split(":")[0]
    return Path(named) if named else Path(address.path(config.socket, config.instance)).parent


def save(old: Foreign, path: Path) -> int:
    """Save a table of another layout, as it lays its records out.

    Returns:
        How many connections were saved.

    Raises:
        SavedError: the file cannot be written, or what is there has not even names for what is saved.
    """
    told = old.description
    missing = [name for name in _NEEDED if name not in (old.array("entries").dtype.names or ())]
    if missing:
        raise SavedError(f"{old.instance}: connections of that layout have no {', '.join(missing)}")
    about = {
        **saved.of_this_moment(),
        **{name: told[name] for name in ("format", "geometry", "rows", "protocols")},
        "digest": f"{old.digest:016x}",
        "bits": told["numbers"],
    }
    try:
        with saved_file.written(path, about) as writer:
            count = _write(old, writer)
            writer.finish()
    except OSError as error:
        raise SavedError(f"{path}: cannot be written: {error.strerror}; save_directory names a place for it") from error
    return count


def _write(old: Foreign, writer: Writer) -> int:
    for name in saved.SETTINGS:
        writer.part(name, old.array(name))
    entries, extensions = old.array("entries"), old.array("extensions")
    numbers, count = old.description["numbers"], 0
    live = np.uint64(numbers["Life"]["LIVE"])
    for first in range(0, len(entries), saved.CHUNK):
        part = entries[first : first + saved.CHUNK]
        found = np.flatnonzero(part["life"] & np.uint64(0xFF) == live)
        if not len(found):
            continue
        rows = part[found]  # a copy
        rows["next"] = first + found  # which means nothing here, and says what the copy is of
        more = rows["extension"][rows["extension"] != 0].astype("i8") - 1
        writer.part("entries", rows)
        writer.part("extensions", extensions[np.clip(more, 0, len(extensions) - 1)])
        count += len(rows)
    foretold = old.array("expectations")
    in_use = foretold["flags"].dtype.type(numbers["ExpectationFlag"]["IN_USE"])
    writer.part("expectations", foretold[foretold["flags"] & in_use != 0])
    return count
