"""The key of a connection: where its words lie, how they compare, and their keyed hash.

A key is five words (shm/layout, KEY_WORDS) in canonical order, so both directions of a connection have one key and one
hash.  The hash is keyed with four secret words of the table: without them nobody can aim keys at one bucket.

Source of the hash: Wang Yi, "wyhash", 2019: each step multiplies two words that secrets have been folded into and keeps
both halves of the product.
"""

from __future__ import annotations

from ..shm.layout import ENTRY, EXTENSION, KEY_WORDS, PARSED, offset
from . import memory
from .jit import inlined, kernel
from .memory import mix
from .words import LOW_8, LOW_16, SIXTEEN, ZERO, u64

ENTRY_KEY = offset(ENTRY, "key")
EXTENSION_KEY = offset(EXTENSION, "reply_key")
PARSED_KEY = offset(PARSED, "key")
PARSED_INNER_KEY = offset(PARSED, "inner_key")
LAST = u64(8 * (KEY_WORDS - 1))
"""Offset of the word that holds ports, zone, protocol and family; it is never 0 in a key."""
_WORD_1, _WORD_2, _WORD_3 = u64(8), u64(16), u64(24)
FINAL = u64(0x9E3779B97F4A7C15)


@inlined
def hash_ends(views, word_0, word_1, word_2, word_3):
    """Return what the addresses in a key have to do with its hash: of keys that differ in their last words, the same."""
    secret = views.secret
    return mix(word_0 ^ secret[0], word_1 ^ secret[1]), mix(word_2 ^ secret[2], word_3 ^ secret[3])


@inlined
def hash_last(views, low, high, last):
    """Return the hash of a key from what ``hash_ends`` returned and its last word."""
    secret = views.secret
    # the last word too goes through two products: after one, its top bits would move few bits of the hash
    return mix(mix(low ^ secret[1], high ^ secret[3] ^ last) ^ secret[0], FINAL ^ secret[2])


@inlined
def hash_with(views, key, last):
    """Return the hash of the key at address ``key`` with another last word; strong in all 64 bits."""
    low, high = hash_ends(
        views,
        memory.read64(key),
        memory.read64(key + _WORD_1),
        memory.read64(key + _WORD_2),
        memory.read64(key + _WORD_3),
    )
    return hash_last(views, low, high, last)


@inlined
def hash_key(views, key):
    """Return the hash of the key at address ``key``."""
    return hash_with(views, key, memory.read64(key + LAST))


@inlined
def equal(a, b):
    """Return whether the keys at two addresses are the same."""
    differences = memory.read64(a) ^ memory.read64(b)
    differences |= memory.read64(a + _WORD_1) ^ memory.read64(b + _WORD_1)
    differences |= memory.read64(a + _WORD_2) ^ memory.read64(b + _WORD_2)
    differences |= memory.read64(a + _WORD_3) ^ memory.read64(b + _WORD_3)
    differences |= memory.read64(a + LAST) ^ memory.read64(b + LAST)
    return differences == ZERO  # one branch, for those that are compared are nearly always equal


@kernel
def copy_key(destination, source):
    """Write the key at ``source`` into a record that is not yet published."""
    for i in range(KEY_WORDS):
        step = u64(8 * i)
        memory.write64(destination + step, memory.read64(source + step))


@inlined
def zone_of(key):
    """Return the zone in the key at address ``key``."""
    return (memory.read64(key + LAST) >> SIXTEEN) & LOW_16


@inlined
def set_zone(key, zone):
    """Put another zone into the key at address ``key``, which nobody else sees."""
    memory.write64(key + LAST, (memory.read64(key + LAST) & ~(LOW_16 << SIXTEEN)) | (zone << SIXTEEN))


@inlined
def protocol_of(key):
    """Return the protocol in the key at address ``key``."""
    return (memory.read64(key + LAST) >> u64(8)) & LOW_8
