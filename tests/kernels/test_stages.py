"""Stages before a burst decides: where a key would stand, which record it points to, and a miss that may be believed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from bursts import Bench, frames_of, udp
from zonetrack.kernels import index, stages
from zonetrack.shm import segment
from zonetrack.shm.layout import PARSED, Region
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def bench():
    return Bench(segment.anonymous(Geometry(300, 4, 125)))


def looked_at(bench: Bench, *packets, zone: int = 0) -> np.ndarray:
    """Run the stages over packets; returns a copy of PARSED[len(packets)]."""
    frames, buffers = frames_of(packets, zone)
    for stage in (
        lambda i: stages.parse(bench.views, np.uint64(frames.ctypes.data), i),
        lambda i: stages.locate(bench.views, i),
        lambda i: stages.glance(bench.views, i),
        lambda i: stages.fetch(bench.views, i),
    ):
        for i in range(len(packets)):
            stage(np.uint64(i))
    del buffers
    size = len(packets) * PARSED.itemsize
    return np.frombuffer(ctypes.string_at(int(bench.views.parsed), size), PARSED)


def test_a_zone_without_connections_says_nothing_for_sure(bench):
    parsed = looked_at(bench, udp())
    assert parsed["line"][0] == 0 and parsed["candidate"][0] == 0


def test_a_key_that_is_there_is_named_and_one_that_is_not_is_absent(bench):
    record = bench.track(udp(1))["record"][0]
    parsed = looked_at(bench, udp(1), udp(1, reply=True), udp(2))
    assert parsed["candidate"].tolist() == [record + 1, record + 1, int(index.ABSENT)]
    assert parsed["hash"][0] == parsed["hash"][1] != parsed["hash"][2]
    slots = bench.table.address(Region.INDEX, "slots")
    assert all((int(line) - slots) % 64 == 0 for line in parsed["line"])


def test_what_cannot_be_read_is_looked_for_nowhere(bench):
    bench.track(udp(1))
    parsed = looked_at(bench, bytes(60), bytes(udp(1))[:36])
    assert parsed["reason"].tolist() == [Reason.NOIP, Reason.L3_HEADER]
    assert parsed["candidate"].tolist() == [0, 0]
