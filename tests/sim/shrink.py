"""A case that goes wrong, made smaller as long as it still does: fewer rounds, fewer operations, fewer kills.

A play beside the table is made smaller by what it is played with: the least with which some seed still goes wrong.
"""

from __future__ import annotations

import dataclasses

from .rounds import Run

SCHEDULES = 12
"""Seeds of the scheduler that are tried with each smaller case."""
TRIES_MAX = 3_000


def fails(case):
    """Return what a case goes wrong with, None when it does not."""
    try:
        Run(case.world, case.seed).one(case)
    except Exception as error:  # whatever it is, it is the fault that is looked for
        return error
    return None


def smaller(case):
    """Yield cases with something left out, the most first."""
    rounds, kills = case.rounds, case.kills
    for at in range(len(rounds)):
        if len(rounds) > 1:
            yield dataclasses.replace(case, rounds=_without(rounds, at), kills=_without(kills, at))
    for at, programs in enumerate(rounds):
        for who, program in enumerate(programs):
            if program:
                yield _with_program(case, at, who, ())
            for i in range(len(program)):
                if len(program) > 1:
                    yield _with_program(case, at, who, _without(program, i))
    for at, lives in enumerate(kills):
        for who, each in enumerate(lives):
            for i in range(len(each)):
                fewer = (*lives[:who], _without(each, i), *lives[who + 1 :])
                yield dataclasses.replace(case, kills=(*kills[:at], fewer, *kills[at + 1 :]))


def shrink(case, tries_max=TRIES_MAX):
    """Return the smallest case found that still goes wrong, and what with."""
    fault = fails(case)
    assert fault is not None, "a case that does not go wrong cannot be shrunk"
    tries = 0
    found = True
    while found and tries < tries_max:
        found = False
        for candidate in smaller(case):
            for schedule in (case.seed, *range(SCHEDULES)):
                tries += 1
                again = dataclasses.replace(candidate, seed=schedule)
                wrong = fails(again)
                if wrong is not None:
                    case, fault, found = again, wrong, True
                    break
            if found or tries >= tries_max:
                break
    return case, fault


def tell(case, error, again=""):
    """Print what a case goes wrong with, how to run it again, and a smaller one that is to be kept.

    Args:
        case: which.
        error: what with.
        again: the command that runs it again; by its text when empty.
    """
    print(f"{case.world}: {error}\nagain: {again or f'python -m tests.sim {str(case)!r}'}", flush=True)
    small, fault = shrink(case)
    print(f"smaller, for tests/sim/found.py:\n{small}\n{type(fault).__name__}: {fault}", flush=True)


LEAST = {
    "client_ring": ({"bursts": (1,)}, {"bursts": (1, 2)}),
    "sleep": ({"bursts": (1,)}, {"bursts": (1, 2)}),
    "rules": ({"workers": 1},),
    **{
        name: tuple(
            {"filled": filled, "weak": weak} | ({"lives": []} if not mortal else {})
            for mortal in (False, True)
            for filled in ((3,), (3, 3), (3, 3, 3))
            for weak in (False, True)
        )
        for name in ("packet_ring", "frame_ring", "xdp_ring")
    },
}
"""What a play may be played with, the least first: without kills, with few packets, with plain memory."""
SEEDS_PLAY = 200


def shrink_play(play, seed):
    """Return the least that some seed of a play still goes wrong with: its seed, what it is played with, and the fault."""
    for least in (*LEAST[play.__name__], {}):
        for again in (*range(SEEDS_PLAY), seed):
            try:
                play(again, **least)
            except Exception as error:
                return again, least, error
    raise AssertionError(f"{play.__name__}({seed}) does not go wrong")


def _without(items, at):
    return (*items[:at], *items[at + 1 :])


def _with_program(case, at, who, program):
    programs = case.rounds[at]
    changed = (*programs[:who], program, *programs[who + 1 :])
    return dataclasses.replace(case, rounds=(*case.rounds[:at], changed, *case.rounds[at + 1 :]))
