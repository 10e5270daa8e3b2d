"""What a router does to a frame: a hop less to live, other Ethernet addresses; and what it says itself.

    route     TTL or hop limit less one, the addresses of the next hop; a packet that has no hop left, or is longer than the
              next link takes, becomes the ICMP error about it, for who sent it
    answer    who asks for an address of the router (ARP, neighbour solicitation), or pings it, gets his reply

A frame that becomes what is said back is written anew in its own place, or in one of its own where it stands in a device's
ring.  Nothing is said about ICMP errors, later fragments, and what does not come from one host (RFC 1122 3.2.2, RFC 4443
2.4).
"""

from __future__ import annotations

from ..shm.layout import FRAME, FRAME_BYTES, FRAME_SLOT_BYTES, HOP, POLL_BURST_PACKETS, FrameFlag, Link
from . import checksum, links, memory, tags
from .endpoints import ICMP, ICMPV6
from .jit import inlined, kernel
from .words import EIGHT, FOUR, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, TWO, ZERO, u64

frame_at = memory.record_at(FRAME)
hop_at = memory.record_at(HOP)

PASS, BACK, DROP = ZERO, ONE, TWO
"""What becomes of a frame: it goes on; it goes back to where it came from; nothing."""
_FRAME, _SLOT, _SPARE = u64(FRAME_BYTES), u64(FRAME_SLOT_BYTES), u64(POLL_BURST_PACKETS)
_KEPT = u64(0xFF & ~(FrameFlag.IN_PLACE | FrameFlag.CHECKSUM_PARTIAL))
_IN_PLACE = u64(FrameFlag.IN_PLACE)
_ETHERNET = u64(Link.ETHERNET)
_SIX, _SEVEN, _NINE, _TEN, _TWELVE, _FOURTEEN, _TWENTY = (u64(n) for n in (6, 7, 9, 10, 12, 14, 20))
_TWENTY_FOUR, _FORTY = u64(24), u64(40)
_ARP, _ARP_BYTES = u64(0x0806), u64(28)
_ARP_REQUEST_HEAD, _ARP_REPLY = u64(0x0001_0800_0604_0001), TWO
_LATER_FRAGMENT, _FRAGMENT, _DO_NOT_FRAGMENT = u64(0x1FFF), u64(0x3FFF), u64(0x4000)
_TTL = u64(64)
_HEAD_4 = u64(0x45C0)
_HEAD_6 = u64(0x6000_0000)
_QUOTED_4, _QUOTED_6 = u64(576 - 28), u64(1280 - 48)
_TIME_EXCEEDED_4, _TIME_EXCEEDED_6 = u64(11 << 8), u64(3 << 8)
_TOO_BIG_4, _TOO_BIG_6 = u64(3 << 8 | 4), u64(2 << 8)
_ECHO_4, _ECHO_REPLY_4, _ECHO_6, _ECHO_REPLY_6 = u64(8), u64(0), u64(128), u64(129)
_SOLICITATION, _ADVERTISEMENT, _ADVERTISEMENT_BYTES = u64(135), u64(136), u64(32)
_ROUTER_SOLICITED_OVERRIDE = u64(0xE000_0000)
_TARGET_ADDRESS = u64(0x0201)
_ALL_NODES = u64(0xFF02 << 48)
_QUERIES_4 = u64(sum(1 << kind for kind in (0, 8, 13, 14, 15, 16, 17, 18)))
_GROUP_4 = u64(224 << 24)
_LIMIT = u64(255)


# ------------------------------------------------------------------------------------------------ words of a frame
@inlined
def _set_mac(at, mac):
    memory.set_be16(at, mac >> THIRTY_TWO)
    memory.set_be32(at + TWO, mac & LOW_32)


@inlined
def _mac(at):
    return memory.be16(at) << THIRTY_TWO | memory.be32(at + TWO)


@inlined
def _turn(start, own):
    """Send a frame back to whoever sent it, from an Ethernet address."""
    _set_mac(start, _mac(start + _SIX))
    _set_mac(start + _SIX, own)


@inlined
def _change(at, before, after):
    """Mend the checksum at an address after a word that it covers has changed (RFC 1624 equation 3)."""
    total = (~memory.be16(at) & LOW_16) + (~before & LOW_16) + after
    total = (total & LOW_16) + (total >> SIXTEEN)
    total = (total & LOW_16) + (total >> SIXTEEN)
    memory.set_be16(at, ~total & LOW_16)


