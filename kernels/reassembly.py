"""Fragments in a burst: each waits for the rest of its datagram, and the one that makes it whole is tracked in its stead.

    admit      a packet that the parser did not like; a fragment is kept, refused, or makes a datagram whole: then that is
               put together in private memory and parsed anew, in the place of the fragment
    send_on    a datagram that was translated: its fragments get its addresses, and what was changed of its data
    decide     after the burst: what became of such datagrams is said to all who hold fragments of them

The datagram is one packet: counted once, with the bytes that it would have had.  Bytes that a capture has cut off are zeros,
and its checksums are not verified then.

Concurrency: the store is locked in ``admit`` and in ``decide``, not in between, where records and segments are.  Who dies
there leaves a datagram that repair refuses.

Source:
    RFC 791 3.2, RFC 8200 4.5: how a datagram is put together.
"""

from __future__ import annotations

from ..shm.layout import (
    BURST_PACKETS_MAX,
    DATAGRAM_BYTES_MAX,
    FRAGMENTS_MAX,
    FRAME,
    POLICY_SHIFT,
    REASSEMBLY,
    VERDICT_BYTES,
    Assembly,
    FrameFlag,
    Link,
    Setting,
    StoreFlag,
    VerdictFlag,
    Wait,
    offset,
)
from ..shm.reasons import Reason
from . import (
    checksum,
    counters,
    extensions,
    fragment_rules,
    fragments,
    internet,
    late,
    links,
    memory,
    packet,
    rewrite,
    stages,
    timeouts,
    zones,
)
from .endpoints import ICMPV6, TCP, UDP
from .fragment_rules import Fit
from .jit import inlined, kernel
from .stages import frame_of, parsed_of
from .timeouts import Timeout
from .verdicts import no_record, refuse
from .words import EIGHT, FOUR, LOW_16, ONE, SEVEN, SIXTEEN, THIRTY_TWO, THREE, TWO, ZERO, u64

scratch_at = memory.record_at(REASSEMBLY)
frame_at = memory.record_at(FRAME)

_FRAME, _KEY = offset(REASSEMBLY, "frame"), offset(REASSEMBLY, "key")
_BYTES, _WHOLE = offset(REASSEMBLY, "bytes"), offset(REASSEMBLY, "whole")
_VERDICT = u64(VERDICT_BYTES)
_NONE = u64(Reason.NONE)
_SIX, _TEN, _TWELVE = u64(6), u64(10), u64(12)
_IPV6_BYTES, _LONGEST = extensions.IPV6_BYTES, u64(DATAGRAM_BYTES_MAX)
_MORE = u64(0x2000)
_OFFSET = u64(0x1FFF)
_FRAGMENT_HEADER, _AUTHENTICATION = u64(44), u64(51)
_FRAGMENT_WORD = u64(0xFFF9)
_DECIDED = u64(0xFFFFFFFF)
_WHOLE_MAX = u64(BURST_PACKETS_MAX)
_OVS = u64(Setting.OVS)
_TCP_BYTES = u64(20)


# ------------------------------------------------------------------------------------------------ what a fragment is
@kernel
def find_header(ip):
    """Find the fragment header of an IPv6 packet that the parser has seen to have one.

    Args:
        ip: u64, address of the IPv6 header.

    Returns:
        Offset of the fragment header, and of the byte that names it.
    """
    named = _SIX
    at = _IPV6_BYTES
    for _ in range(extensions.HEADERS_MAX):
        kind = memory.byte(ip + named)
        units = memory.byte(ip + at + ONE)
        size = (units + ONE) << THREE
        if kind == _FRAGMENT_HEADER:
            if memory.be16(ip + at + TWO) & _FRAGMENT_WORD != ZERO:
                break
            size = EIGHT  # an atomic one
        elif kind == _AUTHENTICATION:
            size = (units + TWO) << TWO
        named = at
        at += size
    return at, named


