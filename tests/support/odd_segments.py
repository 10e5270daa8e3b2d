"""TCP segments drawn at random, most of them next to some bound: just inside, just outside, long ago, around the wrap.

A test tells which numbers its reference has in mind at the moment; a ``Step`` picks among them and goes a little aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import hypothesis.strategies as st
import segments
from reference_netfilter import WRAP, Segment

NUMBERS = 8
"""How many numbers there are to pick from; the first is right."""
COMMON = ("S", "SA", "A", "A", "PA", "FA", "R", "RA")
RARE = ("SU", "AU", "FAU", "SEC", "F", "", "SF", "SR", "P", "SP", "RP")
OPTIONS = (
    *("", "", "mss1460 sackok ws7", "ws0", "ws14", "ws15", "sackok", "mss1000", "nop nop ts1/2", "0x0303"),
    *("0x040a00", "nop 0x030401", "0x00 ws9"),
)
LENGTHS = (0, 0, 1, 100, 1460, 65_000)
WINDOWS = (65535, 0, 1, 502, 4096)
WAITS_MS = (0, 0, 0, 0, 1_000, 29_999, 30_000, 59_999, 60_000, 121_000, 301_000)
NUDGES = (0, 0, 0, 1, -1, 2, -2, 100, -100, 66_000, -66_000, -66_001, 67_035, -67_036, 2**31, 2**30, 8_000_000)
BASES = (0, WRAP - 1_050, WRAP - 5_050, WRAP - 70_000, 2**31)
FIRST = {"c": 1_000, "s": 5_000}
"""First sequence numbers of both sides, above a base."""
OFFERS = ("", "mss1460 sackok ws7", "ws2", "sackok")
BEGINNINGS = (
    "",
    "cS",
    "cS sS",
    "cS sSA",
    "cS sSA cA",
    "cS sSA cA cPA sA sPA cA",
    "cS sSA cA cFA",
    "cS sSA cA sFA cA",
    "cS sSA cA cFA sFA",
    "cS sSA cA cFA sFA cA",
    "cS sA",
    "cS sSA cA cPA sA cS",
    "cS sSA cA cPA sA cS sA",
    "cS sSA cA cFA sFA cS",
    "cS sSA cA sRA",
    "cS sSA cA cRA",
    "cPA",
    "cPA sA",
)
"""How a connection may stand when the odd segments begin; each word is a side and flags."""


class Step(NamedTuple):
    """One segment, in terms of numbers that are known when it is sent."""

    side: str
    flags: str
    seq_of: int = 0
    seq_nudge: int = 0
    ack_of: int = 0
    ack_nudge: int = 0
    win: int = 4096
    length: int = 0
    options: str = ""
    blocks: int = 0
    """SACK blocks of an ACK."""
    wait_ms: int = 0


_odd = st.builds(
    Step,
    side=st.sampled_from("cs"),
    flags=st.sampled_from(COMMON + RARE),
    seq_of=st.integers(0, NUMBERS - 1),
    seq_nudge=st.sampled_from(NUDGES),
    ack_of=st.integers(0, NUMBERS - 1),
    ack_nudge=st.sampled_from(NUDGES),
    win=st.sampled_from(WINDOWS),
    length=st.sampled_from(LENGTHS),
    options=st.sampled_from(OPTIONS),
    blocks=st.integers(0, 3),
    wait_ms=st.sampled_from(WAITS_MS),
)
_right = st.builds(
    lambda side, flags, length, options: Step(side, flags, length=length, options=options),
    *(st.sampled_from(values) for values in ("cs", COMMON, (0, 0, 100), OFFERS)),
)
steps = st.lists(st.one_of(_right, _right, _odd), max_size=14)
beginnings = st.tuples(
    st.sampled_from(BEGINNINGS), st.tuples(st.sampled_from(OFFERS), st.sampled_from(OFFERS)), st.sampled_from(BASES)
)


def drawn(step: Step, mine: Sequence[int], yours: Sequence[int]) -> tuple[Segment, str]:
    """Return the segment of a step, and its options in words.

    Args:
        step: what was drawn.
        mine: numbers near which the sender's sequence number may be.
        yours: and its acknowledgment.
    """
    seq = (mine[step.seq_of] + step.seq_nudge) % WRAP
    ack = (yours[step.ack_of] + step.ack_nudge) % WRAP if "A" in step.flags else 0
    options = step.options
    if step.blocks and step.flags in ("A", "PA"):
        edges = [(ack + 1000 * (step.blocks - n)) % WRAP for n in range(step.blocks)]
        options = "sack" + ",".join(f"{edge}-{(edge + 500) % WRAP}" for edge in edges)
    length = step.length if step.length <= 100 or not set("SRF") & set(step.flags) else 0
    return Segment(step.flags, seq, ack, step.win, length, segments.options_bytes(options)), options


def opening(beginning: str, offers: tuple[str, str], base: int) -> Iterator[tuple[str, Segment, str]]:
    """Yield side, segment and options of a beginning, each segment as it should be; a P carries 100 bytes."""
    seq = {side: (base + first) % WRAP for side, first in FIRST.items()}
    for word in beginning.split():
        side, flags, other = word[0], word[1:], "s" if word[0] == "c" else "c"
        options = offers[side == "s"] if "S" in flags else ""
        length = 100 if "P" in flags else 0
        ack = seq[other] if "A" in flags else 0
        segment = Segment(flags, seq[side], ack, 4096, length, segments.options_bytes(options))
        yield side, segment, options
        seq[side] = segment.end
