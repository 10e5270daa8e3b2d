"""Who makes no turns for so many looks hangs; whoever moves, or is somebody else by now, does not."""

from zonetrack.service.hangs import LOOKS, Hangs


def looks(made, *turns):
    """Look again and again; return what was found at each look."""
    return [made.look(one, 1.0, 0.0) for one in turns]


def test_who_stands_still_hangs_and_is_told_once():
    made = Hangs()
    assert looks(made, *[{0: (7, 5), 1: (8, turn)} for turn in range(LOOKS)]) == [[]] * LOOKS
    assert looks(made, *[{0: (7, 5), 1: (8, LOOKS + turn)} for turn in range(LOOKS)]) == [[0], *[[]] * (LOOKS - 1)]


def test_a_turn_is_enough():
    still = {0: (7, 5)}
    assert looks(Hangs(), *[still] * LOOKS, {0: (7, 6)}, *[{0: (7, 6)}] * LOOKS) == [[]] * (2 * LOOKS) + [[0]]


def test_a_successor_begins_anew():
    assert looks(Hangs(), *[{0: (7, 5)}] * LOOKS, *[{0: (9, 5)}] * LOOKS) == [[]] * (2 * LOOKS)


def test_who_did_not_run_meanwhile_begins_anew():
    assert looks(Hangs(), *[{0: (7, 5)}] * LOOKS, {}, *[{0: (7, 5)}] * LOOKS) == [[]] * (2 * LOOKS + 1)


def test_the_next_look_is_a_part_of_the_time_away():
    made = Hangs()
    assert made.due_s == 0.0
    made.look({}, 5.0, 100.0)
    assert made.due_s == 100.0 + 5.0 / LOOKS
