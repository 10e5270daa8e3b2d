"""What clients can ask for: a table of methods, each with its rights, its parameters and the function that answers.

    request -> method known? -> rights? -> parameters read -> handler -> result, or one of the closed list of codes

This is the one place where exceptions become codes.  Handlers return plain values; what walks the table does so on a
runner's thread, and what builds long lists does it on another, so that the loop is never held up.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import reprlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..clients import wire
from ..clients.errors import (
    BadParameterError,
    FailedError,
    ForbiddenError,
    NothingMatchedError,
    ServerError,
    UnknownMethodError,
    ZonetrackError,
)
from ..shm.errors import NotAtRest
from ..shm.layout import digest
from . import (
    arrivals,
    audit,
    expectations,
    explanations,
    filters,
    log,
    parameters,
    policies,
    processes,
    reassembly_settings,
    snapshot,
    zone_settings,
)
from .assignments import Assignments
from .context import Context, Order
from .door import Peer, Rights
from .event_hub import Hub, Line
from .flusher import Flusher
from .limits import Quotas
from .parameters import ABSENT, Parameter, flag, nothing_or, whole
from .policies import Policies
from .published import Published
from .reassembly_settings import ReassemblySettings
from .runner import Runner, now_ms
from .samples import Samples
from .shrinker import Shrinker
from .snapshot import Snapshot
from .stats import Stats
from .summary import Summary
from .warnings import Warnings
from .zone_settings import ZoneSettings

if TYPE_CHECKING:
    from .metrics import Metrics

VERSION = importlib.metadata.version("zonetrack")
CURSOR_MAX = (1 << 63) - 1
EXPLAINED_MAX, EXPLAINED_DEFAULT = 1024, 20
_log = log.logger("control")


@dataclass
class Desk:
    """Everything that handlers work with; one a process."""

    context: Context
    figures: Callable[[], dict[str, Any]]
    """The server's own figures."""
    began_s: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        """Take the runners' places on the roster."""
        table = self.context.table
        self.runners: list[Runner] = []
        self.hub = Hub(table, self.context.bounds.output_bytes_max)
        try:
            walker, flusher, auditor = (self._take(name) for name in ("walker", "flusher", "auditor"))
        except BaseException:
            self.close()
            raise
        self.walker = walker
        self.snapshot, self.flusher, self.auditor = Snapshot(table, walker), Flusher(table, flusher), auditor
        self.shrinker = Shrinker(table, self.flusher.shrink)
        self.stats, self.quotas, self.policies = Stats(table), Quotas(table), Policies(table)
        self.zone_settings, self.samples = ZoneSettings(table), Samples(table)
        self.rules = Published(self.context.rules, table, [port["name"] for port in self.context.ports()])
        self.assignments = Assignments(self.context.queues, self.context.bounds.balance_interval_s)
        self.reassembly = ReassemblySettings(table)
        self.summary = Summary(table, walker, self.stats)
        self.warnings = Warnings(self.stats.fills, self.summary.get)
        self.snapshot.pace = self.flusher.pace = self.hub.catch_up

    def _take(self, name: str) -> Runner:
        runner = Runner(self.context.table, name)
        self.runners.append(runner)
        return runner

    def workers(self) -> list[dict[str, Any]]:
        """Return each worker with what it has computed."""
        told = self.context.workers()
        return [worker | {"cpu_s": processes.cpu_s(worker["pid"])} for worker in told]

    @cached_property
    def metrics(self) -> Metrics:
        """What Prometheus is told."""
        from .metrics import Metrics

        about = {"version": VERSION, "name": self.context.instance, "format": f"{digest():016x}"}
        most = self.context.metrics.zones_max

        def control() -> dict[str, Any]:
            return self.figures() | {"events": self.hub.figures()}

        return Metrics(self.stats, self.workers, self.context.ports, control, about, most)

    def counted(self, owner: int) -> dict[str, Any]:
        """Return what the place of a worker has counted."""
        return {"counters": self.stats.of_place(owner), "reasons": self.stats.reasons_of_place(owner)}

    def recent(self, most: int, zone: int | None) -> list[dict[str, Any]]:
        """Return the latest samples, explained."""
        workers = {worker.get("owner"): worker["number"] for worker in self.context.workers()}
        offset_ms = int(self.context.table.header["wall_offset_ms"][0])
        return [
            {
                "time": (offset_ms + int(sample["now_ms"])) / 1000,
                "by": f"worker {workers[owner]}" if owner in workers else f"participant {owner}",
                **explanations.explain(arrivals.of_sample(sample)),
            }
            for owner, sample in self.samples.recent(most, zone)
        ]

    def close(self) -> None:
        """Wait for what is under way, and leave the roster."""
        self.hub.close()
        for runner in self.runners:
            try:
                runner.close()
            except NotAtRest as error:
                _log.warning("a place is left behind: %s", error)


