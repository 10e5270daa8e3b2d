"""The house of a service: all that its processes share, made for it, or taken over from those whose keeper has gone.

The keeper opens everything here before it forks: ports, queues' cursors, rules, the door, the pipe through which control
gives orders, and the estate that lists them for the next keeper.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..clients import address
from ..shm import estate
from ..shm.errors import EstateError, WrongSize
from ..shm.estate import Estate
from ..shm.events import Events
from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.seats import Seats
from ..shm.sources import Sources
from . import assignments, door, listening, orphans
from .board import LINE, Board
from .config import Config, ConfigError
from .door import Door
from .orphans import Orphans
from .ports import opening as ports
from .ports.errors import PortError

Undo = Callable[[Callable[[], object]], object]
"""Is told what to do at the end of the service, but not where its processes are left to the next keeper."""
QUEUES, RULES, EVENTS, SEATS, SOURCES = "queues", "rules", "events", "seats", "sources"
DOOR, ORDERS, ORDER = "door", "orders", "order"


@dataclass
class House:
    """It, in the keeper and in whoever it forks."""

    estate: Estate
    queues: Queues
    book: Rulebook
    events: Events
    seats: Seats
    sources: Sources
    door: Door
    board: Board
    sites: dict[str, socket.socket]
    """What listens for HTTP, by what is shown there."""

    @property
    def orders(self) -> int:
        """The descriptor from which the keeper reads orders."""
        return self._number(ORDERS)

    @property
    def order(self) -> int:
        """The one into which control writes them."""
        return self._number(ORDER)

    def _number(self, name: str) -> int:
        return _needed(self.estate, name)

    def enter(self, place: int) -> None:
        """Be a child of the keeper: take a place, and leave the door to those who serve there."""
        estate.may_be_taken_over()
        self.estate.occupy(place)
        if place == estate.CONTROL:
            return
        self.door.leave()
        self.estate.drop(DOOR)
        for shown, listener in self.sites.items():
            listener.close()
            self.estate.drop(_of_site(shown))


def make(config: Config, undo: Undo) -> House:
    """Make one.

    Args:
        config: of the service.
        undo: what to call at its end.

    Raises:
        SegmentError: there is too little memory, or no right to use it.
        ConfigError: no group is called so.
        PortError: a port cannot be opened.
        DoorError: the control socket cannot stand there.
    """
    made = Estate.found(config.instance, config.workers * LINE.itemsize)
    opened = []
    for one in ports.open_ports(config):
        undo(one.unlink)
        opened.append(one)
        for number, descriptor in enumerate(one.descriptors()):
            made.keep(_of_port(one.name, number), os.dup(descriptor))
    queues = _queues(opened, config)
    book, events = Rulebook(config.workers), Events()
    made.keep(QUEUES, os.dup(queues.descriptor))
    made.keep(RULES, os.dup(book.descriptor))
    made.keep(EVENTS, os.dup(events.descriptor))
    seats = Seats()
    made.keep(SEATS, os.dup(seats.descriptor))
    sources = Sources(config.max_connections)
    made.keep(SOURCES, os.dup(sources.descriptor))
    for name, end in zip((ORDERS, ORDER), os.pipe2(os.O_CLOEXEC), strict=True):
        made.keep(name, end)
    made.add(**orphans.about(config))
    entrance, sites = _open_door(config, made, undo), _listen(config, made, undo)
    return House(made, queues, book, events, seats, sources, entrance, _board(queues, made), sites)


def take_over(left: Orphans, config: Config, undo: Undo, stored: dict[str, int] | None = None) -> House:
    """Take one over from orphans that can be adopted; or from who has kept its descriptors while nobody lived.

    Args:
        left: the orphans.
        config: of the service; it does not differ from theirs.
        undo: what to call at its end.
        stored: the descriptors that were kept.

    Raises:
        EstateError: something cannot be had any more: then they cannot be adopted.
        DoorError: the control socket cannot stand there.
    """
    taken = left.estate
    if stored is None:
        estate.take_over(taken, left.pids)
    else:
        estate.take_up(taken, stored)
    opened = []
    try:
        for one in ports.resume_ports(config, lambda name: _descriptors(taken, name)):
            undo(one.unlink)
            opened.append(one)
    except (WrongSize, PortError) as error:  # a client has made it shorter, a device is gone: it has to be opened again
        raise EstateError(taken.instance, "ports as they were opened", str(error)) from None
    queues = Queues(opened, descriptor=os.dup(_needed(taken, QUEUES)), **_sending(config))
    book = Rulebook(config.workers, os.dup(_needed(taken, RULES)))
    events = Events(os.dup(_needed(taken, EVENTS)))
    seats = Seats(os.dup(_needed(taken, SEATS)))
    sources = Sources(config.max_connections, os.dup(_needed(taken, SOURCES)))
    for name in (ORDERS, ORDER):
        _needed(taken, name)
    listener = taken.number(DOOR)
    if listener is None:
        entrance = _open_door(config, taken, undo)
    else:
        entrance = door.resume(_path(config), os.dup(listener), config.control.group)
        undo(entrance.close)
    return House(
        taken, queues, book, events, seats, sources, entrance, _board(queues, taken), _listen(config, taken, undo)
    )


def close(descriptors: dict[str, int]) -> None:
    """Close what others have kept for nobody."""
    for number in descriptors.values():
        os.close(number)


def _sending(config: Config) -> dict[str, Any]:
    """Return what queues are to know of the configuration: how many workers there are, and how long frames wait."""
    return {
        "workers": config.workers,
        "batch_max": config.tx_batch_max,
        "flush_interval_us": config.tx_flush_interval_us,
    }


def _queues(opened: list[ports.Opened], config: Config) -> Queues:
    assigned = {assignments.read(queue): worker for queue, worker in config.assign.items()}
    try:
        made = Queues(opened, assigned=assigned, **_sending(config))
    except ValueError as error:
        raise ConfigError(f"ports, assign: {error}") from error
    made.measure(config.statistics)
    made.stay_awake(config.busy_poll)
    return made


def _of_site(shown: str) -> str:
    return f"site.{shown}"


def _of_port(name: str, number: int) -> str:
    return f"port.{name}.{number}"


def _descriptors(taken: Estate, name: str) -> list[int]:
    """Return those of a port, in their order, each once more."""
    kept = [one for one in taken.told["descriptors"] if one.rpartition(".")[0] == f"port.{name}"]
    return [os.dup(_needed(taken, one)) for one in sorted(kept, key=lambda one: int(one.rpartition(".")[2]))]


def _needed(estate: Estate, name: str) -> int:
    number = estate.number(name)
    if number is None:
        raise EstateError(estate.instance, f"a process that has {name}", "none")
    return number


def _path(config: Config) -> str:
    return address.path(config.socket, config.instance)


def _open_door(config: Config, made: Estate, undo: Undo) -> Door:
    opened = door.open_door(_path(config), config.control.group)
    undo(opened.close)
    made.keep(DOOR, os.dup(opened.listener.fileno()))
    return opened


def _listen(config: Config, made: Estate, undo: Undo) -> dict[str, socket.socket]:
    """Listen where things are shown; go on with who listens there already."""
    sites = {}
    for shown, wanted in (("metrics", config.metrics.listen), ("web", config.web.listen)):
        if wanted is None:
            continue
        number = made.number(_of_site(shown))
        if number is not None:
            sites[shown] = socket.socket(fileno=os.dup(number))
            if wanted in (sites[shown].getsockname()[:2], (wanted.host, 0)):
                undo(sites[shown].close)
                continue
            sites[shown].close()
            made.drop(_of_site(shown))
        sites[shown] = listening.listen(wanted, f"{shown}.listen")
        undo(sites[shown].close)
        made.keep(_of_site(shown), os.dup(sites[shown].fileno()))
    return sites


def _board(queues: Queues, estate: Estate) -> Board:
    return Board(queues.workers, lambda worker: queues.named(queues.held_by(worker)), estate.lines(LINE))


@contextlib.contextmanager
def ends(leaves: Callable[[], bool]) -> Iterator[Undo]:
    """Yield where to put what shall be done at the end, the last first; nothing of it if it is left to others then."""
    with contextlib.ExitStack() as stack:
        yield lambda act: stack.callback(lambda: None if leaves() else act())
