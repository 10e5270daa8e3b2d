"""The keeper: holds everything that must outlive a worker, starts the others, and stays while they come and go.

It owns the table, the ports, the queues' cursors and the door; children inherit all of it.  A worker that dies is
started again on the queues it had, and one that makes no turns any more is killed first; control is started again behind
the same door.  The keeper itself tracks nothing and speaks to nobody: it waits for signals, for the ends of its children,
and for orders that clients gave to control.

    TERM, INT    workers empty their queues and end, then control; the table is put away for the next start.  Again: at once
    HUP          the configuration is read again; what is live of it takes effect
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from ..clients import address
from ..clients.errors import ZonetrackError
from ..shm import roster
from ..shm.events import Events
from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.segment import Instance
from . import burial, control, listening, log, notify, opening, privileges, settings, warmup
from .board import Board
from .burial import Burial
from .children import Child
from .config import Config, Loaded, differences, merge
from .context import Context, Order
from .crew import ending
from .door import Door, open_door
from .lives import Life
from .ports import opening as ports
from .ports import telling
from .published import Published
from .worker import Worker

GRACE_S = 5.0
"""What a child has to end, beyond the time for draining, before it is killed."""
HANG_LOOKS = 10
"""Looks in a row, over ``hang_ms``, at which a worker has made no turn: looks, for a keeper that was stopped itself has seen
nothing in that time."""
BURY_AGAIN_S = 1.0
"""Until the dead are tried again whose repair waits for a lock that a living process has."""
RULES_WAIT_S = 0.5
"""For workers to go by rules that were read again; they look every 30 ms."""
_log = log.logger("keeper")


class Phase(IntEnum):
    """Where a service stands."""

    STARTING = 0
    SERVING = 1
    DRAINING = 2
    CLOSING = 3
    OVER = 4


class Event(IntEnum):
    """What may happen to it."""

    READY = 0
    STOP = 1
    DRAINED = 2
    CLOSED = 3


class Transition(NamedTuple):
    """A row of the table below."""

    before: Phase
    event: Event
    after: Phase
    why: str


# fmt: off
TRANSITIONS = (  #  from            event          to              why
    Transition(Phase.STARTING, Event.READY,   Phase.SERVING,  "all children are ready"),
    Transition(Phase.STARTING, Event.STOP,    Phase.DRAINING, "asked to, or a child failed"),
    Transition(Phase.SERVING,  Event.STOP,    Phase.DRAINING, "asked to: workers empty their queues"),
    Transition(Phase.DRAINING, Event.STOP,    Phase.DRAINING, "asked again: they leave them"),
    Transition(Phase.DRAINING, Event.DRAINED, Phase.CLOSING,  "the workers have gone: control may"),
    Transition(Phase.CLOSING,  Event.STOP,    Phase.CLOSING,  "it is at that"),
    Transition(Phase.CLOSING,  Event.CLOSED,  Phase.OVER,     "nobody is left"),
)
# fmt: on
AFTER = {(row.before, row.event): row.after for row in TRANSITIONS}


class StartError(ZonetrackError):
    """The service did not come up."""


class Keeper:
    """One service, from its start to its end."""

    def __init__(self, loaded: Loaded, load: Callable[[], Loaded], announce: Callable[[dict[str, Any]], None]) -> None:
        """Prepare; nothing is touched yet.

        Args:
            loaded: the configuration.
            load: reads it again.
            announce: called once packets can flow, with what a person or script wants to know.
        """
        self.config: Config = loaded.config
        self.phase = Phase.STARTING
        self._load = load
        self._announce = announce
        self._discard = False
        self._failure = ""
        self._hurry_s = self._kill_s = self._bury_s = self._look_s = 0.0
        self._watchdog = notify.Watchdog()
        self._turns: dict[int, tuple[int, int, int]] = {}
        self._instance: Instance
        self._queues: Queues
        self._dealt: list[list[int]]
        self._rules: Published
        self._door: Door
        self._sites: dict[str, socket.socket] = {}
        self._board: Board
        self._workers: list[Child] = []
        self._control: Child

    def run(self) -> None:
        """Serve until asked to stop.

        Raises:
            StartError: a child failed before the service was ready.
            ZonetrackError: or what it needs was not there.
            SegmentError: likewise.
        """
        path = address.path(self.config.socket, self.config.instance)
        with contextlib.ExitStack() as house:
            # first of all: a second service must touch nothing of the first
            self._instance = house.enter_context(opening.hold(self.config))
            self._instance.table.events = Events()
            house.callback(self._put_away)
            warmup.ensure()
            warmup.load("poll.poll", "sweep.sweep", "late.abandon", "repair.repair", *control.PIECES)
            settings.apply(self._instance.table, self.config)
            opened = [house.enter_context(made) for made in ports.open_ports(self.config)]
            self._queues = Queues(opened, workers=self.config.workers)
            self._dealt = self._queues.deal()
            names = [spec.name for spec in self.config.ports]
            self._rules = Published(Rulebook(self.config.workers), self._instance.table, names)
            if self.config.rules is not None:
                self._rules.load_file(self.config.rules)
            self._door = open_door(path, self.config.control.group)
            house.callback(self._door.close)
            for shown, wanted in (("metrics", self.config.metrics.listen),):
                if wanted is not None:
                    self._sites[shown] = house.enter_context(listening.listen(wanted, f"{shown}.listen"))
            with _signals() as self._signals, _pipe() as (self._orders, self._give_order):
                self._begin()
                while self.phase is not Phase.OVER:
                    self._turn()
        if self._failure:
            raise StartError(self._failure)

    # ------------------------------------------------------------------------------------------------ beginning
    def _begin(self) -> None:
        """Make the children, and start them."""
        self._board = Board([self._named(own) for own in self._dealt])
        for number, numbers in enumerate(self._dealt):
            line = self._board.lines[number]
            worker = Worker(self._instance.table, self._queues, numbers, line, self._rules.book, number)
            self._workers.append(
                Child("worker", number, worker.work, worker.stop, worker.hurry, keeps=privileges.OF_WORKERS)
            )
        self._control = Child("control", 0, self._be_control)

    def _be_control(self, ready: Callable[[], None]) -> None:
        """Be control, in its process."""
        context = Context(
            instance=self.config.instance,
            table=self._instance.table,
            door=self._door,
            order=lambda order: void(os.write(self._give_order, bytes([order]))),
            check_config=self._check_config,
            workers=self._board.workers,
            ports=self._ports,
            rules=self._rules.book,
            bounds=self.config.control,
            metrics=self.config.metrics,
            sites=self._sites,
        )
        control.run(context, ready)

    def _check_config(self) -> dict[str, Any]:
        """Read the configuration, in control's process, for whoever asked that the keeper should."""
        after = self._load().config
        if after.rules is not None:
            self._rules.check_file(after.rules)
        changed, restart = differences(self.config, after)
        self.config = merge(self.config, after)
        return {"changed": changed, "restart": restart}

    def _named(self, numbers: list[int]) -> list[tuple[str, int]]:
        """Return port and index of the queues that packets come from among some places."""
        records = self._queues.records
        receiving = [number for number in numbers if records["receives"][number]]
        return [(self._queues.ports[int(records["port"][one])].name, int(records["index"][one])) for one in receiving]

    def _ports(self) -> list[dict[str, Any]]:
        return telling.tell(self._queues, self._dealt)

    # ------------------------------------------------------------------------------------------------ serving
    @property
    def _children(self) -> list[Child]:
        return [*self._workers, self._control]

    def _turn(self) -> None:
        """Start who is due, wait for something to happen, and see to it."""
        now_s = time.monotonic()
        if self._bury_s and now_s >= self._bury_s:
            self._bury_dead(now_s)
        self._start_due(now_s)
        self._look_for_hangs(now_s)
        self._push_on(now_s)
        self._watchdog.beat(now_s)
        if self.phase is Phase.OVER:
            return
        heard = self._wait(now_s)
        now_s = time.monotonic()
        if self._signals in heard:
            for number in os.read(self._signals, 64):
                self._on_signal(number, now_s)
        if self._orders in heard:
            for order in os.read(self._orders, 64):
                self._on_order(Order(order), now_s)
        for child in self._children:
            if child.ready in heard and child.hear(now_s):
                self._on_ready(child, now_s)
        for child in self._children:
            if child.pidfd in heard:
                self._on_death(child, now_s)

    def _start_due(self, now_s: float) -> None:
        if self.phase > Phase.SERVING:
            return
        for child in self._children:
            if child.course.life is Life.WAITING and child.course.due_s <= now_s:
                child.fork(now_s)
                self._write_down(child)

    def _look_for_hangs(self, now_s: float) -> None:
        """Kill workers that run and have made no turn for so many looks."""
        if now_s < self._look_s:
            return
        self._look_s = now_s + self.config.hang_ms / 1_000 / HANG_LOOKS
        for child in self._workers:
            if child.course.life is not Life.RUNNING:
                continue
            calls = int(self._board.lines[child.number]["calls"])
            pid, before, looks = self._turns.get(child.number, (0, 0, 0))
            looks = looks + 1 if (pid, before) == (child.pid, calls) else 0
            self._turns[child.number] = child.pid, calls, looks
            if looks == HANG_LOOKS:
                _log.error("%s (pid %d) hangs, and is killed", child.name, child.pid)
                child.end_hanging(now_s)

    def _wait(self, now_s: float) -> set[int]:
        """Wait for something to read, or for the next thing that is due; return the descriptors that can be read."""
        poller = select.poll()
        watched = {self._signals, self._orders}
        due_s = [self._hurry_s, self._kill_s, self._bury_s, self._look_s, self._watchdog.due_s]
        for child in self._children:
            watched |= {child.pidfd, child.ready}
            if child.course.life is Life.WAITING:
                due_s.append(child.course.due_s)
        for descriptor in watched - {-1}:
            poller.register(descriptor, select.POLLIN)
        ahead_s = [moment - now_s for moment in due_s if moment > 0.0]
        timeout_ms = max(0.0, min(ahead_s)) * 1_000 + 1 if ahead_s else None
        return {descriptor for descriptor, _ in poller.poll(timeout_ms)}

    def _write_down(self, child: Child) -> None:
        """Write on the board where a worker stands."""
        if child.kind == "worker":
            line = self._board.lines[child.number]
            line["pid"], line["life"] = child.pid, child.course.life
            line["restarts"] = max(0, child.course.starts - 1)
            if child.course.life is Life.STARTING:
                line["started_ms"] = time.time_ns() // 1_000_000
            if not child.lives:
                line["owner"] = 0

    def _on_ready(self, child: Child, now_s: float) -> None:
        self._write_down(child)
        took_ms = round(1_000 * (now_s - child.born_s))
        _log.info("%s is ready", child.name, extra=log.facts(child=child.pid, took_ms=took_ms))
        if self.phase is Phase.STARTING and all(one.course.life is Life.RUNNING for one in self._children):
            self._move(Event.READY)
            about = self._about()
            notify.ready(f"{len(self._workers)} workers, {len(self._queues)} queues")
            self._announce(about)

    def _about(self) -> dict[str, Any]:
        table = self._instance.table
        return {
            "pid": os.getpid(),
            "instance": self.config.instance,
            "socket": self._door.path,
            "connections": table.geometry.connections,
            "bytes": table.geometry.total_bytes + ports.total_bytes(self._queues.ports),
            "workers": len(self._workers),
            "ports": {made.name: made.queues for made in self._queues.ports},
            **{shown: str(listening.Address(*at.getsockname()[:2])) for shown, at in self._sites.items()},
        }

    def _on_death(self, child: Child, now_s: float) -> None:
        pid = child.pid
        code = child.bury(now_s)
        self._write_down(child)
        if child.kind == "worker":
            self._rules.book.let_go(child.number)
        done = self._bury_dead(now_s)
        if child.course.life is Life.GONE:
            say = _log.warning if code else _log.info
            say("%s has ended", child.name, extra=log.facts(child=pid, code=code))
            return
        how = ending(code) if code else "ended by itself"
        _log.warning(
            "%s (pid %d) %s; %s",
            child.name,
            pid,
            how,
            f"it is started again in {child.course.pause_s:.1f} s" if child.course.pause_s else "it is started again",
            extra=log.facts(restarts=child.course.starts, repaired=done.interrupted),
        )
        if self.phase is Phase.STARTING:
            self._failure = f"{child.name} (pid {pid}) {how}: the log says why"
            self._stop(now_s)

    def _bury_dead(self, now_s: float) -> Burial:
        """Repair and bury who has died; who waits for a lock is tried again."""
        done = burial.bury_dead(self._instance.table)
        self._bury_s = now_s + BURY_AGAIN_S if done.left else 0.0
        if done.left:
            _log.warning("the repair of the dead waits for locks of the living", extra=log.facts(owners=done.left))
        return done

    # ------------------------------------------------------------------------------------------------ orders
    def _on_signal(self, number: int, now_s: float) -> None:
        if number == signal.SIGHUP:
            self._reload()
        elif number in (signal.SIGTERM, signal.SIGINT):
            _log.info("%s", signal.Signals(number).name)
            self._stop(now_s)

    def _on_order(self, order: Order, now_s: float) -> None:
        _log.info("a client orders: %s", order.name.lower())
        if order is Order.RELOAD:
            self._reload()
        else:
            self._discard = self._discard or order is Order.DISCARD
            self._stop(now_s)

    def _reload(self) -> None:
        """Read the configuration again; one that is wrong changes nothing."""
        notify.reloading()
        try:
            after = self._load().config
            if after.rules is not None:
                self._rules.check_file(after.rules)
            changed, restart = differences(self.config, after)
            settings.apply(self._instance.table, merge(self.config, after))
            if after.rules is not None:
                self._rules.load_file(after.rules, RULES_WAIT_S)
            elif self.config.rules is not None:
                self._rules.clear(RULES_WAIT_S)
        except ZonetrackError as error:
            _log.error("the configuration stays as it is: %s", error)
        else:
            self.config = merge(self.config, after)
            _log.info("the configuration was read again", extra=log.facts(changed=changed))
            if restart:
                _log.warning("takes effect at the next start: %s", ", ".join(restart))
        notify.ready(f"{len(self._workers)} workers, {len(self._queues)} queues")

    # ------------------------------------------------------------------------------------------------ the end
    def _move(self, event: Event) -> None:
        self.phase = AFTER[self.phase, event]

    def _stop(self, now_s: float) -> None:
        """Begin the end, or hurry it."""
        again = self.phase > Phase.SERVING
        self._move(Event.STOP)
        if again:
            self._hurry_s = now_s
            return
        notify.stopping("draining")
        for made in self._queues.ports:
            made.close()
        self._hurry_s = now_s + self.config.drain_ms / 1_000
        self._kill_s = self._hurry_s + GRACE_S
        self._ask(self._workers, now_s)

    def _ask(self, children: list[Child], now_s: float) -> None:
        for child in children:
            child.ask_to_stop(now_s)
            self._write_down(child)

    def _push_on(self, now_s: float) -> None:
        """See to the end: hurry and kill who is late, and go on when all of one kind have gone."""
        if self.phase is Phase.DRAINING:
            if all(child.course.life is Life.GONE for child in self._workers):
                self._move(Event.DRAINED)
                self._hurry_s, self._kill_s = 0.0, now_s + GRACE_S
                self._ask([self._control], now_s)
            elif self._hurry_s and now_s >= self._hurry_s:
                self._hurry_s = 0.0
                for child in self._workers:
                    if child.course.life is Life.STOPPING:
                        child.hurry(now_s)
        if self.phase is Phase.CLOSING and self._control.course.life is Life.GONE:
            self._move(Event.CLOSED)
            return
        if self._kill_s and now_s >= self._kill_s:
            self._kill_s = now_s + GRACE_S
            for child in self._children:
                if child.course.life in (Life.STOPPING, Life.HURRYING):
                    _log.warning("%s (pid %d) does not end, and is killed", child.name, child.pid)
                    child.kill(now_s)

    def _put_away(self) -> None:
        """Put the table away for the next start, or discard it."""
        burial.bury_dead(self._instance.table)
        left = roster.present(self._instance.table)
        if self._discard:
            self._instance.unlink()
            _log.info("the table is discarded")
        elif left:
            here = ", ".join(f"{place.kind.name.lower()} {place.pid}" for place in left)
            _log.warning("the table is left open, for it is not at rest: %s", here)
        else:
            self._instance.seal()
            _log.info("the table is put away")


def void(_: object) -> None:
    """Return nothing, whatever was returned."""


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Yield the two ends of a pipe that children may inherit."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Yield a descriptor from which the numbers of signals can be read, a byte each; none is acted upon otherwise."""
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    with _pipe() as (reader, writer):
        os.set_blocking(writer, False)
        before = {number: signal.signal(number, lambda *_: None) for number in handled}
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