@inlined
def _swap(at, size):
    """Exchange two neighbours of some words of 32 bits."""
    for i in range(size):
        one, other = at + (u64(i) << TWO), at + ((u64(i) + size) << TWO)
        kept = memory.le32(one)
        memory.set_le32(one, memory.le32(other))
        memory.set_le32(other, kept)


@inlined
def _is_ours(hop, family, at):
    """Return whether the address that stands at ``at`` is the router's."""
    if u64(hop.family) != family:
        return False
    if family == FOUR:
        return memory.be32(at) == u64(hop.address[1])
    return memory.be64(at) == u64(hop.address[0]) and memory.be64(at + EIGHT) == u64(hop.address[1])


@inlined
def _write_ours(hop, family, at):
    if family == FOUR:
        memory.set_be32(at, u64(hop.address[1]))
    else:
        memory.set_be64(at, u64(hop.address[0]))
        memory.set_be64(at + EIGHT, u64(hop.address[1]))


@inlined
def _close_4(network):
    """Fill in the checksum of an IPv4 header without options."""
    memory.set_le16(network + _TEN, ZERO)
    memory.set_le16(network + _TEN, LOW_16 - checksum.sum_bytes(network, _TWENTY) % LOW_16)


@inlined
def _close_icmp(network, family, icmp, size):
    """Fill in the checksum of an ICMP message."""
    memory.set_le16(icmp + TWO, ZERO)
    total = checksum.sum_bytes(icmp, size)
    if family != FOUR:
        total = checksum.pseudo_header(total + checksum.sum_bytes(network + EIGHT, THIRTY_TWO), ICMPV6, size)
    memory.set_le16(icmp + TWO, LOW_16 - total % LOW_16)


@kernel
def _own_place(loop, i, head):
    """Move the first ``head`` bytes of frame ``i`` to where they can be followed by others; returns their address."""
    memory.seldom()
    frame = frame_at(loop.frames + i * _FRAME)
    to = loop.bytes + i * _SLOT
    if u64(frame.address) != to:
        memory.copy(to, u64(frame.address), head)
        frame.address = to
    frame.flags = u64(frame.flags) & _KEPT
    return to


# ------------------------------------------------------------------------------------------------ errors
@inlined
def _may_be_told(family, network, size):
    """Return whether an error about a packet may be sent to who sent it."""
    if family == FOUR:
        source = memory.be32(network + _TWELVE)
        if memory.be16(network + _SIX) & _LATER_FRAGMENT != ZERO or source == ZERO or source >= _GROUP_4:
            return False
        header = (memory.byte(network) & u64(0xF)) << TWO
        if memory.byte(network + _NINE) != ICMP or size <= header:
            return True
        kind = u64(memory.byte(network + header))
        return kind < _TWENTY_FOUR and (_QUERIES_4 >> kind) & ONE != ZERO
    source = u64(memory.byte(network + EIGHT))
    is_nobody = memory.be64(network + EIGHT) | memory.be64(network + SIXTEEN) == ZERO
    if source == LOW_8 or is_nobody:
        return False
    return memory.byte(network + _SIX) != ICMPV6 or size <= _FORTY or memory.byte(network + _FORTY) >= _ECHO_6