@kernel
def _read(views, frame, parsed):
    """Read the headers of a fragment, and write the key of its datagram.

    Returns:
        Address of the IP header, bytes of headers before the data, offset of the data, and whether there are more.
    """
    found = links.find(u64(frame.link), u64(frame.address), u64(frame.captured_bytes))
    ip = u64(frame.address) + (found >> EIGHT)
    key = scratch_at(views.scratch).key
    about = (u64(frame.zone) << SIXTEEN) | u64(parsed.family)
    if u64(parsed.family) == FOUR:
        header = (memory.byte(ip) & u64(15)) << TWO
        word = memory.be16(ip + _SIX)
        key[0] = ZERO
        key[1] = memory.be32(ip + internet.IPV4_SOURCE)
        key[2] = ZERO
        key[3] = memory.be32(ip + internet.IPV4_DESTINATION)
        key[4] = (memory.be16(ip + FOUR) << THIRTY_TWO) | about | (u64(parsed.protocol) << EIGHT)
        return ip, header, (word & _OFFSET) << THREE, u64(word & _MORE != ZERO)
    at, _ = find_header(ip)
    word = memory.be16(ip + at + TWO)
    for i in range(FOUR):
        key[i] = memory.be64(ip + internet.IPV6_SOURCE + (u64(i) << THREE))
    key[4] = (memory.be32(ip + at + FOUR) << THIRTY_TWO) | about
    return ip, at + EIGHT, word & extensions.FRAGMENT_OFFSET, word & ONE


@inlined
def _lifetime_ms(views, settings, family):
    """Return how long a datagram may be incomplete."""
    timeout = u64(Timeout.FRAGMENT) if family == FOUR else u64(Timeout.FRAGMENT6)
    if settings & _OVS != ZERO:
        timeout |= u64(timeouts.OVS)
    return timeouts.length_ms(views, settings >> u64(POLICY_SHIFT), timeout)


@kernel
def _refused_unseen(views, parsed, more, size, captured, settings):
    """Return why a fragment is refused whatever its datagram is, NONE when it may be kept."""
    store = fragments.store_at(views.store)
    is_four = u64(parsed.family) == FOUR
    if settings & _OVS != ZERO and more != ZERO:
        least = u64(store.bytes_min) if is_four else u64(store.bytes6_min)
        if size < least:
            counters.count(views, Reason.FRAGMENTS_TOO_SMALL)
            return u64(Reason.FRAGMENT_TOO_SMALL)
    if u64(store.flags) & u64(StoreFlag.IPV4 if is_four else StoreFlag.IPV6) == ZERO:
        return u64(Reason.FRAGMENT)
    if captured > fragments.BUFFER:
        return u64(Reason.FRAGMENT_TOO_LARGE)
    return _NONE


@kernel
def _lacks_headers(ip, ip_bytes, captured):
    """Return whether the first fragment of an IPv6 datagram ends before its transport header does (RFC 7112 5)."""
    chain = extensions.walk(ip, ip_bytes, captured, ZERO)
    if extensions.reason(chain) != _NONE:
        return False  # that is another fault, and found when the datagram is whole
    protocol = extensions.protocol(chain)
    least = ONE
    if protocol == TCP:
        least = _TCP_BYTES
    elif protocol == UDP or protocol == ICMPV6:
        least = EIGHT
    return ip_bytes < extensions.header_bytes(chain) + least


# ------------------------------------------------------------------------------------------------ under the lock
@kernel
def _open(views, settings, family, now_ms):
    """Return the datagram + 1 of the key in the scratch, made if there is none; 0 when it cannot be."""
    key = views.scratch + _KEY
    found = fragments.find(views, key)
    if found != ZERO:
        fields = fragments.datagram_at(fragments.datagram(views, found - ONE))
        if u64(fields.expiry_ms) > now_ms:
            return found
        patient_until_ms = now_ms + u64(fragments.store_at(views.store).purge_ms)
        fragments.refuse_all(views, found - ONE, u64(Reason.FRAGMENT_EXPIRED), patient_until_ms)
    expiry_ms = fragments.NEVER
    if settings & u64(Setting.NO_EXPIRY) == ZERO:
        expiry_ms = now_ms + _lifetime_ms(views, settings, family)
    return fragments.new_datagram(views, key, expiry_ms, u64(settings & _OVS != ZERO))


