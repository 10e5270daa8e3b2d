"""Capabilities are given up for good; descriptors are allowed as far as that goes."""

import os
import resource
import subprocess
import sys

import pytest
from forked import Child
from zonetrack.service import privileges
from zonetrack.service.privileges import CAP_NET_RAW, OF_CONTROL, OF_WORKERS

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")


def said(work):
    """Return what a child says that does something."""

    def live(child):
        child.say(work())

    with Child(live) as child:
        return child.hear()


@needs_root
@pytest.mark.parametrize("kept", [OF_CONTROL, OF_WORKERS, (CAP_NET_RAW,)])
def test_only_what_is_wanted_is_kept(kept):
    before = privileges.held()

    def give_up():
        privileges.keep_only(kept)
        return sorted(privileges.held())

    assert said(give_up) == sorted(before & set(kept))
    assert privileges.held() == before, "it was a child"


@needs_root
def test_nothing_comes_back_with_a_program():
    def run():
        privileges.keep_only(OF_CONTROL)
        show = "print(next(line for line in open('/proc/self/status') if line.startswith('CapEff')))"
        return subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout.split()

    assert said(run) == ["CapEff:", "0000000000000000"]


def test_who_has_none_gives_up_none():
    def twice():
        privileges.keep_only(())
        privileges.keep_only(())
        return sorted(privileges.held())

    assert said(twice) == []


def test_descriptors():
    def raise_them():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200))
        return [privileges.allow_descriptors(count) for count in (50, 100, 10_000)]

    assert said(raise_them) == [64, 100, 200]
