"""Places on the roster: taken, left, inherited, and kept from others while the dead are not repaired."""

import itertools
import os
import signal

import pytest
from forked import Child
from zonetrack.shm import roster, segment
from zonetrack.shm.errors import NotAtRest, RosterError, RosterFull
from zonetrack.shm.layout import ROSTER_MAX, USED, Attendance, Kind, Region, Step
from zonetrack.shm.sizing import Geometry
from zonetrack.shm.views import Table


@pytest.fixture
def table():
    return segment.anonymous(Geometry(1000))


def test_join_writes_who_it_is(table):
    assert roster.join(table, Kind.WORKER) == 1
    assert roster.join(table, Kind.CONTROL) == 2
    first, second = roster.present(table)
    assert first == roster.Place(
        1, os.getpid(), roster.start_ticks(os.getpid()), Kind.WORKER, Attendance.PRESENT, Step.NONE, True
    )
    assert (second.owner, second.kind) == (2, Kind.CONTROL)


def test_who_joins_a_place_goes_on_with_its_lists(table):
    me = roster.join(table, Kind.WORKER)
    place = roster.participants(table)[me - 1]
    place["front"], place["front_count"], place["deletes"], place["counters"][3] = (9, 8), (7, 6), 5, 4
    roster.leave(table, me)
    assert roster.present(table) == []
    assert roster.join(table, Kind.TOOL) == me
    place = roster.participants(table)[me - 1]
    assert place["front"].tolist() == [9, 8]
    assert place["front_count"].tolist() == [7, 6]
    assert (place["deletes"], place["counters"][3]) == (5, 4)


def test_blocks_of_who_leaves_are_orphans(table):
    me, other = roster.join(table, Kind.WORKER), roster.join(table, Kind.WORKER)
    blocks = table.array(Region.CONTROL, "blocks", "u4")
    blocks[:3] = me, other, 0
    roster.leave(table, me)
    assert blocks[:3].tolist() == [USED, other, 0]


@pytest.mark.parametrize("change", [("step", Step.SPLIT | 99 << 6), ("credit", 3)])
def test_nobody_leaves_in_the_middle_of_something(table, change):
    me = roster.join(table, Kind.WORKER)
    roster.participants(table)[me - 1]["intent"][change[0]] = change[1]
    with pytest.raises(NotAtRest, match=f"place {me} is in step"):
        roster.leave(table, me)
    assert roster.present(table)[0].attendance is Attendance.PRESENT


def dead(table):
    """Return who is dead, whom nobody can repair."""
    buried, left = roster.lay_to_rest(table, lambda owner: False)
    assert buried == {}
    return left


def bury(table, owner):
    """Bury one, and nobody else."""
    roster.lay_to_rest(table, lambda one: one == owner)


def test_a_place_is_left_only_by_who_has_it(table):
    me = roster.join(table, Kind.WORKER)

    def another(child):
        with pytest.raises(RosterError, match=f"place {me} is not of process"):
            roster.leave(table, me)

    with Child(another) as child:
        assert child.wait() == 0
    roster.leave(table, me)
    with pytest.raises(RosterError, match="EMPTY"):
        roster.leave(table, me)


def test_a_killed_participant_is_found_dead_and_its_place_kept(table):
    me = roster.join(table, Kind.KEEPER)
    with Child(lambda child: (child.say(roster.join(table, Kind.WORKER)), child.hear())) as child:
        other = child.hear()
        assert dead(table) == []
        child.kill()
    assert not roster.present(table)[1].alive
    assert dead(table) == [other]
    assert dead(table) == [other]  # until it is buried: the first who asked may have died
    assert roster.join(table, Kind.WORKER) == other + 1
    bury(table, other)
    assert dead(table) == []
    assert roster.join(table, Kind.WORKER) == other
    assert roster.present(table)[0].owner == me


def test_a_zombie_is_dead(table):
    with Child(lambda child: (child.say(roster.join(table, Kind.WORKER)), child.hear())) as child:
        owner = child.hear()
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not waited for
        assert roster.start_ticks(child.pid) == 0
        assert dead(table) == [owner]


