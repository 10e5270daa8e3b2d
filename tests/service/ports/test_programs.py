"""Programs as the system takes them."""

import ctypes
import struct

from zonetrack.service.ports.programs import filter_program


def test_a_program_points_to_its_instructions():
    program, kept = filter_program([(0x06, 0, 0, 7), (0x15, 1, 2, 0xFFFFFFFF)])
    count, address = struct.unpack("H6xQ", program)
    assert (count, address) == (2, kept.ctypes.data)
    assert struct.unpack("HBBIHBBI", ctypes.string_at(address, 16)) == (6, 0, 0, 7, 0x15, 1, 2, 0xFFFFFFFF)
