"""The configuration of a service: flags over environment over file over defaults, and every slip named.

Each key is a field below, with the reader of its values.  Its path in the file (``control.clients_max``) makes its name
in the environment (``ZONETRACK_CONTROL_CLIENTS_MAX``).  A key that is not there is an error that names the nearest one;
all that is wrong is told at once.  What is *live* takes effect on a reload, all else at the next start.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from ..clients.errors import Exit, ZonetrackError
from ..clients.syslog_lines import FACILITIES
from ..shm.layout import CONNECTIONS_MAX, MAX_RETRANS_DEFAULT, UNLIMITED, ZONES_MAX
from ..shm.queues import BATCH_MAX
from ..shm.segment import INSTANCE_DEFAULT
from ..shm.sizing import CONNECTIONS_DEFAULT, EXTENSION_SHARE_DEFAULT, ZONES_IN_USE_DEFAULT
from . import listening
from .config_values import (
    WORKERS_MAX,
    Reader,
    choice,
    collector,
    limit,
    name,
    number,
    ports,
    queue_workers,
    switch,
    text,
    timeout_policies,
    zone_limits,
    zone_settings,
)
from .labels import PROFILES
from .ports.specs import PortSpec
from .zone_settings import EARLY_DROP, REJECT

FILE_DEFAULT = Path("/etc/zonetrack/zonetrack.toml")
ENVIRONMENT = "ZONETRACK_"
FILE_KEY = "config"
"""``--config`` and ZONETRACK_CONFIG say which file; the file itself has no such key."""
SLIP = 0.8
"""A variable of the environment that is this close to one of ours is taken for a slip; others are not our business."""


Policies = dict[int | str, dict[str, float]]
OwnSettings = dict[int, dict[str, Any]]


class ConfigError(ZonetrackError):
    """What is wrong with a configuration, a line for each complaint."""

    exit_code = Exit.USAGE


def key(read: Reader, default: Any, says: str, *, live: bool = False) -> Any:
    """Return a field of the configuration."""
    metadata = {"read": read, "says": says, "live": live}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Control:
    """What clients of the control socket may do to it."""

    group: str | None = key(text, None, "whose members may read")
    clients_max: int = key(number(1, 65_536), 256, "connected at once")
    request_bytes_max: int = key(number(1_024, 1 << 28), 1 << 20, "of one request")
    depth_max: int = key(number(4, 256), 16, "of a request: maps and lists in each other")
    in_flight_max: int = key(number(1, 4_096), 64, "requests of one client that are not answered yet")
    output_bytes_max: int = key(number(1 << 16, 1 << 30), 8 << 20, "that wait for one client; more, and it is paused")
    kept_bytes_max: int = key(number(1 << 20, 1 << 34), 256 << 20, "of requests and answers, for all clients together")
    crowd_percent: int = key(
        number(1, 100), 25, "of a core, for eight clients or more that ask before they are answered"
    )
    balance_interval_s: int = key(
        number(0, 86_400), 0, "after which queues may be dealt out anew where a worker is at its limit; 0: never"
    )


@dataclass(frozen=True)
class Limits:
    """Limits that hold from the start; those that are not named are left as they stand in a table that was kept."""

    global_: int | None = key(limit, None, "connections in the whole table", live=True)
    default: int | None = key(limit, None, "connections in a zone without a limit of its own", live=True)
    zones: dict[int, int] = key(zone_limits, {}, "connections in each of these zones", live=True)  # noqa: RUF009 - a field


@dataclass(frozen=True)
class Tracking:
    """How packets are judged, in every zone that is not set on its own."""

    profile: str = key(choice(*PROFILES), PROFILES[0], "whose rules judge connections that begin", live=True)
    loose: bool = key(switch, True, "pick up TCP connections in the middle", live=True)
    be_liberal: bool = key(switch, False, "outside of the TCP window, only resets are invalid", live=True)
    seq_check: bool = key(switch, True, "look at TCP windows", live=True)
    ignore_invalid_rst: bool = key(switch, False, "let resets through that cannot be right", live=True)
    checksum: bool = key(switch, True, "verify checksums", live=True)
    on_full: str | None = key(
        choice(REJECT, EARLY_DROP),
        None,
        "over a limit: early_drop, or reject; unset, as the profile has it",
        live=True,
    )
    max_retrans: int = key(
        number(0, 255), MAX_RETRANS_DEFAULT, "of a segment, after which its connection has less to live", live=True
    )


@dataclass(frozen=True)
class Metrics:
    """Figures for Prometheus."""

    listen: listening.Address | None = key(listening.address, None, "address of /metrics; off without")  # noqa: RUF009
    zones_max: int = key(number(0, 65_536), 1_000, "zones with series of their own, the fullest; the rest is `other`")


@dataclass(frozen=True)
class Web:
    """The web page."""

    listen: listening.Address | None = key(listening.loopback, None, "address of the page, on loopback; off without")  # noqa: RUF009


@dataclass(frozen=True)
class IpfixExport:
    """Flows for a collector."""

    collector: str | None = key(collector(4739), None, "HOST[:PORT] that is told of flows; off without", live=True)
    transport: str = key(choice("udp", "tcp"), "udp", "how they go", live=True)
    zone: int | None = key(number(0, ZONES_MAX - 1), None, "only connections of this zone", live=True)
    active_timeout_ms: int = key(number(100, 86_400_000), 60_000, "a record of a long connection so often", live=True)
    idle_timeout_ms: int = key(number(100, 86_400_000), 15_000, "a record after so long a silence", live=True)
    domain: int = key(number(0, (1 << 32) - 1), 0, "observation domain", live=True)
    begins: bool = key(switch, False, "a record also when a connection begins", live=True)


@dataclass(frozen=True)
class SyslogExport:
    """Messages for a collector of logs."""

    collector: str | None = key(collector(514), None, "HOST[:PORT] that gets messages; off without", live=True)
    transport: str = key(choice("udp", "tcp"), "udp", "how they go", live=True)
    zone: int | None = key(number(0, ZONES_MAX - 1), None, "only connections of this zone", live=True)
    facility: str = key(choice(*FACILITIES), "local0", "of the messages", live=True)
    updates: bool = key(switch, False, "a message also when a connection changes", live=True)


@dataclass(frozen=True)
class Export:
    """Who is told what happens to connections."""

    ipfix: IpfixExport = field(default_factory=IpfixExport)
    syslog: SyslogExport = field(default_factory=SyslogExport)


@dataclass(frozen=True)
class Config:
    """All of it."""

    instance: str = key(name, INSTANCE_DEFAULT, "name of the table and of the socket")
    socket: str | None = key(text, None, "path of the control socket")
    workers: int = key(number(1, WORKERS_MAX), 1, "processes that track packets")
    ports: tuple[PortSpec, ...] = key(ports, (), "where packets come from")
    ports_group: str | None = key(text, None, "whose members may be clients of ports")
    assign: dict[str, int] = key(queue_workers, {}, "who polls a queue: `lan.0 = 1`; others are dealt out", live=True)  # noqa: RUF009
    statistics: bool = key(switch, True, "count what comes and goes, and measure what it takes", live=True)
    rules: str | None = key(text, None, "file of the rules that packets meet; none are there without", live=True)
    max_connections: int = key(number(1, CONNECTIONS_MAX), CONNECTIONS_DEFAULT, "records in the table")
    zones_in_use_max: int = key(number(1, ZONES_MAX), ZONES_IN_USE_DEFAULT, "zones with connections at once")
    extension_share: int = key(number(0, 1_000), EXTENSION_SHARE_DEFAULT, "records with more, per 1,000 connections")
    fresh: bool = key(switch, False, "discard the table that the last service left")
    restore: str | None = key(text, None, "file of a saved table, with which a table that is newly made begins")
    save_directory: str | None = key(
        text,
        None,
        "where a table that another layout has left is saved before it is converted; unset: $STATE_DIRECTORY, else beside "
        "the socket",
    )
    drain_ms: int = key(
        number(0, 600_000), 1_000, "what workers have to empty their queues when the service ends", live=True
    )
    tx_batch_max: int = key(number(1, BATCH_MAX), BATCH_MAX, "frames that wait for a queue at most; 1: none waits")
    tx_flush_interval_us: int = key(
        number(0, 1_000_000), 0, "that they wait while packets come; 0: to the end of a round over all queues"
    )
    busy_poll: bool = key(switch, False, "workers never sleep, and take all of a processor each", live=True)
    hang_ms: int = key(
        number(1_000, 600_000), 10_000, "a worker that makes no turn for so long is killed and replaced", live=True
    )
    log_level: str = key(choice("debug", "info", "warning", "error"), "info", "least important lines of the log")
    log_json: bool = key(switch, False, "the log: one JSON object a line")
    control: Control = field(default_factory=Control)
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    web: Web = field(default_factory=Web)
    export: Export = field(default_factory=Export)
    tracking: Tracking = field(default_factory=Tracking)
    timeouts: Policies = key(timeout_policies, {}, "policies by number or name: seconds by timeout", live=True)  # noqa: RUF009
    zones: OwnSettings = key(zone_settings, {}, "set on their own: of `tracking`; `policy`; `ftp = 21`", live=True)  # noqa: RUF009


class Key(NamedTuple):
    """A key, where it may stand, and what it means."""

    path: str
    read: Reader
    default: Any
    says: str
    live: bool

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT + self.path.upper().replace(".", "_")


def _spelled(attribute: str) -> str:
    """Return how a field is spelled outside of Python, which has ``global`` for itself."""
    return attribute.rstrip("_")


def _keys(group: type, prefix: str = "") -> Iterator[Key]:
    types = get_type_hints(group)
    for one in fields(group):
        if is_dataclass(types[one.name]):
            yield from _keys(types[one.name], f"{prefix}{one.name}.")
        else:
            default = one.default_factory() if one.default_factory is not MISSING else one.default
            yield Key(prefix + _spelled(one.name), default=default, **one.metadata)


KEYS = {one.path: one for one in _keys(Config)}
GROUPS = {path[:i] for path in KEYS for i, sign in enumerate(path) if sign == "."}


@dataclass(frozen=True)
class Loaded:
    """A configuration, and which source each of its values came from."""

    config: Config
    sources: dict[str, str]
    """By path; what is not here is a default."""
    file: Path | None
    """The file that was read."""

    def __getitem__(self, path: str) -> Any:
        """Return the value of a key."""
        return value_of(self.config, path)


def value_of(config: Config, path: str) -> Any:
    """Return the value of the key at ``path``."""
    found: Any = config
    for part in path.split("."):
        found = getattr(found, f"{part}_" if iskeyword(part) else part)
    return found


def nearest(found: str, known: list[str], cutoff: float = 0.0) -> str | None:
    """Return which of some names is the nearest to one that is none of them."""
    return next(iter(difflib.get_close_matches(found, known, 1, cutoff)), None)


def load(
    flags: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    file: Path | None = None,
) -> Loaded:
    """Read the configuration from all its sources.

    Args:
        flags: by path; None and () stand for flags that were not given.
        environment: variables.
        file: from the command line; else the environment names one, else the default is read where it is there.

    Raises:
        ConfigError: with all that is wrong.
    """
    complaints: list[str] = []
    named = file or (Path(environment[f"{ENVIRONMENT}CONFIG"]) if environment.get(f"{ENVIRONMENT}CONFIG") else None)
    path = named or (FILE_DEFAULT if FILE_DEFAULT.exists() else None)
    layers: list[tuple[str, dict[str, Any]]] = []
    if path is not None:
        layers.append((str(path), _flatten(_read_file(path), str(path), complaints)))
    layers.append(("environment", _from_environment(environment, complaints)))
    layers.append(("flag", {path: value for path, value in flags.items() if value not in (None, ())}))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        for where, value in layer.items():
            try:
                values[where] = KEYS[where].read(value)
                sources[where] = source
            except ValueError as error:
                complaints.append(f"{source}: {where}: {error}")
    if complaints:
        raise ConfigError("\n".join(complaints))
    return Loaded(_build(Config, values), sources, path)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _flatten(tree: Mapping[str, Any], source: str, complaints: list[str], prefix: str = "") -> dict[str, Any]:
    """Return the values of a file by path, and complain of what is no key."""
    flat: dict[str, Any] = {}
    for part, value in tree.items():
        path = prefix + part
        if path in KEYS:
            flat[path] = value
        elif path in GROUPS and isinstance(value, dict):
            flat |= _flatten(value, source, complaints, f"{path}.")
        elif path in GROUPS:
            complaints.append(f"{source}: {path}: expected a table [{path}], found {value!r}")
        else:
            near = nearest(path, [*KEYS, *GROUPS])
            complaints.append(f"{source}: unknown key {path!r}: nearest is {near!r}")
    return flat


def _from_environment(environment: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    variables = {one.variable: path for path, one in KEYS.items()}
    known = [*variables, f"{ENVIRONMENT}{FILE_KEY.upper()}"]
    found: dict[str, Any] = {}
    for variable, value in environment.items():
        if variable in variables:
            if value:
                found[variables[variable]] = value
        elif variable.startswith(ENVIRONMENT) and variable not in known:
            near = nearest(variable.removeprefix(ENVIRONMENT), [one.removeprefix(ENVIRONMENT) for one in known], SLIP)
            if near:
                complaints.append(f"environment: unknown variable {variable}: nearest is {ENVIRONMENT}{near}")
    return found


def _build(group: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    given: dict[str, Any] = {}
    types = get_type_hints(group)
    for one in fields(group):
        path = prefix + _spelled(one.name)
        if is_dataclass(types[one.name]):
            given[one.name] = _build(types[one.name], values, f"{path}.")
        elif path in values:
            given[one.name] = values[path]
    return group(**given)


def differences(before: Config, after: Config) -> tuple[list[str], list[str]]:
    """Return the paths of what has changed: what is live, and what needs a restart."""
    changed = [path for path in KEYS if value_of(before, path) != value_of(after, path)]
    return [path for path in changed if KEYS[path].live], [path for path in changed if not KEYS[path].live]


def merge(before: Config, after: Config) -> Config:
    """Return what a service runs on that began with one configuration, and was told another: all that is live of it."""
    return _build(Config, {path: value_of(after if one.live else before, path) for path, one in KEYS.items()})


def plain(value: Any) -> Any:
    """Return a value of the configuration as JSON and people have it: what its reader would take."""
    if value == UNLIMITED:
        return "none"
    if isinstance(value, PortSpec | listening.Address):
        return str(value)
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(one): plain(most) for one, most in value.items()}
    return value


def page(loaded: Loaded) -> dict[str, dict[str, Any]]:
    """Return every key with its value and its source, as ``--check-config`` shows it."""
    return {path: {"value": plain(loaded[path]), "source": loaded.sources.get(path, "default")} for path in KEYS}
