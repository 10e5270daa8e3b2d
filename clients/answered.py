"""Control of a table that a load test has made: the process that answers clients, forked as a keeper forks it.

The trial fills the table first; then control, who loads it and who asks it are members of one crew, and tell each other in
shared memory how far they are.  A member that asks ends control when it has all it wanted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..service import control, warmup
from ..service.context import Context
from ..service.door import open_door
from ..service.listening import Address, listen
from ..shm import segment
from ..shm.events import Events
from ..shm.layout import BLOCK_RECORDS, GLOBAL, UNLIMITED, Region
from ..shm.seats import Seats
from ..shm.sizing import Geometry
from ..shm.views import Table
from .driver import CheckFailed, Driver
from .errors import ZonetrackError
from .scenarios import Plan, Run
from .traffic import Packet
from .trial import aim

SPARE_RECORDS = 8 * BLOCK_RECORDS
"""Beside the connections: what participants have on their lists of free records."""
PATIENCE_S = 60.0
PAUSE_S = 0.001
NOTE = np.dtype([(name, "u8") for name in ("control", "begun", "over", "first", "second", "third")])
"""What members tell each other: the pid of control, how far they are, and numbers that each trial has its own names for."""
OPENING = ((Packet.SYN, Packet.ACK), (Packet.DATA, Packet.ANSWER_ACK))
"""Runs after which a connection is established, and both sides have sent data."""
OPENING_PACKETS = sum(last - first + 1 for first, last in OPENING)
HOST = "127.0.0.1"


def new_table(connections: int, zones: int = 1) -> Table:
    """Return a table with room for so many connections, whose events and seats are there as in a service.

    Raises:
        ValueError: there is no such table.
    """
    table = segment.anonymous(geometry(connections, zones))
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = UNLIMITED
    table.events, table.seats = Events(), Seats()
    return table


def geometry(connections: int, zones: int) -> Geometry:
    """Return the sizes of that table.

    Raises:
        ValueError: there is no such table.
    """
    return Geometry(connections + SPARE_RECORDS, zones, 0)


def geometry_of(plan: Plan) -> Geometry:
    """Return the sizes of a plan's table; errors as of ``geometry``."""
    return geometry(plan.connections, plan.zones)


def packets_count(plan: Plan) -> int:
    """Return how many packets make the connections of a plan."""
    return OPENING_PACKETS * plan.connections


def fill(driver: Driver, connections: int, zones: int = 1) -> None:
    """Make connections that are established.

    Raises:
        CheckFailed: one of them was not made.
    """
    driver.sender.set(zones=zones)
    for packets in OPENING:
        aim(driver.sender, Run(packets, 0, connections, connections))
        driver.run()
    if complaint := driver.sender.complaint():
        raise CheckFailed(complaint)


def warm() -> None:
    """Load the kernels of control, which its process is born with."""
    warmup.load(*control.PIECES)


def listeners(*shown: str) -> dict[str, Any]:
    """Return what listens for HTTP, on ports that nobody had, by what is shown there."""
    return {one: listen(Address(HOST, 0), one) for one in shown}


def answer(table: Table, path: Path, note: np.recarray, ready: Callable[[], object], sites: dict[str, Any]) -> None:
    """Be control, until a member says that it is over."""
    note["control"] = os.getpid()
    entrance = open_door(str(path))
    try:
        context = Context(
            instance="load",
            table=table,
            door=entrance,
            order=lambda order: os.getppid(),
            check_config=dict,
            workers=list,
            ports=list,
            sites=sites,
        )
        control.run(context, lambda: (ready(), None)[1])
    finally:
        entrance.close()


def end(note: np.recarray) -> None:
    """End control, and say that it is over."""
    note["over"] = 1
    os.kill(int(note["control"][0]), signal.SIGTERM)


@contextlib.contextmanager
def to_the_end(note: np.recarray) -> Iterator[None]:
    """Ask until it is over: that control is going then is no failure."""
    try:
        yield
    except ZonetrackError:
        if not note["over"][0]:
            raise


def stay_on(core: int, pids: Iterable[int] = ()) -> None:
    """Keep all threads of processes on one core; without any, of this one."""
    for pid in pids or (os.getpid(),):
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(thread), {core})


def until(what: str, is_so: Callable[[], object]) -> None:
    """Wait until something is so.

    Raises:
        CheckFailed: it is not for a minute.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end_s:
            raise CheckFailed(f"{what}: not in {PATIENCE_S:.0f} s")
        time.sleep(PAUSE_S)
