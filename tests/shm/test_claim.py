"""The claim: had by one, named by its length, and given up by death."""

import os
import subprocess
import sys

import pytest
from forked import Child
from zonetrack.shm import claim, file_locks
from zonetrack.shm.errors import InUse


@pytest.fixture
def file():
    descriptor = os.memfd_create("test")
    yield descriptor
    os.close(descriptor)


def test_a_claim_says_whose_it_is(file):
    assert claim.holder(file) == 0
    own = claim.Claim("x", file)
    assert own.held
    assert claim.holder(file) == os.getpid()
    own.drop()
    assert not own.held
    assert claim.holder(file) == 0
    own.drop()


def test_a_second_claim_is_refused_and_leaves_no_descriptor(file):
    own = claim.Claim("x", file)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InUse, match=f"x: in use: expected no other process, found process {os.getpid()}"):
        claim.Claim("x", file)
    assert len(os.listdir("/proc/self/fd")) == before
    own.drop()
    claim.Claim("x", file).drop()


def test_a_claim_that_nobody_refers_to_is_dropped(file):
    claim.Claim("x", file)
    assert claim.holder(file) == 0


def test_the_claim_of_a_killed_process_is_free(file):
    def work(child):
        own = claim.Claim("x", file)
        child.say(own.held)
        child.hear()

    with Child(work) as child:
        assert child.hear()
        with pytest.raises(InUse) as caught:
            claim.Claim("x", file)
        assert caught.value.pid == child.pid == claim.holder(file)
        child.kill()
    claim.Claim("x", file).drop()


def test_a_forked_child_has_no_part_in_it(file):
    own = claim.Claim("x", file)
    with Child(lambda child: (child.say(own.held), child.hear())) as child:
        assert child.hear() is False
        own.drop()
        assert claim.holder(file) == 0


def test_an_executed_child_has_no_part_in_it(file):
    own = claim.Claim("x", file)
    command = [sys.executable, "-c", "print('here', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False, text=True) as child:
        assert child.stdout.readline() == "here\n"
        own.drop()
        assert claim.holder(file) == 0
        child.communicate("\n")


def test_closing_the_file_elsewhere_does_not_drop_it(file):
    own = claim.Claim("x", file)
    os.close(file_locks.reopen(file))  # POSIX record locks would be lost here
    assert claim.holder(file) == os.getpid()
    own.drop()


def test_anybody_may_ask_who_holds_it(file):
    own = claim.Claim("x", file)
    parent = os.getpid()
    with Child(lambda child: child.say(claim.holder(file))) as child:
        assert child.hear() == parent
    own.drop()