@kernel
def _keep(views, frame, ip, header, at, size, expiry_ms):
    """Return a fragment of ours + 1 with a copy of its frame; 0 when there is none."""
    found = fragments.new_fragment(views)
    if found != ZERO:
        fields = fragments.fragment_at(fragments.fragment(views, found - ONE))
        captured = u64(frame.captured_bytes)
        fields.ticket = frame.ticket
        fields.offset = at
        fields.bytes = size
        fields.ip = ip - u64(frame.address)
        fields.header = header
        fields.captured = captured
        fields.purge_ms = fragments.NEVER
        if expiry_ms != fragments.NEVER:
            fields.purge_ms = expiry_ms + u64(fragments.store_at(views.store).purge_ms)
        memory.copy(fragments.buffer(views, found - ONE), u64(frame.address), captured)
    return found


@kernel
def _place(views, frame, parsed, ip, header, at, more, settings, now_ms):
    """Put a fragment into its datagram.

    Returns:
        Reason, the fragment + 1, and the datagram + 1 if it has become whole; of a fragment that is refused only the reason.
    """
    family = u64(parsed.family)
    size = u64(parsed.ip_bytes) - header
    if settings & _OVS == ZERO and family == FOUR and more != ZERO:
        size &= ~SEVEN  # what is over is not looked at, as Linux does it
    if now_ms >= fragments.due_ms(views):
        late.expire(views, now_ms)
    if fragments.count(views) >= u64(fragments.store_at(views.store).count_max):
        return u64(Reason.FRAGMENTS_FULL), ZERO, ZERO
    opened = _open(views, settings, family, now_ms)
    if opened == ZERO:
        return u64(Reason.FRAGMENTS_FULL), ZERO, ZERO
    number = opened - ONE
    fields = fragments.datagram_at(fragments.datagram(views, number))
    if u64(fields.state) == u64(Assembly.FAILED):
        return u64(Reason.FRAGMENT_TOO_LARGE), ZERO, ZERO
    outcome = fragment_rules.fit(views, number, at, size, more, family)
    if fragment_rules.fit_of(outcome) != u64(Fit.KEEP):
        reason = fragment_rules.reason_of(outcome)
        if reason == u64(Reason.FRAGMENT_OVERLAP):
            counters.count(views, Reason.FRAGMENTS_OVERLAPPED)
        if fragment_rules.fit_of(outcome) == u64(Fit.END) or u64(fields.first) == ZERO:
            fragments.refuse_all(views, number, reason, ZERO)
        return reason, ZERO, ZERO
    kept = _keep(views, frame, ip, header, at, size, u64(fields.expiry_ms))
    if kept == ZERO:
        return u64(Reason.FRAGMENTS_FULL), ZERO, ZERO
    counters.count(views, Reason.FRAGMENTS_ACCEPTED)
    fragment_rules.insert(views, number, kept - ONE, outcome)
    return _NONE, kept, (opened if fragment_rules.is_whole(views, number) else ZERO)


# ------------------------------------------------------------------------------------------------ a whole datagram
@kernel
def _copy_data(views, number, to):
    """Copy the data of all fragments of a datagram, in order.

    Returns:
        How many fragments there are, and whether a capture has cut one off.
    """
    is_snapped = False
    n = ZERO
    following = u64(fragments.datagram_at(fragments.datagram(views, number)).first)
    for _ in range(FRAGMENTS_MAX):
        if following == ZERO:
            break
        fields = fragments.fragment_at(fragments.fragment(views, following - ONE))
        before = u64(fields.ip) + u64(fields.header)
        size = u64(fields.bytes)
        there = min(size, u64(fields.captured) - before)
        memory.copy(to, fragments.buffer(views, following - ONE) + before, there)
        if there < size:
            memory.set_bytes(to + there, ZERO, size - there)
            is_snapped = True
        to += size
        n += ONE
        following = u64(fields.next)
    return n, is_snapped


