"""The samples of all participants are read together, latest first."""

import numpy as np
import pytest
import tables
from bursts import Bench, tcp
from zonetrack.service.samples import LOOKS_MAX, Samples, zone_of
from zonetrack.shm.layout import SAMPLE, SAMPLES_MAX, Region


@pytest.fixture
def table():
    return tables.small(300)


def test_the_latest_of_all_come_first(table):
    first, second = Bench(table), Bench(table)
    for n in range(4):
        (first, second)[n % 2].track(tcp("FA", n, 1), now_ms=1000 + n, zone=n % 3)
    samples = Samples(table)
    found = samples.recent(3)
    assert [(owner, int(sample["seq"])) for owner, sample in found] == [
        *((second.me, 3), (first.me, 2), (second.me, 1)),
    ]
    assert [int(sample["seq"]) for _, sample in samples.recent(10, zone=0)] == [3, 0]
    assert {zone_of(sample) for _, sample in samples.recent(10)} == {0, 1, 2}


def test_nothing_is_there_at_first(table):
    assert Samples(table).recent(10) == []
    assert len(Samples(table).of(3)) == 0


class Restless(np.ndarray):
    """A ring in which somebody writes a sample between every two looks."""

    def copy(self, order="C"):
        if self.dtype.names:
            self["number"][1] += 2
        return super().copy(order)


def test_a_sample_that_is_written_meanwhile_is_left_out(table):
    rings = table.array(Region.CONTROL, "samples", SAMPLE)
    rings["number"][:SAMPLES_MAX] = np.arange(2, 2 * SAMPLES_MAX + 2, 2)
    samples = Samples(table)
    samples._rings = samples._rings.view(Restless)
    found = samples.of(1)
    assert found["number"].tolist() == [2, *range(6, 2 * SAMPLES_MAX + 2, 2)]
    assert rings["number"][1] == 4 + 2 * LOOKS_MAX  # it gave up, and took the others


def test_a_sample_that_is_being_written_is_left_out(table):
    rings = table.array(Region.CONTROL, "samples", SAMPLE)
    rings["number"][:3] = 2, 3, 6
    assert Samples(table).of(1)["number"].tolist() == [2, 6]
