"""The frame that most frames are, read in a few wide loads: TCP in IPv4 in Ethernet, without options or fragments of IPv4.

    bytes 12..19    EtherType 0800, version 4 and length 20, type of service, IP length, identification
    bytes 20..27    fragment, time to live, protocol 6, checksum, source
    bytes 26..33    source and destination
    bytes 34..41    ports, sequence number
    bytes 42..49    acknowledgment, header length, flags, window

What is read is what kernels/packet finds in such a frame, field by field; a frame that is anything else, or that anything
is wrong with, is left to it.  So there is no Reason here, and nothing that kernels/packet would refuse is accepted.  The
fields that are about ICMP's quoted packet are not written: no segment has any.

What some of these segments do kernels/predicted and openings may foretell, so they are marked as *plain*: one whose only
flag that matters is ACK, and whose options tell the tracker nothing; a SYN, by whether it may make a connection; a SYN-ACK;
a RST that acknowledges something.
"""

from __future__ import annotations

from ..shm.layout import MAX_RETRANS_SHIFT, PARSED, FrameFlag, Link, PacketKind, Setting, offset
from ..shm.reasons import Reason
from . import checksum, memory
from .endpoints import TCP
from .jit import inlined, kernel
from .memory import mix
from .tcp_states import Flag
from .tcp_window import TIMESTAMP_ALONE, TIMESTAMP_ALONE_BYTES
from .tuples import FINAL, LAST, PARSED_KEY
from .words import EIGHT, FOUR, LOW_8, LOW_32, ONE, SIXTEEN, SIXTY_THREE, THIRTY_TWO, TWO, ZERO, u64

_LEAST = u64(54)
"""Ethernet, IPv4 and TCP without options."""
_TYPE, _IP, _LENGTH, _ADDRESSES = u64(12), u64(14), u64(16), u64(26)
_PROTOCOL_TO_SOURCE, _PORTS, _ACK, _CHECKSUM, _OPTIONS = u64(22), u64(34), u64(42), u64(50), u64(54)
_IPV4_BYTES, _TCP_BYTES, _ETHERNET_BYTES = u64(20), u64(20), u64(14)
# bytes 12..19 and 20..27 as this machine, little-endian, loads them
_TYPE_MASK, _TYPE_WANTED = u64(0xFFFFFF), u64(0x450008)
_FRAGMENT_MASK, _FRAGMENT_WANTED = u64(0xFF00FF3F), u64(0x06000000)
_HEADER_SHIFT, _HEADER_MASK = u64(26), u64(0x3C)
_FLAGS_AND_WIN = u64(0xFFFFFF)

_WORD_1, _WORD_2, _WORD_3 = (PARSED_KEY + u64(8 * i) for i in (1, 2, 3))
_HASH, _L4, _ICMP_WORD = (offset(PARSED, name) for name in ("hash", "l4", "icmp_word"))
_SEQ, _ACK_NUMBER, _L4_BYTES = (offset(PARSED, name) for name in ("seq", "ack", "l4_bytes"))
_PAYLOAD_BYTES, _IP_BYTES, _OPTIONS_BYTES = (offset(PARSED, f"{name}_bytes") for name in ("payload", "ip", "options"))
_WIN, _REASON = offset(PARSED, "win"), offset(PARSED, "reason")
_HIGH_IS_SOURCE, _PLAIN = offset(PARSED, "high_is_source"), offset(PARSED, "plain")


def _stand(first: u64, *fields: tuple[str, int]) -> bool:
    """Return whether fields stand where one store at ``first`` writes them: so many bytes behind it."""
    return all(offset(PARSED, name) == first + u64(behind) for name, behind in fields)


assert Reason.NONE == 0
assert _stand(_WIN, ("tcp_flags", 2)) and _stand(_REASON, ("protocol", 2), ("family", 3))
assert _stand(_HIGH_IS_SOURCE, ("inner_high_is_source", 1), ("kind", 2), ("can_reply", 3))
assert _stand(_PLAIN, ("found", 2))
_NONE_TCP_4 = (TCP << SIXTEEN) | (FOUR << u64(24))
_KIND = (u64(PacketKind.TCP) << SIXTEEN) | (ONE << u64(24))
_FLAGS_SHIFT = SIXTEEN
_LAST_OF_KEY = (TCP << EIGHT) | FOUR

