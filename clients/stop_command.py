"""``zonetrack stop``: end a running service, and wait until it has ended."""

from __future__ import annotations

import os
import select
from contextlib import ExitStack

import click

from .errors import TookTooLongError
from .options import as_json, print_json, reach, where

TIMEOUT_S = 30.0


@click.command("stop")
@where
@click.option("--unlink", is_flag=True, help="Remove its table too.")
@click.option("--timeout", type=click.FloatRange(0), default=TIMEOUT_S, metavar="S", help="Seconds to wait at most.")
@as_json
def command(socket: str | None, instance: str | None, unlink: bool, timeout: float, as_json: bool) -> None:
    """Stop a service: it empties its queues and ends; the table is kept for its next start."""
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
    if as_json:
        print_json({"stopped": True, "unlinked": unlink})
    else:
        click.echo("stopped")


def watched(pid: int) -> int | None:
    """Return a descriptor of a process, readable once it has ended; None where we do not see it."""
    try:
        return os.pidfd_open(pid)
    except (ProcessLookupError, PermissionError):  # of another PID namespace
        return None
