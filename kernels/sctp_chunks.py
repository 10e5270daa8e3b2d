"""The chunks of an SCTP packet: do they stand in a row as they must, and which are there?

    netfilter   at least one; INIT, INIT ACK and SHUTDOWN COMPLETE alone; COOKIE ECHO and COOKIE ACK first
    ovs         none goes beyond the packet

In both a chunk of less than its own header is refused, for a walk over it would never end.  Padding at the end may be
absent, and a chunk that the capture cut off ends the walk.  What each chunk does is for kernels/sctp to say.
"""

from __future__ import annotations

from ..shm.layout import Setting
from ..shm.reasons import Reason
from . import memory
from .jit import inlined, kernel
from .sctp_states import Chunk, chunk_of
from .words import EIGHT, FOUR, ONE, THREE, TWO, ZERO, u64

CHUNKS_MAX = 16_384
"""As many as an IP packet of 64 KiB has room for."""
HEADER_BYTES = u64(12)
"""The common header, before the first chunk (RFC 9260 3.1)."""

_INIT_BYTES = u64(20)
_OVS = u64(Setting.OVS)


def bits(*chunks: Chunk) -> int:
    """Return a bit for each of ``chunks``, as PARSED.tcp_flags has them."""
    return sum(1 << chunk for chunk in chunks)


_ALONE = u64(bits(Chunk.INIT, Chunk.INIT_ACK, Chunk.SHUTDOWN_COMPLETE))
_FIRST = u64(bits(Chunk.COOKIE_ECHO, Chunk.COOKIE_ACK))
_INITS = u64(bits(Chunk.INIT, Chunk.INIT_ACK))


@inlined
def after(chunk):
    """Return the address behind the chunk at an address, and the padding that follows it (RFC 9260 3.2)."""
    return chunk + ((memory.be16(chunk + TWO) + THREE) & ~THREE)


@kernel
def read(l4, l4_bytes, captured, settings, parsed):
    """Walk over the chunks of a packet.

    Args:
        l4: u64, address of the common header.
        l4_bytes: u64, size of the packet, HEADER_BYTES or more.
        captured: u64, how many of them are readable, HEADER_BYTES or more.
        settings: u64, how the zone is set: the profile says what is refused.
        parsed: out, PARSED: tcp_flags, a bit for each Chunk that there is; ack, the tag that an INIT or INIT ACK announces.

    Returns:
        Reason: NONE, SCTP_CHUNK, or TRUNCATED when not even the first chunk was captured.

    Source:
        RFC 9260 6.10 for what may be bundled; Linux's do_basic_checks, which takes chunks of 1 to 3 bytes, however.
    """
    memory.apart()
    netfilter = settings & _OVS == ZERO
    found = ZERO
    at = HEADER_BYTES
    for _ in range(CHUNKS_MAX):
        if at + FOUR > l4_bytes:
            break
        if at + FOUR > captured:
            if found == ZERO:
                return u64(Reason.TRUNCATED)
            break
        length = memory.be16(l4 + at + TWO)
        if length < FOUR:
            return u64(Reason.SCTP_CHUNK)
        bit = ONE << chunk_of(memory.byte(l4 + at))
        if netfilter:
            if found != ZERO and (bit & (_ALONE | _FIRST) != ZERO or found & _ALONE != ZERO):
                return u64(Reason.SCTP_CHUNK)
            if bit & _INITS != ZERO and l4_bytes < at + _INIT_BYTES:
                return u64(Reason.SCTP_CHUNK)
        elif length > l4_bytes - at:
            return u64(Reason.SCTP_CHUNK)
        if bit & _INITS != ZERO:
            if captured >= at + EIGHT:
                parsed.ack = memory.be32(l4 + at + FOUR)
            elif netfilter:
                return u64(Reason.TRUNCATED)
        found |= bit
        at += (length + THREE) & ~THREE
    parsed.tcp_flags = found
    if netfilter and found == ZERO:
        return u64(Reason.SCTP_CHUNK)
    return u64(Reason.NONE)
