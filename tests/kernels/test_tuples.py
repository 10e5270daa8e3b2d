"""A key's words, and the hash: as its twin in numpy computes it, different under each secret, every bit in all bits."""

import numpy as np
import operations
import pytest
import tables
from hashing import hash_keys, multiply_high
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import tuples
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import KEY_WORDS, VIEWS

WORD = st.integers(0, 2**64 - 1)
KEY = st.lists(WORD, min_size=KEY_WORDS, max_size=KEY_WORDS)
timeless = settings(deadline=None)
"""The first example compiles."""


@kernel
def hash_all(views, keys, count, out):
    for i in range(count):
        out[i] = tuples.hash_key(views, keys + u64(40 * i))


@kernel
def look(a, b, out):
    out[0] = u64(1) if tuples.equal(a, b) else u64(0)
    out[1] = tuples.zone_of(a)
    out[2] = tuples.protocol_of(a)
    tuples.copy_key(b, a)


def views_with(secret):
    """Return views with no table, whose secret is of 32 bytes."""
    views = np.zeros(1, VIEWS).view(np.recarray)[0]
    views["secret"] = np.frombuffer(secret, "u8")
    return views


def hashed(keys, secret=tables.SECRET):
    """Return what the kernel makes of keys, u64[n]."""
    keys = np.ascontiguousarray(keys, "u8").reshape(-1, KEY_WORDS)
    out = np.zeros(len(keys), "u8")
    hash_all(views_with(secret), operations.at(keys), u64(len(keys)), out)
    return out


def looked_at(a, b):
    """Return whether two keys are equal, the zone and protocol of the first, and what copying it over the second gave."""
    a, b, out = np.array(a, "u8"), np.array(b, "u8"), np.zeros(3, "u8")
    look(operations.at(a), operations.at(b), out)
    return bool(out[0]), int(out[1]), int(out[2]), b.tolist()


# ------------------------------------------------------------------------------------------------ words
@timeless
@given(KEY, st.integers(0, KEY_WORDS - 1), st.integers(0, 63))
def test_keys_are_equal_if_every_bit_is(key, word, bit):
    assert looked_at(key, key)[0]
    other = list(key)
    other[word] ^= 1 << bit
    assert not looked_at(key, other)[0]
    assert looked_at(key, other)[3] == key


@pytest.mark.parametrize("zone", [0, 1, 0x1234, 0xFFFF])
@pytest.mark.parametrize("protocol", [0, 6, 17, 255])
def test_zone_and_protocol_are_read_from_between_ports_and_family(zone, protocol):
    key = operations.key(1, 2, 0xFFFF, 0xFFFF, zone, protocol)
    assert looked_at(key, key)[1:3] == (zone, protocol)


@kernel
def _set_zone(key, zone):
    tuples.set_zone(key, zone)


@pytest.mark.parametrize("zone", [0, 1, 0x1234, 0xFFFF])
def test_a_key_in_another_zone_is_the_same_but_for_the_zone(zone):
    key = np.array(operations.key(1, 2, 0xFFFF, 0x8001, 0xABCD, 255), "u8")
    _set_zone(np.uint64(key.ctypes.data), np.uint64(zone))
    assert key.tolist() == [int(word) for word in operations.key(1, 2, 0xFFFF, 0x8001, zone, 255)]


# ------------------------------------------------------------------------------------------------ hash
@timeless
@given(st.lists(KEY, min_size=1, max_size=20), st.binary(min_size=32, max_size=32))
def test_hash_is_as_its_twin_says(keys, secret):
    assert hashed(keys, secret).tolist() == hash_keys(secret, np.array(keys, "u8")).tolist()


@given(WORD, WORD)
def test_the_twins_product_is_right(a, b):
    assert int(multiply_high(np.array([a], "u8"), np.array([b], "u8"))[0]) == a * b >> 64


def test_hash_is_keyed():
    keys = tables.keys(100)
    first = hashed(keys)
    assert hashed(keys).tolist() == first.tolist()
    for bit in range(0, 256, 5):
        other = (int.from_bytes(tables.SECRET, "little") ^ 1 << bit).to_bytes(32, "little")
        assert not (hashed(keys, other) == first).any(), bit


def test_equal_keys_of_two_zones_hash_apart():
    there, elsewhere = hashed(tables.keys(100, zone=1)), hashed(tables.keys(100, zone=2))
    assert len({*there.tolist(), *elsewhere.tolist()}) == 200


def test_a_host_that_talks_to_itself_is_hashed_like_any_other():
    keys = tables.keys(200)
    keys[:, 1] = keys[:, 3]  # equal addresses would cancel out in a hash that only adds
    assert len(set(hashed(keys).tolist())) == 200


def test_every_bit_of_the_key_flips_about_half_of_the_hash():
    samples = 200 if JIT else 40
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 2**64, (samples, KEY_WORDS), "u8")
    before = hash_keys(tables.SECRET, keys)
    flips = np.zeros((64 * KEY_WORDS, 64))
    for bit in range(64 * KEY_WORDS):
        flipped = keys.copy()
        flipped[:, bit // 64] ^= np.uint64(1 << bit % 64)
        changed = hashed(flipped) ^ before
        flips[bit] = [np.count_nonzero(changed >> np.uint64(out) & np.uint64(1)) for out in range(64)]
    chance = flips / samples
    assert abs(chance.mean() - 0.5) < 0.01
    assert abs(chance.mean(axis=1) - 0.5).max() < 0.1  # each bit of the key
    assert abs(chance.mean(axis=0) - 0.5).max() < 0.1  # each bit of the hash
    six_deviations = 6 * 0.5 / samples**0.5
    assert abs(chance - 0.5).max() < six_deviations  # each upon each


def test_neighbouring_addresses_and_ports_fill_all_lines_evenly():
    count = 20_000
    keys = tables.keys(count)
    keys[:, 4] |= (np.arange(count, dtype="u8") % 64) << np.uint64(48)
    hashes = hash_keys(tables.SECRET, keys)
    for field in (hashes & np.uint64(15), hashes >> np.uint64(60)):
        counts = np.bincount(field.astype("i8"), minlength=16)
        chi_square = ((counts - count / 16) ** 2 / (count / 16)).sum()
        assert chi_square < 56  # 15 degrees of freedom: one in a million
