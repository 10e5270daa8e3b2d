"""Phases of a service, as its keeper goes through them: what may happen in each, and what then."""

from __future__ import annotations

from enum import IntEnum

from ..shm.transitions import Transition, after


class Phase(IntEnum):
    """Where a service stands."""

    STARTING = 0
    SERVING = 1
    DRAINING = 2
    CLOSING = 3
    OVER = 4


class Event(IntEnum):
    """What may happen to it."""

    READY = 0
    STOP = 1
    DRAINED = 2
    CLOSED = 3
    LEAVE = 4


# fmt: off
TRANSITIONS = (  #  from            event          to              why
    Transition(Phase.STARTING, Event.READY,   Phase.SERVING,  "all children are ready"),
    Transition(Phase.STARTING, Event.STOP,    Phase.DRAINING, "asked to, or a child failed"),
    Transition(Phase.SERVING,  Event.STOP,    Phase.DRAINING, "asked to: workers empty their queues"),
    Transition(Phase.SERVING,  Event.LEAVE,   Phase.OVER,     "the others go on: the next keeper adopts them"),
    Transition(Phase.DRAINING, Event.STOP,    Phase.DRAINING, "asked again: they leave them"),
    Transition(Phase.DRAINING, Event.DRAINED, Phase.CLOSING,  "the workers have gone: control may"),
    Transition(Phase.CLOSING,  Event.STOP,    Phase.CLOSING,  "it is at that"),
    Transition(Phase.CLOSING,  Event.CLOSED,  Phase.OVER,     "nobody is left"),
)
# fmt: on
AFTER = after(TRANSITIONS)
