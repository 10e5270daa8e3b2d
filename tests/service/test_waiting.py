"""Whoever waits in vain for a lock of the dead repairs it, with no keeper there to do so."""

import os

import numpy as np
import ports
import pytest
import tables
from forked import Child
from zonetrack.clients.port import Queue
from zonetrack.service import waiting
from zonetrack.service.waiting import Waiter
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import DESCRIPTOR, Kind, Step
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def table():
    name = f"test-waiting-{os.getpid()}"
    with segment.create(name, Geometry(4000, zones_in_use=4), secret=tables.SECRET) as made:
        yield made.table
    segment.discard(name)


def dead(table):
    """Return the owner id of one who joined and died."""
    with Child(lambda child: child.say(roster.join(table, Kind.WORKER))) as child:
        owner = child.hear()
        child.wait()
    return owner


def test_who_was_told_busy_repairs_the_dead(table):
    one = tables.Participant(table)
    waiter = Waiter(table, one.me)
    owner = dead(table)
    roster.participants(table)[owner - 1]["intent"]["step"] = Step.LOCKS
    assert not waiter.look(), "nothing was waited for yet"
    one.place["counters"][Reason.BUSY] += 1
    assert waiter.look()
    assert [place.owner for place in roster.present(table)] == [one.me]
    one.place["counters"][Reason.BUSY] += 1
    assert not waiter.look(), "nobody is dead"


def test_the_living_are_left_alone(table):
    one, other = tables.Participant(table), tables.Participant(table)
    other.place["intent"]["step"] = Step.LOCKS
    assert not waiting.see_to(table)
    assert other.step is Step.LOCKS and len(roster.present(table)) == 2
    assert one.step is Step.NONE


def test_a_loop_gives_up_its_rounds_after_a_wait_in_vain():
    """One burst waits; the others of the call stay in the ring until somebody has looked whose lock it is."""
    with ports.Lab(slots=256) as lab, Queue("lab", 0, lab.instance) as queue:
        ports.send(queue, ports.datagrams(1))
        lab.poll()
        room = np.zeros(256, DESCRIPTOR)
        queue.receive(room)
        lock = tables.quotas(lab.table)["count_lock"]
        lock[0] = 200
        assert ports.send(queue, ports.datagrams(256, first=100)) == 256
        taken = lab.poll()
        assert 0 < taken < 256 and lab.worker.counter(Reason.BUSY) > 0
        lock[0] = 0
        assert taken + lab.poll() == 256
