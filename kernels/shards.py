"""Whose packet it is, when several workers share the packets of a capture: that is settled by the pair of addresses.

Both directions of a connection and the errors about it, which quote it, go to one worker; so what the workers say
together does not depend on how many they are.  Addresses, not ports: a fragment has none.  As long as fragments are
refused unread the parser gives them no key, and all of them go to the same worker.
"""

from __future__ import annotations

from ..shm.layout import PacketKind, Setting
from . import memory, packet
from .jit import inlined, kernel
from .words import u64

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
    if u64(parsed.kind) == u64(PacketKind.ICMP_ERROR):
        return _of_pair(parsed.inner_key, shards)
    return _of_pair(parsed.key, shards)
