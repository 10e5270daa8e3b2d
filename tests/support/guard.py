"""Memory that ends where a page does, and behind it a page nobody may touch: a read too far kills the process."""

import ctypes
import mmap

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PROT_NONE = 0


class Guard:
    """Some pages, and the forbidden one behind them."""

    def __init__(self, size=16 * PAGE):
        self.size = size
        self._mapping = mmap.mmap(-1, size + PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        if _libc.mprotect(self._base + size, PAGE, _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data):
        """Return the address of ``data``, copied so that its last byte is the last before the forbidden page."""
        assert len(data) <= self.size
        address = self._base + self.size - len(data)
        ctypes.memmove(address, bytes(data), len(data))
        return address

    @property
    def end(self):
        """Address of the first forbidden byte."""
        return self._base + self.size
