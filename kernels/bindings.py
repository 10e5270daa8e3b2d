"""What NAT chooses: the tuple of the replies to a connection that is about to be made, one that nobody else has.

    source         replies come to another address and port than the opener's
    destination    replies come from another address and port than those the opener wrote to

The candidates of a packet form one sequence, at most PROBES_MAX long, and ``choose`` goes on in it where it stopped: two
addresses of the range, one after the other, each with ports in an order that leaves none out twice.

    address     by a hash of the tuple (PERSISTENT: of the opener's address), then its neighbour
    port        the packet's own, where the rule names none and it is free; else from the rule's, or from those like it
                (below 512, 600 to 1023, above), beginning where another hash says; then in steps of a prime

Behind the first NEAR of an address the search goes through what is known of a long range instead, if it is the source's
port that is chosen: the next port, from where the hash says on, that was not found taken before (kernels/taken_ports), so
that it costs little where one port in a hundred is free.  Where all were found taken, the sequence goes on.

Address and first port come from different parts of the hash: chosen by one, connections to one address would crowd
around the same ports.  Where a destination's ports are used up the source's are searched too.  No lock is held while this
looks: that a tuple is free is a hint, and ``index.insert`` decides.  A free one that is kept from new connections for a
while (kernels/quarantine) is passed over.

``foresee`` reckons the first tuple of a packet some packets before its turn, and has the memory fetched that a look at it
will read; ``choose`` begins with that one, and leaves it to ``index.insert`` to say whether it is free.

Source: Open vSwitch's nat_get_unique_tuple, for what may be chosen and in which order; the order of ports is our own.
"""

from __future__ import annotations

import numpy as np

from ..shm.layout import LINE_BYTES, LOOK, LOOK_BYTES, LOOKS_MAX, PORT_MAP_WORDS, Life, Nat, Status
from ..shm.reasons import Reason
from . import counters, endpoints, entries, index, memory, quarantine, segments, taken_ports, tuples, zones
from .endpoints import ICMP, ICMPV6, TCP, write_key
from .jit import inlined, kernel
from .memory import mix, multiply_high
from .words import LOW_16, LOW_32, ONE, SIXTEEN, SIXTY_THREE, THIRTY_TWO, THREE, ZERO, u64

