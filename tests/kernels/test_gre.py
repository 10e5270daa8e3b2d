"""Where PPTP's call is, and what has none."""

import struct

import numpy as np
import pytest
from guard import Guard
from zonetrack.kernels import gre
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64


@kernel
def _call_id(l4, size):
    return gre.is_known(l4, size), gre.call_id(l4, size)


def call(data, size=None):
    array = np.frombuffer(data.ljust(8, b"\0"), np.uint8)
    known, found = _call_id(u64(array.ctypes.data), u64(len(data) if size is None else size))
    return bool(known), int(found)


@pytest.mark.parametrize("flags", [0x2001, 0x3001, 0x3081, 0x0001])
def test_pptp(flags):
    assert call(struct.pack("!HHHH", flags, 0x880B, 9, 0xABCD)) == (True, 0xABCD)
    assert call(struct.pack("!HHHH", flags, 0x880B, 9, 0xABCD), 5000) == (True, 0xABCD)
    assert call(struct.pack("!HHHH", flags, 0x0800, 9, 0xABCD))[0] is False


@pytest.mark.parametrize("version", [0, 2, 3, 4, 5, 6, 7])
def test_another_version_has_no_call(version):
    for protocol in (0x880B, 0x0800):
        assert call(struct.pack("!HHHH", 0x2000 | version, protocol, 9, 0xABCD)) == (True, 0)


def test_what_is_too_short_has_none():
    guard = Guard()
    data = struct.pack("!HHHH", 0x3001, 0x0800, 9, 0xABCD)
    for size in range(8):
        known, found = _call_id(u64(guard.place(data[:size])), u64(size))
        assert (bool(known), int(found)) == (True, 0)
