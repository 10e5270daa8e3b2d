"""Memory without a name: zero at first, shared by whoever has its descriptor, in no memory before it is written."""

import os

from forked import Child
from zonetrack.shm.unnamed import Unnamed

SIZE = 1 << 20


def test_it_is_zero_and_takes_memory_where_it_is_written():
    made = Unnamed("test", SIZE)
    assert os.readlink(f"/proc/self/fd/{made.descriptor}") == "/memfd:zonetrack.test (deleted)"
    assert os.pread(made.descriptor, SIZE, 0) == bytes(SIZE)
    assert os.fstat(made.descriptor).st_blocks == 0
    made.memory[-1] = 7
    assert 0 < os.fstat(made.descriptor).st_blocks * 512 < SIZE


def test_who_is_forked_and_who_has_the_descriptor_have_the_same():
    made = Unnamed("test", SIZE)
    again = Unnamed("test", SIZE, os.dup(made.descriptor))

    def write(child, memory=made.memory):
        memory[5] = 9

    with Child(write) as child:
        assert child.wait() == 0
    assert made.memory[5] == again.memory[5] == 9 and again.base != made.base
    del made
    assert again.memory[5] == 9


def test_the_descriptor_goes_with_it():
    made = Unnamed("test", SIZE)
    descriptor, again = made.descriptor, os.dup(made.descriptor)
    del made
    with open(os.devnull) as other:
        assert other.fileno() == descriptor
    os.close(again)
