"""Two and three workers on one tiny table, thousands of seeds: whatever the order, every answer is explained."""

import functools

import datagrams
import numpy as np
import pytest
import tables
import tiny

from .plays import Play, mixed

WORKERS = 3


def stage(**sizes):
    """Return a new table with three participants that have records at hand."""
    made = tiny.Stage(WORKERS, **sizes)
    for participant in made.participants:
        keys = tiny.aimed(1, pair=7, skip=participant.me)
        participant.made(keys, None, tiny.LATER)
        participant.remove(keys)
    return made


def trio(choices, length=4):
    """Return what makes a program for each of two or three workers."""
    return lambda rng: [mixed(rng, choices, length) for _ in range(rng.choice((2, 3)))]


def on_keys(keys, *operations):
    """Return each operation with each key."""
    return [(operation, key) for operation in operations for key in range(keys)]


@functools.cache
def roomy():
    """Four keys of one pair of lines, two present, plenty of room."""
    return Play(stage(), tiny.aimed(4), before=(0, 1))


@functools.cache
def brimming():
    """A pair of lines with one slot left: the second insert splits the segment and doubles the directory."""
    made = stage()
    made.participants[0].made(np.concatenate([tiny.aimed(6, prefix="0"), tiny.aimed(6, prefix="1")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="0", skip=6), tiny.aimed(3, prefix="1", skip=6)])
    return Play(made, keys, before=(0, 1, 3))


@functools.cache
def lopsided():
    """A directory of four entries, two of which name the segment that is about to split: its split is a plain one."""
    made = stage()
    maker = made.participants[0]
    maker.made(tiny.aimed(12, prefix="00", pair=1), None, tiny.LATER)
    maker.made(tiny.aimed(5, prefix="01", pair=1), None, tiny.LATER)  # 17 of one pair: 0 splits twice
    assert tables.depth_of(made.table, 0) == 2
    directory = tables.directory_of(made.table, 0)
    assert directory[2] == directory[3] != directory[0] != directory[1]
    maker.made(np.concatenate([tiny.aimed(6, prefix="10"), tiny.aimed(6, prefix="11")]), None, tiny.LATER)
    keys = np.concatenate([tiny.aimed(3, prefix="10", skip=6), tiny.aimed(3, prefix="11", skip=6)])
    return Play(made, keys, before=(0, 1, 3))


@functools.cache
def two_keys():
    """Connections with two keys in two segments; an opener of one is the reply of another."""
    made = stage(extension_share=1000)
    maker = made.participants[0]
    maker.made(np.concatenate([tiny.aimed(9, prefix="0", pair=1), tiny.aimed(8, prefix="1", pair=1)]), None, tiny.LATER)
    assert tables.depth_of(made.table, 0) == 1
    keys = np.concatenate([tiny.aimed(3, prefix="0"), tiny.aimed(3, prefix="1")])
    return Play(made, keys, before=(0,), replies={0: 3, 1: 4, 4: 2, 5: 1})


@functools.cache
def two_zones():
    """Two zones; the segment that a flush gives back is the next that anybody takes."""
    made = stage()
    keys = np.concatenate([tiny.aimed(3), tiny.aimed(2, zone=1)])
    made.participants[0].made(tiny.aimed(1, pair=6), None, tiny.LATER)
    hint = tables.directory_of(made.table, 0)[0] - 1
    for participant in made.participants:
        participant.place["segment_hint"] = hint
    return Play(made, keys, before=(0, 1))


@functools.cache
def ageing():
    """Connections of which some have expired."""
    return Play(stage(), tiny.aimed(4), before=(0, 1, 2), expired=(0, 1))


@functools.cache
def limited():
    """Room for one connection more."""
    return Play(stage(), tiny.aimed(4), before=(0, 1), limit=3)


BURSTS = ((0, 4), (4, 4, 5), (1, 2, 1), (3, 5, 3, 4), (2, 2))
LOOKS = ("find", "refresh")
CHANGES = ("make", "remove", "mark")
LIST = [("run_list",)]
PAIRED = [("make", 0), ("make", 1), ("make", 4), ("make", 5)]
PAIRED += [(what, key) for what in ("remove", "mark") for key in (0, 2, 3, 5)]  # keys that one connection only may have


@pytest.mark.parametrize("weak", [True, False], ids=["weak", "strong"])
def test_find_insert_delete(weak):
    happened = roomy().run_seeds(600, trio(on_keys(4, *LOOKS, *CHANGES) + LIST), weak=weak)
    assert happened >= {"ADOPTED", "BUSY", "missed", "record"}


def test_split_doubles():
    happened = brimming().run_seeds(500, trio(on_keys(6, "find", *CHANGES, "make") + LIST))
    assert happened >= {"SPLIT", "ADOPTED"}


def test_split_plain():
    happened = lopsided().run_seeds(400, trio(on_keys(6, "find", *CHANGES, "make") + LIST))
    assert happened >= {"SPLIT", "ADOPTED"}


def test_two_keys():
    happened = two_keys().run_seeds(400, trio(PAIRED + on_keys(6, "find") + LIST))
    assert happened >= {"ADOPTED", "CLASH"}


def test_flush():
    happened = brimming().run_seeds(300, trio(on_keys(6, "find", *CHANGES) + 6 * [("flush",)] + LIST, 3))
    assert happened >= {"FLUSHED", "MAYBE_NOT_FOUND", "detached", "empty"}


def test_flush_two_keys():
    happened = two_keys().run_seeds(200, trio(PAIRED + on_keys(6, "find") + 6 * [("flush",)] + LIST, 3))
    assert happened >= {"FLUSHED", "CLASH"}


def test_flush_and_reuse():
    choices = on_keys(5, "find", "make", "make", "remove") + 4 * [("flush", 0)] + 2 * [("flush", 1)] + LIST
    happened = two_zones().run_seeds(300, trio(choices))
    assert happened >= {"FLUSHED", "MAYBE_NOT_FOUND"}


def test_sweep():
    choices = on_keys(4, "find", "refresh", "make", "mark") + 8 * [("sweep",)] + LIST
    happened = ageing().run_seeds(120, trio(choices, 3))
    assert happened >= {"SWEPT"}


def test_credit():
    choices = [("make", 2, 3), ("make", 3, 2, 0), ("make", 1, 3), *on_keys(4, "remove", "mark"), *LIST]
    happened = roomy().run_seeds(300, trio(choices))
    assert happened >= {"ADOPTED"}


def test_limit():
    choices = [("make", 2, 3), ("make", 3, 2, 0), *on_keys(4, "make", "remove", "mark"), *LIST]
    happened = limited().run_seeds(300, trio(choices))
    assert happened >= {"FULL", "ZONE_FULL", "made"}


def test_bursts():
    packets = [("burst", *((key, commit) for key in keys)) for keys in BURSTS for commit in (False, True)]
    mixed_up = [("burst", (4, True), (4, False)), ("burst", (2, False), (2, True), (2, False))]
    choices = packets + 3 * mixed_up + on_keys(6, "mark", "make") + [("flush",)] + LIST
    happened = brimming().run_seeds(300, trio(choices, 3))
    assert happened >= {"HIT", "MISS", "ADOPTED"}


def test_reopen():
    """Segments of connections that were reset: a SYN deletes the record and makes another."""
    play = Play(stage(), tiny.aimed(3, protocol=datagrams.TCP))
    opened = [(key, *how) for key in (0, 1) for how in (("S",), ("SA", True), ("A",))]
    play.prepare(lambda worker: worker.segments(*opened))
    choices = [
        ("segments", (key, *how)) for key in (0, 1, 2) for how in (("S",), ("S",), ("RA",), ("A",), ("SA", True))
    ]
    choices += [("segments", (0, "RA"), (0, "S"), (1, "S")), *on_keys(3, "mark"), ("flush",), *LIST]
    happened = play.run_seeds(300, trio(choices))
    assert happened >= {"HIT", "INSERT", "REMOVE", "ADOPTED"}
