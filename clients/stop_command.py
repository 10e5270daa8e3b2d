"""``zonetrack stop``: end a running service, and wait until it has ended."""

from __future__ import annotations

import os
import select
from contextlib import ExitStack

import click

from . import address
from .errors import NoServiceError, TookTooLongError
from .options import as_json, print_json, reach, where

TIMEOUT_S = 30.0


@click.command("stop")
@where
@click.option("--unlink", is_flag=True, help="Remove its table too.")
@click.option("--timeout", type=click.FloatRange(0), default=TIMEOUT_S, metavar="S", help="Seconds to wait at most.")
@as_json
def command(socket: str | None, instance: str | None, unlink: bool, timeout: float, as_json: bool) -> None:
    """Stop a service: it empties its queues and ends; the table is kept for its next start.

    Where keeper and control have died, those whom they left are found and ended in order.
    """
    left: list[int] = []
    try:
        _ask(socket, instance, unlink, timeout)
    except NoServiceError:
        from ..service import orphans

        found = orphans.behind(address.path(socket, instance))
        if found is None:
            raise
        from ..service import stopping  # and with it numba

        stopping.end_orphans(found, unlink)
        left = found.pids
    if as_json:
        print_json({"stopped": True, "unlinked": unlink, "orphans": left})
    elif left:
        pids = ", ".join(map(str, left))
        click.echo(f"stopped: keeper and control were dead, and processes {pids} of theirs have been ended")
    else:
        click.echo("stopped")


def _ask(socket: str | None, instance: str | None, unlink: bool, timeout: float) -> None:
    """Ask a service to end, and wait until it has."""
    with ExitStack() as stack:
        ct = stack.enter_context(reach(socket, instance))
        # before it is told, for later its number may be another's; one that was dead is followed by who is told
        before = ct.hello()["keeper"]
        process = watched(before)
        keeper = ct.stop(unlink=unlink)["keeper"]
        for one in [process, watched(keeper) if keeper != before else None]:
            if one is None:
                continue
            stack.callback(os.close, one)
            if not select.select([one], [], [], timeout)[0]:
                raise TookTooLongError(f"the service (keeper {keeper}) was told to stop, and has not in {timeout:g} s")


def watched(pid: int) -> int | None:
    """Return a descriptor of a process, readable once it has ended; None where we do not see it."""
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, PermissionError):  # of another PID namespace
        return None