class Client(NamedTuple):
    """Who asks."""

    peer: Peer
    rights: Rights
    line: Line | None = None
    """Where it can be told things without asking."""


Handler = Callable[..., Awaitable[Any]]


class Method(NamedTuple):
    """A row of the table: what it takes to call it, and what answers."""

    rights: Rights
    handler: Handler
    parameters: dict[str, Parameter]


METHODS: dict[str, Method] = {}


def method(name: str, rights: Rights, known: dict[str, Parameter] | None = None) -> Callable[[Handler], Handler]:
    """Put a handler into the table."""

    def put(handler: Handler) -> Handler:
        METHODS[name] = Method(rights, handler, known or {})
        return handler

    return put


async def answer(desk: Desk, client: Client, request: wire.Request) -> bytes:
    """Return the bytes that answer a request; never raises but when it is cancelled."""
    try:
        return wire.response(request.id, await call(desk, client, request))
    except ServerError as error:
        return wire.failure(request.id, error.code, str(error), error.detail)
    except ZonetrackError as error:
        return wire.failure(request.id, FailedError.code, str(error))
    except Exception as error:
        # a mistake of ours: the client is told what, the log where
        _log.error("%s failed", reprlib.repr(request.method), exc_info=error)
        return wire.failure(request.id, FailedError.code, f"{type(error).__name__}: {error}")


async def call(desk: Desk, client: Client, request: wire.Request) -> Any:
    """Return the result of a request.

    Raises:
        ServerError: it is refused, or failed.
        ZonetrackError: it failed.
    """
    found = METHODS.get(request.method)
    if found is None:
        near = parameters.nearest(request.method, METHODS)
        shown = reprlib.repr(request.method)
        raise UnknownMethodError(
            f"there is no method {shown}{parameters.hint(near)}", {"method": request.method[:100]} | near
        )
    if client.rights < found.rights:
        need = found.rights.name.lower()
        raise ForbiddenError(
            f"{request.method} needs the right to {need}, which user {client.peer.uid} does not have here",
            {"needs": need},
        )
    values = parameters.read(request.method, found.parameters, request.params)
    return await found.handler(desk, client, **values)


_FILTER = Parameter(filters.read, filters.EVERYTHING)
_ZONE = Parameter(parameters.zone)
_ANY_ZONE = Parameter(nothing_or(parameters.zone), None)


# ------------------------------------------------------------------------------------------------ who is there
@method("hello", Rights.READ)
async def hello(desk: Desk, client: Client) -> dict[str, Any]:
    """Say who answers, and what the client may do."""
    return {
        "protocol": wire.VERSION,
        "version": VERSION,
        "format": f"{digest():016x}",
        "instance": desk.context.instance,
        "keeper": desk.context.keeper(),
        "control": os.getpid(),
        "rights": client.rights.name.lower(),
        "methods": sorted(METHODS),
    }


