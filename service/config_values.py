"""Values of the configuration: each kind is read from what a file, the environment or a flag may hold.

A TOML file has types; the environment and the command line have text only.  So each reader takes the value of either,
and returns what the service works with, or raises ``ValueError`` with words that say what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..clients import collectors
from ..clients.errors import ServerError
from ..shm.layout import QUEUES_MAX, UNLIMITED, ZONES_MAX
from . import assignments, helper_rules, policies
from . import zone_settings as settings_by_zone
from .ports.specs import SPEC, PortSpec
from .ports.specs import read as port

Reader = Callable[[Any], Any]

WORKERS_MAX = 128
NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def number(low: int, high: int) -> Reader:
    """Return a reader of whole numbers from ``low`` to ``high``."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9][0-9_]*", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"expected a whole number from {low:,} to {high:,}, found {value!r}")
        return value

    return read


def switch(value: Any) -> bool:
    """Read true or false."""
    if isinstance(value, str):
        value = WORDS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise ValueError(f"expected true or false, found {value!r}")
    return value


def text(value: Any) -> str:
    """Read a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a text, found {value!r}")
    return value


def choice(*words: str) -> Reader:
    """Return a reader of one of some words."""

    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}, found {value!r}")
        return value

    return read


def name(value: Any) -> str:
    """Read the name of an instance."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(f"expected 1 to 48 of A-Z a-z 0-9 _ -, found {value!r}")
    return value


def collector(port: int) -> Reader:
    """Return a reader of where a collector is, HOST[:PORT], which has a port if it names none."""

    def read(value: Any) -> str:
        return str(collectors.address(text(value), port))

    return read


def limit(value: Any) -> int:
    """Read a limit on connections, ``none`` when there is none."""
    if value == "none":
        return UNLIMITED
    try:
        return number(0, UNLIMITED - 1)(value)
    except ValueError:
        raise ValueError(f"expected a number of connections or 'none', found {value!r}") from None


def zone_limits(value: Any) -> dict[int, int]:
    """Read limits by zone: a table, or text such as ``5=1000 7=none``."""
    if isinstance(value, str):
        pairs = [pair.partition("=")[::2] for pair in value.split()]
    elif isinstance(value, dict):
        pairs = list(value.items())
    else:
        raise ValueError(f"expected a table of limits by zone, found {value!r}")
    return {number(0, ZONES_MAX - 1)(str(zone)): limit(most) for zone, most in pairs}


def queue_workers(value: Any) -> dict[str, int]:
    """Read workers by queue: a table, or text such as ``lan.0=1 wan.0=0``."""
    if isinstance(value, str):
        value = {queue: worker for queue, _, worker in (pair.partition("=") for pair in value.split())}
    if not isinstance(value, dict):
        raise ValueError(f"expected a table of workers by queue, found {value!r}")
    found = {}
    for queue, worker in _flat(value):
        port, index = assignments.read(queue)
        found[f"{port}.{index}"] = number(0, WORKERS_MAX - 1)(worker)
    return found


def _flat(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a table; TOML makes a table in it of ``lan.0 = 1`` without quotes."""
    for key, one in value.items():
        if isinstance(one, dict):
            yield from ((f"{key}.{below}", worker) for below, worker in one.items())
        else:
            yield str(key), one


def _tables(value: Any, of: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and content of tables, or of text such as ``5:profile=ovs,loose=off 7:loose=off``."""
    if isinstance(value, str):
        named = [one.partition(":")[::2] for one in value.split()]
        value = {name: {key: one for key, _, one in map(_pair, pairs.split(","))} for name, pairs in named}
    if not isinstance(value, dict):
        raise ValueError(f"expected tables of {of}, found {value!r}")
    for name, content in value.items():
        if not isinstance(content, dict):
            raise ValueError(f"{name}: expected a table of {of}, found {content!r}")
        yield str(name), content


def _pair(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def _said(wanted: Callable[[], Any]) -> Any:
    """Return what a reader of the wire makes of a value; what it complains of is our complaint."""
    try:
        return wanted()
    except ServerError as error:
        raise ValueError(str(error)) from None


def timeout_policies(value: Any) -> dict[int | str, dict[str, float]]:
    """Read timeout policies by number or name: tables of seconds by timeout."""
    found = {}
    for named, content in _tables(value, "seconds by timeout"):
        read = {key: _seconds(one) for key, one in content.items()}
        which = _said(partial(policies.policy, "policy", int(named) if named.isdecimal() else named))
        _said(partial(policies.lengths, named, read))
        found[which] = read
    return found


def _seconds(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def zone_settings(value: Any) -> dict[int, dict[str, Any]]:
    """Read settings of zones by number: tables of what ``zonetrack zones set`` takes, and ``policy``."""
    found = {}
    for named, content in _tables(value, "settings"):
        zone = number(0, ZONES_MAX - 1)(named)
        read = {key: _plain(key, one) for key, one in content.items()}
        judged = {key: one for key, one in read.items() if key != "policy"}
        if judged or not read:
            _said(partial(settings_by_zone.changes, named, judged))
        if "policy" in read:
            _said(partial(policies.policy, f"{named}.policy", read["policy"]))
        found[zone] = read
    return found


def _plain(key: str, value: Any) -> Any:
    """Return a setting of a zone as the wire would have it, where it may be text."""
    if isinstance(value, str) and value.isdecimal() and key in ("policy", "max_retrans", *helper_rules.NAMES):
        return int(value)
    if isinstance(value, str) and key in settings_by_zone.SWITCHES:
        return WORDS.get(value.strip().lower(), value)
    return value


def ports(value: Any) -> tuple[PortSpec, ...]:
    """Read ports: a list of SPECs, or text with spaces between them."""
    specs = value.split() if isinstance(value, str) else value
    if not isinstance(specs, list | tuple):
        raise ValueError(f"expected a list of ports, each as {SPEC}, found {value!r}")
    found = tuple(port(spec) for spec in specs)
    names = [spec.name for spec in found]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise ValueError(f"two ports are called {twice!r}")
    queues = sum(spec.queues for spec in found)
    if queues > QUEUES_MAX:
        raise ValueError(f"expected at most {QUEUES_MAX:,} queues in all, found {queues:,}")
    return found