PROBES_MAX = 248
"""Tuples that are looked up for one connection: as many as Open vSwitch tries."""
EXHAUSTED = u64(1 << 32)
"""More than any two ports are, and than any number of a candidate."""
ADDRESSES_MAX = 2
NEAR = 3
"""Candidates of an address that are looked at, by one and then two, before what is known of its ports is asked."""
_PROBES = u64(PROBES_MAX)
_NEAR = u64(NEAR)
_PER_ADDRESS = u64(PROBES_MAX // ADDRESSES_MAX)
_FORTY_EIGHT = u64(48)
_LINE, _LOOK = u64(LINE_BYTES), u64(LOOK_BYTES)
_LIVE = u64(Life.LIVE)
_ALL = ~ZERO
_SALT = u64(0xD6E8FEB86659FD93)
_LIKE = (u64(512), u64(600), u64(1024))

STEPS = np.array([251, 257, 263, 269, 271, 277, 281, 283], np.uint64)
"""Primes: from port to port of a range that is longer than the search; of two in a row at most one divides its length."""
STEPS.setflags(write=False)
_STEPS_MASK = u64(len(STEPS) - 1)

look_at = memory.record_at(LOOK)


@inlined
def _ports_like(port, protocol):
    """Return first and last of the ports that serve as well as ``port`` (RFC 6056 3.2, RFC 4787 REQ-3)."""
    if protocol in (ICMP, ICMPV6):
        return ZERO, LOW_16
    if port < _LIKE[0]:
        return ONE, _LIKE[0] - ONE
    if port < _LIKE[2]:
        return _LIKE[1], _LIKE[2] - ONE
    return _LIKE[2], LOW_16


@inlined
def _nth_port(first, last, hash_, n):
    """Return the n-th port of a range, in an order that the hash chooses; n is below the range's length."""
    count = last - first + ONE
    start = multiply_high(hash_, count)
    if count <= _PROBES:
        return first + (start + n) % count
    which = hash_ & _STEPS_MASK
    step = u64(STEPS[which])
    if count % step == ZERO:
        step = u64(STEPS[(which + ONE) & _STEPS_MASK])
    return first + (start + n * step) % count


@inlined
def _nth_address(action, hash_, n):
    """Return the n-th address of a rule's range, its two words; of IPv6 only the lower half varies."""
    first_low = u64(action.nat_first[1])
    count = u64(action.nat_last[1]) - first_low + ONE
    if u64(action.nat_first[0]) != u64(action.nat_last[0]) or count == ZERO or count > LOW_32:
        count = LOW_32
    return u64(action.nat_first[0]), first_low + (multiply_high(hash_, count) + n) % count


@inlined
def _has_range(action):
    return u64(action.nat_first[0]) | u64(action.nat_first[1]) != ZERO


@inlined
def _address_count(action):
    """Return how many addresses are tried: two, where there are two."""
    if not _has_range(action):
        return ONE
    same = u64(action.nat_first[0]) == u64(action.nat_last[0]) and u64(action.nat_first[1]) == u64(action.nat_last[1])
    return ONE if same else u64(ADDRESSES_MAX)


@inlined
def _can_change_port(protocol):
    return endpoints.has_ports(protocol) | (protocol == ICMP) | (protocol == ICMPV6)


@inlined
def _candidate(action, protocol, source_port, destination_port, port_hash, k):
    """Return the ports of the k-th candidate at one address: source << 16 | destination; EXHAUSTED behind the last.

    The source's port is the one that the replies go to.
    """
    rule_first = u64(action.nat_ports[0])
    rule_last = u64(action.nat_ports[1])
    source = u64(action.nat) & u64(Nat.SOURCE) != ZERO
    has_ports = rule_last != ZERO and (
        source or endpoints.has_ports(protocol)
    )  # of ICMP the opener's side has an identifier
    if not _can_change_port(protocol):
        if u64(action.nat) & u64(Nat.FORETOLD) != ZERO and rule_last != ZERO:
            source_port, destination_port = (rule_first, destination_port) if source else (source_port, rule_first)
        return EXHAUSTED if k != ZERO else (source_port << SIXTEEN) | destination_port
    if not source:
        if has_ports:
            tried = min(rule_last - rule_first + ONE, _PER_ADDRESS // u64(2))
            if k < tried:
                return (source_port << SIXTEEN) | _nth_port(rule_first, rule_last, port_hash, k)
            k -= tried
            destination_port = _nth_port(rule_first, rule_last, port_hash, ZERO)
        elif k == ZERO:
            return (source_port << SIXTEEN) | destination_port
        else:
            k -= ONE
    elif has_ports:
        if k > rule_last - rule_first:
            return EXHAUSTED
        return (_nth_port(rule_first, rule_last, port_hash, k) << SIXTEEN) | destination_port
    elif k == ZERO:
        return (source_port << SIXTEEN) | destination_port
    else:
        k -= ONE
    first, last = _ports_like(source_port, protocol)
    if k > last - first:
        return EXHAUSTED
    return (_nth_port(first, last, mix(port_hash, _SALT), k) << SIXTEEN) | destination_port


@inlined
def _long_range(action, protocol, source_port):
    """Return first and last of the source's ports, if one of more than a search looks at is chosen; else 1 and 0."""
    if u64(action.nat) & u64(Nat.SOURCE) == ZERO or not _can_change_port(protocol):
        return ONE, ZERO
    first, last = u64(action.nat_ports[0]), u64(action.nat_ports[1])
    if last == ZERO:
        first, last = _ports_like(source_port, protocol)
    return (first, last) if last - first >= _PROBES else (ONE, ZERO)


@inlined
def _ports_of(parsed):
    """Return whether a packet comes from its key's second endpoint, and the ports of its source and its destination."""
    ports = parsed.key[4]
    low, high = ports >> _FORTY_EIGHT, (ports >> THIRTY_TWO) & LOW_16
    if u64(parsed.high_is_source) != ZERO:
        return True, high, low
    return False, low, high


@inlined
def _hashes(views, parsed, action, salt):
    """Return the hashes that choose the address and the first port: independent, so that neither gathers at the other."""
    key = parsed.key
    is_high, src_port, dst_port = _ports_of(parsed)
    src_high, src_low = (key[2], key[3]) if is_high else (key[0], key[1])
    dst_high, dst_low = (key[0], key[1]) if is_high else (key[2], key[3])
    nat = u64(action.nat)
    secret = views.secret
    opener = mix(src_high ^ secret[1], src_low ^ secret[2])
    whole = mix(opener ^ dst_high ^ src_port, dst_low ^ (dst_port << THIRTY_TWO) ^ secret[3])
    address_hash = mix(opener if nat & u64(Nat.PERSISTENT) != ZERO else whole, secret[0] ^ _SALT)
    if nat & u64(Nat.RANDOM) != ZERO:
        whole = mix(whole ^ salt, secret[2])
    return address_hash, mix(whole, secret[1] ^ u64(parsed.protocol))


@inlined
def _ends(parsed, action, address_hash, which):
    """Return the addresses, two words each, that replies come from and go to with the ``which``-th address of the rule."""
    own = parsed.key
    is_high = u64(parsed.high_is_source) != ZERO
    src_high, src_low = (own[2], own[3]) if is_high else (own[0], own[1])
    dst_high, dst_low = (own[0], own[1]) if is_high else (own[2], own[3])
    if _has_range(action):
        if u64(action.nat) & u64(Nat.SOURCE) != ZERO:
            src_high, src_low = _nth_address(action, address_hash, which)
        else:
            dst_high, dst_low = _nth_address(action, address_hash, which)
    return dst_high, dst_low, src_high, src_low


@inlined
def _write(parsed, action, address_hash, which, chosen, key):
    """Write the key that the replies have with the ports ``chosen`` and the ``which``-th address of the rule.

    Returns:
        u64, 1 when who replies is its second endpoint.
    """
    from_high, from_low, to_high, to_low = _ends(parsed, action, address_hash, which)
    order = write_key(
        from_high,
        from_low,
        chosen & LOW_16,
        to_high,
        to_low,
        chosen >> SIXTEEN,
        u64(parsed.zone),
        u64(parsed.protocol),
        u64(parsed.family),
        key,
    )
    return order & ONE


@inlined
def _is_kept(views, protocol, hash_, parsed, now_ms):
    """Return whether a tuple is kept from a packet's connection for a while, and count that."""
    if views.quarantine == ZERO or protocol != TCP or not quarantine.holds(views, hash_, u64(parsed.hash), now_ms):
        return False
    counters.count(views, Reason.QUARANTINE_REFUSED)
    return True


@kernel
def choose(views, parsed, action, salt, attempt, now_ms):
    """Choose the tuple of the replies to a packet that opens a connection.

    Args:
        parsed: PARSED of the packet; ``inner_key`` and ``inner_high_is_source`` are written: the key of the replies and
            whether who replies is its second endpoint.  When ``foreseen``, ``foresee`` has done so for this action.
        action: ACTION, whose ``nat`` has SOURCE or DESTINATION.
        salt: u64, different for each connection, for a RANDOM search.
        attempt: u64, 0 at first, then what this returned, when the tuple was taken after all.
        now_ms: u64.

    Returns:
        u64, where the search goes on; EXHAUSTED when there is nothing left to try.  The tuple may be the packet's own;
        its hash is ``parsed.reply_hash``.

    Concurrency:
        No lock; that the tuple is free is a hint.
    """
    memory.apart()
    protocol = u64(parsed.protocol)
    if u64(parsed.foreseen) != ZERO:
        parsed.foreseen = ZERO
        if attempt == ZERO:
            attempt = ONE
            if not _is_kept(views, protocol, u64(parsed.reply_hash), parsed, now_ms):
                return attempt
    return _search(views, parsed, action, salt, attempt, now_ms)


@inlined
def _look(views, i):
    return look_at(views.looks + i * _LOOK)


@kernel
def _gather_far(views, ports, first, last, port_hash, most):
    """Note the ports of a long range that are looked at next: such as were not found taken before.

    By 64 at a time, from where the hash says on and in steps of a prime: so those that are free are spread as they were.

    Args:
        ports: u64, address of the map (kernels/taken_ports).
        first, last: u64, the range.
        most: u64, how many are wanted.

    Returns:
        u64, how many were noted as ``ports`` of the looks; 0 where all of the range were found taken.
    """
    memory.apart()
    begin = first >> taken_ports.PORTS_SHIFT
    words = (last >> taken_ports.PORTS_SHIFT) - begin + ONE
    step = u64(STEPS[port_hash & _STEPS_MASK])
    if words % step == ZERO:
        step = u64(STEPS[(port_hash + ONE) & _STEPS_MASK])
    step %= words
    n = multiply_high(port_hash, words)
    later = _ALL << ((port_hash >> THREE) & SIXTY_THREE)
    count, words_left = ZERO, words
    for _ in range(PORT_MAP_WORDS):
        free = taken_ports.free_in(ports, begin + n, first, last)
        for _ in range(LOOKS_MAX):
            if free == ZERO or count == most:
                break
            bit = memory.lowest_bit(free & later if free & later != ZERO else free)
            free &= ~(ONE << bit)
            _look(views, count).ports = ((begin + n) << taken_ports.PORTS_SHIFT) | bit
            count += ONE
        words_left -= ONE
        if count == most or words_left == ZERO:
            break
        n += step
        n = n - words if n >= words else n
    return count


@kernel
def _gather(views, parsed, action, address_hash, port_hash, attempt, most):
    """Reckon the hashes of the candidates of a packet that are looked at next, all of them at one address.

    Of these only the ports differ, so that all but the last words of their keys is hashed once.

    Args:
        address_hash, port_hash: of the packet (``_hashes``).
        attempt: u64, number of the first of them.
        most: u64, how many are wanted, at most LOOKS_MAX.

    Returns:
        u64, how many; 0 behind the last.
    """
    memory.apart()
    protocol = u64(parsed.protocol)
    last = endpoints.last_word(ZERO, ZERO, u64(parsed.zone), protocol, u64(parsed.family))
    _, src_port, dst_port = _ports_of(parsed)
    addresses = _address_count(action)
    per_address = _PROBES // addresses
    which = attempt // per_address
    count = ZERO
    for _ in range(ADDRESSES_MAX):
        if which >= addresses or count != ZERO:
            break
        from_high, from_low, to_high, to_low = _ends(parsed, action, address_hash, which)
        is_second = from_high > to_high or (from_high == to_high and from_low > to_low)
        is_same = from_high == to_high and from_low == to_low
        if is_second:
            low, high = tuples.hash_ends(views, to_high, to_low, from_high, from_low)
        else:
            low, high = tuples.hash_ends(views, from_high, from_low, to_high, to_low)
        first = attempt - which * per_address
        most = min(most, per_address - first)
        range_first, range_last = _long_range(action, protocol, src_port)
        ports, known = ZERO, ZERO
        if range_last == ZERO or is_same:
            pass
        elif first < _NEAR:
            most = min(most, _NEAR - first)
        else:
            without = endpoints.port_bits(ZERO, dst_port) if is_second else endpoints.port_bits(dst_port, ZERO)
            ports = taken_ports.of(views, tuples.hash_last(views, low, high, last | without))
            if first == _NEAR:
                for i in range(NEAR):  # all taken
                    near = _candidate(action, protocol, src_port, dst_port, port_hash, u64(i))
                    taken_ports.take(ports, near >> SIXTEEN)
            known = _gather_far(views, ports, range_first, range_last, port_hash, most)
            most = known if known != ZERO else most
        for i in range(most):
            look = _look(views, u64(i))
            if known != ZERO:
                chosen = (u64(look.ports) << SIXTEEN) | dst_port
            else:
                chosen = _candidate(action, protocol, src_port, dst_port, port_hash, first + u64(i))
            if chosen == EXHAUSTED:
                break
            from_port, to_port = chosen & LOW_16, chosen >> SIXTEEN
            if is_second or (is_same and from_port > to_port):
                from_port, to_port = to_port, from_port
            look.hash = tuples.hash_last(views, low, high, last | endpoints.port_bits(from_port, to_port))
            look.attempt = attempt + u64(i)
            look.ports = chosen
            look.map = ports
            look.is_known = u64(known == ZERO)
            count = u64(i) + ONE
        which += ONE
        attempt = which * per_address  # the next look is the first at the next address
    return count


@kernel
def _fetch(views, zone, count):
    """Fetch the lines where candidates would stand, then the records that have their tags.

    In short loops: a prefetch whose page is not in the TLB holds up what follows it (kernels/stages).

    Returns:
        u64, how many of them are worth a look: there is none behind the first whose tag no record has.
    """
    memory.apart()
    word = zones.load_word(views, zone)
    for i in range(count):
        look = _look(views, u64(i))
        hash_ = u64(look.hash)
        segment = segments.segment_of(views, word, hash_) if zones.directory_of(word) != ZERO else ZERO
        look.line = ZERO
        if segment != ZERO:
            look.line = segments.home_line(views, segment - ONE, hash_)
            memory.prefetch(u64(look.line))
            memory.prefetch(u64(look.line) ^ _LINE)
    for i in range(count):
        look = _look(views, u64(i))
        record = ZERO
        if u64(look.line) != ZERO:
            record = index.tagged(u64(look.line), segments.tag_of(u64(look.hash)))
        look.record = record
        if record == ZERO:
            return u64(i) + ONE
        memory.prefetch(entries.address(views, record - ONE) + entries.LIFE)
    return count


@inlined
def _seems_taken(views, look):
    """Return whether a connection seems to have a candidate's tuple; as ``index.seems_taken``, which has the last word."""
    record = u64(look.record)
    if record == ZERO:
        return False
    if record <= views.records[0]:
        life = memory.acquire64(entries.address(views, record - ONE) + entries.LIFE)
        if entries.state_of(life) == _LIVE:
            return True
    return index.seems_taken(views, u64(look.line), segments.tag_of(u64(look.hash)))


@kernel
def _search(views, parsed, action, salt, attempt, now_ms):
    """Look for a tuple, as ``choose`` does: at one, at two, at four at once, for each waits for its memory twice."""
    memory.apart()
    protocol, zone = u64(parsed.protocol), u64(parsed.zone)
    address_hash, port_hash = _hashes(views, parsed, action, salt)
    per_address = _PROBES // _address_count(action)
    most = ONE
    for _ in range(PROBES_MAX):
        count = _gather(views, parsed, action, address_hash, port_hash, attempt, most)
        if count == ZERO:
            break
        count = _fetch(views, zone, count)
        for i in range(count):
            look = _look(views, u64(i))
            which = u64(look.attempt) // per_address
            attempt = u64(look.attempt) + ONE
            ports = u64(look.map)
            if ports != ZERO:
                taken_ports.take(ports, u64(look.ports) >> SIXTEEN)
            if _seems_taken(views, look) or _is_kept(views, protocol, u64(look.hash), parsed, now_ms):
                continue
            if ports != ZERO and u64(look.is_known) != ZERO:
                taken_ports.forget(ports)
                taken_ports.take(ports, u64(look.ports) >> SIXTEEN)
            is_high = _write(parsed, action, address_hash, which, u64(look.ports), parsed.inner_key)
            parsed.inner_high_is_source = is_high
            parsed.reply_hash = look.hash
            return attempt
        most = min(most + most, u64(LOOKS_MAX))
    return EXHAUSTED


@kernel
def foresee(views, parsed, reply_key, action):
    """Reckon the first tuple for a packet, unless chance has a part in it, and fetch the memory that a look at it will read.

    Args:
        parsed, action: as for ``choose``.
        reply_key: u64, address of the ``inner_key`` in ``parsed``.

    Concurrency:
        Reads words of the index as hints.
    """
    memory.apart()
    address_hash, port_hash = _hashes(views, parsed, action, ZERO)
    _, src_port, dst_port = _ports_of(parsed)
    chosen = _candidate(action, u64(parsed.protocol), src_port, dst_port, port_hash, ZERO)
    word = zones.load_word(views, u64(parsed.zone))
    if chosen == EXHAUSTED or zones.directory_of(word) == ZERO:
        return
    parsed.inner_high_is_source = _write(parsed, action, address_hash, ZERO, chosen, parsed.inner_key)
    hash_ = tuples.hash_key(views, reply_key)
    parsed.reply_hash = hash_
    parsed.foreseen = u64(u64(action.nat) & u64(Nat.RANDOM) == ZERO)
    segment = segments.segment_of(views, word, hash_)
    if segment != ZERO:
        line = segments.home_line(views, segment - ONE, hash_)
        memory.prefetch(line)
        memory.prefetch(line ^ _LINE)
        memory.prefetch(segments.lock_address(views, segment - ONE))
    if views.quarantine != ZERO:
        memory.prefetch(quarantine.line_of(views, hash_))


@kernel
def bind(views, record, parsed, reply_key, action, salt, zone, wanted, may_split, now_ms):
    """Publish a NEW record with a tuple for its replies that nobody else has.

    Args:
        record: u64, as for ``index.insert``, which this calls; its extension is taken here if it has none.
        parsed, action, salt, now_ms: as for ``choose``.
        reply_key: u64, address of the ``inner_key`` in ``parsed``.
        zone, wanted, may_split: as for ``index.insert``.

    Returns:
        u64, a Reason, as from ``index.insert``; EXTENSION_FULL, or NAT_EXHAUSTED instead of CLASH.  ``parsed.inner_key`` is
        the tuple of the replies, ``inner_high_is_source`` says who replies.
    """
    memory.apart()
    if not entries.with_extension(views, record):
        return u64(Reason.EXTENSION_FULL)
    if views.quarantine != ZERO:
        quarantine.tell_time(views, now_ms)
    entry = entries.address(views, record)
    fields = entries.entry_at(entry)
    own = entry + tuples.ENTRY_KEY
    nat = u64(action.nat)
    status = u64(fields.status) & ~u64(Status.REPLIER_IS_HIGH)
    status |= u64(Status.SOURCE_NAT) if nat & u64(Nat.SOURCE) != ZERO else u64(Status.DESTINATION_NAT)
    attempt = ZERO
    for _ in range(PROBES_MAX):
        attempt = choose(views, parsed, action, salt, attempt, now_ms)
        if attempt == EXHAUSTED:
            return u64(Reason.NAT_EXHAUSTED)
        second = entries.extension_of(views, entry) + tuples.EXTENSION_KEY
        tuples.copy_key(second, reply_key)
        if tuples.equal(reply_key, own):
            memory.write64(second + tuples.LAST, ZERO)  # what was chosen is what the packet had: one key is enough
            second = ZERO
        is_high = u64(parsed.inner_high_is_source) != ZERO
        fields.status = status | (u64(Status.REPLIER_IS_HIGH) if is_high else ZERO)
        reason = index.insert_hashed(
            views, record, zone, wanted, may_split, u64(parsed.hash), second, u64(parsed.reply_hash)
        )
        if reason != u64(Reason.CLASH):
            return reason
    return u64(Reason.NAT_EXHAUSTED)
