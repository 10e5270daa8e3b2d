"""Memory that a client tears: whoever shares it reads zeros and goes on; other faults are what they were."""

import ctypes
import faulthandler
import gc
import os
import signal

import forked
import numpy as np
import pytest
from zonetrack.service.ports import torn
from zonetrack.shm import mapping

PAGE = os.sysconf("SC_PAGE_SIZE")
PAGES = 8


def shared():
    """Return a file of memory, and an array that maps it, full of sevens."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, PAGES * PAGE)
    memory = mapping.shared(descriptor, PAGES * PAGE, reserve=True)
    memory[:] = 7
    return descriptor, memory


def in_a_child(act):
    """Return what a child does that runs ``act``: what it says, and how it ends."""

    def run(child):
        faulthandler.disable()
        child.say(act())

    with forked.Child(run) as child:
        try:
            said = child.hear()
        except EOFError:
            said = None
        return said, child.wait()


@pytest.mark.parametrize("pages", [0, 1, PAGES - 1])
def test_what_was_cut_off_reads_as_zeros_and_can_be_written(pages):
    def act():
        descriptor, memory = shared()
        torn.mend(memory)
        os.ftruncate(descriptor, pages * PAGE)
        sums = memory.reshape(PAGES, PAGE).sum(axis=1).tolist()
        memory[-1] = 5
        return sums, int(memory[-1])

    assert in_a_child(act) == (([7 * PAGE] * pages + [0] * (PAGES - pages), 5), 0)


def test_what_comes_back_is_not_taken_from_the_client_again():
    """Once torn, a page is our own: whatever the client does with the file."""

    def act():
        descriptor, memory = shared()
        torn.mend(memory)
        os.ftruncate(descriptor, 0)
        assert memory[0] == 0
        os.ftruncate(descriptor, PAGES * PAGE)
        os.pwrite(descriptor, b"\x09" * PAGE, 0)
        return int(memory[0])

    assert in_a_child(act) == (0, 0)


def test_children_inherit_it():
    def act():
        descriptor, memory = shared()
        torn.mend(memory)

        def touch():
            os.ftruncate(descriptor, 0)
            return int(memory[PAGE])

        return in_a_child(touch)

    assert in_a_child(act) == ((0, 0), 0)


def test_memory_of_others_is_not_mended():
    def act():
        mended, (descriptor, memory) = shared(), shared()
        torn.mend(mended[1])
        os.ftruncate(descriptor, 0)
        return int(memory[0])

    assert in_a_child(act) == (None, -signal.SIGBUS)


def test_memory_that_is_given_back_is_mended_no_more():
    before = int(np.count_nonzero(torn._spans[:, 1]))
    _, memory = shared()
    torn.mend(memory)
    assert np.count_nonzero(torn._spans[:, 1]) == before + 1
    del memory
    gc.collect()
    assert np.count_nonzero(torn._spans[:, 1]) == before


def test_there_is_an_end_to_memories(monkeypatch):
    monkeypatch.setattr(torn, "_spans", np.ones((2, 2), "u8"))
    with pytest.raises(OSError, match="clients already"):
        torn.mend(shared()[1])


def test_faults_of_others_go_to_who_handled_them_before():
    """Here Python's own dump of where everybody stands, which pytest switches on."""
    read, write = os.pipe()

    def run(child):
        os.dup2(write, 2)
        faulthandler.enable(2)
        torn.mend(shared()[1])
        descriptor, memory = shared()
        os.ftruncate(descriptor, 0)
        ctypes.string_at(memory.ctypes.data, 1)

    with forked.Child(run) as child:
        assert child.wait() == -signal.SIGBUS
    os.close(write)
    with open(read) as said:
        assert "Fatal Python error: Bus error" in said.read()
