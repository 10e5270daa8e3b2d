"""The audit of expectations: a good table passes, whatever was added and removed; each fault is planted in test_audit."""

import random

import foretelling
import naive_audit
import numpy as np
import tables
from foretelling import Wanted
from zonetrack.kernels import audit_expectations
from zonetrack.kernels.findings import Finding
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import EXPECTATIONS_MAX, ZONES_MAX


def found(participant):
    """Return the Finding and its numbers, as the kernel writes them."""
    content, seen, out = np.zeros(ZONES_MAX, "u4"), np.zeros(EXPECTATIONS_MAX, "u1"), np.zeros(4, "u8")
    at = [u64(array.ctypes.data) for array in (content, seen)]
    good = audit_expectations.audit(participant.views, *at, u64(tables.ZONES), u64(out.ctypes.data))
    assert good == (out[0] == Finding.NONE)
    return out.tolist()


def test_a_table_of_some_of_several_parents_passes_until_a_chain_is_bent():
    table = tables.small()
    one = tables.Participant(table)
    parents = [foretelling.parent_of(one, tables.keys(1, first=n)) for n in range(1, 6)]
    chance = random.Random(3)
    for _ in range(80):
        wanted = Wanted(port=chance.randrange(12), zone=chance.randrange(3))
        if chance.random() < 0.7:
            foretelling.add(one, chance.choice(parents), wanted)
        else:
            foretelling.claim(one, wanted)
    assert found(one) == [Finding.NONE, 0, 0, 0]
    assert list(naive_audit._expectations(table)) == []
    foretelling.header(table)["count"] += 1
    assert found(one)[0] == Finding.EXPECTATION_COUNT
    assert len(list(naive_audit._expectations(table))) == 1