def test_a_reused_pid_is_told_by_its_start_time(table):
    me = roster.join(table, Kind.WORKER)
    roster.participants(table)[me - 1]["start_ticks"] -= 1
    assert dead(table) == [me]


def test_the_dead_with_an_operation_half_done_are_not_buried(table):
    with Child(lambda child: child.say(roster.join(table, Kind.WORKER))) as child:
        owner = child.hear()
        child.wait()
    place = roster.participants(table)[owner - 1]
    place["intent"]["step"] = Step.CLEAR
    assert dead(table) == [owner]
    with pytest.raises(NotAtRest, match="CLEAR"):
        bury(table, owner)
    assert roster.join(table, Kind.WORKER) != owner
    place["intent"]["step"] = Step.NONE
    bury(table, owner)
    assert roster.join(table, Kind.WORKER) == owner


def test_the_dead_are_repaired_in_rounds_and_buried_when_at_rest(table):
    owners = []
    for step in (Step.CLEAR, Step.NONE, Step.SPLIT):
        with Child(lambda child: child.say(roster.join(table, Kind.WORKER))) as child:
            owners.append(child.hear())
            child.wait()
        roster.participants(table)[owners[-1] - 1]["intent"]["step"] = step
    first, second, third = owners
    calls = []

    def repair(owner):
        calls.append(owner)
        if owner == third or (owner == first and calls.count(first) == 1):
            return False
        roster.participants(table)[owner - 1]["intent"]["step"] = Step.NONE
        return True

    assert roster.lay_to_rest(table, repair) == ({first: Step.CLEAR, second: Step.NONE}, [third])
    assert calls == [first, second, third, first, third, third]
    assert [(place.owner, place.attendance) for place in roster.present(table)] == [(third, Attendance.DYING)]
    assert roster.join(table, Kind.WORKER) == first


def test_an_empty_place_with_a_step_is_not_taken(table):
    roster.participants(table)[0]["intent"]["step"] = Step.UPDATE
    assert roster.join(table, Kind.WORKER) == 2


def test_the_living_are_not_buried(table):
    me = roster.join(table, Kind.WORKER)
    bury(table, me)
    assert [place.owner for place in roster.present(table)] == [me]


def test_a_joiner_killed_half_way_is_dead_and_holds_no_lock(table):
    def half(child):
        with roster.locked(table) as places:
            places[0]["attendance"] = Attendance.JOINING
            places[0]["pid"], places[0]["start_ticks"] = os.getppid(), roster.start_ticks(os.getppid())
            child.say("half")
            child.hear()

    with Child(half) as child:
        child.hear()
        child.kill()
    assert dead(table) == [1]
    bury(table, 1)
    assert roster.join(table, Kind.WORKER) == 1


def test_a_full_roster_says_how_many_are_dead(table):
    owners = [roster.join(table, Kind.WORKER) for _ in range(ROSTER_MAX)]
    assert owners == list(range(1, ROSTER_MAX + 1))
    roster.participants(table)["start_ticks"][:2] -= 1
    with pytest.raises(RosterFull, match="all 256 places are taken, 2 of them by the dead"):
        roster.join(table, Kind.WORKER)


def test_processes_that_join_at_once_get_different_places(table):
    def joiner(child):
        child.hear()
        child.say([roster.join(table, Kind.WORKER) for _ in range(10)])
        child.hear()

    children = [Child(joiner) for _ in range(4)]
    for child in children:
        child.say("go")
    owners = list(itertools.chain.from_iterable(child.hear() for child in children))
    for child in children:
        child.kill()
    assert sorted(owners) == list(range(1, 41))


def test_a_table_without_a_file_has_a_roster_too(table):
    alone = Table(table.geometry, table.regions)
    me = roster.join(alone, Kind.TOOL)
    roster.leave(alone, me)


@pytest.mark.parametrize("before", Attendance)
@pytest.mark.parametrize("act", roster.Act)
def test_what_is_not_in_the_table_is_illegal(before, act):
    rows = [row for row in roster.TRANSITIONS if (row.before, row.event) == (before, act)]
    assert len(rows) == ((before, act) in roster.AFTER)


def test_start_ticks_of_no_process_are_0():
    assert roster.start_ticks(2**22 + 1) == 0
    assert roster.start_ticks(os.getpid()) > 0
