"""Features of an interface by the names that ethtool(8) has for them, and frames that wait to be joined by it."""

import ctypes
import fcntl
import socket
import struct
import subprocess

import pytest

SIOCETHTOOL = 0x8946
STRINGS_INFO, STRINGS, SET = 0x37, 0x1B, 0x3B
FEATURES = 4
NAME_BYTES = 32


def _ask(name, request):
    block = ctypes.create_string_buffer(request, len(request))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", name.encode(), ctypes.addressof(block)))
    return block.raw


def switch_on(name, feature):
    """Switch a feature of an interface on; the test is skipped where the system does not know it."""
    count = struct.unpack_from("I", _ask(name, struct.pack("IIQ8x", STRINGS_INFO, 0, 1 << FEATURES)), 16)[0]
    told = _ask(name, struct.pack("III", STRINGS, FEATURES, count) + bytes(NAME_BYTES * count))[12:]
    known = [told[at : at + NAME_BYTES].rstrip(b"\0").decode() for at in range(0, len(told), NAME_BYTES)]
    if feature not in known:
        pytest.skip(f"this system has no {feature}")
    word, bit = divmod(known.index(feature), 32)
    blocks = bytearray(8 * -(-count // 32))
    struct.pack_into("II", blocks, 8 * word, 1 << bit, 1 << bit)
    _ask(name, struct.pack("II", SET, len(blocks) // 8) + blocks)


def have_frames_wait(name):
    """Have an interface of this network namespace keep a frame for a moment, for others that may be joined to it."""
    tells = f"/sys/class/net/{name}"
    says = f"echo 20000000 > {tells}/gro_flush_timeout && echo 100 > {tells}/napi_defer_hard_irqs"
    done = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t sysfs none /sys && {says}"], check=False)
    if done.returncode:
        pytest.skip("what an interface may wait cannot be set here")
