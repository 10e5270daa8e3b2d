"""What holds in the end, as something else in the system gets its turn: waited for, however busy the machine is."""

import os
import time

PATIENCE_S = 120.0


def until(holds, told=lambda: "it does not come to hold"):
    """Wait until something holds, and return what it says.

    Args:
        holds: asked again and again, with the processor given up between.
        told: what is said when it has not held for so long that it never will.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end_s, told()
        os.sched_yield()
    return found
