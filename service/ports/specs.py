"""SPEC: how a port is written, ``afpacket:eth0,queues=4,zone=7``, and what each kind of port takes.

shm:NAME[,queues=N][,zone=Z][,slots=N]
afpacket:INTERFACE[,queues=N][,zone=Z][,fanout=addresses|flows][,ring_mb=N][,retire_ms=N][,latency=low][,outgoing=on]
    [,name=NAME]
tap:INTERFACE[,queues=N][,zone=Z][,name=NAME]
pcap:FILE[,out=FILE][,zone=Z][,name=NAME]
xdp:INTERFACE[,queues=N][,zone=Z][,mode=copy|zerocopy][,ring=N][,name=NAME]
nfqueue:NUMBER[,queues=N][,zone=Z][,length=N][,fail_open=on][,gso=off][,name=NAME]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...shm.layout import PORT_SLOTS_MAX, QUEUES_MAX, ZONES_MAX
from ...shm.port import SLOTS_DEFAULT, SLOTS_MIN
from .interface import NAME_BYTES_MAX

SPEC = (
    "shm:NAME, afpacket:INTERFACE, xdp:INTERFACE, tap:INTERFACE, pcap:FILE or nfqueue:NUMBER, with [,queues=N][,zone=Z]"
)
NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
FILE = re.compile(r"[^,]+")
INTERFACE = re.compile(rf"[^\s/:,]{{1,{NAME_BYTES_MAX}}}")
NUMBER = re.compile(r"[0-9]{1,5}")
FANOUTS = ("addresses", "flows")
RING_MB_MAX = 1024
RING_MAX = 1 << 16
"""Frames that wait for a socket of AF_XDP."""
LENGTH_MAX = 1 << 20
"""Packets that wait in a queue of the firewall."""


class PortSpec(NamedTuple):
    """A port that the service opens."""

    kind: str
    name: str
    queues: int = 1
    zone: int = 0
    slots: int = SLOTS_DEFAULT
    device: str = ""
    """What it is at the other side of, where that is not its name."""
    more: tuple[tuple[str, Any], ...] = ()
    """Options that only its kind has."""

    def __str__(self) -> str:
        own = (("slots", self.slots),) if self.kind == "shm" else self.more
        called = "" if self.kind == "shm" else f",name={self.name}"
        queues = "" if self.kind == "pcap" else f",queues={self.queues}"
        rest = "".join(f",{key}={plain(value)}" for key, value in own)
        return f"{self.kind}:{self.device or self.name}{queues},zone={self.zone}{rest}{called}"


def plain(value: Any) -> str:
    """Return the value of an option as it is written."""
    return ("off", "on")[value] if isinstance(value, bool) else str(value)


def _number(low: int, high: int, power: bool = False) -> Callable[[str], int]:
    def read(value: str) -> int:
        found = int(value) if re.fullmatch(r"[0-9][0-9_]*", value) else -1
        if not low <= found <= high:
            raise ValueError(f"expected a whole number from {low:,} to {high:,}, found {value!r}")
        if power and found & (found - 1):
            raise ValueError(f"expected a power of two, found {found}")
        return found

    return read


def _choice(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}, found {value!r}")
        return value

    return read


def _switch(value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError(f"expected on or off, found {value!r}")
    return value == "on"


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"expected 1 to 32 of A-Z a-z 0-9 _ -, found {value!r}")
    return value


def _file(value: str) -> str:
    if not value:
        raise ValueError("expected the name of a file")
    return value


class Kind(NamedTuple):
    """What a kind of port takes."""

    device: re.Pattern[str]
    options: dict[str, Callable[[str], Any]]


COMMON: dict[str, Callable[[str], Any]] = {"queues": _number(1, QUEUES_MAX), "zone": _number(0, ZONES_MAX - 1)}
KINDS = {
    "shm": Kind(NAME, COMMON | {"slots": _number(SLOTS_MIN, PORT_SLOTS_MAX, power=True)}),
    "afpacket": Kind(
        INTERFACE,
        COMMON
        | {
            "name": _name,
            "fanout": _choice(*FANOUTS),
            "ring_mb": _number(1, RING_MB_MAX, power=True),
            "retire_ms": _number(1, 1_000),
            "latency": _choice("normal", "low"),
            "outgoing": _switch,
        },
    ),
    "xdp": Kind(
        INTERFACE,
        COMMON | {"name": _name, "mode": _choice("copy", "zerocopy"), "ring": _number(64, RING_MAX, power=True)},
    ),
    "tap": Kind(INTERFACE, COMMON | {"name": _name}),
    "nfqueue": Kind(
        NUMBER,
        COMMON | {"name": _name, "length": _number(1, LENGTH_MAX), "fail_open": _switch, "gso": _switch},
    ),
    "pcap": Kind(FILE, {"zone": COMMON["zone"], "name": _name, "out": _file}),
}


def read(spec: Any) -> PortSpec:
    """Read one SPEC.

    Raises:
        ValueError: it is none; says what was expected.
    """
    if not isinstance(spec, str):
        raise ValueError(f"expected a port as {SPEC}, found {spec!r}")
    head, *options = spec.split(",")
    kind, _, device = head.partition(":")
    if kind not in KINDS and (near := difflib.get_close_matches(kind, KINDS, 1)):
        raise ValueError(f"expected a port as {SPEC}, found {spec!r}; did you mean {near[0]}:{device}?")
    if kind not in KINDS or not KINDS[kind].device.fullmatch(device):
        raise ValueError(f"expected a port as {SPEC}, found {spec!r}")
    known, found = KINDS[kind].options, {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in known or key in found:
            takes = ", ".join(known)
            raise ValueError(f"expected a port as {SPEC}, found {option!r} in {spec!r}; {kind} takes {takes}")
        try:
            found[key] = known[key](value)
        except ValueError as error:
            raise ValueError(f"{key} of {head}: {error}") from None
    common = {key: found.pop(key) for key in ("queues", "zone", "slots") if key in found}
    called = found.pop("name", {"pcap": Path(device).stem, "nfqueue": f"nfqueue{device}"}.get(kind, device))
    if kind == "pcap" and device == "-" and "out" not in found:
        raise ValueError(f"{head}: '-' is no file to read, so say out=FILE")
    if not NAME.fullmatch(called):
        raise ValueError(f"{head}: {called!r} cannot be the name of a port; say name=NAME")
    if kind == "shm":
        return PortSpec(kind, called, **common)
    return PortSpec(kind, called, **common, device=device, more=tuple(sorted(found.items())))
