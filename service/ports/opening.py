"""Opening the ports of a configuration, each by its kind."""

from __future__ import annotations

import grp
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...shm import port
from ...shm.queues import Source
from ..config import Config, ConfigError
from . import torn
from .nfqueue import NfqueuePort
from .packet import PacketPort
from .pcap import PcapPort
from .prompt import PromptPort
from .specs import PortSpec
from .tap import TapPort
from .xdp import XdpPort


class Opened(Source, AbstractContextManager[Any], Protocol):
    """A port that is open until the end of its block."""

    def unlink(self) -> None:
        """Close it, and leave nothing of it."""
        ...


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
        return _mended(port.create(instance, spec.name, spec.queues, spec.zone, spec.slots, group))
    return _open_device(spec, workers)


def _mended(made: port.Port) -> port.Port:
    torn.mend(made.memory)
    return made


def _open_device(spec: PortSpec, workers: int, descriptors: Sequence[int] = ()) -> Any:
    """Open what is no port of clients, or go on with what the descriptors are of."""
    if spec.kind == "tap":
        return TapPort(spec.device, spec.name, spec.queues, spec.zone, descriptors)
    if spec.kind == "pcap":
        return PcapPort(spec.device, spec.name, spec.zone, workers, descriptors=descriptors, **dict(spec.more))
    if spec.kind == "nfqueue":
        return NfqueuePort(
            int(spec.device), spec.name, spec.queues, spec.zone, descriptors=descriptors, **dict(spec.more)
        )
    if spec.kind == "xdp":
        return XdpPort(
            spec.device, spec.name, spec.queues, spec.zone, workers, descriptors=descriptors, **dict(spec.more)
        )
    more = dict(spec.more)
    of_kind = PromptPort if more.pop("latency", "normal") == "low" else PacketPort
    return of_kind(spec.device, spec.name, spec.queues, spec.zone, workers, descriptors=descriptors, **more)


def resume_ports(config: Config, descriptors: Callable[[str], Sequence[int]]) -> Iterator[Opened]:
    """Go on with the ports of a configuration, which another process of this service has opened.

    Args:
        config: in which nothing of ports has changed.
        descriptors: returns those of a port by its name; they belong to the port from then on.

    Raises:
        SegmentError: one is not as it was made any more.
        PortError: likewise.
    """
    for spec in config.ports:
        yield resume_port(spec, config.instance, config.workers, descriptors(spec.name))


def resume_port(spec: PortSpec, instance: str, workers: int, descriptors: Sequence[int]) -> Any:
    """Go on with one."""
    if spec.kind == "shm":
        return _mended(port.resume(instance, spec.name, spec.queues, spec.zone, spec.slots, *descriptors))
    return _open_device(spec, workers, descriptors)


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
