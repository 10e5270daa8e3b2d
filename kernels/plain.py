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
from .jit import inlined
from .memory import mix
from .tcp_states import Flag
from .tcp_window import TIMESTAMP_ALONE, TIMESTAMP_ALONE_BYTES
from .tuples import FINAL, LAST, PARSED_KEY
from .words import EIGHT, FOUR, LOW_8, LOW_16, LOW_32, ONE, SIXTEEN, THIRTY_TWO, ZERO, u64

_FORTY_EIGHT = u64(48)
_LEAST = u64(54)
"""Ethernet, IPv4 and TCP without options."""
_TYPE, _IP, _LENGTH, _FRAGMENT, _ADDRESSES, _DESTINATION = u64(12), u64(14), u64(16), u64(20), u64(26), u64(30)
_PROTOCOL_TO_SOURCE, _PORTS, _ACK, _CHECKSUM, _OPTIONS = u64(22), u64(34), u64(42), u64(50), u64(54)
_IPV4_BYTES, _TCP_BYTES, _ETHERNET_BYTES = u64(20), u64(20), u64(14)
# as this machine, little-endian, loads them
_TYPE_MASK, _TYPE_WANTED = u64(0xFFFFFF), u64(0x450008)
_FRAGMENT_MASK, _FRAGMENT_WANTED = u64(0xFF00FF3F), u64(0x06000000)
_HEADER_SHIFT, _HEADER_MASK = u64(26), u64(0x3C)

_WORD_1, _WORD_2, _WORD_3 = (PARSED_KEY + u64(8 * i) for i in (1, 2, 3))
_HASH, _L4, _ICMP_WORD = offset(PARSED, "hash"), offset(PARSED, "l4"), offset(PARSED, "icmp_word")
_SEQ, _L4_BYTES, _IP_BYTES = offset(PARSED, "seq"), offset(PARSED, "l4_bytes"), offset(PARSED, "ip_bytes")
_WIN, _HIGH_IS_SOURCE = offset(PARSED, "win"), offset(PARSED, "high_is_source")


def _stand(first: u64, *fields: tuple[str, int]) -> bool:
    """Return whether fields stand where one store at ``first`` writes them: so many bytes behind it."""
    return all(offset(PARSED, name) == first + u64(behind) for name, behind in fields)


assert Reason.NONE == 0
assert _stand(_SEQ, ("ack", 4)) and _stand(_L4_BYTES, ("payload_bytes", 4)) and _stand(_IP_BYTES, ("options_bytes", 4))
assert _stand(_WIN, ("tcp_flags", 2), ("reason", 4), ("protocol", 6), ("family", 7))
assert _stand(_HIGH_IS_SOURCE, ("inner_high_is_source", 1), ("kind", 2), ("can_reply", 3), ("plain", 4))
_TCP_4 = (TCP << _FORTY_EIGHT) | (FOUR << u64(56))
_KIND = (u64(PacketKind.TCP) << SIXTEEN) | (ONE << u64(24))
_FLAGS_SHIFT = SIXTEEN

_ETHERNET = u64(Link.ETHERNET)
_CHECK, _OVS, _ADAPTIVE = u64(Setting.CHECKSUM), u64(Setting.OVS), u64(Setting.ADAPTIVE)
_TRUSTED = u64(FrameFlag.CHECKSUM_TRUSTED)
_FLAGS_THAT_MATTER = u64(Flag.FIN | Flag.SYN | Flag.RST | Flag.ACK)
_ONLY_ACK, _ONLY_SYN = u64(Flag.ACK), u64(Flag.SYN)
_SYN_OR_RST = u64(Flag.SYN | Flag.RST)
_SYN_ACK, _RST_ACK = u64(Flag.SYN | Flag.ACK), u64(Flag.RST | Flag.ACK)
_MATTERS_OR_URG = _FLAGS_THAT_MATTER | u64(Flag.URG)
"""No host sets URG with SYN and ACK, nor with RST."""
_SEQ_CHECK = u64(Setting.SEQ_CHECK)
_MORE = u64(Setting.HELPERS | Setting.ADAPTIVE | Setting.HALF_OPEN | Setting.SOURCES)
"""Where it is not all that a connection is made."""
_COMMIT = u64(FrameFlag.COMMIT)
FOLLOWS, ASKS, ANSWERS, RESETS, OPENS = ONE, u64(2), u64(4), u64(8), u64(16)
"""PARSED.plain: an ACK that tells nothing but its numbers; a SYN that may not make a connection; a SYN-ACK; a RST that
acknowledges something, where numbers are checked; a SYN that may make a connection, of which nobody wants more."""


