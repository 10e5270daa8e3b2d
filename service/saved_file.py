"""A file of parts with a checksum over it, written whole or not at all, and read only when all of it is known to be whole.

    SAVED_MAGIC 8 | bytes of the description 4 | description, JSON | parts | BLAKE2b, 32 bytes
    a part: its name, filled up with 0, 16 | bytes 8 | those bytes

The file is made beside its place, brought to the disk, and renamed: who looks sees the old one or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..clients.errors import ZonetrackError

SAVED_MAGIC = b"ZTSAVED1"
CHECKSUM_BYTES = 32
_PART = struct.Struct("<16sQ")
_STEP_BYTES = 1 << 24


class SavedError(ZonetrackError):
    """A file is not a table that can be restored, or a table cannot be saved; says why."""


class Part(NamedTuple):
    """A part of a file."""

    name: str
    data: np.ndarray
    """u1[bytes]."""


class Writer:
    """A file that is being written."""

    def __init__(self, descriptor: int, description: dict[str, Any]) -> None:
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - closed by ``written``
        self._check = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
        text = json.dumps(description).encode()
        self._write(SAVED_MAGIC + len(text).to_bytes(4, "little") + text)

    def part(self, name: str, *data: np.ndarray) -> None:
        """Write a part of what stands in some arrays."""
        pieces = [np.ascontiguousarray(one).reshape(-1).view("u1") for one in data]
        self._write(_PART.pack(name.encode(), sum(map(len, pieces))))
        for piece in pieces:
            for first in range(0, len(piece), _STEP_BYTES):
                self._write(piece[first : first + _STEP_BYTES].data)

    def _write(self, data: bytes | memoryview) -> None:
        self._check.update(data)
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view) :]

    def finish(self) -> int:
        """Write the checksum, and bring all to the disk; returns the bytes of the file."""
        self._write(self._check.digest())
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close it."""
        self._file.close()


@contextlib.contextmanager
def written(path: Path, description: dict[str, Any]) -> Iterator[Writer]:
    """Yield a file to be written, which stands at ``path`` once the block has ended well.

    Raises:
        OSError: it cannot be; what was there before is left.
    """
    descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with contextlib.closing(Writer(descriptor, description)) as writer:
            yield writer
        os.rename(made, path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)
        raise


class Saved:
    """A file that is whole."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises:
            SavedError: it cannot be read, is none of ours, or is not whole.
        """
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(len(SAVED_MAGIC) + 4)
                if len(head) < len(SAVED_MAGIC) + 4 or head[: len(SAVED_MAGIC)] != SAVED_MAGIC:
                    raise SavedError(f"{path}: not a saved table")
                self._bytes = np.frombuffer(mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ), "u1")
        except (OSError, ValueError) as error:
            raise SavedError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
        length, self._first, end = int.from_bytes(head[len(SAVED_MAGIC) :], "little"), len(head), size - CHECKSUM_BYTES
        check = hashlib.blake2b(digest_size=CHECKSUM_BYTES)
        for at in range(0, max(0, end), _STEP_BYTES):
            check.update(self._bytes[at : min(at + _STEP_BYTES, end)].data)
        if end < self._first + length or self._bytes[end:].tobytes() != check.digest():
            raise SavedError(f"{path}: cut short, or altered since it was saved")
        self.path = path
        try:
            self.description: dict[str, Any] = json.loads(self._bytes[self._first : self._first + length].tobytes())
        except (ValueError, RecursionError) as error:
            raise SavedError(f"{path}: what it says of itself cannot be read: {error}") from None
        self._first += length
        self._demand_parts()

    def _demand_parts(self) -> None:
        """See that the file ends where its last part does.

        Raises:
            SavedError: it does not: whoever wrote it was no program of ours.
        """
        at, end = self._first, len(self._bytes) - CHECKSUM_BYTES
        while at + _PART.size <= end:
            name, size = _PART.unpack(self._bytes[at : at + _PART.size].tobytes())
            if not name.isascii():
                break
            at += _PART.size + size
        if at != end:
            raise SavedError(f"{self.path}: its parts are not as long as it says")

    def parts(self) -> Iterator[Part]:
        """Yield the parts, in their order."""
        at, end = self._first, len(self._bytes) - CHECKSUM_BYTES
        while at < end:
            name, size = _PART.unpack(self._bytes[at : at + _PART.size].tobytes())
            at += _PART.size
            yield Part(name.rstrip(b"\0").decode(), self._bytes[at : at + size])
            at += size
