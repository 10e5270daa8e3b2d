"""TFTP: the answer to a request comes from a port that the server chooses (RFC 1350 4).

The `netfilter` profile looks for a read or a write request; the `ovs` profile takes every packet for one.
"""

from __future__ import annotations

from ..shm.layout import Foretold, Status
from . import entries, foretold, memory
from .endpoints import UDP
from .jit import kernel
from .words import ONE, TWO, ZERO, u64

_READ, _WRITE = ONE, TWO
_DATA = u64(Foretold.DATA)
_OVS = u64(Status.OVS)


@kernel
def read(views, entry, begin, end):
    """Read a datagram of a client to port 69, or of whoever answers from there.

    Args:
        entry: address of the ENTRY.
        begin, end: addresses of the payload, as far as it was captured.

    Returns:
        What foretold describes.
    """
    if u64(entries.entry_at(entry).status) & _OVS == ZERO:
        if end < begin + TWO:
            return foretold.NOTHING
        opcode = memory.be16(begin)
        if opcode != _READ and opcode != _WRITE:
            return foretold.NOTHING
    foretold.to_sender(views, ZERO, entry, ZERO, UDP, foretold.sender_port(views, entry, ZERO), _DATA)
    foretold.move(views, ZERO, foretold.known_port(views, entry, ZERO))
    return foretold.ONE_FORETOLD
