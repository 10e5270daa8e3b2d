"""A frame, read from the outside in: is it fit to be tracked, and which connection does it belong to?

    links         frame -> IP header
    internet      IP header -> lengths, transport header (extensions for IPv6)
    transport     transport header -> ports, sequence numbers (icmp_types, quotes for ICMP)
    endpoints     addresses and ports -> key and direction

Each length is held once against what there is, where it is read.  A snapped packet is tracked when all was captured that
is asked of it: TCP options that were not are as good as absent.  What is wrong with a packet is its Reason; nothing here
reads beyond ``captured_bytes``.
"""

from __future__ import annotations

from ..shm.layout import KEY_WORDS, FrameFlag, PacketKind, Setting
from ..shm.reasons import Reason
from . import internet, links, memory, transport
from .endpoints import TCP, Order, write_key
from .jit import kernel
from .words import EIGHT, FOUR, LOW_8, ONE, ZERO, u64

_NONE = u64(Reason.NONE)
_CHECKSUM = u64(Setting.CHECKSUM)


@kernel
def _refuse(reason, kind, parsed):
    """Write a packet that goes no further; family, protocol and ip_bytes say what is known of it."""
    memory.seldom()
    for i in range(KEY_WORDS):
        parsed.key[i] = ZERO
        parsed.inner_key[i] = ZERO
    parsed.l4 = ZERO
    parsed.icmp_word = ZERO
    parsed.seq = ZERO
    parsed.ack = ZERO
    parsed.l4_bytes = ZERO
    parsed.payload_bytes = ZERO
    parsed.options_bytes = ZERO
    parsed.win = ZERO
    parsed.tcp_flags = ZERO
    parsed.reason = reason
    parsed.high_is_source = ZERO
    parsed.inner_high_is_source = ZERO
    parsed.kind = kind
    parsed.can_reply = ZERO


@kernel
def parse(frame, zone, settings, parsed):
    """Read a frame.

    Args:
        frame: FRAME; only its ``captured_bytes`` are read, wherever in memory they end.
        zone: u64, below 2**16; it becomes part of the key.
        settings: u64, how the zone is set: CHECKSUM says whether wrong checksums are refused, but not those of a frame
            that is CHECKSUM_TRUSTED.
        parsed: out, PARSED: every field from its beginning to ``can_reply``, but ``hash``.  With a reason other than
            NONE only reason, kind, family, protocol and ip_bytes say anything, the last three as far as they were read.
            The key of an ICMP error has its addresses only; what it is about is ``inner_key``.

    Concurrency:
        Touches nothing shared.

    Source:
        RFC 791, 8200, 9293 3.1, 768, 3828, 9260 3, 792, 4443; the rooms say which Linux function decided what is refused.
    """
    frame_start = u64(frame.address)
    captured = u64(frame.captured_bytes)
    wire = max(u64(frame.wire_bytes), captured)
    found = links.find(u64(frame.link), frame_start, captured)
    family = found & LOW_8
    skipped = found >> EIGHT
    parsed.family = family
    if family == ZERO:
        parsed.protocol = ZERO
        parsed.ip_bytes = ZERO
        _refuse(skipped, u64(PacketKind.FLOW), parsed)
        return
    start = frame_start + skipped
    wire -= skipped
    captured -= skipped
    check = settings & _CHECKSUM != ZERO and u64(frame.flags) & u64(FrameFlag.CHECKSUM_TRUSTED) == ZERO

    if family == FOUR:
        reason, header, ip_bytes, protocol, addresses, uncounted = internet.read_ipv4(start, captured, wire, check)
        captured -= header
        destination = start + internet.IPV4_DESTINATION
    else:
        reason, header, ip_bytes, protocol, addresses, uncounted = internet.read_ipv6(start, captured, wire, settings)
        captured -= min(captured, header)  # the last bytes of an extension header may be missing
        destination = start + internet.IPV6_DESTINATION
    parsed.protocol = protocol
    parsed.ip_bytes = ip_bytes - uncounted
    if reason != _NONE:
        _refuse(reason, u64(PacketKind.FLOW), parsed)
        return

    l4 = start + header
    l4_bytes = ip_bytes - header
    captured = min(captured, l4_bytes)
    parsed.l4 = l4
    parsed.l4_bytes = l4_bytes
    for i in range(KEY_WORDS):
        parsed.inner_key[i] = ZERO
    parsed.inner_high_is_source = ZERO
    if protocol == TCP:
        parsed.icmp_word = ZERO
        word = transport.read_tcp(l4, l4_bytes, captured, addresses, settings, check, parsed)
    else:
        word = transport.read_other(
            l4, l4_bytes, captured, addresses, family, protocol, zone, settings, check, destination, parsed
        )
    reason = transport.reason(word)
    if reason != _NONE:
        _refuse(reason, u64(parsed.kind), parsed)
        return

    src_port = transport.src_port(word)
    dst_port = transport.dst_port(word)
    if family == FOUR:
        src = memory.be32(start + internet.IPV4_SOURCE)
        dst = memory.be32(destination)
        order = write_key(ZERO, src, src_port, ZERO, dst, dst_port, zone, protocol, family, parsed.key)
    else:
        source = start + internet.IPV6_SOURCE
        src_high = memory.be64(source)
        src = memory.be64(source + EIGHT)
        dst_high = memory.be64(destination)
        dst = memory.be64(destination + EIGHT)
        order = write_key(src_high, src, src_port, dst_high, dst, dst_port, zone, protocol, family, parsed.key)
    parsed.reason = _NONE
    parsed.high_is_source = order & ONE
    parsed.can_reply = u64(order != u64(Order.EQUAL))
