"""The table of a service, opened: attached to where one was kept, made where there is none, and the dead buried."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path
from typing import Any, NamedTuple

from ..clients.errors import ZonetrackError
from ..shm import roster, segment
from ..shm.errors import (
    InUse,
    Missing,
    SegmentError,
    WrongBoot,
    WrongDigest,
    WrongGeneration,
    WrongMagic,
    WrongRegion,
    WrongSize,
    WrongState,
    WrongVersion,
)
from ..shm.layout import Kind
from ..shm.segment import Instance
from ..shm.sizing import Geometry
from ..shm.views import Table
from . import burial, conversion, log, orphans, relearning, saved, warmup
from .config import Config
from .orphans import Orphans, StillRunningError

WAIT_MS = 10_000
"""How long those are waited for whose keeper died: they end by themselves, as soon as their queues are empty."""
OTHERWISE_LAID_OUT = (WrongVersion, WrongDigest)
UNFIT = (WrongSize, WrongMagic, WrongVersion, WrongDigest, WrongRegion, WrongBoot, WrongGeneration)
_log = log.logger("keeper")


class Held(NamedTuple):
    """A table that a service owns."""

    instance: Instance
    left: Orphans | None
    """Whom to adopt."""
    origin: dict[str, Any]
    """Where what is in it comes from, in plain values: ``from`` is ``new``, ``kept``, ``restored`` or ``converted``; of the
    last two the ``file``, and what restoring it has told."""


class UnfitTableError(ZonetrackError):
    """A table was left that this program cannot use."""


def geometry(config: Config) -> Geometry:
    """Return the sizes of the table that is asked for."""
    return Geometry(config.max_connections, config.zones_in_use_max, config.extension_share)


def hold(config: Config) -> Held:
    """Return the service's table, and own it.

    One of another layout, which an earlier version of this program left, is converted: see service/conversion.

    Raises:
        InUse: another service does; its pid is in the text.
        UnfitTableError: a table was left that this program cannot use.
        SegmentError: there is too little memory, or no right to use it.
        StillRunningError: another service's processes outlive it.
        SavedError: a table of another layout cannot be saved.
    """
    wanted = geometry(config)
    left = orphans.of(config.instance)
    if config.fresh and not (left and left.estate.told.get("again")):
        return _make(config, wanted, left)
    try:
        held = segment.attach(config.instance, claim=True)
    except (Missing, WrongState):  # there is none, or one that was never finished
        return _make(config, wanted, left)
    except OTHERWISE_LAID_OUT as error:
        return _convert(config, wanted, error)
    except UNFIT as error:
        raise UnfitTableError(f"{error}; a start with --fresh discards it") from error
    try:
        left = _adoptable(config)
        if left is None:
            wait_for_others(held.table)
        done = burial.bury_dead(held.table)
        unseen = relearning.mark_all(held.table) if left is None else 0
    except BaseException:
        held.close()
        raise
    if done.interrupted or done.left:
        _log.warning(
            "who died over the table that was left", extra=log.facts(repaired=done.interrupted, waits=done.left)
        )
    if unseen:
        _log.info(
            "connections learn their windows again, for nobody saw their packets", extra=log.facts(connections=unseen)
        )
    _say_that_it_stays(config)
    kept = held.geometry
    _log.info("kept the table that was left", extra=log.facts(connections=kept.connections, bytes=kept.total_bytes))
    if kept != wanted:
        _log.warning("the table that was kept has other sizes than asked for: a start with --fresh makes a new one")
    return Held(held, left, {"from": "kept"})


def _say_that_it_stays(config: Config) -> None:
    if config.restore is not None:
        _log.warning("the table that was left is kept as it is: %s is not restored", config.restore)


def _convert(config: Config, wanted: Geometry, why: SegmentError) -> Held:
    try:
        away = conversion.put_away(config)
    except InUse:
        raise
    except SegmentError as error:
        raise UnfitTableError(
            f"{why}; it cannot be converted: {error}; save it by the program that made it, and start with --fresh, "
            "which discards it"
        ) from error
    made, origin = conversion.take_over(config, wanted, away)
    _say_that_it_stays(config)
    return Held(made, None, origin)


def _adoptable(config: Config) -> Orphans | None:
    """Return the orphans that can be adopted; others are ended.  The instance is claimed."""
    left = orphans.of(config.instance)
    if left is None:
        return None
    differing = orphans.differences(left, config)
    if not differing:
        return left
    _log.warning("who was left cannot be adopted, for other values are wanted of: %s", ", ".join(differing))
    orphans.end(left, config.drain_ms / 1_000)
    return None


def _make(config: Config, wanted: Geometry, left: Orphans | None) -> Held:
    kept = None if config.restore is None else saved.read(Path(config.restore))  # before anything is touched
    if left is not None:
        with contextlib.suppress(Missing, WrongState, *UNFIT), segment.attach(config.instance, claim=True):
            pass  # nobody else adopts them at this moment
        orphans.end(left, config.drain_ms / 1_000)
    made = segment.create(config.instance, wanted, replace=config.fresh)
    _log.info("made a table", extra=log.facts(connections=wanted.connections, bytes=wanted.total_bytes))
    origin: dict[str, Any] = {"from": "new"}
    if kept is not None:
        try:
            warmup.ensure()
            told = saved.restore_into(made.table, kept, is_new=True)
        except BaseException:
            made.unlink()
            made.close()
            raise
        _log.info("restored what was saved in %s", config.restore, extra=log.facts(**told))
        origin = {"from": "restored", "file": str(config.restore), **told}
    return Held(made, None, origin)


def wait_for_others(table: Table) -> None:
    """Wait until workers and control of an earlier service have ended.

    Raises:
        StillRunningError: one does not.
    """
    for place in roster.present(table):
        if not place.alive or place.kind is Kind.TOOL:
            continue
        name = f"{place.kind.name.lower()} {place.pid}"
        _log.info("waiting for %s of an earlier service to end", name)
        try:
            pidfd = os.pidfd_open(place.pid)
        except ProcessLookupError:
            continue
        try:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            if not poller.poll(WAIT_MS):
                raise StillRunningError(f"{name} of an earlier service does not end")
        finally:
            os.close(pidfd)
