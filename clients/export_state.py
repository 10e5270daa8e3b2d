"""What an exporter knows, in a file for its successor: how far it has told events, and what of connections that go on.

    header   how far: written over after each batch that was told
    rows     what was told of connections that go on: a new file takes the place of the old one after each look

The file is locked by whoever exports by it, so a successor waits until its predecessor has told all.  What is of another
table, or not whole, is not taken up: then all begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import Exit, ZonetrackError
from .events import NOWHERE, Mark

if TYPE_CHECKING:
    import numpy as np

MAGIC = int.from_bytes(b"ztxport1", "little")
MODE = 0o600


class StateError(ZonetrackError):
    """The file cannot be had."""

    exit_code = Exit.USAGE


class State:
    """The state of one exporter; it is locked until ``close``."""

    def __init__(self, path: Path, waits: Callable[[], object] = lambda: None) -> None:
        """Open it, and wait until nobody else exports by it.

        Args:
            path: of the file.
            waits: called once if somebody else does.

        Raises:
            StateError: it cannot be opened or made, or is something else.
        """
        self.path, self._waits = path, waits
        self.table = 0
        """Of which table it is."""
        self.mark = NOWHERE
        """How far was told."""
        try:
            self._file = self._locked()
        except OSError as error:
            raise StateError(f"{path}: {error.strerror or error}") from error
        self._rows = self._read()
        self._there = len(self._rows) if self.mark != NOWHERE else -1
        """Rows in the file; fewer than none: it has no header."""

    def _locked(self) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._waits()
                fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(self.path)):
                    return file
            os.close(file)  # its owner has put another in its place

    def _read(self) -> np.ndarray:
        import numpy as np

        from .flow_export import TOLD

        data = os.pread(self._file, os.fstat(self._file).st_size, 0)
        nothing, size = np.zeros(0, TOLD), _header().itemsize
        if data and data[:8] != MAGIC.to_bytes(8, "little"):
            self.close()
            raise StateError(f"{self.path}: is no state of an exporter; remove it, or name another file")
        header = np.frombuffer(data.ljust(size, b"\0"), _header(), 1)[0]
        if len(data) != size + int(header["count"]) * nothing.itemsize:
            os.ftruncate(self._file, 0)
            return nothing
        self.table, self.mark = int(header["table"]), Mark(int(header["life"]), int(header["sequence"]))
        return np.frombuffer(data, TOLD, offset=size)

    def rows_of(self, table: int) -> np.ndarray:
        """Return what was told of connections of a table: TOLD[n], none where it is another table's."""
        rows = self._rows if table == self.table else self._rows[:0]
        self._rows, self.table = rows, table
        return rows

    def note(self, mark: Mark) -> None:
        """Write down how far events were told.

        Raises:
            StateError: as of ``keep``.
        """
        self.mark = mark
        if self._there != len(self._rows):
            self.keep(self._rows)
        else:
            os.pwrite(self._file, self._packed(), 0)

    def keep(self, rows: np.ndarray) -> None:
        """Write down what was told of connections that go on, TOLD[n].

        Raises:
            StateError: there is no room, or no right to write; what stood there still does.
        """
        if not len(rows) and not self._there:
            return
        before, self._rows = self._rows, rows
        try:
            file = self._replaced(self._packed() + rows.tobytes())
        except OSError as error:
            self._rows = before
            raise StateError(f"{self.path}: {error.strerror or error}") from error
        os.close(self._file)
        self._file, self._there = file, len(rows)

    def _replaced(self, data: bytes) -> int:
        """Put another file in the place of this one, locked before anybody sees it; returns its descriptor."""
        other = self.path.with_name(f"{self.path.name}.new")
        file = os.open(other, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            with open(file, "wb", closefd=False) as stream:
                stream.write(data)
            os.rename(other, self.path)
        except OSError:
            os.close(file)
            raise
        return file

    def _packed(self) -> bytes:
        import numpy as np

        header = np.zeros(1, _header())
        header["magic"], header["table"], header["count"] = MAGIC, self.table, len(self._rows)
        header["life"], header["sequence"] = self.mark
        return header.tobytes()

    def close(self) -> None:
        """Leave it to a successor."""
        os.close(self._file)


def _header() -> np.dtype:
    import numpy as np

    return np.dtype([(name, "u8") for name in ("magic", "table", "life", "sequence", "count")])
