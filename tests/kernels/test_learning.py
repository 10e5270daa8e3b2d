"""What a switch remembers: the latest port of an address in a VLAN, for five minutes, the latest addresses of many."""

import numpy as np
import pytest
from zonetrack.kernels import learning
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import LEARNED, LEARNED_MAX

A, B, GROUP = 0x02_00_00_00_00_01, 0x02_00_00_00_00_02, 0x01_00_5E_00_00_01


class Memory:
    def __init__(self):
        self.lines = np.zeros(LEARNED_MAX, LEARNED)
        self.at = u64(self.lines.ctypes.data)

    def learn(self, address, port, vlan=0, now_s=1000):
        learning.learn(self.at, u64(address), u64(vlan), u64(port), u64(now_s))

    def where(self, address, vlan=0, now_s=1000):
        return int(learning.where(self.at, u64(address), u64(vlan), u64(now_s)))


@pytest.fixture
def memory():
    return Memory()


def test_the_latest_port_is_remembered(memory):
    assert memory.where(A) == 0
    memory.learn(A, 1)
    memory.learn(B, 2)
    assert (memory.where(A), memory.where(B)) == (1, 2)
    memory.learn(A, 3)
    assert (memory.where(A), memory.where(B)) == (3, 2)
    assert np.count_nonzero(memory.lines["where"]) == 2


def test_vlans_are_apart(memory):
    memory.learn(A, 1, vlan=5)
    memory.learn(A, 2, vlan=6)
    assert [memory.where(A, vlan) for vlan in (5, 6, 7, 0)] == [1, 2, 0, 0]


def test_what_was_not_seen_for_long_is_forgotten(memory):
    memory.learn(A, 1, now_s=1000)
    assert memory.where(A, now_s=1299) == 1
    assert memory.where(A, now_s=1300) == 0
    memory.learn(A, 1, now_s=1300)
    assert memory.where(A, now_s=1599) == 1


def test_groups_and_nobody_are_nowhere(memory):
    memory.learn(GROUP, 1)
    memory.learn(0, 1)
    assert (memory.where(GROUP), memory.where(0)) == (0, 0)
    assert not memory.lines["where"].any()


def test_of_too_many_the_latest_stay(memory):
    """More addresses than there are places: each place holds an address that was learned, and the last one is there."""
    for number in range(3 * LEARNED_MAX // 2):
        memory.learn(A + 2 * number, 1 + number % 7, now_s=1000 + number // 64)
    last = 3 * LEARNED_MAX // 2 - 1
    assert memory.where(A + 2 * last, now_s=1000 + last // 64) == 1 + last % 7
    assert LEARNED_MAX * 0.8 < np.count_nonzero(memory.lines["where"]) <= LEARNED_MAX