@method("stats", Rights.READ)
async def stats(desk: Desk, client: Client) -> dict[str, Any]:
    """Return the figures of everything."""
    return {
        "instance": desk.context.instance,
        "time": time.time(),
        "uptime_s": round(time.time() - desk.began_s, 3),
        "table": desk.context.origin,
        **await asyncio.to_thread(desk.stats.totals),
        "counters": {name: count for name, count in desk.stats.counters().items() if count},
        "workers": await workers(desk, client),
        "ports": desk.context.ports(),
        "zones": desk.stats.busiest(),
        "control": desk.figures(),
        "events": desk.hub.figures(),
        "warnings": desk.warnings.told(),
    }


@method("coverage", Rights.READ, {"zone": _ANY_ZONE})
async def coverage(desk: Desk, client: Client, zone: int | None) -> dict[str, int]:
    """Return every counter by name; of a zone, how often its packets got which reason."""
    return desk.stats.counters() if zone is None else desk.stats.reasons_of_zone(zone)


@method("workers", Rights.READ)
async def workers(desk: Desk, client: Client) -> list[dict[str, Any]]:
    """Return each worker with its counters."""
    return [worker | (desk.counted(worker["owner"]) if worker.get("owner") else {}) for worker in desk.workers()]


@method("ports", Rights.READ)
async def ports(desk: Desk, client: Client) -> list[dict[str, Any]]:
    """Return each port and its queues."""
    return desk.context.ports()


@method("zones", Rights.READ, {"zone": _ANY_ZONE})
async def zones(desk: Desk, client: Client, zone: int | None) -> list[dict[str, Any]]:
    """Return the zones in use, or the one that is asked for."""
    if zone is not None:
        return [desk.stats.zone(zone)]
    return await asyncio.to_thread(desk.stats.zones)


