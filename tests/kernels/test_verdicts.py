"""Verdicts: what is written by the word reads field by field."""

from __future__ import annotations

import numpy as np
import pytest
from bursts import Bench, udp
from zonetrack.kernels import verdicts
from zonetrack.shm import segment
from zonetrack.shm.layout import ENTRY, NO_RECORD, PARSED, VERDICT, CtState, Region, VerdictFlag
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def bench():
    return Bench(segment.anonymous(Geometry(300, 4, 125)))


@pytest.mark.parametrize(
    ("reason", "ct_state", "flags"),
    [
        (Reason.NOIP, 0, VerdictFlag.NOIP),
        (Reason.NOT_TRACKED, 0, VerdictFlag.UNTRACKED),
        (Reason.TRUNCATED, CtState.TRK | CtState.INV, 0),
        (Reason.BUSY, CtState.TRK | CtState.INV, 0),
    ],
)
def test_a_refusal_fills_every_field(reason, ct_state, flags):
    parsed = np.zeros(1, PARSED).view(np.recarray)
    parsed["zone"], parsed["protocol"] = 65535, 254
    out = np.full(VERDICT.itemsize, 0xAA, "u1").view(VERDICT)
    verdicts.refuse(parsed[0], np.uint64(out.ctypes.data), np.uint64(reason))
    assert out.tolist() == [(ct_state, reason, 0, flags, 65535, 254, 0, NO_RECORD, 0, 0, 0)]


def test_a_verdict_describes_its_connection(bench):
    made = bench.track(udp(), zone=9)[0]
    entries = bench.table.array(Region.ENTRIES, "entries", ENTRY)
    entries["mark"][made["record"]] = 0xFFFFFFFF
    again = bench.track(udp(), zone=9, now_ms=1500)[0]
    assert (again["record"], again["incarnation"], again["zone"], again["protocol"]) == (
        made["record"],
        int(entries["life"][made["record"]]) >> 32,
        9,
        17,
    )
    assert again["mark"] == 0xFFFFFFFF
    assert again["timeout_ms"] == int(entries["expiry_ms"][made["record"]]) - 1500
