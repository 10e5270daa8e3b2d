"""Sleeping and waking: between two processes that map a word at different addresses, by real time and signals."""

import mmap
import os
import signal
import time

import forked
import numpy as np
import pytest
from zonetrack.kernels import futex, memory
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import ONE, ZERO, u64
from zonetrack.shm.layout import TIMESPEC, WAIT

FAR_S = 1 << 40
"""A moment that does not come."""


@kernel
def sleep(word, value, timeout):
    futex.wait(word, value, timeout)


@kernel
def sleep_on_any(waits, count, timeout):
    futex.wait_for_any(waits, count, timeout)


@kernel
def wake(word):
    memory.release32(word, ZERO)
    futex.wake(word)


@kernel
def set_moment(timeout, moment_ms):
    futex.until(timeout, moment_ms)


def moment(seconds):
    """Return a TIMESPEC[1] in ``seconds`` from the start of the clock."""
    made = np.zeros(1, TIMESPEC)
    made["seconds"] = seconds
    return made


def at(array):
    """Return the address of an array."""
    return u64(array.ctypes.data)


@pytest.fixture
def file():
    """A file of shared memory with one page."""
    descriptor = os.memfd_create("words")
    os.ftruncate(descriptor, mmap.PAGESIZE)
    yield descriptor
    os.close(descriptor)


def words_of(file):
    """Map the file, u4[n]."""
    return np.frombuffer(mmap.mmap(file, mmap.PAGESIZE), "u4")


def test_moment_is_seconds_and_nanoseconds():
    until = np.zeros(1, TIMESPEC)
    set_moment(at(until), u64(12_345))
    assert until[0].tolist() == (12, 345_000_000)


def test_sleep_ends_when_the_moment_has_passed():
    word = np.ones(1, "u4")
    sleep(at(word), ONE, at(moment(0)))


def test_no_sleep_on_another_value():
    word = np.zeros(1, "u4")
    sleep(at(word), ONE, at(moment(FAR_S)))


def test_wake_of_nobody_is_nothing():
    word = np.ones(1, "u4")
    wake(at(word))
    assert word[0] == 0


def sleeper(file, many):
    """Return what a child does: sleep until its word is 0."""

    def body(child):
        words = words_of(file)
        waits = np.zeros(2, WAIT)
        waits["value"], waits["flags"] = 1, 2
        waits["address"] = words.ctypes.data, words.ctypes.data + 64
        words[0] = words[16] = 1
        child.say("sleeps")
        while words[0] == 1:
            if many:
                sleep_on_any(at(waits), u64(2), at(moment(FAR_S)))
            else:
                sleep(at(words), ONE, at(moment(FAR_S)))
        child.say("awake")

    return body


@pytest.mark.parametrize("many", [False, True])
def test_other_process_is_woken(file, many):
    words = words_of(file)
    with forked.Child(sleeper(file, many)) as child:
        assert child.hear() == "sleeps"
        wake(at(words))
        assert child.hear() == "awake"
        assert child.wait() == 0


def test_signal_ends_a_sleep():
    word, heard = np.ones(1, "u4"), []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)  # again and again: the first may come before the sleep
        began = time.monotonic()
        sleep(at(word), ONE, at(moment(FAR_S)))
        assert time.monotonic() - began < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard
