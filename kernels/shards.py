"""Whose packet it is, when several workers share the packets of a capture: that is settled by the pair of addresses.

Both directions of a connection and the errors about it, which quote it, go to one worker; so what the workers say
together does not depend on how many they are.  Addresses, not ports: a fragment has none, and the fragments of a datagram
meet in one worker too.
"""

from __future__ import annotations

from ..shm.layout import PacketKind, Setting
from ..shm.reasons import Reason
from . import internet, links, memory, packet
from .endpoints import write_key
from .jit import inlined, kernel
from .words import EIGHT, FOUR, ZERO, u64

_SIX = u64(6)
# wyhash's secrets: odd, with as many ones as zeros
_MIX_0 = u64(0xA0761D6478BD642F)
_MIX_1 = u64(0xE7037ED1A0B428DB)
_MIX_2 = u64(0x8EBC6AF09C88C6E3)


@inlined
def _of_pair(key, shards):
    """Return the shard of the two addresses of a key; they stand in order, so either direction gives the same."""
    mixed = memory.mix(u64(key[0]) ^ _MIX_0, u64(key[1]) ^ _MIX_1)
    mixed = memory.mix(mixed ^ u64(key[2]) ^ _MIX_2, u64(key[3]) ^ _MIX_0)
    return memory.multiply_high(mixed, shards)


@kernel
def _key_of_fragment(frame, parsed):
    """Write the addresses of a fragment, to which the parser gives no key."""
    memory.seldom()
    found = links.find(u64(frame.link), u64(frame.address), u64(frame.captured_bytes))
    ip = u64(frame.address) + (found >> EIGHT)
    if u64(parsed.family) == FOUR:
        src, dst = memory.be32(ip + internet.IPV4_SOURCE), memory.be32(ip + internet.IPV4_DESTINATION)
        write_key(ZERO, src, ZERO, ZERO, dst, ZERO, ZERO, ZERO, FOUR, parsed.key)
        return
    source, destination = ip + internet.IPV6_SOURCE, ip + internet.IPV6_DESTINATION
    src_high, src = memory.be64(source), memory.be64(source + EIGHT)
    dst_high, dst = memory.be64(destination), memory.be64(destination + EIGHT)
    write_key(src_high, src, ZERO, dst_high, dst, ZERO, ZERO, ZERO, _SIX, parsed.key)


@kernel
def shard_of(frame, settings, parsed, shards):
    """Return which of ``shards`` workers tracks a packet.

    Args:
        frame: FRAME.
        settings: u64, how its zone is set; checksums are not verified in any case.
        parsed: PARSED, out.
        shards: how many workers there are.

    Returns:
        u64 below ``shards``. What has no readable addresses can go to any worker, for it touches no connection.
    """
    packet.parse(frame, u64(frame.zone), settings & ~u64(Setting.CHECKSUM), parsed)
    if u64(parsed.reason) == u64(Reason.FRAGMENT):
        _key_of_fragment(frame, parsed)
    elif u64(parsed.kind) == u64(PacketKind.ICMP_ERROR):
        return _of_pair(parsed.inner_key, shards)
    return _of_pair(parsed.key, shards)
