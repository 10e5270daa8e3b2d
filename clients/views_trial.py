"""One trial of views: what it costs to watch a full table, to scrape it, and to begin a client.

idle, top, page    the share of one core that control takes with nobody looking; that control and `zonetrack top` take on
                   a terminal; that control takes for a page in a browser, whose own work is not in it
scrape             one answer to Prometheus, with connections in all zones
import             what `import zonetrack.clients.sync` takes longer than a bare Python
"""

from __future__ import annotations

import fcntl
import http.client
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..service import crew
from . import answered
from .driver import CheckFailed, Driver, streams
from .trial import Meet, Plan, together
from .trials import Tick, Trial

SCRAPES = 21
STARTS = 11
SETTLE_S = 5.0
"""Until a screen is drawn, and has been drawn again; no longer than it is looked at then."""
COLUMNS, LINES = 80, 24
FIGURES = np.dtype(
    [(name, "f8") for name in ("idle_cpu_percent", "top_cpu_percent", "page_cpu_percent", "scrape_ms", "import_ms")]
)


@dataclass(frozen=True)
class ViewsPlan(Plan):
    """What was asked for."""

    zones: int = 1_000
    seconds: int = 20


def cpu_s(pids: Iterable[int]) -> float:
    """Return the seconds that processes have computed, all threads."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def share(pids: Iterable[int], seconds: float, meanwhile: Callable[[float], object]) -> float:
    """Return how much of a core processes take for some seconds, in percent.

    Args:
        pids: of the processes.
        seconds: how long.
        meanwhile: called with the moment (``time.monotonic``) at which it shall return.
    """
    pids = list(pids)
    before, begun = cpu_s(pids), time.monotonic()
    meanwhile(begun + seconds)
    return 100 * (cpu_s(pids) - before) / (time.monotonic() - begun)


# ---------------------------------------------------------------------------------------------------- who looks
class Screen:
    """``zonetrack top`` on a terminal of 80 columns."""

    def __init__(self, path: Path) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "zonetrack.service", "top", "--socket", str(path)])
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.written = 0

    def show(self, until_s: float) -> None:
        """Take what it draws, until a moment."""
        while (left := until_s - time.monotonic()) > 0:
            ready, _, _ = select.select([self._terminal], [], [], left)
            if ready:
                self.written += len(os.read(self._terminal, 1 << 16))

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._terminal)


class Browser:
    """A page that is open: its stream of views."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection(answered.HOST, port, timeout=60)
        self._http.request("GET", "/events")
        self._stream = self._http.getresponse()
        self.views = 0

    def show(self, until_s: float) -> None:
        """Take views, until a moment."""
        while time.monotonic() < until_s:
            self.views += self._stream.readline().startswith(b"data:")

    def close(self) -> None:
        """Close the page."""
        self._http.close()


def scrape(port: int) -> tuple[float, str]:
    """Return how long an answer to Prometheus takes, in milliseconds, and the answer."""
    begun = time.perf_counter()
    http_connection = http.client.HTTPConnection(answered.HOST, port, timeout=60)
    http_connection.request("GET", "/metrics")
    text = http_connection.getresponse().read().decode()
    taken = time.perf_counter() - begun
    http_connection.close()
    return 1000 * taken, text


def import_ms() -> float:
    """Return what importing the client takes, in milliseconds, beyond a bare Python."""

    def took(code: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return 1000 * (time.perf_counter() - begun)

    return statistics.median(took("import zonetrack.clients.sync") - took("pass") for _ in range(STARTS))


def look(
    plan: ViewsPlan, path: Path, ports: dict[str, int], note: np.recarray, results: np.ndarray, meet: Meet
) -> None:
    """Be who looks in every way, one after the other; control ends with it."""
    meet()
    found, control = results[0], int(note["control"][0])
    try:
        found["idle_cpu_percent"] = share(
            [control], plan.seconds, lambda until_s: time.sleep(until_s - time.monotonic())
        )
        for name, make, watched in (
            ("top", lambda: Screen(path), lambda one: [control, one.pid]),
            ("page", lambda: Browser(ports["web"]), lambda one: [control]),
        ):
            one: Any = make()
            try:
                one.show(time.monotonic() + min(SETTLE_S, plan.seconds))
                found[f"{name}_cpu_percent"] = share(watched(one), plan.seconds, one.show)
            finally:
                one.close()
        times, text = zip(*(scrape(ports["metrics"]) for _ in range(SCRAPES)), strict=True)
        series = text[-1].count("zonetrack_zone_entries{")
        if series < min(plan.zones, plan.connections):
            raise CheckFailed(f"the scrape has {series} zones, expected {plan.zones}")
        found["scrape_ms"] = statistics.median(times)
        found["import_ms"] = import_ms()
    finally:
        answered.end(note)


# ---------------------------------------------------------------------------------------------------- the trial
def conduct(plan: ViewsPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``."""
    answered.warm()
    table = answered.new_table(plan.connections, plan.zones)
    watched, note = streams(1), crew.shared(answered.NOTE, 1).view(np.recarray)
    driver = Driver(table, plan.seed, plan.burst, watched[0])
    answered.fill(driver, plan.connections, plan.zones)
    driver.leave()
    tick(int(watched["packets"].sum()))
    sites, results = answered.listeners("metrics", "web"), crew.shared(FIGURES, 1)
    ports = {shown: listener.getsockname()[1] for shown, listener in sites.items()}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "control.sock"
        jobs: tuple[Callable[[Meet], object], ...] = (
            lambda meet: answered.answer(table, path, note, meet, sites),
            partial(look, plan, path, ports, note, results),
        )
        together(len(jobs), lambda index, meet: jobs[index](meet), lambda: None)
    for listener in sites.values():
        listener.close()
    return {name: float(results[0][name]) for name in FIGURES.names or ()}


TRIAL = Trial(ViewsPlan, answered.packets_count, answered.geometry_of, conduct)
