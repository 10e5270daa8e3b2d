"""What has no states of its own in the `ovs` profile: ICMP queries, and as one kind all that is neither ICMP nor TCP.

A packet is *new* until the other side was heard, however many there were before.  The rows are all there is; a kernel
only indexes FLOWS.

Source:
    Behaviour of Open vSwitch 4.0.90's userspace connection tracker.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import ENTRY, Way
from . import outcome, timeouts
from .jit import inlined
from .memory import record_at
from .timeouts import Timeout
from .words import EIGHT, LOW_8, ONE, ZERO, u64


class OvsFlow(IntEnum):
    """State of a tracked flow; ENTRY.state."""

    NONE = 0
    FIRST = 1  # one packet was seen
    MULTIPLE = 2  # several, of one side
    BOTH = 3  # the other side was heard


class OvsFlowKind(IntEnum):
    """Which rows a protocol follows."""

    OTHER = 0
    QUERY = 1


class Transition(NamedTuple):
    """In state ``old``, a packet travelling one of ``ways`` leads to ``new``, and the flow lives on for ``timeout``."""

    kind: OvsFlowKind
    old: OvsFlow
    ways: tuple[Way, ...]
    new: OvsFlow
    timeout: Timeout
    is_new: bool
    why: str


_ORIG, _REPLY, _EITHER = (Way.ORIG,), (Way.REPLY,), tuple(Way)
_K, _F, _T = OvsFlowKind, OvsFlow, Timeout

# fmt: off
TRANSITIONS = (
    #          kind      from         way      to           timeout          new    why
    Transition(_K.OTHER, _F.NONE,     _ORIG,   _F.FIRST,    _T.UDP_FIRST,    True,  "opened"),
    Transition(_K.OTHER, _F.FIRST,    _ORIG,   _F.MULTIPLE, _T.UDP_SINGLE,   True,  "again, unanswered"),
    Transition(_K.OTHER, _F.MULTIPLE, _ORIG,   _F.MULTIPLE, _T.UDP_SINGLE,   True,  "and again"),
    Transition(_K.OTHER, _F.FIRST,    _REPLY,  _F.BOTH,     _T.UDP_MULTIPLE, False, "the answer"),
    Transition(_K.OTHER, _F.MULTIPLE, _REPLY,  _F.BOTH,     _T.UDP_MULTIPLE, False, "the answer"),
    Transition(_K.OTHER, _F.BOTH,     _EITHER, _F.BOTH,     _T.UDP_MULTIPLE, False, "it goes on"),

    Transition(_K.QUERY, _F.NONE,     _ORIG,   _F.FIRST,    _T.ICMP_FIRST,   True,  "a request"),
    Transition(_K.QUERY, _F.FIRST,    _ORIG,   _F.FIRST,    _T.ICMP_FIRST,   True,  "a further request, same id"),
    Transition(_K.QUERY, _F.FIRST,    _REPLY,  _F.BOTH,     _T.ICMP_REPLY,   False, "the answer"),
    Transition(_K.QUERY, _F.BOTH,     _EITHER, _F.BOTH,     _T.ICMP_REPLY,   False, "more of both"),
)
# fmt: on

FLOWS_SHAPE = (2, 4, 2)
"""Kinds, states, ways: powers of two, so that even a torn state indexes inside."""
IS_NEW = 1 << 15


def compile_transitions(rows: tuple[Transition, ...]) -> NDArray[np.uint16]:
    """Return FLOWS[kind, state, way]: new state | Timeout << 8 | IS_NEW; where no row is, the flow begins anew."""
    flows = np.zeros(FLOWS_SHAPE, np.uint16)
    for row in rows:
        for way in row.ways:
            cell = (row.kind, row.old, way)
            assert flows[cell] == 0, f"two rows for {cell}"
            flows[cell] = row.new | (row.timeout | timeouts.OVS) << 8 | (IS_NEW if row.is_new else 0)
    for kind, state, way in product(*map(range, FLOWS_SHAPE)):
        if flows[kind, state, way] == 0:
            flows[kind, state, way] = flows[kind, OvsFlow.NONE, Way.ORIG]
    flows.setflags(write=False)
    return flows


FLOWS = compile_transitions(TRANSITIONS)

KINDS = np.full(256, OvsFlowKind.OTHER, np.uint8)
"""u8[256]: OvsFlowKind by IP protocol."""
KINDS[[1, 58]] = OvsFlowKind.QUERY
KINDS.setflags(write=False)

_STATES = u64(FLOWS_SHAPE[1] - 1)
_TIMEOUT = u64(2 * timeouts.OVS - 1)
_IS_NEW_SHIFT = u64(15)

entry_at = record_at(ENTRY)


@inlined
def _step(parsed, state, way):
    return u64(FLOWS[u64(KINDS[u64(parsed.protocol)]) & ONE, state & _STATES, way & ONE])


@inlined
def begin(entry, parsed):
    """Set up the record of a flow; return the term of its expiry."""
    step = _step(parsed, ZERO, ZERO)
    entry_at(entry).state = step & LOW_8
    timeout = (step >> EIGHT) & _TIMEOUT
    return outcome.term(timeout, timeout)


@inlined
def update(entry, way, parsed):
    """Follow one packet of a flow; the record's lock is held.  Returns an outcome (kernels/outcome)."""
    record = entry_at(entry)
    step = _step(parsed, u64(record.state), way)
    record.state = step & LOW_8
    timeout = (step >> EIGHT) & _TIMEOUT
    passed = outcome.passed(outcome.term(timeout, timeout))
    return passed | (outcome.NEW_AGAIN if step >> _IS_NEW_SHIFT != ZERO else ZERO)
