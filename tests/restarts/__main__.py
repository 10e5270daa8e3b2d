"""How long packets wait while a service with many connections is restarted, and how long saving and restoring them takes.

python -m tests.restarts CONNECTIONS

A client asks in established flows all the while; who is not answered as established is lost.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import tables  # noqa: E402 - after the path says where it is
from outliving import Traffic  # noqa: E402
from services import Service  # noqa: E402
from zonetrack.service import saved, warmup  # noqa: E402
from zonetrack.shm import roster, segment  # noqa: E402
from zonetrack.shm.layout import CtState, Kind  # noqa: E402
from zonetrack.shm.sizing import Geometry  # noqa: E402

TURNS = 3
AT_ONCE = 50_000
ASKS_S = 8.0
HOUR_MS = 3_600_000
MORE = 2_000
"""Connections beside those: the client's."""
LOW, FIRST = 0x0B000001, 0x0C000000
"""Addresses of what nobody sends packets of: one server, and a client for each connection."""


def fill(name, count):
    """Make a table with connections, and put it away."""
    with segment.create(name, Geometry(count + MORE)) as made:
        one = tables.Participant(made.table, Kind.TOOL)
        for first in range(0, count, AT_ONCE):
            keys = tables.keys(min(AT_ONCE, count - first), low=LOW, first=FIRST + first)
            one.made(keys, expiry_ms=saved.now_ms() + HOUR_MS)
        roster.leave(made.table, one.me)
        made.seal()


def timed(act, *arguments):
    """Do something; returns what it returns, and the seconds that it took."""
    began = time.perf_counter()
    told = act(*arguments)
    return told, time.perf_counter() - began


def save_and_restore(name, count, file):
    """Print how long both take."""
    fill(name, count)
    for _ in range(TURNS):
        told, save_s = timed(saved.save, name, file)
        segment.discard(name)
        back, restore_s = timed(saved.restore, name, file)
        print(
            f"{told['connections']:,} connections, {told['bytes']:,} bytes: save {save_s:.2f} s, restore {restore_s:.2f} s "
            f"({back['connections']:,} are there)",
            flush=True,
        )
    segment.discard(name)


def ask_for(traffic, seconds):
    """Ask in established flows for so long; returns the longest wait for the answers of all, and how many were lost."""
    longest, lost, last = 0.0, 0, time.perf_counter()
    until = last + seconds
    while last < until:
        lost += int((traffic.asked() & CtState.EST == 0).sum())
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest, lost


def restart(directory, count, file):
    """Print how long packets wait while processes are replaced, and while there is no keeper."""
    shape = ("--max-connections", count + MORE, "--workers", 2, "--port", "shm:lab,queues=2")
    with Service(directory, *shape, "--restore", file) as first:
        _, took_s = timed(first.until_ready)
        print(f"a start that restores them: {took_s:.2f} s", flush=True)
        traffic = Traffic(first)
        traffic.asked()
        traffic.answered()
        with first.ask() as ct:
            before = ct.count()
            ct.restart()
        told = ask_for(traffic, ASKS_S)
        with first.ask() as ct:
            after = ct.count()
        print(
            "zonetrack restart: longest wait {:.3f} s, {} lost".format(*told),
            f"; {before:,}, then {after:,}",
            flush=True,
        )
        first.send(signal.SIGUSR2)
        first.process.wait()
        with Service(directory, *shape, after=first) as second:
            told = ask_for(traffic, ASKS_S)
            second.until_ready()
            with second.ask() as ct:
                after = ct.count()
            print("systemctl restart: longest wait {:.3f} s, {} lost".format(*told), f"; then {after:,}", flush=True)
            traffic.close()
            second.stop()


def main(count):
    """Measure all."""
    warmup.ensure()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        file = Path(directory) / "table"
        save_and_restore(f"restarts-{os.getpid()}", count, file)
        restart(Path(directory), count, file)


if __name__ == "__main__":
    main(int(sys.argv[1]))
