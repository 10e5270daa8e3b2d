"""The part of the audit that looks at expectations: chains and counts (X1, X2 of kernels/expectations)."""

from __future__ import annotations

from ..shm.layout import CHAINS, EXPECTATIONS_MAX, ZONES_MAX
from . import expectations, memory, zones
from .findings import Finding, report
from .jit import kernel
from .words import FOUR, ONE, THREE, ZERO, u64


@kernel
def _audit_chain(views, chain, kind, seen, out):
    """X1 for one chain: ``kind`` is 0 by destination, 1 by parent; ``seen`` is u8[EXPECTATIONS_MAX], a bit for each kind."""
    named = memory.read32(expectations.chain_address(views, kind, chain))
    bit = ONE << kind
    while named != ZERO:
        index_ = named - ONE
        if named > u64(EXPECTATIONS_MAX):
            return report(out, Finding.EXPECTATION_CHAIN, index_, chain, kind)
        before = memory.byte(seen + index_)
        good = expectations.is_in_use(expectations.address(views, index_)) and before & bit == ZERO
        if not good or expectations.chain_of(views, kind, index_) != expectations.chain_address(views, kind, chain):
            return report(out, Finding.EXPECTATION_CHAIN, index_, chain, kind)
        memory.set_byte(seen + index_, before | bit)
        named = expectations.next_of(views, kind, index_)
    return True


@kernel
def audit(views, content, seen, zone_count, out):
    """Check X1 and X2 of a table that nobody is working on.

    Args:
        content: address of zeroed u32[ZONES_MAX].
        seen: address of zeroed u8[EXPECTATIONS_MAX].
        zone_count: zones to look at.
        out: address of u64[4]: the Finding and its three numbers.

    Returns:
        True when nothing is broken.
    """
    for kind in range(2):
        for chain in range(CHAINS):
            if not _audit_chain(views, u64(chain), u64(kind), seen, out):
                return False
    total = ZERO
    for i in range(EXPECTATIONS_MAX):
        times = memory.byte(seen + u64(i))
        expectation = expectations.address(views, u64(i))
        if times != (THREE if expectations.is_in_use(expectation) else ZERO):
            return report(out, Finding.EXPECTATION_LOST, u64(i), times, ZERO)
        if times != ZERO:
            total += ONE
            at = content + expectations.zone_of(memory.read64(expectation + expectations.LAST)) * FOUR
            memory.set_le32(at, memory.le32(at) + ONE)
    if expectations.count_of(views) != total:
        return report(out, Finding.EXPECTATION_COUNT, u64(ZONES_MAX), expectations.count_of(views), total)
    for i in range(zone_count):
        here, counted = memory.le32(content + u64(4 * i)), memory.read32(zones.expectations_address(views, u64(i)))
        if here != counted:
            return report(out, Finding.EXPECTATION_COUNT, u64(i), counted, here)
    return True
