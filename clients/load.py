"""The load test as a command: one subcommand for each scenario, and one that holds two results side by side."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from . import address, forward_command, report
from .errors import ZonetrackError

if TYPE_CHECKING:
    from .series import Series


class Ports(click.ParamType):
    """A range of ports, as rules have them: 1024-65535, or one."""

    name = "ports"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Return first and last port."""
        if isinstance(value, tuple):
            return value
        first, _, last = value.partition("-")
        try:
            ports = int(first), int(last or first)
        except ValueError:
            self.fail(f"{value!r} is no range of ports, such as 1024-65535", param, ctx)
        if not 1 <= ports[0] <= ports[1] <= 65_535:
            self.fail(f"{value!r} is not within 1-65535, in order", param, ctx)
        return ports


PORTS = Ports()
PARAMETERS: dict[str, dict[str, Any]] = {
    "megabytes": {"type": click.IntRange(min=1), "help": "Memory that the reads are spread over."},
    "threads": {"type": click.IntRange(1, 250), "help": "Worker processes."},
    "connections": {"type": click.IntRange(min=1), "help": "Connections; of each worker, where each has its own."},
    "zones": {"type": click.IntRange(1, 65_536), "help": "Zones that they go round."},
    "iterations": {"type": click.IntRange(min=1), "help": "Conversations, or packets, of each connection."},
    "data_packets": {"type": click.IntRange(0, 100_000), "help": "Data packets of a conversation, each with its ACK."},
    "limit": {"type": click.IntRange(0, 2**32 - 2), "help": "Global limit.  [default: just above what is needed]"},
    "timeout_ms": {"type": click.IntRange(1, 2**32 - 1), "help": "Every timeout.  [default: those of nf_conntrack]"},
    "burst": {"type": click.IntRange(1, 256), "help": "Packets in a call.  [default: 32; 256 via a service]"},
    "seed": {"type": click.IntRange(0, 2**64 - 1), "help": "Of tuples and draws."},
    "via": {"type": click.Choice(["direct", "service"]), "help": "Who tracks."},
    "port": {"metavar": "NAME", "help": "Port of the service; its zone must be empty, and is flushed."},
    "instance": {"metavar": "NAME", "help": "Name of the service's instance."},
    "socket": {"metavar": "PATH", "help": "Path of its control socket."},
    "addresses": {"type": click.IntRange(1, 1 << 21), "help": "Addresses that sources get."},
    "ports": {"type": PORTS, "help": "Ports that they get."},
    "fill": {
        "type": click.IntRange(0, 99),
        "help": "Percent of all ports taken before; then commits are timed singly.",
    },
    "expectations": {"type": click.IntRange(0, 2048), "help": "Foretold connections, in zones that no packet meets."},
    "rules": {"type": click.IntRange(1, 4000), "help": "Rules of the table that packets meet first."},
    "room": {"type": click.IntRange(min=256), "help": "Connections that there is room for beside those in use."},
    "seconds": {"type": click.IntRange(1, 86_400), "help": "How long."},
    "rounds": {"type": click.IntRange(1, 1000), "help": "Rounds of nothing, a busy neighbour, and a dump."},
    "pairs": {"type": click.IntRange(min=1), "help": "Disturbances, each beside as long a time without one."},
    "clients": {"type": click.IntRange(1, 250), "help": "Clients that ask all at once."},
    "plot": {
        "metavar": "FILE",
        "help": "Draw throughput, connections, cleaning and latency over time: .png, .svg, .pdf.",
    },
    "repeat": {"type": click.IntRange(min=1), "help": "Trials, of which the median is shown, and the spread."},
}


class Row(NamedTuple):
    """A scenario: its name, the parameters that it has beside the common ones, and what it does."""

    name: str
    defaults: dict[str, Any]
    help: str
    kind: str = "tracked"
    """Who carries it out: `floor`, `tracked` (clients/trial), `translated` (nat_trial), or, with `own` and `ruled`, a room
    of its own that is called by its name (flood_trial, rules_trial)."""


