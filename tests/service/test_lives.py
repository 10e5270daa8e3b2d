"""The table is all there is: each row is carried out, everything else is refused; who is hot waits."""

import itertools

import pytest
from zonetrack.service import lives
from zonetrack.service.lives import AFTER, HEAT_MAX, PAUSE_S, PAUSE_S_MAX, TRANSITIONS, Act, Course, Impossible, Life


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.before.name}-{row.event.name}")
def test_each_row(row):
    course = Course(row.before)
    assert course.take(row.event, 0.0) is row.after is course.life
    assert row.why


@pytest.mark.parametrize(("life", "act"), sorted(set(itertools.product(Life, Act)) - set(AFTER)))
def test_all_else_is_refused_and_changes_nothing(life, act):
    course = Course(life)
    with pytest.raises(Impossible, match=f"{act.name} of a child that is {life.name}"):
        course.take(act, 0.0)
    assert course == Course(life)


def test_every_life_ends_once_it_is_asked_to():
    """STOP leads to GONE by what comes by itself: the child's end, or that it is overdue."""
    for life in (Life.WAITING, Life.STARTING, Life.RUNNING):
        after = AFTER[life, Act.STOP]
        assert after is Life.GONE or AFTER[after, Act.DIE] is Life.GONE
    for life in (Life.STOPPING, Life.HURRYING):
        assert AFTER[AFTER[life, Act.OVERDUE], Act.DIE] is Life.GONE


def live(course, from_s, lived_s):
    """Start it, and let it die; return how long the next start waits."""
    course.take(Act.FORK, from_s)
    course.take(Act.READY, from_s)
    course.take(Act.DIE, from_s + lived_s)
    return course.due_s - (from_s + lived_s)


def test_rare_deaths_are_answered_at_once():
    course, now_s = Course(), 100.0
    for _ in range(50):
        assert live(course, now_s, 1.0) == 0.0
        now_s += 1.0
    assert course.starts == 50


def test_a_loop_of_crashes_slows_down_to_its_longest_pause_and_cools():
    course, now_s, pauses = Course(), 100.0, []
    for _ in range(40):
        pauses.append(live(course, now_s, 0.01))
        now_s = course.due_s
    assert pauses[: int(HEAT_MAX)] == [0.0] * int(HEAT_MAX)
    assert PAUSE_S / 2 < pauses[int(HEAT_MAX)] < 2 * PAUSE_S
    assert 1.0 < max(pauses) <= PAUSE_S_MAX
    assert live(course, now_s, 60.0) == 0.0


def test_a_child_waits_no_longer_than_the_longest_pause():
    assert Course(heat=lives.HEAT_MAX + 50).pause_s == PAUSE_S_MAX
