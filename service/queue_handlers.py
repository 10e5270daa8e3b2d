"""What clients can ask about queues and the time that workers spend: further rows of the table of methods (handlers)."""

from __future__ import annotations

from typing import Any

from ..clients.errors import BadParameterError
from . import assignments, parameters
from .door import Rights
from .handlers import Client, Desk, method
from .parameters import Parameter, flag, whole


@method("queues", Rights.READ)
async def queues(desk: Desk, client: Client) -> dict[str, Any]:
    """Return which worker polls which queue, and what each took of its time lately."""
    return desk.assignments.tell()


@method(
    "queues.assign",
    Rights.WRITE,
    {"port": Parameter(parameters.text), "queue": Parameter(whole(0, 65_535)), "worker": Parameter(whole(0, 65_535))},
)
async def queues_assign(desk: Desk, client: Client, port: str, queue: int, worker: int) -> dict[str, Any]:
    """Have a worker poll a queue; answers when it does, or after some seconds."""
    try:
        wanted = desk.assignments.queues.find({(port, queue): worker})
    except ValueError as error:
        raise BadParameterError(str(error), {"parameter": "queue"}) from error
    return {"settled": await desk.assignments.assign(wanted)}


@method("queues.rebalance", Rights.WRITE, {"dry_run": Parameter(flag, False)})
async def queues_rebalance(desk: Desk, client: Client, dry_run: bool) -> dict[str, Any]:
    """Deal queues out better, by what they took lately; with ``dry_run`` only say how."""
    made = desk.assignments.plan()
    told = desk.assignments.told(made)
    if dry_run:
        return told | {"settled": None}
    wanted = {one.number: one.after for one in made.moves}
    return told | {"settled": await desk.assignments.assign(wanted) if wanted else True}


@method("perf", Rights.READ)
async def perf(desk: Desk, client: Client) -> dict[str, Any]:
    """Return where the time of each worker goes, as far as it is measured."""
    on = not desk.assignments.queues.head["unmeasured"]
    return {"on": bool(on), "workers": assignments.perf(desk.assignments.queues)}


@method("perf.set", Rights.WRITE, {"on": Parameter(flag)})
async def perf_set(desk: Desk, client: Client, on: bool) -> dict[str, Any]:
    """Count and measure what comes and goes, or only count what is lost."""
    desk.assignments.queues.measure(on)
    return {"on": on}