MILLION = 1_000_000
ROWS = (
    Row("floor", {"threads": 1, "megabytes": 256}, "Read 1, 2 and 4 adjacent cache lines at random.", "floor"),
    Row(
        "hit",
        {"threads": 1, "connections": MILLION, "zones": 1, "iterations": 5},
        "Packets of established connections, drawn at random.",
    ),
    Row(
        "miss",
        {"threads": 1, "connections": MILLION, "zones": 1, "iterations": 5},
        "Packets without a connection, in zones that hold others.",
    ),
    Row(
        "handshake",
        {"threads": 10, "connections": 10_000, "zones": 100, "data_packets": 0, "iterations": 100},
        "Whole conversations, packet i of all connections before packet i + 1; tuples are used again.",
    ),
    Row(
        "scan",
        {"threads": 1, "connections": 200_000, "zones": 1},
        "SYN, SYN-ACK, ACK, RST of tuples never used before, while the sweep keeps up.",
    ),
    Row(
        "zones",
        {"connections": MILLION, "zones": 10_000, "pairs": 60},
        "The same connections in 1 zone and in many: made, swept, flushed; and bursts beside a flush.",
        "own",
    ),
    Row(
        "rules",
        {"rules": 1000, "connections": 4000, "iterations": 100},
        "Packets through rules with many masks: of known connections, and each of a new tuple.",
        "ruled",
    ),
    Row(
        "flood",
        {"threads": 2, "connections": 100_000, "room": 65_536, "seconds": 60},
        "SYNs of ever new tuples at full rate, beside connections in use and others that are being opened.",
        "own",
    ),
    Row(
        "nat",
        {"threads": 1, "connections": MILLION, "addresses": 61, "ports": "1024-65535", "fill": 0},
        "Connections to one server that get another source, then their answers.",
        "translated",
    ),
    Row(
        "unnat",
        {"threads": 1, "connections": 250_000, "iterations": 5, "expectations": 0},
        "Packets through UNSNAT, DNAT, UNDNAT and SNAT of two routers, which mostly find nothing.",
        "translated",
    ),
    Row(
        "events",
        {"connections": 100_000},
        "Connections at one rate after the other, whose events a client is told: with none lost, and beyond.",
        "own",
    ),
    Row(
        "dump",
        {"connections": MILLION, "rounds": 10},
        "A full table as an array and as text; beside it, another client's count, and a worker's packets.",
        "own",
    ),
    Row(
        "views",
        {"connections": MILLION, "zones": 1_000, "seconds": 20},
        "What it costs to watch a full table by top and by the page, to scrape it, and to begin a client.",
        "own",
    ),
    Row(
        "clients",
        {"connections": 100_000, "clients": 64, "pairs": 60},
        "Clients that ask all at once; beside them a worker's packets, and another client's count.",
        "own",
    ),
)
SERVICE = ("port", "instance", "socket")
"""Parameters that say which service."""
TRACKED = {"limit": None, "timeout_ms": None, "burst": None, "seed": 1, "via": "direct"} | dict.fromkeys(
    (*SERVICE, "plot")
)
"""Parameters of every scenario that tracks packets, and their defaults."""
_MADE = {"burst": None, "seed": 1}
COMMON: dict[str, dict[str, Any]] = {
    "floor": {},
    "tracked": TRACKED,
    "translated": _MADE,
    "own": _MADE,
    "ruled": {"seed": 1},
}
"""Parameters of all scenarios of a kind."""
KINDS = {row.name: row.kind for row in ROWS}
BURST, BURST_VIA_SERVICE = 32, 256
"""A service takes 32 packets at once; it is to have the next when it has done them."""


def run(name: str, repeat: int, as_json: bool, **parameters: Any) -> None:
    """Carry a scenario out, and print its figures."""
    via, target = parameters.pop("via", "direct"), {option: parameters.pop(option, None) for option in SERVICE}
    if (via == "service") != (target["port"] is not None):
        raise click.UsageError("--via service and --port NAME belong together")
    kind, picture = KINDS[name], parameters.pop("plot", None)
    if picture is not None:
        from . import plot

        plot.ready(picture)
    if "burst" in parameters:
        parameters["burst"] = parameters["burst"] or (BURST_VIA_SERVICE if via == "service" else BURST)
    warm(kind)
    from ..shm.errors import RosterError, SegmentError

    recorded: list[Series] | None = None if picture is None else []
    try:
        if kind == "floor":
            trials = floors(repeat, **parameters)
        elif kind == "translated":
            trials = nat_trials(name, repeat, as_json, parameters)
        elif kind in ("own", "ruled"):
            trials = own_trials(name, repeat, as_json, parameters)
        elif via == "service":
            trials = service_trials(name, repeat, as_json, parameters, target, recorded)
        else:
            trials = trials_of(name, repeat, as_json, parameters, recorded)
    except (SegmentError, RosterError) as error:
        raise ZonetrackError(str(error)) from error
    # where each worker has its own connections, `connections` is the figure: how many there were in all
    figures, spread = report.summary(trials)
    if kind == "tracked" and "connections" in figures:
        parameters["connections_per_thread"] = parameters.pop("connections")
    if via == "service":
        parameters |= {"via": via, "port": target["port"]}
    result = {"scenario": name, **parameters, "repeat": repeat, **figures}
    if repeat > 1:
        result["spread"] = spread
    if picture is not None and recorded is not None:
        plot.draw(picture, f"load {name}", [series.rows() for series in recorded])
    if as_json:
        click.echo(json.dumps(result))
    else:
        report.show(name, parameters, figures, spread)


def warm(kind: str) -> None:
    """Compile what is not in the cache, one process at a time; then it is loaded, and workers are born with it."""
    from ..kernels import jit
    from ..service import warmup
    from . import nat_trial, rules_trial, trial

    if kind == "forward":
        from .forward_trial import warm as load
    else:
        load = {"translated": nat_trial.warm, "ruled": rules_trial.warm}.get(kind, trial.warm)
    warmup.ensure()
    if not jit.CACHED:
        load()
        return
    with warmup.alone(jit.cache_directory()):
        load()