@kernel
def _write_ipv4(ip, first, header, total):
    """Write the IPv4 header of a whole datagram from that of its first fragment."""
    memory.copy(ip, first, header)
    memory.set_be16(ip + TWO, total)
    memory.set_be16(ip + _SIX, memory.be16(first + _SIX) & ~(_MORE | _OFFSET))
    memory.set_le16(ip + _TEN, ZERO)
    memory.set_le16(ip + _TEN, LOW_16 - checksum.sum_bytes(ip, header) % LOW_16)


@kernel
def _write_ipv6(ip, first, header, total):
    """Write the headers before the data of a whole IPv6 datagram: those of its first fragment but the fragment header."""
    at, named = find_header(first)
    memory.copy(ip, first, header - EIGHT)
    memory.set_be16(ip + FOUR, total - _IPV6_BYTES)
    memory.set_byte(ip + named, memory.byte(first + at))


@kernel
def _put_together(views, number, frame, family):
    """Put a whole datagram together in the scratch, and describe it there as a frame.

    Returns:
        How many fragments it had; 0 when it is longer than a datagram can be.
    """
    fields = fragments.datagram_at(fragments.datagram(views, number))
    first = u64(fields.first) - ONE
    first_fields = fragments.fragment_at(fragments.fragment(views, first))
    header = u64(first_fields.header)
    total = header + u64(fields.end)
    if u64(fields.ovs) != ZERO:
        longest = _LONGEST - u64(first_fields.ip)  # it counts from the beginning of the frame, fragment header and all
    else:
        longest = _LONGEST if family == FOUR else _LONGEST + _IPV6_BYTES + EIGHT
    if total > longest:
        return ZERO
    if family != FOUR:
        total -= EIGHT
    ip = views.scratch + _BYTES
    n, is_snapped = _copy_data(views, number, ip + total - u64(fields.end))
    first_ip = fragments.buffer(views, first) + u64(first_fields.ip)
    if family == FOUR:
        _write_ipv4(ip, first_ip, header, total)
    else:
        _write_ipv6(ip, first_ip, header, total)
    whole = frame_at(views.scratch + _FRAME)
    whole.address = ip
    whole.captured_bytes = total
    whole.wire_bytes = total
    whole.zone = frame.zone
    whole.link = u64(Link.RAW_IP)
    flags = u64(frame.flags) & ~u64(FrameFlag.ROOM)  # it goes on in pieces that are as long as they were
    whole.flags = (flags | u64(FrameFlag.CHECKSUM_TRUSTED)) if is_snapped else flags
    whole.ticket = frame.ticket
    whole.action = frame.action
    return n


@inlined
def _line(views, k):
    """Return the address of a line of datagrams that are whole: number, generation, packet of the burst, last fragment."""
    return views.scratch + _WHOLE + (k << FOUR)


@kernel
def _take_out(views, number, kept):
    """Take a fragment of ours off its datagram's list: its verdict does not come late."""
    link = fragments.datagram(views, number) + fragments.FIRST
    for _ in range(FRAGMENTS_MAX):
        if memory.read32(link) == kept + ONE:
            break
        link = fragments.fragment(views, memory.read32(link) - ONE) + fragments.NEXT
    word = fragments.word_of(views, kept)
    fragments.set_word(views, kept, fragments.word(fragments.generation_of(word), views.me, Wait.TAKEN))
    memory.release32(link, memory.read32(fragments.fragment(views, kept) + fragments.NEXT))


