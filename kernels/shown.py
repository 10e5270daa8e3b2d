"""A connection as it leaves the table: the CONNECTION of an ENTRY, for dumps and events."""

from __future__ import annotations

from ..shm.layout import CONNECTION, ENTRY, Status, offset
from . import entries, memory, ovs_tcp, tcp_window, tuples
from .endpoints import TCP
from .jit import inlined, kernel
from .words import LOW_8, LOW_16, LOW_32, SIXTEEN, THIRTY_TWO, ZERO, u64

LABEL = offset(CONNECTION, "label")
KEY_LAST = tuples.ENTRY_KEY + tuples.LAST

_KEY_HIGH = SIXTEEN
_SECOND_WORD = u64(8)
_LOW_PORT_SHIFT = u64(48)
_SRC, _DST = offset(CONNECTION, "src"), offset(CONNECTION, "dst")
_REPLY_SRC, _REPLY_DST = offset(CONNECTION, "reply_src"), offset(CONNECTION, "reply_dst")
_PACKETS, _WAYS_BYTES = offset(CONNECTION, "packets"), THIRTY_TWO
_SCALES = offset(CONNECTION, "scales")
_PROTOCOL = offset(ENTRY, "protocol")
_ENTRY_PACKETS = offset(ENTRY, "packets")
_ORIG_IS_HIGH, _REPLIER_IS_HIGH = u64(Status.ORIG_IS_HIGH), u64(Status.REPLIER_IS_HIGH)
_SIDES = _ORIG_IS_HIGH | _REPLIER_IS_HIGH | u64(Status.SOURCE_COUNTED)
"""What tuples say, and CONNECTION.status does not."""
_OVS = u64(Status.OVS)
assert offset(CONNECTION, "peer_flags") == _SCALES + 2 and CONNECTION.itemsize == _SCALES + 8
assert offset(CONNECTION, "bytes") - _PACKETS == offset(ENTRY, "bytes") - _ENTRY_PACKETS == SIXTEEN

connection_at = memory.record_at(CONNECTION)


@inlined
def opener_is_high(entry):
    """Return whether the second endpoint of an entry's key opened the connection."""
    return u64(entries.entry_at(entry).status) & _ORIG_IS_HIGH != ZERO


@inlined
def addresses(key, source_is_high):
    """Return where the source's address and the destination's stand in a key."""
    if source_is_high:
        return key + _KEY_HIGH, key
    return key, key + _KEY_HIGH


@inlined
def ports(key, source_is_high):
    """Return the source's port << 16 | the destination's."""
    last = memory.read64(key + tuples.LAST)
    low, high = last >> _LOW_PORT_SHIFT, (last >> THIRTY_TWO) & LOW_16
    if source_is_high:
        return (high << SIXTEEN) | low
    return (low << SIXTEEN) | high


@inlined
def _copy_address(out, entry):
    """Write two words of a key in network order."""
    memory.set_be64(out, memory.read64(entry))
    memory.set_be64(out + _SECOND_WORD, memory.read64(entry + _SECOND_WORD))


@kernel
def _describe_peers(entry, out):
    """Write what is known of the windows of both sides of a TCP connection; the record's lock is held."""
    memory.apart()
    is_ovs = u64(entries.entry_at(entry).status) & _OVS != ZERO
    scales, flags = ZERO, ZERO
    for i in range(2):
        way = u64(i)
        shift = u64(8 * i)
        if is_ovs:
            scale = u64(ovs_tcp.peer_at(ovs_tcp.peer_address(entry + _PROTOCOL, way)).scale)
            scales |= (scale & ovs_tcp.SHIFT) << shift
            flags |= (tcp_window.SCALES if scale & ovs_tcp.OFFERED != ZERO else ZERO) << shift
            flags |= (tcp_window.LIBERAL if scale & ovs_tcp.UNKNOWN != ZERO else ZERO) << shift
        else:
            peer = tcp_window.peer_at(tcp_window.peer_address(entry + _PROTOCOL, way))
            scales |= u64(peer.scale) << shift
            flags |= u64(peer.flags) << shift
    memory.set_le64(out + _SCALES, scales | (flags << SIXTEEN))


@inlined
def _replies(entry, second):
    """Return the key that replies have, and whether who replies is its second endpoint."""
    status = u64(entries.entry_at(entry).status)
    if second == ZERO:
        return entry + tuples.ENTRY_KEY, status & _ORIG_IS_HIGH == ZERO
    return second, status & _REPLIER_IS_HIGH != ZERO


@inlined
def replies(views, entry):
    """Return the key that the replies to a connection have, and whether who replies is its second endpoint.

    Of a connection that is not translated, or to its own tuple, that is its own key.
    """
    return _replies(entry, entries.second_key(views, entry))


@kernel
def connection(record, entry, second, life, now_ms, wall_offset_ms, out):
    """Write a CONNECTION but for its helper and label, which are 0.

    Args:
        record: u64, its index.
        entry: u64, address of the ENTRY, whose lock is held, or of a copy.
        second: u64, address of its reply key, 0 when it has one key for both directions.
        life: u64, life word.
        now_ms: u64, the moment from which the timeout counts.
        wall_offset_ms: u64, wall clock minus ``now_ms``.
        out: u64, address of the CONNECTION.
    """
    e, c = entries.entry_at(entry), connection_at(out)
    c.id = (entries.incarnation_of(life) << THIRTY_TWO) | record
    c.parent = e.parent
    memory.copy(out + _PACKETS, entry + _ENTRY_PACKETS, _WAYS_BYTES)
    c.start_ms = u64(e.created_ms) + wall_offset_ms
    key, by_high = entry + tuples.ENTRY_KEY, opener_is_high(entry)
    src, dst = addresses(key, by_high)
    _copy_address(out + _SRC, src)
    _copy_address(out + _DST, dst)
    reply_key, replier_is_high = _replies(entry, second)
    src, dst = addresses(reply_key, replier_is_high)
    _copy_address(out + _REPLY_SRC, src)
    _copy_address(out + _REPLY_DST, dst)
    expiry_ms = memory.read64(entry + entries.EXPIRY)
    c.timeout_ms = min(expiry_ms - now_ms, LOW_32) if expiry_ms > now_ms else ZERO
    c.mark = e.mark
    both, last = ports(key, by_high), memory.read64(entry + KEY_LAST)
    c.sport, c.dport = both >> SIXTEEN, both & LOW_16
    both = ports(reply_key, replier_is_high)
    c.reply_sport, c.reply_dport = both >> SIXTEEN, both & LOW_16
    c.zone = (last >> SIXTEEN) & LOW_16
    c.status = u64(e.status) & ~_SIDES
    c.protocol, c.family = (last >> u64(8)) & LOW_8, last & LOW_8
    c.state = e.state
    if u64(c.protocol) == TCP:
        _describe_peers(entry, out)
    else:
        memory.set_le64(out + _SCALES, ZERO)
    c.helper = ZERO
    memory.set_bytes(out + LABEL, ZERO, SIXTEEN)
