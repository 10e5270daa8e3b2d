"""Saved tables that were altered or cut: each is refused whole, before anything is touched."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import tables
from zonetrack.service import saved
from zonetrack.service.saved import SavedError
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import Kind
from zonetrack.shm.sizing import Geometry

CONNECTIONS = 50
NEAR = 4096
"""Bytes at the beginning, where the file says what it is: half of the changes are there."""


def save(directory):
    """Save a small table, and return the file's path."""
    instance = f"fuzz-{os.getpid()}-{random.randrange(1 << 30)}"
    made = segment.create(instance, Geometry(512, 8, 125))
    try:
        worker = tables.Participant(made.table, Kind.WORKER)
        worker.made(tables.keys(CONNECTIONS))
        roster.leave(made.table, worker.me)
        made.seal()
        made.close()
        path = Path(directory) / "saved"
        assert saved.save(instance, path)["connections"] == CONNECTIONS
    finally:
        segment.discard(instance)
    return path


def alter(chance, file, size):
    """Change some bytes of a file, or its length; returns what undoes that."""
    if chance.random() < 0.2:
        kept = chance.choice((0, 1, 8, 11, 12, chance.randrange(NEAR), size - 1, chance.randrange(size)))
        if chance.random() < 0.2:
            file.truncate(size + chance.randrange(1, NEAR))
            return lambda: file.truncate(size)
        file.seek(kept)
        rest = file.read()
        file.truncate(kept)
        return lambda: (file.seek(kept), file.write(rest), file.flush())
    at = chance.randrange(min(size, NEAR) if chance.random() < 0.5 else size - 8)
    file.seek(at)
    before = file.read(chance.choice((1, 2, 4, 8)))
    changed = bytes(byte ^ chance.choice((1, 128, 255)) for byte in before)
    file.seek(at)
    file.write(changed)
    return lambda: (file.seek(at), file.write(before), file.flush())


def take(path):
    """Read all of a file, as `restore` does."""
    return [len(part.data) for part in saved.read(path).parts()]


def world(seed, cases, tick):
    """Alter a file so many times."""
    chance, refused = random.Random(seed), {}
    with tempfile.TemporaryDirectory(prefix="zonetrack-fuzz-") as directory:
        path = save(directory)
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for _ in range(cases):
                undo = alter(chance, file, size)
                file.flush()
                try:
                    take(path)
                except SavedError as error:
                    why = str(error).rpartition(": ")[2]
                    refused[why] = refused.get(why, 0) + 1
                else:
                    raise AssertionError("an altered file was taken")
                undo()
                tick()
            take(path)
    return ", ".join(f"{count} {why}" for why, count in sorted(refused.items()))
