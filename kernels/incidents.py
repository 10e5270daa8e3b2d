"""What is done about a packet that got a reason: it is counted, in all and by zone, and sampled.

The one place where reasons of packets are counted, so that each has exactly one.  A burst comes here after the verdict,
when nothing is held.
"""

from __future__ import annotations

from ..shm.layout import CtState
from ..shm.reasons import Reason
from . import counters, memory, samples, zone_reasons
from .jit import kernel
from .stages import parsed_of
from .verdicts import verdict_at
from .words import ZERO, u64

_INV = u64(CtState.INV)
_NOIP, _NOT_TRACKED = u64(Reason.NOIP), u64(Reason.NOT_TRACKED)


@kernel
def note(views, frame, i, now_ms, verdict_address):
    """Count and sample packet ``i`` of the burst, whose verdict has a reason.

    Args:
        views: record of shm.views.
        frame: its FRAME.
        i: u64, its place in the burst; PARSED is there.
        now_ms: u64.
        verdict_address: u64, address of its VERDICT.
    """
    memory.seldom()
    verdict = verdict_at(verdict_address)
    reason = u64(verdict.reason)
    counters.count(views, reason)
    if u64(verdict.ct_state) & _INV != ZERO:
        counters.count(views, Reason.INVALID)
    if reason == _NOT_TRACKED:
        counters.count(views, Reason.UNTRACKED)
    zone_reasons.count(views, u64(parsed_of(views, i).zone), reason)
    if reason != _NOIP and reason != _NOT_TRACKED:
        samples.take(views, frame, i, now_ms, verdict_address)