@kernel
def _tell(loop, i, hop, family, at, kind, word):
    """Make the ICMP error about frame ``i`` of it: its type and code, and the word behind them; returns BACK or DROP."""
    memory.seldom()
    frame = frame_at(loop.frames + i * _FRAME)
    source = u64(frame.address)
    network, size = source + at, u64(frame.captured_bytes) - at
    if u64(hop.family) != family or not _may_be_told(family, network, size):
        return DROP
    head = _TWENTY if family == FOUR else _FORTY
    quoted = min(size, _QUOTED_4 if family == FOUR else _QUOTED_6)
    spare = loop.bytes + _SPARE * _SLOT
    memory.copy(spare, network, quoted)
    start = _own_place(loop, i, at)
    network = start + at
    icmp = network + head
    memory.copy(icmp + EIGHT, spare, quoted)
    _turn(start, _mac(start))
    if family == FOUR:
        memory.set_be16(network, _HEAD_4)
        memory.set_be16(network + TWO, head + EIGHT + quoted)
        memory.set_be32(network + FOUR, ZERO)
        memory.set_be16(network + EIGHT, _TTL << EIGHT | ICMP)
        _write_ours(hop, family, network + _TWELVE)
        memory.copy(network + SIXTEEN, spare + _TWELVE, FOUR)
        _close_4(network)
    else:
        memory.set_be32(network, _HEAD_6)
        memory.set_be32(network + FOUR, (EIGHT + quoted) << SIXTEEN | ICMPV6 << EIGHT | _TTL)
        _write_ours(hop, family, network + EIGHT)
        memory.copy(network + _TWENTY_FOUR, spare + EIGHT, SIXTEEN)
    memory.set_be32(icmp, kind << SIXTEEN)
    memory.set_be32(icmp + FOUR, word)
    _close_icmp(network, family, icmp, EIGHT + quoted)
    frame.captured_bytes = at + head + EIGHT + quoted
    frame.wire_bytes = frame.captured_bytes
    return BACK


# ------------------------------------------------------------------------------------------------ on its way
@kernel
def route(loop, i, address):
    """Send frame ``i`` of the burst a hop on its way.

    Args:
        loop: POLL, whose burst it is.
        i: u64.
        address: of a HOP.

    Returns:
        PASS: it may be output; BACK: it is an error now, for where it came from; DROP.
    """
    memory.seldom()
    frame, hop = frame_at(loop.frames + i * _FRAME), hop_at(address)
    captured = u64(frame.captured_bytes)
    if u64(frame.link) != _ETHERNET:
        return DROP
    found = links.find(_ETHERNET, u64(frame.address), captured)
    family, at = found & LOW_8, found >> EIGHT
    start = u64(frame.address)
    network, size, mtu = start + at, captured - at, u64(hop.mtu)
    if family == FOUR and size >= _TWENTY:
        lives = u64(memory.byte(network + EIGHT))
        if lives <= ONE:
            return _tell(loop, i, hop, family, at, _TIME_EXCEEDED_4, ZERO)
        is_kept_whole = memory.be16(network + _SIX) & _DO_NOT_FRAGMENT != ZERO
        if mtu != ZERO and is_kept_whole and memory.be16(network + TWO) > mtu:
            return _tell(loop, i, hop, family, at, _TOO_BIG_4, mtu)
        before = memory.be16(network + EIGHT)
        memory.set_byte(network + EIGHT, lives - ONE)
        _change(network + _TEN, before, memory.be16(network + EIGHT))
    elif family == _SIX and size >= _FORTY:
        lives = u64(memory.byte(network + _SEVEN))
        if lives <= ONE:
            return _tell(loop, i, hop, family, at, _TIME_EXCEEDED_6, ZERO)
        if mtu != ZERO and memory.be16(network + FOUR) + _FORTY > mtu:
            return _tell(loop, i, hop, family, at, _TOO_BIG_6, mtu)
        memory.set_byte(network + _SEVEN, lives - ONE)
    else:
        return DROP
    _set_mac(start, u64(hop.destination))
    _set_mac(start + _SIX, u64(hop.source))
    return PASS


# ------------------------------------------------------------------------------------------------ for the router itself
@kernel
def _answer_arp(start, at, hop):
    memory.seldom()
    if memory.be64(start + at) != _ARP_REQUEST_HEAD or not _is_ours(hop, FOUR, start + at + _TWENTY_FOUR):
        return PASS
    _turn(start, u64(hop.source))
    memory.set_be16(start + at + _SIX, _ARP_REPLY)
    memory.copy(start + at + u64(18), start + at + EIGHT, _TEN)
    _set_mac(start + at + EIGHT, u64(hop.source))
    _write_ours(hop, FOUR, start + at + _FOURTEEN)
    return BACK


@kernel
def _answer_echo(start, network, family, icmp, hop):
    memory.seldom()
    before = memory.be16(icmp)
    memory.set_byte(icmp, _ECHO_REPLY_4 if family == FOUR else _ECHO_REPLY_6)
    _change(icmp + TWO, before, memory.be16(icmp))
    _turn(start, u64(hop.source))
    if family == FOUR:
        _swap(network + _TWELVE, ONE)
        before = memory.be16(network + EIGHT)
        memory.set_byte(network + EIGHT, _TTL)
        _change(network + _TEN, before, memory.be16(network + EIGHT))
    else:
        _swap(network + EIGHT, FOUR)
        memory.set_byte(network + _SEVEN, _TTL)
    return BACK


