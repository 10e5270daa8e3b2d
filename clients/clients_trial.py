"""One trial of many clients: what a worker and another client notice when they all ask as fast as they can.

A worker sends packets of established connections on the first core.  On the last are control, a client that asks for the
count again and again, and the many, who take turns: nothing, reckoning (which says what a busy neighbour costs whatever it
does), a flood.  Each of them has as many requests under way as a client may, and reads its answers.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..service import crew
from . import answered, wire
from .driver import CheckFailed, streams
from .dump_trial import COUNTS, count, send, turns
from .trial import Meet, Plan, together
from .trials import Tick, Trial

TURNS = ("idle", "busy", "flood")
TURN_S = 0.3
IN_FLIGHT = 32
ASKED: tuple[tuple[str, dict[str, object]], ...] = (
    ("count", {}),
    ("hello", {}),
    ("stats", {}),
    ("limits.get", {}),
    ("zones", {"zone": 0}),
    ("count", {"filter": {"proto": "udp", "zone": 0}}),
    ("no.such.method", {}),
)
"""What they ask, in turn: cheap things, a walk over the table, and what there is not."""


@dataclass(frozen=True)
class ClientsPlan(Plan):
    """What was asked for."""

    clients: int = 64
    pairs: int = 60


class Asker:
    """One of the many."""

    def __init__(self, path: Path, number: int) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.socket.setblocking(False)
        self._reader, self._unsent = wire.answers(), b""
        self._next, self.under_way, self.answered = number, 0, 0

    def ask(self) -> None:
        """Send as many requests as may be under way, as far as there is room."""
        while self.under_way < IN_FLIGHT:
            method, params = ASKED[self._next % len(ASKED)]
            self._unsent += wire.request(self._next, method, params)
            self._next, self.under_way = self._next + 1, self.under_way + 1
        self.send()

    def send(self) -> None:
        """Send what there was no room for before, as far as there is now."""
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                self._unsent = self._unsent[self.socket.send(self._unsent) :]

    def hear(self) -> None:
        """Take the answers that have come.

        Raises:
            CheckFailed: control has hung up, or says that there were too many requests.
        """
        data = self.socket.recv(1 << 18)
        if not data:
            raise CheckFailed("control has hung up on a client that keeps within its bounds")
        self._reader.feed(data)
        for message in self._reader:
            if isinstance(message, wire.Response) and message.failure and message.failure.code != "unknown_method":
                raise CheckFailed(f"a client that keeps within its bounds was told {message.failure.message!r}")
            self.under_way -= 1
            self.answered += 1


class Crowd:
    """All of them, in one process."""

    def __init__(self, path: Path, clients: int) -> None:
        self._askers = [Asker(path, number) for number in range(clients)]
        self._selector = selectors.DefaultSelector()
        for asker in self._askers:
            self._selector.register(asker.socket, selectors.EVENT_READ, asker)

    @property
    def answered(self) -> int:
        """Answers that all of them have had."""
        return sum(asker.answered for asker in self._askers)

    def _heard(self) -> Iterator[Asker]:
        for key, _ in self._selector.select(TURN_S):
            key.data.hear()
            yield key.data

    def flood(self, until_s: float) -> None:
        """Ask, until a moment; then wait for the answers that are due."""
        for asker in self._askers:
            asker.ask()
        while time.monotonic() < until_s:
            for asker in self._heard():
                asker.ask()
        end_s = time.monotonic() + answered.PATIENCE_S
        while any(asker.under_way for asker in self._askers):
            if time.monotonic() > end_s:
                raise CheckFailed(f"answers are due, and do not come for {answered.PATIENCE_S:.0f} s")
            for asker in self._heard():
                asker.send()

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for asker in self._askers:
            asker.socket.close()


def crowd(plan: ClientsPlan, path: Path, note: np.recarray, stream: np.record, results: np.ndarray, meet: Meet) -> None:
    """Be the many, turn by turn; control ends with it."""
    meet()
    result = results[0]
    try:
        last = max(os.sched_getaffinity(0))
        answered.stay_on(last, (os.getpid(), int(note["control"][0])))
        many = Crowd(path, plan.clients)
        with contextlib.closing(many):
            note["begun"] = 1
            before = int(stream["packets"])
            answered.until("the worker sends", lambda: int(stream["packets"]) > before)
            for number in range(plan.pairs):
                for turn in turns(number, TURNS):
                    packets, begun, had = int(stream["packets"]), time.monotonic(), many.answered
                    if turn == "flood":
                        note["first"] = 1
                        many.flood(begun + TURN_S)
                        note["first"] = 0
                        result["answers"] += many.answered - had
                        result["flood_s"] += time.monotonic() - begun
                    elif turn == "busy":
                        while time.monotonic() < begun + TURN_S:
                            pass
                    else:
                        time.sleep(TURN_S)
                    answered.until("the worker sends", lambda: int(stream["packets"]) > packets)  # noqa: B023 - now
                    rate = (int(stream["packets"]) - packets) / (time.monotonic() - begun)
                    result["rates"][number][TURNS.index(turn)] = rate
    finally:
        answered.end(note)


def conduct(plan: ClientsPlan, tick: Tick) -> dict[str, float]:
    """Carry out one trial; see ``trials.Trial``."""
    answered.warm()
    table = answered.new_table(plan.connections)
    watched, note = streams(1), crew.shared(answered.NOTE, 1).view(np.recarray)
    result = np.dtype([("rates", "f8", (plan.pairs, len(TURNS))), ("answers", "u8"), ("flood_s", "f8")])
    results, counts = crew.shared(result, 1), crew.shared(COUNTS, 1)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "control.sock"
        jobs: tuple[Callable[[Meet], object], ...] = (
            partial(send, plan, table, note, watched[0]),
            lambda meet: answered.answer(table, path, note, meet, {}),
            partial(count, path, note, counts),
            partial(crowd, plan, path, note, watched[0], results),
        )
        together(len(jobs), lambda index, meet: jobs[index](meet), lambda: tick(int(watched["packets"].sum())))
    return figures(results[0], counts[0])


def figures(result: np.void, counts: np.void) -> dict[str, float]:
    """Return what is reckoned from what the members noted.

    Raises:
        CheckFailed: nothing was counted during a flood.
    """
    taken = counts["ns"][: int(counts["count"])]
    if not len(taken):
        raise CheckFailed("all floods were over before anything was counted")
    rates = {turn: result["rates"][:, i] for i, turn in enumerate(TURNS)}
    found = {
        "packets_per_second": float(np.median(rates["idle"])),
        "requests_per_second": int(result["answers"]) / float(result["flood_s"]),
        "counts": len(taken),
    }
    for percent in (50, 99):
        found[f"count_ms_p{percent}"] = float(np.percentile(taken, percent)) / 1e6
    for turn in TURNS[1:]:
        falls = [100 * (1 - one / idle) for one, idle in zip(rates[turn], rates["idle"], strict=True)]
        found[f"packet_rate_fall_percent_{turn}"] = statistics.median(falls)
    return found


TRIAL = Trial(ClientsPlan, answered.packets_count, answered.geometry_of, conduct)
"""Packets beside clients depend on the time."""
