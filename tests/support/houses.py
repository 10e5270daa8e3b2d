"""Houses of a service, made by this process or left by a keeper that was killed."""

import contextlib
import itertools
import os
import signal

from forked import Child
from zonetrack.service import house, orphans
from zonetrack.service.config import Config
from zonetrack.service.ports.specs import PortSpec
from zonetrack.shm import port

_numbers = itertools.count(1)


@contextlib.contextmanager
def configured(directory):
    """Yield the configuration of a service of two workers and a port; of its ports nothing is left afterwards."""
    made = Config(
        instance=f"test-house-{os.getpid()}-{next(_numbers)}",
        socket=str(directory / "x.sock"),
        workers=2,
        ports=(PortSpec("shm", "lab", queues=3, zone=7),),
    )
    yield made
    for name in port.names(made.instance):
        port.remove(made.instance, name)


def made_by_a_keeper(config):
    """Return a house as a keeper would leave it: packets have come, an order waits."""
    made = house.make(config, lambda act: None)
    made.queues.records["rx"]["cursor"][2] = 99
    made.board.lines["calls"][1] = 5
    os.write(made.order, b"\1")
    return made


def left_by_a_keeper(config, before=lambda made: None):
    """Let a keeper make a house, have it killed, and return the pid of its child, in place 0."""

    def keep(child):
        made = made_by_a_keeper(config)
        before(made)
        orphan = Child(lambda one: stay(one, made))
        orphan.hear()
        child.say(orphan.pid)
        child.hear()

    def stay(child, made):
        made.enter(0)
        child.say("in place")
        while True:
            signal.pause()

    with Child(keep) as keeper:
        return keeper.hear()


@contextlib.contextmanager
def orphaned(config, **more):
    """Yield who is left of a service whose keeper was killed."""
    pid = left_by_a_keeper(config, **more)
    try:
        left = orphans.of(config.instance)
        assert left is not None and left.pids == [pid]
        yield left
    finally:
        with contextlib.suppress(ProcessLookupError):  # it was ended, as orphans are that nobody adopts
            os.kill(pid, signal.SIGKILL)


def close(taken):
    """Close all descriptors of a house, or of orphans."""
    for name in taken.estate.told["descriptors"]:
        taken.estate.drop(name)