_ETHERNET = u64(Link.ETHERNET)
_CHECK, _OVS, _ADAPTIVE = u64(Setting.CHECKSUM), u64(Setting.OVS), u64(Setting.ADAPTIVE)
_TRUSTED = u64(FrameFlag.CHECKSUM_TRUSTED)
_FLAGS_THAT_MATTER = u64(Flag.FIN | Flag.SYN | Flag.RST | Flag.ACK)
_ONLY_ACK, _ONLY_SYN = u64(Flag.ACK), u64(Flag.SYN)
_SYN_ACK, _RST_ACK = u64(Flag.SYN | Flag.ACK), u64(Flag.RST | Flag.ACK)
_MATTERS_OR_URG = _FLAGS_THAT_MATTER | u64(Flag.URG)
"""No host sets URG with SYN and ACK, nor with RST."""
_SEQ_CHECK = u64(Setting.SEQ_CHECK)
_RETRANSMISSIONS_MAX = LOW_8 << u64(MAX_RETRANS_SHIFT)
_MORE = u64(Setting.HELPERS | Setting.ADAPTIVE | Setting.HALF_OPEN | Setting.SOURCES)
"""Where it is not all that a connection is made."""
_COMMIT = u64(FrameFlag.COMMIT)
FOLLOWS, ASKS, ANSWERS, RESETS, OPENS = ONE, u64(2), u64(4), u64(8), u64(16)
"""PARSED.plain: an ACK that tells nothing but its numbers; a SYN that may not make a connection; a SYN-ACK; a RST that
acknowledges something, where numbers are checked; a SYN that may make a connection, of which nobody wants more."""


@inlined
def _are_good(start, l4_bytes):
    """Return whether both checksums of such a frame, all of it captured, are right."""
    addresses, rest = memory.le64(start + _ADDRESSES), l4_bytes - _TCP_BYTES
    if rest > EIGHT:
        tail = checksum.sum_bytes(start + _OPTIONS, rest)
    else:  # the last bytes of eight that end with the frame; by halves, for 64 would be too far for one shift
        half = (EIGHT - rest) << TWO
        tail = (memory.le64(start + _OPTIONS + rest - EIGHT) >> half) >> half
    header = memory.add_carrying_3(memory.le64(start + _IP), addresses, memory.le32(start + _PROTOCOL_TO_SOURCE))
    pseudo = checksum.pseudo_header(memory.le32(start + _CHECKSUM), TCP, l4_bytes)
    segment = memory.add_carrying_5(addresses, memory.le64(start + _PORTS), memory.le64(start + _ACK), tail, pseudo)
    # neither can be nothing but zeros: one has the version in it, the other the protocol
    return checksum.is_zero(header) & checksum.is_zero(segment)


@kernel
def _mark(start, flags, options, settings, frame_flags):
    """Return what openings may foretell of a segment that is no mere ACK, and predicted of a SYN."""
    memory.apart()
    matters, exactly = flags & _FLAGS_THAT_MATTER, flags & _MATTERS_OR_URG
    if matters == _ONLY_SYN:
        if frame_flags & _COMMIT == ZERO:
            return ASKS
        return OPENS if settings & _MORE == ZERO else ZERO
    if settings & _ADAPTIVE != ZERO:
        return ZERO
    if exactly == _SYN_ACK:
        return ANSWERS
    tells_nothing = options == ZERO
    if options == TIMESTAMP_ALONE_BYTES:
        tells_nothing = memory.be32(start + _OPTIONS) == TIMESTAMP_ALONE
    return RESETS if tells_nothing and exactly == _RST_ACK and settings & _SEQ_CHECK != ZERO else ZERO