@kernel
def _answer_solicitation(loop, i, at, hop):
    memory.seldom()
    frame = frame_at(loop.frames + i * _FRAME)
    start = _own_place(loop, i, at + _FORTY + _TWENTY_FOUR)
    network = start + at
    icmp = network + _FORTY
    _turn(start, u64(hop.source))
    is_nobody = memory.be64(network + EIGHT) | memory.be64(network + SIXTEEN) == ZERO
    memory.copy(network + _TWENTY_FOUR, network + EIGHT, SIXTEEN)
    if is_nobody:  # who looks whether he may have the address tells none of his own
        memory.set_be64(network + _TWENTY_FOUR, _ALL_NODES)
        memory.set_be64(network + THIRTY_TWO, ONE)
    _write_ours(hop, _SIX, network + EIGHT)
    memory.set_be32(network + FOUR, _ADVERTISEMENT_BYTES << SIXTEEN | ICMPV6 << EIGHT | _LIMIT)
    memory.set_be32(icmp, _ADVERTISEMENT << _TWENTY_FOUR)
    memory.set_be32(icmp + FOUR, _ROUTER_SOLICITED_OVERRIDE)
    memory.set_be16(icmp + _TWENTY_FOUR, _TARGET_ADDRESS)
    _set_mac(icmp + _TWENTY_FOUR + TWO, u64(hop.source))
    _close_icmp(network, _SIX, icmp, _ADVERTISEMENT_BYTES)
    frame.captured_bytes = at + _FORTY + _ADVERTISEMENT_BYTES
    frame.wire_bytes = frame.captured_bytes
    return BACK


@kernel
def answer(loop, i, address):
    """Answer frame ``i`` of the burst, if it asks for an address of the router or pings it.

    Args:
        loop, i: as for `route`.
        address: of a HOP: the address, and whose it is on the wire.

    Returns:
        BACK: it is the answer now; PASS: it is another.
    """
    memory.seldom()
    frame, hop = frame_at(loop.frames + i * _FRAME), hop_at(address)
    start, captured = u64(frame.address), u64(frame.captured_bytes)
    if u64(frame.link) != _ETHERNET or captured < _FOURTEEN + _ARP_BYTES or captured < u64(frame.wire_bytes):
        return PASS
    kind, at = memory.be16(start + _TWELVE), _FOURTEEN
    if tags.is_tag(kind):
        kind, at = memory.be16(start + SIXTEEN), _FOURTEEN + tags.TAG_BYTES
    if kind == _ARP:
        return _answer_arp(start, at, hop) if captured >= at + _ARP_BYTES else PASS
    found = links.find(_ETHERNET, start, captured)
    family, at = found & LOW_8, found >> EIGHT
    network, size = start + at, captured - at
    if family == FOUR:
        header = (memory.byte(network) & u64(0xF)) << TWO
        if size < header + EIGHT or memory.byte(network + _NINE) != ICMP:
            return PASS
        if memory.be16(network + _SIX) & _FRAGMENT != ZERO or memory.byte(network + header) != _ECHO_4:
            return PASS
        return (
            _answer_echo(start, network, family, network + header, hop)
            if _is_ours(hop, FOUR, network + SIXTEEN)
            else PASS
        )
    if family != _SIX or size < _FORTY + EIGHT or memory.byte(network + _SIX) != ICMPV6:
        return PASS
    asked = u64(memory.byte(network + _FORTY))
    if asked == _ECHO_6 and _is_ours(hop, _SIX, network + _TWENTY_FOUR):
        return _answer_echo(start, network, family, network + _FORTY, hop)
    is_for_us = size >= _FORTY + _TWENTY_FOUR and _is_ours(hop, _SIX, network + _FORTY + EIGHT)
    if asked == _SOLICITATION and is_for_us and memory.byte(network + _SEVEN) == _LIMIT:
        return _answer_solicitation(loop, i, at, hop)
    return PASS
