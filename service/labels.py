"""What a verdict is called: the names of its ct_state bits, its direction, and the short label.

In the `netfilter` profile a label is one letter for what the packet is to its connection, ``>`` or ``<`` for the way it
goes, and ``a`` when the connection is assured: ``N>``, ``E<a``.  ``I``, ``U`` and ``noip`` stand alone, for such a packet
goes no way; and so does ``.``, a fragment whose datagram never became whole.  In the `ovs` profile it is the names of the
bits, without ``trk`` which all have: ``est|rpl``.
"""

from __future__ import annotations

from functools import cache

from ..shm.layout import CtState, VerdictFlag, Way

NETFILTER, OVS = PROFILES = ("netfilter", "ovs")
NAMES = ("trk", "new", "est", "rel", "rpl", "inv", "snat", "dnat")
"""Open vSwitch's names of ct_state, in the order in which they are shown."""


@cache
def names(ct_state: int) -> tuple[str, ...]:
    """Return the names of the bits of a ct_state."""
    return tuple(name for name in NAMES if ct_state & CtState[name.upper()])


@cache
def direction(ct_state: int, way: int) -> str | None:
    """Return ``orig`` or ``reply``; None for a packet that is no part of a connection."""
    if not ct_state or ct_state & CtState.INV:
        return None
    return Way(way).name.lower()


@cache
def label(ct_state: int, way: int, flags: int, profile: str = NETFILTER) -> str:
    """Return the short form of a verdict.

    Args:
        ct_state: CtState bits.
        way: Way.
        flags: VerdictFlag bits.
        profile: whose words.
    """
    if flags & VerdictFlag.NOIP:
        return "noip"
    if flags & VerdictFlag.UNTRACKED:
        return "U"
    if flags & VerdictFlag.HELD:
        return "."
    if profile == OVS:
        return "|".join(names(ct_state)[1:])
    if ct_state & CtState.INV:
        return "I"
    letter = "R" if ct_state & CtState.REL else "E" if ct_state & CtState.EST else "N"
    return letter + "><"[way] + ("a" if flags & VerdictFlag.ASSURED else "")
