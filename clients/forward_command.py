"""``zonetrack load forward``: packets through a gateway, in namespaces that are made for it and gone after it."""

from __future__ import annotations

import json
from typing import Any

import click

TOPOLOGIES = ("p", "pp", "pv", "pvp", "vv", "vn")
PORT_KINDS = ("blocks", "low", "xdp")
FLOWS = "10,32,50,100,500,1000"
SIZE_MIN, SIZE_MAX = 64, 1518
COLUMNS = (
    ("flows", "flows"),
    ("batching", "batching"),
    ("tx_flush_interval_us", "interval us"),
    ("packets_per_second", "packets/s"),
    ("packets_per_cpu_second", "per CPU s"),
    ("packets_per_busy_second", "per busy s"),
    ("min_us", "min us"),
    ("avg_us", "avg us"),
    ("p50_us", "p50 us"),
    ("p99_us", "p99 us"),
    ("max_us", "max us"),
    ("unaccounted", "unaccounted"),
)
AGAINST = ("by", "packets_per_second", "packets_per_cpu_second", "cpu_s", "sent", "received")
PAIRS = ("rules", "pairs", "on_per_second", "off_per_second", "ratio", "low", "high")


class Numbers(click.ParamType):
    """Numbers with commas between them."""

    name = "numbers"
    low, high = 0, 0
    example = what = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the numbers."""
        if isinstance(value, list):
            return value
        try:
            found = [int(one) for one in value.split(",")]
        except ValueError:
            self.fail(f"{value!r} is no list of numbers, such as {self.example}", param, ctx)
        if not all(self.low <= one <= self.high for one in found):
            self.fail(f"{value!r}: {self.low:,} to {self.high:,} {self.what}", param, ctx)
        return found


class Flows(Numbers):
    """How many flows."""

    name, low, high, example, what = "flows", 1, 10_000, FLOWS, "flows"


class Intervals(Numbers):
    """Microseconds."""

    name, low, high, example, what = "intervals", 0, 1_000_000, "0,50,100", "microseconds"


@click.command("forward")
@click.option(
    "--topology", type=click.Choice(TOPOLOGIES), default="pp", show_default=True, help="p: a wire, v: shm, n: drops."
)
@click.option("--flows", type=Flows(), default=FLOWS, show_default=True, metavar="N,...", help="A row each.")
@click.option("--size", type=click.IntRange(SIZE_MIN, SIZE_MAX), default=SIZE_MIN, show_default=True, help="Of frames.")
@click.option(
    "--tx-batching", type=click.Choice(["on", "off", "both"]), default="both", show_default=True, help="Side by side."
)
@click.option(
    "--port",
    "port_kind",
    type=click.Choice(PORT_KINDS),
    default="blocks",
    show_default=True,
    help="The gateway's wires: packet sockets, such of low latency, or AF_XDP.",
)
@click.option("--seconds", type=click.FloatRange(0.05, 3600), default=2.0, show_default=True, help="Of each run.")
@click.option(
    "--paced-share",
    type=click.FloatRange(0.01, 1.0),
    default=0.5,
    show_default=True,
    help="Of the highest rate, at which times and losses are taken.",
)
@click.option(
    "--tx-flush-interval-us",
    "flush_intervals_us",
    type=Intervals(),
    default="0",
    show_default=True,
    metavar="N,...",
    help="That frames may wait where they wait for each other, a row each.",
)
@click.option("--against", type=click.Choice(["kernel"]), help="Beside Linux's own routing, by time of all processors.")
@click.option(
    "--stats-pairs", type=click.IntRange(2, 10_000), help="What statistics cost: so many pairs with and without."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(
    as_json_before: bool,
    topology: str,
    flows: list[int],
    size: int,
    tx_batching: str,
    port_kind: str,
    seconds: float,
    paced_share: float,
    flush_intervals_us: list[int],
    against: str | None,
    stats_pairs: int | None,
    as_json: bool,
) -> None:
    """Packets through ports and rules: as fast as may be, then at half that rate for the time they are on their way.

    pp goes from wire to wire, pv from a wire to a client in shared memory, pvp through such a client to a wire, vv from
    client to client; p only receives, vn sends from a client to an interface that drops.  Everything is tracked.  It takes
    root and ip(8) where there are wires.  A busy second is one that the worker spends in bursts with packets.

    With --against kernel (pp, the last of --flows): packets a second of processor time, of the whole machine without the
    generator, here and where Linux routes and tracks.  With --stats-pairs: two workers both ways over two ports, with
    statistics and without in turn, --seconds each; the ratio, and its interval of 95 %.
    """
    from ..shm.errors import RosterError, SegmentError
    from . import forward_trial, load
    from .errors import ZonetrackError

    load.warm("forward")
    as_json = as_json or as_json_before

    def say(text: str) -> None:
        click.echo(text, err=True)

    parameters = {"topology": topology, "size": size, "seconds": seconds}
    batching = {"on": (True,), "off": (False,), "both": (True, False)}[tx_batching]
    columns, more = COLUMNS, {}
    try:
        if against is not None:
            from . import kernel_trial

            told = kernel_trial.conduct(flows[-1], size, seconds, say)
            rows, columns = told.pop("rows"), columns_of(AGAINST)
            more = {"against": against, "flows": flows[-1], **told}
            say(f"zonetrack / kernel: {told['ratio_per_cpu_second']:.2f}")
        elif stats_pairs is not None:
            from . import stats_trial

            more = {"flows": flows[-1], "topology": "vv"}
            rows = list(stats_trial.conduct(stats_pairs, flows[-1], size, seconds, say))
            columns = columns_of(PAIRS)
        else:
            more = {"port": port_kind, "paced_share": paced_share}
            trial = (topology, size, flows, batching, seconds, say, port_kind, paced_share, flush_intervals_us)
            rows = list(forward_trial.conduct(*trial))
    except (SegmentError, RosterError) as error:
        raise ZonetrackError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"scenario": "forward", **parameters, **more, "rows": rows}))
    else:
        exact = ("ratio", "low", "high")
        show([row | {name: f"{row[name]:.4f}" for name in exact if name in row} for row in rows], columns)


def columns_of(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return columns that are headed as their figures are called."""
    return tuple((name, name.replace("_", " ")) for name in names)


def show(rows: list[dict[str, Any]], columns: tuple[tuple[str, str], ...] = COLUMNS) -> None:
    """Print the rows as a table."""
    from . import tables

    tables.show([heading for _, heading in columns], [[text(row.get(name)) for name, _ in columns] for row in rows])


def text(value: Any) -> str:
    """Return a cell."""
    if isinstance(value, float):
        return f"{value:,.1f}" if value < 1_000 else f"{value:,.0f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
