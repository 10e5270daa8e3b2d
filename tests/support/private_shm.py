"""A /dev/shm of one's own, as small as wanted, for the rest of a child process's life."""

import ctypes
import os

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_REC_PRIVATE = 0x4000 | 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def mount(options):
    """Mount a tmpfs with ``options`` on /dev/shm where only this process sees it; returns why it cannot, or None.

    The caller is a child process made for this: a mount namespace cannot be left again.
    """
    if _libc.unshare(_CLONE_NEWNS) and _libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER):
        return f"no mount namespace: {os.strerror(ctypes.get_errno())}"
    if _libc.mount(None, b"/", None, _MS_REC_PRIVATE, None):
        return f"cannot make mounts private: {os.strerror(ctypes.get_errno())}"
    if _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, options.encode()):
        return f"cannot mount a tmpfs: {os.strerror(ctypes.get_errno())}"
    return None
