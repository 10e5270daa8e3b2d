"""One trial of a scenario through a port of a running service: who loads, what must be there afterwards, the figures.

The port's zone belongs to the trial: it must be empty before, and is flushed after.  Limits and timeouts are those of the
service.  What a worker of the service spends cannot be told from here, so figures per unit are the time that passed, for
each of the queues at once: making the frames is in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import click
import numpy as np

from ..service import crew
from ..shm import port, segment
from ..shm.errors import Missing
from ..shm.layout import BURST_PACKETS_MAX, GLOBAL, POLICY, QUOTA, ZONE, Region
from ..shm.views import Table
from . import trial
from .courier import Courier
from .driver import CheckFailed, Driver, now_ms, streams
from .errors import NothingMatchedError, ZonetrackError
from .port import Queue
from .scenarios import Plan, Scenario
from .series import Series
from .sync import connect
from .traffic import SAMPLE_STRIDE

SETTLE_MS_MAX = 5_000


@dataclass(frozen=True)
class Target:
    """The service, and the port that packets go through."""

    port: str
    instance: str
    socket: str | None = None


@dataclass
class Service:
    """What a client sees of the service: its port, and its table to look at."""

    target: Target
    port: port.Port
    table: Table

    @property
    def zone(self) -> int:
        """Zone of all packets of the port."""
        return self.port.zone

    @property
    def connections(self) -> int:
        """Connections in that zone at this moment."""
        return int(self.table.array(Region.CONTROL, "quotas", QUOTA)["count"][self.zone])

    def settled(self, expected: int) -> int:
        """Return the connections in that zone once there are no more than expected, or after a while.

        What a worker has deleted is counted until it runs its delete list: at the latest when it goes to sleep.
        """
        end_ms = now_ms() + SETTLE_MS_MAX
        while self.connections > expected and now_ms() < end_ms:
            time.sleep(0.001)
        return self.connections

    @property
    def room(self) -> int:
        """Connections that the service takes beside those of other zones."""
        counts = self.table.array(Region.CONTROL, "globals", GLOBAL)[0]
        quota = self.table.array(Region.CONTROL, "quotas", QUOTA)[self.zone]
        own = quota["limit"] if quota["has_limit"] else counts["zone_limit_default"]
        return min(max(0, int(counts["limit"]) - int(counts["count"])), int(own))

    def timeout_ms(self, scenario: Scenario) -> int:
        """Return how long the service keeps a connection that has gone through everything."""
        policies = self.table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"]
        policy = self.table.array(Region.CONTROL, "zones", ZONE)["policy"][self.zone]
        return int(policies[policy, scenario.last_timeout]) or scenario.timeout_ms

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """For that time, have a limit refuse connections of the zone: who is at it waits, and drives out nobody."""
        with connect(self.target.socket, self.target.instance) as ct:
            (told,) = ct.zones.get(self.zone)
            before = told["settings"]["on_full"]
            ct.zones.set(self.zone, on_full="reject")
            try:
                yield
            finally:
                if told["settings_are_own"]:
                    ct.zones.set(self.zone, on_full=before)
                else:
                    ct.zones.unset(self.zone)

    def flush(self) -> None:
        """Empty the zone; the answer comes when it is."""
        with connect(self.target.socket, self.target.instance) as ct:
            ct.flush(zone=self.zone)


@contextmanager
def open_service(target: Target, plan: Plan) -> Iterator[Service]:
    """Attach to a service for some trials, and leave its port's zone empty.

    Raises:
        NothingMatchedError: there is no such port.
        click.UsageError: the plan wants what only the service can change.
        ZonetrackError: the zone is not empty.
    """
    try:
        found = Service(target, port.attach(target.instance, target.port), segment.attach(target.instance).table)
    except Missing as error:
        raise NothingMatchedError(str(error)) from error
    for option, wanted in (("--limit", plan.limit), ("--timeout-ms", plan.timeout_ms)):
        if wanted is not None:
            raise click.UsageError(f"{option} is the service's: see zonetrack limits and zonetrack timeouts")
    if plan.zones != 1:
        raise click.UsageError(f"--zones: all packets of port {target.port} are in zone {found.zone}")
    if plan.threads > found.port.queues:
        raise click.UsageError(f"--threads: port {target.port} has {found.port.queues} queues, one for each thread")
    if found.connections:
        raise ZonetrackError(
            f"zone {found.zone} of the service holds {found.connections} connections, and must be empty: zonetrack flush"
        )
    try:
        with found.refusing():
            yield found
    finally:
        found.flush()


def hired(service: Service, scenario: Scenario, table: Table, index: int, stream: np.record | None = None) -> Driver:
    """Return the driver of a worker whose packets the service tracks."""
    queue = Queue(service.target.port, index, service.target.instance)
    return Courier(queue, table, scenario.plan.seed, scenario.plan.burst, stream)


def conduct(
    scenario: Scenario, tick: Callable[[int], object], series: Series | None = None, *, service: Service
) -> dict[str, float]:
    """Carry out one trial, and flush the zone.

    Args:
        scenario: with its parameters.
        tick: told every now and then how many packets have been sent.
        series: gets a moment as often.
        service: with nothing in its port's zone.

    Returns:
        The figures, by name.

    Raises:
        ZonetrackError: something was not as it should; says what.
    """
    plan = replace(scenario.plan, limit=service.room, timeout_ms=service.timeout_ms(scenario))
    scenario = type(scenario)(plan)
    if not scenario.sweeps and scenario.kept > service.room:
        raise ZonetrackError(f"the service has room for {service.room} connections, {scenario.kept} are to be held")
    watched = streams(plan.threads)
    results = crew.shared(trial.RESULT, plan.threads)
    job = partial(trial.work, scenario, service.table, watched, results, hire=partial(hired, service))
    try:
        trial.together(plan.threads, job, partial(trial.watch, service.table, watched, tick, series))
        looked_up = check(scenario, service, results)
    finally:
        service.flush()
    found = trial.figures(scenario, results)
    elapsed_ns = found["elapsed_s"] * 1e9
    return found | {f"ns_per_{scenario.unit}": elapsed_ns * plan.threads / scenario.units, "looked_up": looked_up}


def check(scenario: Scenario, service: Service, results: np.ndarray) -> int:
    """Hold the zone against what was asked for, and look one in 1,000 connections up again; returns how many."""
    units = int(results["units"].sum())
    if units != scenario.units:
        raise CheckFailed(f"{units} {scenario.unit}s were finished, expected {scenario.units}")
    if scenario.sweeps:
        return int(results["looked_up"].sum())
    expected = int(scenario.zone_counts().sum())
    found = service.settled(expected)
    if found != expected:
        raise CheckFailed(f"zone {service.zone}: {found} connections, expected {expected}")
    plan, looked_up = scenario.plan, 0
    driver = hired(service, scenario, service.table, 0)
    for index in range(plan.threads):
        first, count = scenario.share(index)
        numbers = np.arange(first, first + count, SAMPLE_STRIDE, dtype=np.uint64)
        driver.looker.set(zones=1, iteration=scenario.last_iteration)
        for part in np.array_split(numbers, -(-len(numbers) // BURST_PACKETS_MAX) or 1):
            looked_up += len(driver.look_up(part, scenario.last_packet, now_ms(), scenario.sent_bytes))
    driver.leave()
    return looked_up