@kernel
def _finish(views, number, kept, frame, i, family):
    """A datagram has become whole: put it together, and take it out of its bucket.

    Returns:
        Why it could not be, or NONE.
    """
    scratch = scratch_at(views.scratch)
    n = _put_together(views, number, frame, family)
    _take_out(views, number, kept)
    if n == ZERO or u64(scratch.whole_count) == _WHOLE_MAX:
        reason = u64(Reason.FRAGMENT_TOO_LARGE) if n == ZERO else u64(Reason.BUSY)
        fragments.fail(views, number, reason)
        fragments.free_fragment(views, kept)
        return reason
    counters.add(views, Reason.FRAGMENTS_COMPLETED, n)
    fragments.leave_bucket(views, number)
    fields = fragments.datagram_at(fragments.datagram(views, number))
    fields.state = u64(Assembly.WHOLE)
    fields.owner = views.me
    line = _line(views, u64(scratch.whole_count))
    memory.set_le32(line, number)
    memory.set_le32(line + FOUR, u64(fields.generation))
    memory.set_le32(line + EIGHT, i)
    memory.set_le32(line + _TWELVE, kept)
    scratch.whole_count = u64(scratch.whole_count) + ONE
    return _NONE


# ------------------------------------------------------------------------------------------------ for the burst
@kernel
def admit(views, frames, i, now_ms, verdict_address):
    """Say what becomes of a packet that the parser has given a reason.

    Args:
        views: record of shm.views.
        frames: address of FRAME[], the burst.
        i: u64, the packet.
        now_ms: u64.
        verdict_address: of its VERDICT, out.

    Returns:
        True: it was the last fragment of a datagram, and its PARSED describes that one; track it.  False: its verdict is
        written, and it may be that it waits (HELD).
    """
    memory.seldom()
    parsed = parsed_of(views, i)
    if u64(parsed.reason) != u64(Reason.FRAGMENT):
        refuse(parsed, verdict_address, u64(parsed.reason))
        return False
    frame = frame_of(frames, i)
    settings = zones.settings_of(views, u64(frame.zone))
    ip, header, at, more = _read(views, frame, parsed)
    captured = u64(frame.captured_bytes)
    reason = _refused_unseen(views, parsed, more, u64(parsed.ip_bytes), captured, settings)
    if reason == _NONE and at == ZERO and u64(parsed.family) != FOUR and settings & _OVS == ZERO:
        header_room = captured - (ip - u64(frame.address))
        if _lacks_headers(ip, u64(parsed.ip_bytes), header_room):
            reason = u64(Reason.EXTENSION_HEADERS)
    if reason == _NONE and not fragments.lock(views):
        reason = u64(Reason.BUSY)
    if reason != _NONE:
        refuse(parsed, verdict_address, reason)
        return False
    family = u64(parsed.family)
    reason, kept, whole = _place(views, frame, parsed, ip, header, at, more, settings, now_ms)
    generation = ZERO
    if whole != ZERO:
        reason = _finish(views, whole - ONE, kept - ONE, frame, i, family)
    elif reason == _NONE:
        generation = fragments.generation_of(fragments.word_of(views, kept - ONE))
    fragments.unlock(views)
    if reason != _NONE:
        refuse(parsed, verdict_address, reason)
        return False
    if whole == ZERO:
        no_record(verdict_address, parsed, ZERO, ZERO, u64(VerdictFlag.HELD))
        memory.set_le64(verdict_address + EIGHT, (kept - ONE) | (generation << THIRTY_TWO))
        parsed.ip_bytes = ZERO  # they count with the whole datagram
        return False
    packet.parse(frame_at(views.scratch + _FRAME), u64(frame.zone), settings, parsed)
    if u64(parsed.reason) != _NONE:
        refuse(parsed, verdict_address, u64(parsed.reason))
        return False
    stages.rehash(views, views.parsed + i * stages.PARSED_SIZE)  # what the glance saw was of the fragment
    return True


@inlined
def whole_frame(views):
    """Return the address of the FRAME of the datagram that ``admit`` has put together."""
    return views.scratch + _FRAME


