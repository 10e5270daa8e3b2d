"""How a service ends: its table is put away for the next start; and who outlived keeper and control is ended from outside.

`zonetrack stop` asks control.  Where nobody answers, workers may still be at their queues: they are found as the next
start would find them (service/orphans), and end as if their keeper had asked.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ..shm import port, roster, segment
from ..shm.errors import Missing, WrongState
from ..shm.segment import Instance
from . import burial, log, orphans
from .opening import UNFIT
from .orphans import Orphans

_log = log.logger("keeper")


def put_away(instance: Instance, discard: bool) -> None:
    """Put a table away for the next start, once all processes have ended; or discard it."""
    burial.bury_dead(instance.table)
    left = roster.present(instance.table)
    if discard:
        instance.unlink()
        _log.info("the table is discarded")
    elif left:
        here = ", ".join(f"{place.kind.name.lower()} {place.pid}" for place in left)
        _log.warning("the table is left open, for it is not at rest: %s", here)
    else:
        instance.seal()
        _log.info("the table is put away")


def end_orphans(left: Orphans, discard: bool) -> None:
    """End the processes of a service whose keeper is dead, and put its table away.

    Args:
        left: the processes.
        discard: whether to remove the table.

    Raises:
        InUse: somebody else takes them over at this moment.
        StillRunningError: one does not end.
    """
    told = left.estate.told
    with contextlib.ExitStack() as stack:
        held = None
        with contextlib.suppress(Missing, WrongState, *UNFIT):  # then there is nothing to put away
            held = stack.enter_context(segment.attach(left.instance, claim=True))  # nobody adopts them meanwhile
        for name in port.names(left.instance):
            port.remove(left.instance, name)  # closed first: queues come to an end
        orphans.end(left, told["live"]["drain_ms"] / 1_000)
        Path(told["path"]).unlink(missing_ok=True)
        if held is not None:
            put_away(held, discard)