def floors(repeat: int, megabytes: int, threads: int) -> list[dict[str, float]]:
    """Return the figures of some measurements of the floor."""
    from . import trial

    return [trial.measure_floor(megabytes << 20, threads) for _ in range(repeat)]


def trials_of(
    name: str, repeat: int, as_json: bool, parameters: dict[str, Any], recorded: list[Series] | None
) -> list[dict[str, float]]:
    """Return the figures of some trials of a scenario."""
    from . import trial
    from .scenarios import SCENARIOS, Plan

    scenario = SCENARIOS[name](Plan(**parameters))
    try:
        trial.geometry(scenario)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return repeated(name, scenario.packets_count, repeat, as_json, partial(trial.conduct, scenario), recorded)


def own_trials(name: str, repeat: int, as_json: bool, parameters: dict[str, Any]) -> list[dict[str, float]]:
    """Return the figures of some trials of a scenario that has a room of its own."""
    trial = importlib.import_module(f".{name}_trial", __package__).TRIAL
    plan = trial.plan(**parameters)
    try:
        trial.geometry(plan)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return repeated(name, trial.packets_count(plan), repeat, as_json, partial(trial.conduct, plan))


def nat_trials(name: str, repeat: int, as_json: bool, parameters: dict[str, Any]) -> list[dict[str, float]]:
    """Return the figures of some trials of a scenario of translated traffic."""
    from . import nat_trial
    from .nat_scenarios import NAT_SCENARIOS, NatPlan

    scenario = NAT_SCENARIOS[name](NatPlan(**parameters))
    try:
        nat_trial.geometry(scenario)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return repeated(name, scenario.packets_count, repeat, as_json, partial(nat_trial.conduct, scenario))


def service_trials(
    name: str,
    repeat: int,
    as_json: bool,
    parameters: dict[str, Any],
    target: dict[str, Any],
    recorded: list[Series] | None,
) -> list[dict[str, float]]:
    """Return the figures of some trials of a scenario through a port of a running service."""
    from . import service_trial
    from .scenarios import SCENARIOS, Plan

    scenario = SCENARIOS[name](Plan(**parameters))
    where = service_trial.Target(target["port"], address.instance(target["instance"]), target["socket"])
    with service_trial.open_service(where, scenario.plan) as service:
        conduct = partial(service_trial.conduct, scenario, service=service)
        return repeated(name, scenario.packets_count, repeat, as_json, conduct, recorded)


def repeated(
    name: str,
    packets_count: int,
    repeat: int,
    as_json: bool,
    conduct: Callable[..., Any],
    recorded: list[Series] | None = None,
) -> list[dict[str, float]]:
    """Carry out a scenario so many times; returns the figures of each.

    Args:
        name: of the scenario.
        packets_count: how many packets it sends.
        repeat: how many times.
        as_json: whether a program is looking, who wants no progress.
        conduct: called with what shall be told how many packets were sent.
        recorded: gets what each looked like; its Series is a second argument of ``conduct`` then.
    """
    trials = []
    for i in range(repeat):
        with report.progress(f"{name} {i + 1}/{repeat}", packets_count, wanted=not as_json) as tick:
            if recorded is None:
                trials.append(conduct(tick))
            else:
                from .series import Series

                recorded.append(Series())
                trials.append(conduct(tick, recorded[-1]))
    return trials


@click.group()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Load the table with generated traffic, and measure it.

    A figure per unit is per core, and without what making the frames cost.  Each scenario checks its own work, and fails if
    anything in the table or any verdict is not what it should be.
    """
    context.obj = as_json


def _add(row: Row) -> None:
    """Add the subcommand of a scenario."""
    defaults = row.defaults | COMMON[row.kind] | {"repeat": 1}

    @click.pass_obj
    def callback(as_json_before: bool, as_json: bool, repeat: int, **parameters: Any) -> None:
        run(row.name, repeat, as_json or as_json_before, **parameters)

    options = [
        click.Option(
            [f"--{name.replace('_', '-')}"], default=default, show_default=default is not None, **PARAMETERS[name]
        )
        for name, default in defaults.items()
    ]
    options.append(click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."))
    command.add_command(click.Command(row.name, params=list(options), callback=callback, help=row.help))


for _row in ROWS:
    _add(_row)


command.add_command(forward_command.command)


@command.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False))
@click.argument("after", type=click.Path(exists=True, dir_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def compare(as_json_before: bool, before: str, after: str, as_json: bool) -> None:
    """Hold two results, as --json prints them, side by side."""
    rows = report.compare(report.read(before), report.read(after))
    if as_json or as_json_before:
        click.echo(json.dumps(rows))
    else:
        report.show_comparison(before, after, rows)
