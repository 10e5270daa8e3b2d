"""The keeper: holds everything that must outlive a worker, starts the others, and stays while they come and go.

It owns the table, the ports, the queues' cursors and the door; children inherit all of it.  A worker that dies is
started again on the queues it had, and one that makes no turns any more is killed first; control is started again behind
the same door.  The keeper itself tracks nothing and speaks to nobody: it waits for signals, for the ends of its children,
and for orders that clients gave to control.  When it dies its children go on, and the next keeper adopts them.

    TERM, INT    workers empty their queues and end, then control; the table is put away for the next start.  Again: at once
    HUP          the configuration is read again; what is live of it takes effect
    USR2         the keeper ends alone: workers and control go on, and the next keeper adopts them
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..clients.errors import ZonetrackError
from ..kernels import sources
from ..shm import estate
from ..shm.queues import Queues
from ..shm.segment import Instance
from . import (
    assignments,
    burial,
    children,
    control,
    exporting,
    house,
    listening,
    log,
    notify,
    opening,
    orphans,
    privileges,
    settings,
    signals,
    stopping,
    succession,
    warmup,
)
from .board import Board
from .burial import Burial
from .children import Child
from .config import Config, ConfigError, Loaded, differences, merge
from .context import Context, Order
from .crew import ending
from .door import Door
from .hangs import Hangs
from .house import House
from .lives import Life
from .orders import Orders
from .orphans import Orphans
from .phases import AFTER, Event, Phase
from .ports import opening as ports
from .ports import telling
from .published import Published
from .worker import Worker

HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
GRACE_S = 5.0
"""What a child has to end, beyond the time for draining, before it is killed."""
BURY_AGAIN_S = 1.0
"""Until the dead are tried again whose repair waits for a lock that a living process has."""
RULES_WAIT_S = 0.5
"""For workers to go by rules that were read again; they look every 30 ms."""
_log = log.logger("keeper")


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
        self._hurry_s = self._kill_s = self._bury_s = 0.0
        self._watchdog = notify.Watchdog()
        self._hangs = Hangs()
        self._leaves = self._begins_anew = self._replaces = self._replaces_control = False
        self._instance: Instance
        self._origin: dict[str, Any]
        self._house: House
        self._queues: Queues
        self._dealt: list[list[int]]
        self._rules: Published
        self._door: Door
        self._board: Board
        self._workers: list[Child] = []
        self._control: Child
        self._exporters = exporting.Exporters()
        self._to_replace: list[Child] = []
        self._replaced: Child | None = None

    def run(self) -> bool:
        """Serve until asked to stop, or to leave the others to the next keeper.

        Returns:
            Whether this process is to begin anew, as a new keeper.

        Raises:
            StartError: a child failed before the service was ready.
            ZonetrackError: or what it needs was not there.
            SegmentError: likewise.
        """
        with contextlib.ExitStack() as stack, house.ends(lambda: self._leaves) as undo:
            stored = notify.stored()
            # first of all: a second service must touch nothing of the first
            self._instance, left, self._origin = opening.hold(self.config)
            stack.enter_context(self._instance)
            undo(self._put_away)
            stack.callback(self._exporters.close)
            warmup.ensure()
            warmup.load("poll.poll", "sweep.sweep", "late.abandon", "repair.repair", "sources.recount", *control.PIECES)
            self._leaves = left is not None  # whatever is wrong with us is no fault of theirs
            left = self._furnish(left, stored, undo)
            with signals.told(*HEARD) as self._signals, children.hastened():
                undo(self._end_all)
                self._begin(left)
                self._leaves = False
                try:
                    while self.phase is not Phase.OVER:
                        self._turn()
                except BaseException:
                    self._leaves = self.phase is Phase.SERVING
                    raise
            if self._leaves:
                self._house.estate.leave()
        if self._failure:
            raise StartError(self._failure)
        return self._begins_anew

    # ------------------------------------------------------------------------------------------------ beginning
    def _furnish(self, left: Orphans | None, stored: dict[str, int], undo: house.Undo) -> Orphans | None:
        """Have the house of who was left, or the one that was stored, or make another; return who is to be adopted."""
        made = None
        if left is not None:
            made = succession.inherit(left, self.config, self._instance.table, undo)
            if made is None:
                left, self._leaves = None, False
        if made is None:
            made = succession.take_up(stored, self.config, undo) or house.make(self.config, undo)
        else:
            house.close(stored)
        self._house = made
        self._queues, self._door, self._board = self._house.queues, self._house.door, self._house.board
        self._dealt, self._instance.table.events = self._queues.deal(), self._house.events
        self._instance.table.seats, self._instance.table.sources = self._house.seats, self._house.sources
        if left is None:  # of a table that was kept
            sources.recount(self._instance.table.views(0))
        names = [spec.name for spec in self.config.ports]
        self._rules = Published(self._house.book, self._instance.table, names)
        wanted = orphans.about(self.config)
        told = self._house.estate.told
        if left is None or told["live"] != wanted["live"]:
            # what clients have changed stays where the configuration says the same as before
            settings.apply(self._instance.table, self.config)
            if left is not None:
                self._queues.assign(self._assigned(self.config))
                self._queues.measure(self.config.statistics)
                self._queues.stay_awake(self.config.busy_poll)
            if self.config.rules is not None:
                self._rules.load_file(self.config.rules, RULES_WAIT_S)
        if left is not None:
            self._origin = told.get("origin", self._origin)
        self._house.estate.tell(told | wanted | {"again": None, "origin": self._origin})
        notify.store(self._house.estate.descriptors())
        undo(self._forget)
        if left is not None:
            self._replaces = told.get("again") == orphans.RESTART or told["program"] != wanted["program"]
            self._replaces_control = self._replaces or told["control"] != wanted["control"]
        return left

    def _begin(self, left: Orphans | None) -> None:
        """Make the children, and adopt who was left."""
        self._house.events.keep(exporting.kinds(self.config))
        for number, own in enumerate(self._dealt):
            line = self._board.lines[number]
            worker = Worker(self._instance.table, self._queues, own, line, self._house.book, number)
            enter = partial(self._house.enter, number)
            self._workers.append(
                Child("worker", number, worker.work, worker.stop, worker.hurry, enter, privileges.OF_WORKERS)
            )
        enter = partial(self._house.enter, estate.CONTROL)
        self._control = Child("control", 0, self._be_control, enter=enter, keeps=privileges.OF_CONTROL)
        if left is not None:
            self._adopt(left)

    def _adopt(self, left: Orphans) -> None:
        """Adopt who is in a place, and end who was killed on the way to one, or is about to begin."""
        now_s = time.monotonic()
        adopted = set()
        for child in self._children:
            place = estate.CONTROL if child is self._control else child.number
            pid = self._house.estate.holder(place)
            if not pid:
                continue
            if child is not self._control:
                child.course.starts = int(self._board.lines[child.number]["restarts"])
            with contextlib.suppress(ProcessLookupError):
                child.adopt(pid, now_s)
                self._write_down(child)
                adopted.add(pid)
        for pid in set(left.pids) - adopted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _log.warning("adopted who was left by the keeper before", extra=log.facts(children=sorted(adopted)))
        if self._replaces:
            self._to_replace = list(self._workers)
        if self._replaces_control:
            self._to_replace.append(self._control)

    def _be_control(self, ready: Callable[[], None]) -> None:
        """Be control, in its process."""
        context = Context(
            instance=self.config.instance,
            table=self._instance.table,
            door=self._door,
            order=Orders(self._house).give,
            check_config=self._check_config,
            workers=self._board.workers,
            ports=self._ports,
            rules=self._rules.book,
            queues=self._queues,
            bounds=self.config.control,
            metrics=self.config.metrics,
            sites=self._house.sites,
            keeper=lambda: self._house.estate.keeper or os.getpid(),
            origin=self._origin,
        )
        control.run(context, ready)

    def _check_config(self) -> dict[str, Any]:
        """Read the configuration, in control's process, for whoever asked that the keeper should."""
        after = self._load().config
        if after.rules is not None:
            self._rules.check_file(after.rules)
        self._assigned(after)
        changed, restart = differences(self.config, after)
        self.config = merge(self.config, after)
        return {"changed": changed, "restart": restart}

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
        self._see_whether_ready()
        self._start_due(now_s)
        if self.phase is Phase.SERVING:
            self._exporters.start_due(now_s)
        self._replace_next(now_s)
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
        if self._house.orders in heard:
            for order in os.read(self._house.orders, 64):
                self._on_order(Order(order), now_s)
        self._exporters.see_to(heard, now_s)
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
        """Kill workers that run and make no turns."""
        if now_s < self._hangs.due_s:
            return
        running = [child for child in self._workers if child.course.life is Life.RUNNING]
        turns = {child.number: (child.pid, int(self._board.lines[child.number]["calls"])) for child in running}
        for number in self._hangs.look(turns, self.config.hang_ms / 1_000, now_s):
            child = self._workers[number]
            _log.error("%s (pid %d) hangs, and is killed", child.name, child.pid)
            child.end_hanging(now_s)

    def _wait(self, now_s: float) -> set[int]:
        """Wait for something to read, or for the next thing that is due; return the descriptors that can be read."""
        poller = select.poll()
        watched = {self._signals, self._house.orders}
        due_s = [self._hurry_s, self._kill_s, self._bury_s, self._hangs.due_s, self._exporters.until_s]
        watched |= self._exporters.descriptors
        if self.phase is Phase.SERVING:
            due_s += self._exporters.due_s
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

    def _see_whether_ready(self) -> None:
        if self.phase is Phase.STARTING and self._all_run:
            self._move(Event.READY)
            self._exporters.want(exporting.commands(self.config, self._door.path), time.monotonic())
            about = self._about()
            notify.ready(f"{len(self._workers)} workers, {len(self._queues)} queues")
            self._announce(about)

    @property
    def _all_run(self) -> bool:
        return all(one.course.life is Life.RUNNING for one in self._children)

    def _replace_next(self, now_s: float) -> None:
        """Replace the next of those who are to be, when nobody else is missing."""
        if self._to_replace and self.phase is Phase.SERVING and self._all_run and self._replaced is None:
            self._replaced = self._to_replace.pop(0)
            self._replaced.replace(now_s)

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
            "table": self._origin["from"],
            **{shown: str(listening.Address(*at.getsockname()[:2])) for shown, at in self._house.sites.items()},
        }

    def _on_death(self, child: Child, now_s: float) -> None:
        pid = child.pid
        began_here = not child.inherited
        code = child.bury(now_s)
        self._write_down(child)
        if child.kind == "worker":
            self._rules.book.let_go(child.number)
        done = self._bury_dead(now_s)
        if child.course.life is Life.GONE:
            say = _log.warning if code else _log.info
            say("%s has ended", child.name, extra=log.facts(child=pid, code=code))
            return
        if child is self._replaced:
            self._replaced = None
            _log.info("%s (pid %d) makes way for its successor", child.name, pid)
            return
        how = ending(code) if code else "has ended" if code is None else "ended by itself"
        _log.warning(
            "%s (pid %d) %s; %s",
            child.name,
            pid,
            how,
            f"it is started again in {child.course.pause_s:.1f} s" if child.course.pause_s else "it is started again",
            extra=log.facts(restarts=child.course.starts, repaired=done.interrupted),
        )
        if self.phase is Phase.STARTING and began_here:
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
        elif number == signal.SIGUSR2:
            self._leave()
        elif number in (signal.SIGTERM, signal.SIGINT):
            _log.info("%s", signal.Signals(number).name)
            self._stop(now_s)

    def _on_order(self, order: Order, now_s: float) -> None:
        _log.info("a client orders: %s", order.name.lower())
        if order is Order.RELOAD:
            self._reload()
        elif order is Order.RESTART:
            self._house.estate.add(again=orphans.RESTART)
            self._begins_anew = self._leave()
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
            assigned = self._assigned(after)
            changed, restart = differences(self.config, after)
            settings.apply(self._instance.table, merge(self.config, after))
            if after.rules is not None:
                self._rules.load_file(after.rules, RULES_WAIT_S)
            elif self.config.rules is not None:
                self._rules.clear(RULES_WAIT_S)
        except ZonetrackError as error:
            _log.error("the configuration stays as it is: %s", error)
        else:
            if after.assign != self.config.assign:
                self._queues.assign(assigned)
            if after.statistics != self.config.statistics:
                self._queues.measure(after.statistics)
            self._queues.stay_awake(after.busy_poll)
            self.config = merge(self.config, after)
            self._house.estate.add(live=orphans.about(self.config)["live"])
            self._house.events.keep(exporting.kinds(self.config))
            if self.phase is Phase.SERVING:
                self._exporters.want(exporting.commands(self.config, self._door.path), time.monotonic())
            _log.info("the configuration was read again", extra=log.facts(changed=changed))
            if restart:
                _log.warning("takes effect at the next start: %s", ", ".join(restart))
        notify.ready(f"{len(self._workers)} workers, {len(self._queues)} queues")

    def _assigned(self, config: Config) -> dict[int, int]:
        """Return the workers that a configuration names, by the numbers of queues.

        Raises:
            ConfigError: something of that is not there.
        """
        try:
            return self._queues.find({assignments.read(queue): worker for queue, worker in config.assign.items()})
        except ValueError as error:
            raise ConfigError(f"assign: {error}") from error

    # ------------------------------------------------------------------------------------------------ the end
    def _move(self, event: Event) -> None:
        self.phase = AFTER[self.phase, event]

    def _leave(self) -> bool:
        """Leave the others to the next keeper, if all is well; return whether that is so."""
        if (self.phase, Event.LEAVE) not in AFTER:
            _log.warning("nobody is left to another keeper: the service is %s", self.phase.name.lower())
            return False
        self._move(Event.LEAVE)
        self._leaves = True
        _log.info("workers and control are left to the next keeper")
        return True

    def _end_all(self) -> None:
        """Kill who is left when something has gone wrong here: nobody would know of them."""
        for child in self._children:
            if child.lives:
                os.kill(child.pid, signal.SIGKILL)
                child.bury(time.monotonic())

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
                self._hurry_s = self._kill_s = 0.0
                if not self._exporters.have_ended(now_s):
                    return  # they tell of the last connections, which control has from the workers
                self._move(Event.DRAINED)
                self._kill_s = now_s + GRACE_S
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

    def _forget(self) -> None:
        notify.forget(self._house.estate.descriptors())

    def _put_away(self) -> None:
        stopping.put_away(self._instance, self._discard)
