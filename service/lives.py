"""Lives of the processes that a keeper keeps: what may become of one, and how long the next start waits.

A child dies and is started again, at once where that is rare.  Each death heats it, each second of life cools it; a
child that is hot is started after a pause, which doubles with every further death, so that one that cannot live costs
little and its log can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..shm.transitions import Transition, after

HEAT_MAX = 8.0
"""Deaths close together that are answered at once."""
PAUSE_S = 0.1
PAUSE_S_MAX = 10.0
HOTTEST = HEAT_MAX + 8.0
"""No hotter, so that a child that begins to live well is forgiven within seconds."""


class Life(IntEnum):
    """Where a child stands."""

    WAITING = 0
    STARTING = 1
    RUNNING = 2
    STOPPING = 3
    HURRYING = 4
    KILLED = 5
    GONE = 6


class Act(IntEnum):
    """What may happen to it."""

    FORK = 0
    READY = 1
    DIE = 2
    STOP = 3
    HURRY = 4
    OVERDUE = 5
    HANG = 6
    ADOPT = 7
    REPLACE = 8


# fmt: off
TRANSITIONS = (  #  from         act          to             why
    Transition(Life.WAITING,  Act.FORK,    Life.STARTING, "its moment has come"),
    Transition(Life.WAITING,  Act.ADOPT,   Life.RUNNING,  "it was left by the keeper before, and goes on"),
    Transition(Life.STARTING, Act.READY,   Life.RUNNING,  "it says that it works"),
    Transition(Life.STARTING, Act.DIE,     Life.WAITING,  "the next try may do better"),
    Transition(Life.RUNNING,  Act.DIE,     Life.WAITING,  "a successor goes on with what it had"),
    Transition(Life.RUNNING,  Act.HANG,    Life.RUNNING,  "it makes no turns: it is killed, and dies of that"),
    Transition(Life.RUNNING,  Act.REPLACE, Life.RUNNING,  "it is asked to end, for a successor to go on"),
    Transition(Life.WAITING,  Act.STOP,    Life.GONE,     "there is nobody to be asked"),
    Transition(Life.STARTING, Act.STOP,    Life.STOPPING, "asked to end"),
    Transition(Life.RUNNING,  Act.STOP,    Life.STOPPING, "asked to end"),
    Transition(Life.STOPPING, Act.READY,   Life.STOPPING, "it had been asked before it was ready"),
    Transition(Life.STOPPING, Act.DIE,     Life.GONE,     "it has ended"),
    Transition(Life.STOPPING, Act.HURRY,   Life.HURRYING, "it shall leave what it is at"),
    Transition(Life.STOPPING, Act.OVERDUE, Life.KILLED,   "it has not ended in time"),
    Transition(Life.HURRYING, Act.READY,   Life.HURRYING, "said just before"),
    Transition(Life.HURRYING, Act.DIE,     Life.GONE,     "it has ended"),
    Transition(Life.HURRYING, Act.OVERDUE, Life.KILLED,   "it has not ended in time"),
    Transition(Life.KILLED,   Act.READY,   Life.KILLED,   "said just before"),
    Transition(Life.KILLED,   Act.DIE,     Life.GONE,     "nothing survives that"),
)
# fmt: on
AFTER = after(TRANSITIONS)


class Impossible(Exception):
    """What happened to a child cannot happen to one that stands where it does; nothing was changed."""


@dataclass
class Course:
    """The course of a child's life, by a clock that its keeper reads."""

    life: Life = Life.WAITING
    due_s: float = 0.0
    """WAITING: when to start it."""
    starts: int = 0
    heat: float = 0.0
    _began_s: float = 0.0

    def take(self, act: Act, now_s: float) -> Life:
        """Let something happen to it, and return where it stands then.

        Raises:
            Impossible: there is no such row.
        """
        if (self.life, act) not in AFTER:
            raise Impossible(f"{act.name} of a child that is {self.life.name}")
        self.life = AFTER[self.life, act]
        if act is Act.DIE:
            self.heat = min(max(0.0, self.heat - (now_s - self._began_s)) + 1.0, HOTTEST)
            self.due_s = now_s + self.pause_s
        elif act in (Act.FORK, Act.ADOPT):
            self.starts += 1
            self._began_s = now_s
        return self.life

    @property
    def pause_s(self) -> float:
        """How long a start waits after a death that left it this hot."""
        excess = self.heat - HEAT_MAX
        return 0.0 if excess <= 0 else min(PAUSE_S_MAX, PAUSE_S * 2.0 ** (excess - 1))