@kernel
def _send_fragment_on(whole, data, family, fields, frame_address):
    """Give a fragment, whose frame stands at an address, the addresses of its datagram, and its part of the data."""
    ip = frame_address + u64(fields.ip)
    rewrite.copy_addresses(ip, whole, family)
    header = u64(fields.header)
    there = min(u64(fields.bytes), u64(fields.captured) - u64(fields.ip) - header)
    memory.copy(ip + header, data + u64(fields.offset), there)


@kernel
def send_on(views, frames, i, verdict_address):
    """Have the fragments of a datagram go on as it was translated, if packet ``i`` has made one whole.

    Args:
        views: record of shm.views.
        frames: address of FRAME[], the burst.
        i: u64, the packet.
        verdict_address: of its VERDICT, which is BUSY when the store's lock was not had.
    """
    memory.seldom()
    line = _line(views, u64(scratch_at(views.scratch).whole_count) - ONE)
    if memory.le32(line + EIGHT) != i:
        return
    if not fragments.lock(views):
        refuse(parsed_of(views, i), verdict_address, u64(Reason.BUSY))
        return
    whole = frame_at(whole_frame(views))
    family = FOUR if memory.byte(u64(whole.address)) >> FOUR == FOUR else _SIX
    number, kept = memory.le32(line), memory.le32(line + _TWELVE)
    datagram = fragments.datagram_at(fragments.datagram(views, number))
    data = u64(whole.address) + u64(whole.captured_bytes) - u64(datagram.end)
    is_there = u64(datagram.state) == u64(Assembly.WHOLE) and u64(datagram.generation) == memory.le32(line + FOUR)
    n = ZERO
    if is_there:
        own = fragments.fragment_at(fragments.fragment(views, kept))
        _send_fragment_on(u64(whole.address), data, family, own, u64(frame_of(frames, i).address))
        following = u64(datagram.first)
        n = ONE
        for _ in range(FRAGMENTS_MAX):
            if following == ZERO:
                break
            fields = fragments.fragment_at(fragments.fragment(views, following - ONE))
            at = fragments.buffer(views, following - ONE)
            _send_fragment_on(u64(whole.address), data, family, fields, at)
            following = u64(fields.next)
            n += ONE
    fragments.unlock(views)
    counters.add(views, Reason.FRAGMENTS_TRANSLATED, n)
    if not is_there:  # the others were refused meanwhile
        refuse(parsed_of(views, i), verdict_address, u64(Reason.FRAGMENT_EXPIRED))


@kernel
def decide(views, verdicts):
    """Say what became of the datagrams that a burst has made whole to all who hold fragments of them.

    Args:
        views: record of shm.views.
        verdicts: address of VERDICT[], of the burst.
    """
    memory.seldom()
    scratch = scratch_at(views.scratch)
    for k in range(u64(scratch.whole_count)):
        line = _line(views, u64(k))
        i = memory.le32(line + EIGHT)
        if i != _DECIDED:  # kept where no later burst writes, should the lock not be had
            verdict = fragments.fragment(views, memory.le32(line + _TWELVE)) + fragments.VERDICT
            memory.copy(verdict, verdicts + i * _VERDICT, _VERDICT)
            memory.set_le32(line + EIGHT, _DECIDED)
    if not fragments.lock(views):
        return
    for k in range(u64(scratch.whole_count)):
        line = _line(views, u64(k))
        number, kept = memory.le32(line), memory.le32(line + _TWELVE)
        fields = fragments.datagram_at(fragments.datagram(views, number))
        if u64(fields.state) == u64(Assembly.WHOLE) and u64(fields.generation) == memory.le32(line + FOUR):
            fragments.settle_all(views, number, fragments.fragment(views, kept) + fragments.VERDICT)
        fragments.free_fragment(views, kept)
    fragments.unlock(views)
    scratch.whole_count = ZERO


@inlined
def has_whole(views):
    """Return whether this burst has made a datagram whole."""
    return u64(scratch_at(views.scratch).whole_count) != ZERO