@inlined
def _is_good(start, addresses, l4_bytes):
    """Return whether both checksums of such a frame, all of it captured, are right."""
    header = addresses + checksum.halves(memory.le64(start + _IP)) + memory.le32(start + _PROTOCOL_TO_SOURCE)
    segment = checksum.pseudo_header(addresses, TCP, l4_bytes)
    segment += checksum.halves(memory.le64(start + _PORTS)) + checksum.halves(memory.le64(start + _ACK))
    segment += memory.le32(start + _CHECKSUM)
    rest = l4_bytes - _TCP_BYTES
    if rest > EIGHT:
        segment += checksum.sum_bytes(start + _OPTIONS, rest)
    elif rest != ZERO:  # the last bytes of eight that end with the frame
        segment += checksum.halves(memory.le64(start + _OPTIONS + rest - EIGHT) >> ((EIGHT - rest) << u64(3)))
    # neither can be nothing but zeros: one has the version in it, the other the protocol
    return (header % LOW_16 == ZERO) & (segment % LOW_16 == ZERO)


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
        Whether it was; if not, nothing of PARSED was written.

    Source:
        RFC 791 3.1, 9293 3.1; what is done about it as in kernels/internet and kernels/transport.
    """
    secret = views.secret
    captured = u64(frame.captured_bytes)
    if (u64(frame.link) != _ETHERNET) | (captured < _LEAST) | (settings & _OVS != ZERO):
        return False
    start = u64(frame.address)
    differs = (memory.le64(start + _TYPE) & _TYPE_MASK) ^ _TYPE_WANTED
    differs |= (memory.le32(start + _FRAGMENT) & _FRAGMENT_MASK) ^ _FRAGMENT_WANTED
    ip_bytes = memory.be16(start + _LENGTH)
    last = memory.be64(start + _ACK)
    header = (last >> _HEADER_SHIFT) & _HEADER_MASK
    if (differs != ZERO) | (header < _TCP_BYTES) | (ip_bytes < header + _IPV4_BYTES):
        return False
    if captured < ip_bytes + _ETHERNET_BYTES:
        return False
    l4_bytes = ip_bytes - _IPV4_BYTES
    if settings & _CHECK != ZERO and u64(frame.flags) & _TRUSTED == ZERO:
        if not _is_good(start, checksum.halves(memory.le64(start + _ADDRESSES)), l4_bytes):
            return False

    addresses = memory.be64(start + _ADDRESSES)
    first = memory.be64(start + _PORTS)
    source = ((addresses >> THIRTY_TWO) << SIXTEEN) | (first >> _FORTY_EIGHT)
    destination = ((addresses & LOW_32) << SIXTEEN) | ((first >> THIRTY_TWO) & LOW_16)
    if source == destination:
        return False
    # the smaller (address, port) first, without branches: which it is is as good as random
    low, high = min(source, destination), max(source, destination)
    key_1, key_3 = low >> SIXTEEN, high >> SIXTEEN
    ports = ((low & LOW_16) << _FORTY_EIGHT) | ((high & LOW_16) << THIRTY_TWO)
    key_4 = ports | (zone << SIXTEEN) | (TCP << EIGHT) | FOUR
    key = at + PARSED_KEY
    memory.set_le64(key, ZERO)
    memory.set_le64(at + _WORD_1, key_1)
    memory.set_le64(at + _WORD_2, ZERO)
    memory.set_le64(at + _WORD_3, key_3)
    memory.set_le64(key + LAST, key_4)
    # as tuples.hash_key does it
    mixed = mix(mix(secret[0], key_1 ^ secret[1]) ^ secret[1], mix(secret[2], key_3 ^ secret[3]) ^ secret[3] ^ key_4)
    memory.set_le64(at + _HASH, mix(mixed ^ secret[0], FINAL ^ secret[2]))

    flags = (last >> _FLAGS_SHIFT) & LOW_8
    options = header - _TCP_BYTES
    tells_nothing = options == ZERO
    if options == TIMESTAMP_ALONE_BYTES:
        tells_nothing = memory.be32(start + _OPTIONS) == TIMESTAMP_ALONE
    matters = flags & _FLAGS_THAT_MATTER
    mark = FOLLOWS if tells_nothing & (matters == _ONLY_ACK) & (settings & _ADAPTIVE == ZERO) else ZERO
    mark |= ((settings >> u64(MAX_RETRANS_SHIFT)) & LOW_8) << EIGHT
    if matters & _SYN_OR_RST != ZERO:
        exactly = flags & _MATTERS_OR_URG
        if matters == _ONLY_SYN:
            mark = OPENS if settings & _MORE == ZERO else ZERO
            mark = ASKS if u64(frame.flags) & _COMMIT == ZERO else mark
        elif (exactly == _SYN_ACK) & (settings & _ADAPTIVE == ZERO):
            mark |= ANSWERS
        elif (exactly == _RST_ACK) & tells_nothing & (settings & (_ADAPTIVE | _SEQ_CHECK) == _SEQ_CHECK):
            mark |= RESETS
    if u64(frame.action) != ZERO:
        mark = ZERO
    memory.set_le64(at + _L4, start + _PORTS)
    memory.set_le64(at + _ICMP_WORD, ZERO)
    memory.set_le64(at + _SEQ, (first & LOW_32) | (last & ~LOW_32))
    memory.set_le64(at + _L4_BYTES, l4_bytes | ((l4_bytes - header) << THIRTY_TWO))
    memory.set_le64(at + _IP_BYTES, ip_bytes | (options << THIRTY_TWO))
    memory.set_le64(at + _WIN, (last & LOW_16) | (flags << SIXTEEN) | _TCP_4)
    memory.set_le64(at + _HIGH_IS_SOURCE, u64(source > destination) | _KIND | (mark << THIRTY_TWO))
    return True
