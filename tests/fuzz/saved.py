"""Saved tables that were altered or cut: each is refused whole, before anything is touched.

And such as have a checksum that fits what they say now, as no program of ours writes them: each is refused, or comes to a
table in which nothing is broken, and nothing is left of once all has expired.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import foretelling
import numpy as np
import tables
from foretelling import Wanted
from zonetrack.kernels import sources
from zonetrack.service import saved, saved_file
from zonetrack.service.policies import Policies
from zonetrack.service.saved import SavedError
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import Kind
from zonetrack.shm.seats import Seats
from zonetrack.shm.sizing import Geometry
from zonetrack.shm.sources import Sources

SMALL = Geometry(512, 8, 125)
PART_BYTES = 24
"""Before the bytes of a part: its name, and how many."""
OTHERWISE = (
    None,
    True,
    -1,
    0,
    1,
    7,
    1 << 31,
    1 << 62,
    1 << 70,
    1.5,
    1e300,
    "",
    "x",
    "<u8",
    "<M8[s]",
    [],
    [1],
    {},
    {"": 0},
)
"""What a description may say instead."""
REFUSALS = (
    "cannot be read",
    "says of itself what cannot be",
    "not as long as it says",
    "how that is laid out",
    "not as many",
)
"""Words by which refusals are counted."""
CONNECTIONS = 50
NEAR = 4096
"""Bytes at the beginning, where the file says what it is: half of the changes are there."""


def save(directory):
    """Save a small table, and return the file's path."""
    instance = f"fuzz-{os.getpid()}-{random.randrange(1 << 30)}"
    made = segment.create(instance, SMALL)
    try:
        made.table.seats, made.table.sources = Seats(), Sources(SMALL.connections)
        worker = tables.Participant(made.table, Kind.WORKER)
        keys, replies = tables.keys(CONNECTIONS), tables.keys(CONNECTIONS)
        replies[:, 1] ^= np.uint64(1 << 20)
        expiry_ms = saved.now_ms() + (1 << 31)
        records = worker.made(keys[:40], expiry_ms=expiry_ms)
        worker.made(keys[40:], replies[40:], expiry_ms=expiry_ms)
        life = int(tables.entries(made.table)["life"][records[0]])
        foretelling.add(worker, life >> 32 << 32 | int(records[0]), Wanted(port=7, zone=0), most=2)
        ZoneSettings(made.table).set(1, {"half_open": 30, "per_source": 20, "adaptive": [5, 50], "ftp": [21]})
        worker.run()
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


class Forger:
    """Writes files that say something else, with a checksum that fits."""

    def __init__(self, path):
        """Begin with a file that is whole."""
        self._bytes = path.read_bytes()[: -saved_file.CHECKSUM_BYTES]
        whole = saved_file.Saved(path)
        first = len(saved_file.SAVED_MAGIC) + 4
        self._told, self._first = whole.description, first
        self._rest = first + int.from_bytes(self._bytes[first - 4 : first], "little")
        self._spans, at = [(first, self._rest)], self._rest
        for part in whole.parts():
            self._spans.append((at, at + PART_BYTES))
            self._spans += [(at + PART_BYTES, at + PART_BYTES + len(part.data))] * 5
            at += PART_BYTES + len(part.data)

    def forge(self, chance, path):
        """Write one."""
        made = self._said_otherwise(chance) if chance.random() < 0.3 else self._altered(chance)
        path.write_bytes(made + hashlib.blake2b(made, digest_size=saved_file.CHECKSUM_BYTES).digest())

    def _altered(self, chance):
        """Change some bytes, of each part as often as of any other: most are rows of zones that nobody uses."""
        made = bytearray(self._bytes)
        for _ in range(chance.choice((1, 1, 2, 8, 64))):
            begin, end = chance.choice(self._spans)
            if begin < end:
                at = begin + min(chance.randrange(end - begin), chance.randrange(NEAR * 4))
                made[at] ^= chance.choice((1, 2, 64, 128, 255))
        if chance.random() < 0.1:
            del made[chance.randrange(self._rest, len(made)) :]
        return bytes(made)

    def _said_otherwise(self, chance):
        """Change the description: some of what it says is something else, or not there."""
        told = copy.deepcopy(self._told)
        for _ in range(chance.choice((1, 1, 3))):
            inside = told
            while True:
                key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
                below = inside[key]
                if not isinstance(below, dict | list) or not below or chance.random() < 0.2:
                    break
                inside = below
            if chance.random() < 0.2:
                del inside[key]
            else:
                inside[key] = chance.choice(OTHERWISE)
            if not told:
                break
        text = json.dumps(told).encode()
        return self._bytes[: self._first - 4] + len(text).to_bytes(4, "little") + text + self._bytes[self._rest :]


def restore(path, is_new):
    """Put a file into a small table; whatever comes of it, nothing is broken, and all that is in it expires."""
    table = segment.anonymous(SMALL)
    table.seats, table.sources = Seats(), Sources(SMALL.connections)
    try:
        saved.restore_into(table, saved.read(path), is_new=is_new)
    except SavedError as error:
        return next((words for words in REFUSALS if words in str(error)), "refused otherwise")
    tables.assert_at_rest(table)
    settings = ZoneSettings(table)
    assert all(settings.of(zone) for zone in range(SMALL.zones_in_use))
    assert Policies(table).get()
    worker = tables.Participant(table, Kind.WORKER)
    worker.find(tables.keys(CONNECTIONS))
    sources.recount(table.views(0))
    for turn in range(1, 3):
        worker.sweep(saved.now_ms() + turn * (1 << 34))
        worker.run()
    assert int(tables.totals(table)["count"]) == 0, "connections are left when all have expired"
    tables.assert_at_rest(table)
    return "taken"


def world(seed, cases, tick):
    """Alter a file so many times: every other one gets a checksum that fits."""
    chance, came = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory(prefix="zonetrack-fuzz-") as directory:
        path, forged = save(directory), Path(directory) / "forged"
        forger = Forger(path)
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for case in range(cases):
                if case % 2:
                    forger.forge(chance, forged)
                    came[restore(forged, is_new=chance.random() < 0.7)] += 1
                    tick()
                    continue
                undo = alter(chance, file, size)
                file.flush()
                try:
                    take(path)
                except SavedError as error:
                    came[str(error).rpartition(": ")[2]] += 1
                else:
                    raise AssertionError("an altered file was taken")
                undo()
                tick()
            take(path)
        assert restore(path, is_new=True) == "taken"
    return ", ".join(f"{count} {what}" for what, count in sorted(came.items()))
