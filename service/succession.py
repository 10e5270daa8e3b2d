"""What a keeper has from the one before: the house of those who were left, or what the service manager has kept of it.

Either fits, and is taken; or it does not, and is ended or closed, so that a house can be made in its place.
"""

from __future__ import annotations

from ..shm import estate
from ..shm.errors import EstateError
from ..shm.views import Table
from . import burial, door, house, log, notify, orphans
from .config import Config
from .house import House, Undo
from .orphans import Orphans

_log = log.logger("keeper")


def inherit(left: Orphans, config: Config, table: Table, undo: Undo) -> House | None:
    """Take the house of those who were left over; where that cannot be, end and bury them, and return None.

    Args:
        left: who is to be adopted.
        config: of the service; it does not differ from theirs.
        table: of the instance.
        undo: what to call at the end of the service.

    Raises:
        StillRunningError: one of them does not end.
        DoorError: the control socket cannot stand there.
    """
    try:
        return house.take_over(left, config, undo)
    except EstateError as error:
        _log.warning("who was left cannot be adopted: %s", error)
    orphans.end(left, config.drain_ms / 1_000)
    burial.bury_dead(table)
    return None


def take_up(stored: dict[str, int], config: Config, undo: Undo) -> House | None:
    """Take up what the service manager has kept of a service of which nobody lives; where it does not fit, close it.

    Args:
        stored: the descriptors that it has handed over, by name; they belong to the house from now on, or to nobody.
        config: of the service.
        undo: what to call at its end.

    Raises:
        DoorError: the control socket cannot stand there.
    """
    kept = orphans.stored(config.instance, stored)
    if kept is None:
        house.close(stored)
        return None
    if not config.fresh and not orphans.differences(kept, config):
        try:
            made = house.take_over(kept, config, undo, stored)
        except EstateError as error:
            _log.warning("what was kept of the service before cannot be taken up: %s", error)
            stored = kept.estate.descriptors()
            stored.pop(estate.ITSELF)
        else:
            _log.info("took up what was kept of the service before", extra=log.facts(descriptors=len(stored)))
            return made
    door.shut(stored.get(house.DOOR))
    house.close(stored)
    notify.forget([estate.ITSELF, *kept.estate.told["descriptors"]])
    return None
