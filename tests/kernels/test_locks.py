"""A lock is its holder's id: one at a time, waited for in bounded tries, told whose it is."""

import mmap

import numpy as np
import pytest
from forked import Child
from zonetrack.kernels import locks, memory
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.kernels.words import ONE, u64
from zonetrack.shm.views import address_of


@kernel
def take(word, me):
    return locks.take(word, me)


@kernel
def drop(word):
    locks.drop(word)


@kernel
def count_under_lock(word, counter, rounds, me):
    """Add one to a plain counter ``rounds`` times; returns the times that the lock was not had or was not ours."""
    wrong = u64(0)
    for _ in range(rounds):
        if not locks.take(word, me):
            wrong += ONE
            continue
        memory.set_le64(counter, memory.le64(counter) + ONE)
        if memory.read32(word) != me:
            wrong += ONE
        locks.drop(word)
    return wrong


def at(array, index=0):
    return u64(array.ctypes.data + array.itemsize * index)


def test_a_free_lock_is_had_and_names_its_holder():
    words = np.zeros(3, "u4")
    assert take(at(words, 1), u64(7))
    assert words.tolist() == [0, 7, 0]
    drop(at(words, 1))
    assert words.tolist() == [0, 0, 0]


@pytest.mark.parametrize("holder", [8, 7])
def test_a_lock_that_is_held_is_not_had_in_the_end_not_even_by_its_holder(holder):
    words = np.array([0, holder, 0], "u4")
    assert not take(at(words, 1), u64(7))
    assert words.tolist() == [0, holder, 0]


def test_a_lock_that_comes_free_is_had_while_waiting():
    """The holder goes on only when the kernel lets it: here it drops the lock, seen from another process."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    words = np.frombuffer(shared, "u4")
    word = u64(address_of(shared))
    words[0] = 9
    assert not take(word, u64(7))  # compiled before the fork

    def holder(child):
        child.hear()
        drop(word)

    with Child(holder) as child:
        child.say("drop it")
        tries = 0
        while not take(word, u64(7)):  # one wait is bounded, however slow the machine is
            tries += 1
            assert tries < 10_000
        assert words[0] == 7
        assert child.wait() == 0


@pytest.mark.skipif(not JIT, reason="the twins' words are whole within one process only")
def test_three_processes_exclude_each_other():
    rounds = 20_000
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    words = np.frombuffer(shared, "u8")
    word, counter = u64(address_of(shared)), u64(address_of(shared) + 64)
    count_under_lock(word, counter, u64(0), u64(1))

    def worker(me):
        def work(child):
            child.hear()
            child.say(int(count_under_lock(word, counter, u64(rounds), u64(me))))

        return work

    children = [Child(worker(me)) for me in (1, 2, 3)]
    for child in children:
        child.say("go")
    assert [child.hear() for child in children] == [0, 0, 0]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert (words[0], words[8]) == (0, 3 * rounds)
