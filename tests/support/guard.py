"""Memory that ends where a page does, and behind it a page nobody may touch: a read too far kills the process."""

import ctypes
import mmap

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_PROT_NONE = 0


class Guard:
    """Some pages, and the forbidden one behind them; or several such pieces, one behind the other."""

    def __init__(self, size=16 * PAGE, pairs=1):
        self.size = size
        step = size + PAGE
        self._mapping = mmap.mmap(-1, pairs * step)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        for pair in range(pairs):
            if _libc.mprotect(self.base + pair * step + size, PAGE, _PROT_NONE):
                raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, data):
        """Return the address of ``data``, copied so that its last byte is the last before the forbidden page."""
        assert len(data) <= self.size
        address = self.base + self.size - len(data)
        ctypes.memmove(address, bytes(data), len(data))
        return address

    @property
    def end(self):
        """Address of the first forbidden byte."""
        return self.base + self.size


def fence(table):
    """Forbid the page behind every region of a table that has no name: a kernel that reads past its end is killed."""
    for region, memory in table.regions.items():
        end = table.base[region] + memory.nbytes
        if _libc.mprotect(end, PAGE, _PROT_NONE):
            raise OSError(ctypes.get_errno(), f"mprotect behind {region.name}")
