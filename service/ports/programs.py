"""Programs of classic BPF as the system takes them: struct sock_fprog."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, k."""


def filter_program(instructions: Iterable[Instruction]) -> tuple[bytes, np.ndarray]:
    """Return a struct sock_fprog, and the memory that it points to, to be kept as long as it is used."""
    packed = [struct.pack("HBBI", *one) for one in instructions]
    code = np.frombuffer(b"".join(packed), "u1").copy()
    return struct.pack("HxxxxxxQ", len(packed), code.ctypes.data), code
