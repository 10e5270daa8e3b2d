"""Opening the ports of a configuration, each by its kind."""

from __future__ import annotations

import grp
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...shm import port
from ...shm.queues import Source
from ..config import Config, ConfigError
from .packet import PacketPort
from .specs import PortSpec


class Opened(Source, AbstractContextManager[Any], Protocol):
    """A port that is open until the end of its block."""


def open_ports(config: Config) -> Iterator[Opened]:
    """Open the ports of a configuration, one after the other.

    Raises:
        ConfigError: the group of their clients is not there.
        PortError: one cannot be opened.
        SegmentError: likewise.
    """
    group = _group(config.ports_group)
    for spec in config.ports:
        yield open_port(spec, config.instance, config.workers, group)


def open_port(spec: PortSpec, instance: str, workers: int, group: int | None = None) -> Any:
    """Open one."""
    if spec.kind == "shm":
        return port.create(instance, spec.name, spec.queues, spec.zone, spec.slots, group)
    return PacketPort(spec.device, spec.name, spec.queues, spec.zone, workers, **dict(spec.more))


def _group(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(f"ports_group: there is no group {name!r}") from None


def total_bytes(ports: Iterable[Source]) -> int:
    """Return the memory that ports take."""
    return sum(one.total_bytes for one in ports)
