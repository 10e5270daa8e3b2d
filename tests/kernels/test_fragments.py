"""The store: buckets, lists, counts and generations."""

import fragmented
import naive_fragments
import numpy as np
import pytest
from fragmented import HELD, NEW, Bench, cut, udp
from zonetrack.kernels import fragments, late
from zonetrack.shm.layout import DATAGRAM, FRAGMENT, FRAGMENTS_MAX, HOLDER, Region, Wait

ALL = 0xFFFFFFFFFFFFFFFF


@pytest.fixture
def bench():
    return Bench()


def rows(bench, name, dtype):
    return bench.table.array(Region.FRAGMENTS, name, dtype)


def test_a_new_store_is_empty_and_sound(bench):
    assert naive_fragments.faults(bench.table) == []
    assert bench.store["count"] == 0 and bench.store["due_ms"] == ALL


def test_datagrams_that_share_a_bucket_are_told_apart(bench):
    """In 1,024 buckets, of 100 datagrams two share one, but for once in a hundred times; and 900 always do."""
    pieces = {number: cut(udp(1600), 1400, id=number) for number in range(900)}
    for first, _ in pieces.values():
        assert bench.send(first) == [HELD]
    buckets = rows(bench, "fragment_buckets", "u4")
    assert np.count_nonzero(buckets) < 900
    assert naive_fragments.faults(bench.table) == []
    for number in (500, 0, 899, 17):
        assert bench.send(pieces[number][1]) == [NEW]
    assert bench.store["count"] == 900
    assert len(bench.late()) == 4
    assert naive_fragments.faults(bench.table) == []


def test_a_place_that_is_used_again_has_another_generation(bench):
    words = rows(bench, "fragments", FRAGMENT)["word"]
    before = words.copy()
    bench.fates(cut(udp(2000), 1400))
    used = np.flatnonzero(words != before)
    assert len(used) == 2 and set((words[used] >> np.uint64(32)).tolist()) == {1}
    assert rows(bench, "datagrams", DATAGRAM)["generation"].sum() == 1


def test_a_frame_is_kept_as_it_came(bench):
    first, _ = cut(udp(2000), 1400)
    bench.send(first)
    number = int(np.flatnonzero(naive_fragments.waits(bench.table)[0] == Wait.HELD)[0])
    buffer = rows(bench, "buffers", "u1").reshape(FRAGMENTS_MAX, -1)[number]
    assert bytes(buffer[: len(first.frame)]) == first.frame
    assert rows(bench, "fragments", FRAGMENT)["captured"][number] == len(first.frame)


def test_holders_are_counted(bench):
    other = Bench(bench.table)
    bench.send(*(cut(udp(1600), 1400, id=number)[0] for number in range(3)))
    other.send(cut(udp(1600), 1400, id=9)[0])
    held = rows(bench, "holders", HOLDER)["held"]
    assert (held[bench.me - 1], held[other.me - 1]) == (3, 1)
    assert fragments.waits_for(bench.views) and not fragments.has_ready(bench.views)
    assert late.abandon(bench.views) and not fragments.waits_for(bench.views)
    assert fragmented.naive_fragments.faults(bench.table) == []
