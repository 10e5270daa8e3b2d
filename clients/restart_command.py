"""``zonetrack restart``: the program as it is now takes over a running service, whose workers are replaced one at a time."""

from __future__ import annotations

import time

import click

from .errors import TookTooLongError, ZonetrackError
from .options import as_json, print_json, reach, where
from .sync import Client

TIMEOUT_S = 60.0
LOOK_S = 0.05


@click.command("restart")
@where
@click.option("--timeout", type=click.FloatRange(0), default=TIMEOUT_S, metavar="S", help="Seconds to wait at most.")
@as_json
def command(socket: str | None, instance: str | None, timeout: float, as_json: bool) -> None:
    """Restart a service while it runs: connections stay, and packets wait while their worker is replaced.

    The keeper begins anew, with the program as it is installed now; then workers and control are replaced one at a time.
    """
    until_s = time.monotonic() + timeout
    with reach(socket, instance) as ct:
        before, control = _pids(ct), ct.hello()["control"]
        keeper = ct.restart()["keeper"]
    while not _all_replaced(socket, instance, before, control):
        if time.monotonic() >= until_s:
            raise TookTooLongError(f"the service (keeper {keeper}) was told to restart, and has not in {timeout:g} s")
        time.sleep(LOOK_S)
    if as_json:
        print_json({"restarted": True, "workers": len(before)})
    else:
        click.echo(f"restarted, with {len(before)} workers")


def _pids(ct: Client) -> dict[int, int]:
    return {worker["number"]: worker["pid"] for worker in ct.workers()}


def _all_replaced(socket: str | None, instance: str | None, before: dict[int, int], control: int) -> bool:
    """Whether other processes than before are at work everywhere, control among them."""
    try:
        with reach(socket, instance) as ct:
            workers, now = ct.workers(), ct.hello()["control"]
    except ZonetrackError:  # control makes way for its successor just now
        return False
    return now != control and all(
        worker["state"] == "running" and worker["pid"] not in (0, before.get(worker["number"])) for worker in workers
    )
