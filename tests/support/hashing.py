"""The keyed hash once more, in numpy over many keys at once: what kernels are compared with, and how keys are aimed."""

import numpy as np

LOW_32 = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def multiply_high(a, b):
    """Return the upper 64 bits of products of u64 arrays, by halves (Knuth, TAOCP 2, 4.3.1, algorithm M)."""
    a_low, a_high, b_low, b_high = a & LOW_32, a >> HALF, b & LOW_32, b >> HALF
    middle = a_high * b_low + (a_low * b_low >> HALF)
    carried = (middle & LOW_32) + a_low * b_high
    return a_high * b_high + (middle >> HALF) + (carried >> HALF)


def _mix(a, b):
    return (a * b) ^ multiply_high(a, b)


def hash_keys(secret, keys):
    """Return the hash of each key, u64[n], of keys u64[n, 5], under a secret of 32 bytes."""
    a, b, c, d = np.frombuffer(secret, "u8")
    words = np.ascontiguousarray(keys, "u8").reshape(-1, 5).T
    final = np.full(words.shape[1], 0x9E3779B97F4A7C15, "u8")
    low, high = _mix(words[0] ^ a, words[1] ^ b), _mix(words[2] ^ c, words[3] ^ d)
    return _mix(_mix(low ^ b, high ^ d ^ words[4]) ^ a, final ^ c)