@method("zones.set", Rights.WRITE, {"zone": _ZONE, "settings": Parameter(zone_settings.changes)})
async def zones_set(desk: Desk, client: Client, zone: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Change how packets of a zone are judged; it is set on its own from now on."""
    desk.zone_settings.set(zone, settings)
    return desk.zone_settings.of(zone)


@method("zones.unset", Rights.WRITE, {"zone": _ZONE})
async def zones_unset(desk: Desk, client: Client, zone: int) -> dict[str, Any]:
    """Judge packets of a zone as those of all zones that are not set on their own."""
    if not desk.zone_settings.unset(zone):
        raise NothingMatchedError(f"zone {zone} has no settings of its own", {"zone": zone})
    return desk.zone_settings.of(zone)


# ------------------------------------------------------------------------------------------------ connections
@method("count", Rights.READ, {"filter": _FILTER})
async def count(desk: Desk, client: Client, filter: filters.Wanted) -> dict[str, int]:
    """Count connections; without a filter, or by zone alone, what the limits count, at once."""
    if filter.is_counted:
        return {"count": desk.stats.count(filter.zone)}
    return {"count": await desk.snapshot.count(filter)}


@method(
    "dump",
    Rights.READ,
    {
        "cursor": Parameter(whole(0, CURSOR_MAX), 0),
        "limit": Parameter(whole(1, (1 << 32) - 1), snapshot.PAGE_RECORDS_MAX),
        "filter": _FILTER,
    },
)
async def dump(desk: Desk, client: Client, cursor: int, limit: int, filter: filters.Wanted) -> dict[str, Any]:
    """Return a page of connections: at most as many as ``limit`` says and fit, from the cursor on."""
    sequence = desk.hub.sequence
    return snapshot.as_answer(await desk.snapshot.page(filter, cursor, limit)) | {"sequence": sequence}


@method("delete", Rights.WRITE, {"filter": Parameter(filters.read)})
async def delete(desk: Desk, client: Client, filter: filters.Wanted) -> dict[str, int]:
    """Delete the connections that a filter means; one that means all is refused, for that is what a flush is for."""
    if not filter.names:
        raise BadParameterError("filter: says nothing; to remove all connections, flush", {"parameter": "filter"})
    deleted = await desk.snapshot.delete(filter)
    if not deleted:
        raise NothingMatchedError("no connection is like that")
    return {"deleted": deleted}


@method("flush", Rights.WRITE, {"zone": _ANY_ZONE, "wait": Parameter(flag, True)})
async def flush(desk: Desk, client: Client, zone: int | None, wait: bool) -> dict[str, int]:
    """Empty a zone, or all; answers when all came home, or with ``wait`` false as soon as the zone is empty to see."""
    chosen = desk.flusher.in_use() if zone is None else [zone]
    return {"zones": len(chosen), "flushed": await desk.flusher.flush(chosen, wait=wait)}


# ------------------------------------------------------------------------------------------------ reasons
@method(
    "explain.recent", Rights.READ, {"limit": Parameter(whole(1, EXPLAINED_MAX), EXPLAINED_DEFAULT), "zone": _ANY_ZONE}
)
async def explain_recent(desk: Desk, client: Client, limit: int, zone: int | None) -> list[dict[str, Any]]:
    """Explain the latest packets that got a reason, the latest first."""
    return await asyncio.to_thread(desk.recent, limit, zone)


@method("expectations", Rights.READ, {"zone": _ANY_ZONE})
async def expectations_(desk: Desk, client: Client, zone: int | None) -> list[dict[str, Any]]:
    """Return the expectations of a zone, or of all, in the order in which they were made."""
    return await asyncio.to_thread(expectations.listed, desk.context.table, int(now_ms()), zone)


# ------------------------------------------------------------------------------------------------ limits, timeouts
@method("limits.get", Rights.READ, {"zone": _ANY_ZONE})
async def limits_get(desk: Desk, client: Client, zone: int | None) -> dict[str, Any]:
    """Return limits beside counts."""
    return await asyncio.to_thread(desk.quotas.get, zone)


@method(
    "limits.set",
    Rights.WRITE,
    {
        "global": Parameter(parameters.limit, ABSENT),
        "default": Parameter(parameters.limit, ABSENT),
        "zone": Parameter(parameters.zone, ABSENT),
        "limit": Parameter(parameters.limit, ABSENT),
    },
)
async def limits_set(desk: Desk, client: Client, **given: Any) -> dict[str, Any]:
    """Set ``global``, ``default``, and the ``limit`` of ``zone``; nil is no limit."""
    total, default, zone, limit = (given[name] for name in ("global", "default", "zone", "limit"))
    if (zone is ABSENT) != (limit is ABSENT):
        raise BadParameterError("limits.set: zone and limit go together", {"parameter": "zone"})
    if total is ABSENT and default is ABSENT and zone is ABSENT:
        raise BadParameterError("limits.set: name global, default, or zone and limit", {"parameter": "global"})
    if total is not ABSENT:  # first, for it may be refused
        desk.quotas.set_total(total)
    if default is not ABSENT:
        desk.quotas.set_default(default)
    if zone is not ABSENT:
        desk.quotas.set_zone(zone, limit)
    return {}


@method("limits.unset", Rights.WRITE, {"default": Parameter(flag, False), "zone": _ANY_ZONE})
async def limits_unset(desk: Desk, client: Client, default: bool, zone: int | None) -> dict[str, Any]:
    """Take away the default limit, and that of ``zone``, which follows the default then."""
    if not default and zone is None:
        raise BadParameterError("limits.unset: name default, or zone", {"parameter": "zone"})
    if default:
        desk.quotas.set_default(None)
    if zone is not None and not desk.quotas.unset_zone(zone):
        raise NothingMatchedError(f"zone {zone} has no limit of its own", {"zone": zone})
    return {}


_POLICY = Parameter(policies.policy)


@method("timeouts.get", Rights.READ, {"policy": Parameter(nothing_or(policies.policy), None)})
async def timeouts_get(desk: Desk, client: Client, policy: int | str | None) -> dict[str, Any]:
    """Return the lengths of timeouts by policy, and the policies of zones."""
    return await asyncio.to_thread(desk.policies.get, None if policy is None else desk.policies.find(policy))


@method(
    "timeouts.set",
    Rights.WRITE,
    {"policy": _POLICY, "timeouts": Parameter(policies.lengths, None), "zone": _ANY_ZONE},
)
async def timeouts_set(
    desk: Desk, client: Client, policy: int | str, timeouts: dict[policies.Timeout, int] | None, zone: int | None
) -> dict[str, Any]:
    """Change lengths of a policy, give it to a zone, or both; with lengths, a new name makes a policy."""
    if timeouts is None and zone is None:
        raise BadParameterError("timeouts.set: say timeouts, or a zone", {"parameter": "timeouts"})
    row = desk.policies.find(policy) if timeouts is None else desk.policies.make(policy)
    if timeouts is not None:
        desk.policies.set(row, timeouts)
    if zone is not None:
        desk.policies.set_zone(zone, row)
    return {"policy": row}


@method("timeouts.unset", Rights.WRITE, {"policy": _POLICY})
async def timeouts_unset(desk: Desk, client: Client, policy: int | str) -> dict[str, Any]:
    """Take a policy back, and from its zones."""
    if not desk.policies.unset(desk.policies.find(policy)):
        raise NothingMatchedError(f"timeout policy {policy} says nothing", {"policy": policy})
    return {}


@method("fragments.get", Rights.READ)
async def fragments_get(desk: Desk, client: Client) -> dict[str, Any]:
    """Return how fragments are put together, how many wait, and what became of those before."""
    counted = desk.stats.counters()
    counters = {name: counted[reason.name.lower()] for name, reason in reassembly_settings.COUNTERS.items()}
    return desk.reassembly.get() | {"counters": counters}


@method(
    "fragments.set",
    Rights.WRITE,
    {name: Parameter(reader, ABSENT) for name, reader in reassembly_settings.READERS.items()},
)
async def fragments_set(desk: Desk, client: Client, **given: Any) -> dict[str, Any]:
    """Change how fragments are put together; from the next one on."""
    wanted = {name: value for name, value in given.items() if value is not ABSENT}
    if not wanted:
        raise BadParameterError("fragments.set: name v4, v6, min_v4, min_v6, or max", {"parameter": "v4"})
    desk.reassembly.set(wanted)
    return {}


# ------------------------------------------------------------------------------------------------ the service
@method("audit", Rights.WRITE)
async def audit_table(desk: Desk, client: Client) -> dict[str, str | None]:
    """Check what holds in every state of the table; ``broken`` is nil when all does."""
    table = desk.context.table
    broken = await desk.auditor.do(lambda views: audit.live(table, int(views["me"])))
    return {"broken": None if broken is None else str(broken)}


@method("config.reload", Rights.WRITE)
async def config_reload(desk: Desk, client: Client) -> dict[str, Any]:
    """Have the keeper read the configuration again, if it is a good one."""
    told = await asyncio.to_thread(desk.context.check_config)
    desk.context.order(Order.RELOAD)
    return told


@method("stop", Rights.WRITE, {"unlink": Parameter(flag, False)})
async def stop(desk: Desk, client: Client, unlink: bool) -> dict[str, Any]:
    """Have the keeper stop the service; with ``unlink`` it removes the table too."""
    return {"keeper": desk.context.order(Order.DISCARD if unlink else Order.STOP)}


@method("restart", Rights.WRITE)
async def restart(desk: Desk, client: Client) -> dict[str, Any]:
    """Have the keeper begin anew, beside its workers, then replace these and control one at a time."""
    return {"keeper": desk.context.order(Order.RESTART)}