@inlined
def read(views, frame, zone, settings, at):
    """Read a frame, if it is such a one.

    Args:
        views: record of shm.views.
        frame: FRAME; one with an ``action`` is not plain, for there is more to do.
        zone: u64, below 2**16; it becomes part of the key.
        settings: u64, how the zone is set.
        at: u64, address of its PARSED, out: every field that `packet.parse` writes but for ``inner_key``, with ``hash``
            and ``plain``.

    Returns:
        Whether it was; if not, PARSED may have been written in part, and `packet.parse` writes all of it.

    Source:
        RFC 791 3.1, 9293 3.1; what is done about it as in kernels/internet and kernels/transport.
    """
    captured = u64(frame.captured_bytes)
    if (u64(frame.link) != _ETHERNET) | (captured < _LEAST) | (settings & _OVS != ZERO):
        return False
    start = u64(frame.address)
    if memory.differs_16(start + _TYPE, _TYPE_MASK, _FRAGMENT_MASK, _TYPE_WANTED, _FRAGMENT_WANTED):
        return False
    ip_bytes = memory.be16(start + _LENGTH)
    last = memory.be64(start + _ACK)
    l4_bytes = ip_bytes - _IPV4_BYTES
    options = ((last >> _HEADER_SHIFT) & _HEADER_MASK) - _TCP_BYTES
    payload = l4_bytes - _TCP_BYTES - options
    if (options | payload | (captured - _ETHERNET_BYTES - ip_bytes)) >> SIXTY_THREE != ZERO:
        return False  # one of them is less than nothing
    # at once, as long as they are in registers
    memory.set_le32(at + _L4_BYTES, l4_bytes)
    memory.set_le32(at + _PAYLOAD_BYTES, payload)
    memory.set_le32(at + _IP_BYTES, ip_bytes)
    memory.set_le32(at + _OPTIONS_BYTES, options)
    memory.set_le32(at + _ACK_NUMBER, last >> THIRTY_TWO)
    memory.set_le32(at + _WIN, last & _FLAGS_AND_WIN)
    memory.set_le32(at + _REASON, _NONE_TCP_4)
    memory.set_le64(at + _L4, start + _PORTS)
    memory.set_le64(at + _ICMP_WORD, ZERO)
    flags = (last >> _FLAGS_SHIFT) & LOW_8
    mark, other = FOLLOWS, ((flags & _FLAGS_THAT_MATTER) ^ _ONLY_ACK) | (settings & _ADAPTIVE)
    other |= u64(settings & _RETRANSMISSIONS_MAX == ZERO)  # each segment is then one too many
    if other | options != ZERO:
        if other != ZERO or options != TIMESTAMP_ALONE_BYTES or memory.be32(start + _OPTIONS) != TIMESTAMP_ALONE:
            mark = _mark(start, flags, options, settings, u64(frame.flags))
    memory.set_le32(at + _PLAIN, mark if u64(frame.action) == ZERO else ZERO)
    if settings & _CHECK != ZERO and u64(frame.flags) & _TRUSTED == ZERO:
        if not _are_good(start, l4_bytes):
            return False

    addresses, first = memory.be64(start + _ADDRESSES), memory.be64(start + _PORTS)
    memory.set_le32(at + _SEQ, first)
    source, destination = addresses >> THIRTY_TWO, addresses & LOW_32
    if source == destination:
        return False  # ports would decide which is the smaller
    # the smaller address first, without branches: which it is is as good as random
    from_high = u64(source > destination)
    memory.set_le32(at + _HIGH_IS_SOURCE, from_high | _KIND)
    ports = ((first & ~LOW_32) | (first >> THIRTY_TWO)) >> (from_high << FOUR)
    key_1, key_3 = min(source, destination), max(source, destination)
    key_4 = (ports << THIRTY_TWO) | (zone << SIXTEEN) | _LAST_OF_KEY
    key = at + PARSED_KEY
    memory.set_le64(key, ZERO)
    memory.set_le64(at + _WORD_1, key_1)
    memory.set_le64(at + _WORD_2, ZERO)
    memory.set_le64(at + _WORD_3, key_3)
    memory.set_le64(key + LAST, key_4)
    # as tuples.hash_key does it
    secret = views.secret
    mixed = mix(mix(secret[0], key_1 ^ secret[1]) ^ secret[1], mix(secret[2], key_3 ^ secret[3]) ^ secret[3] ^ key_4)
    memory.set_le64(at + _HASH, mix(mixed ^ secret[0], FINAL ^ secret[2]))
    return True
