"""The tables of ``zonetrack top``: for each its columns, its rows of a view, and what there is to see of a row.

The same tables are written as text (``--once``) and shown on a screen; each fits into 80 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

BAR = " ▏▎▍▌▋▊▉█"
SPARKS = "▁▂▃▄▅▆▇█"
SPARK = 8
Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    key: str
    """Of the row; sorted by."""
    width: int
    show: Callable[[Any], str] = str
    is_left: bool = False


class Panel(NamedTuple):
    """A table."""

    name: str
    title: str
    says: str
    columns: tuple[Column, ...]
    name_of: Callable[[Row], str]
    """Tells a row from the others, from one view to the next."""
    sort: int = 0
    """Column that the rows stand in the order of, the highest first; -1: as they come."""
    within: Callable[[Row], dict[str, Any] | None] = lambda row: None
    """The filter of the connections that a row stands for; None where it stands for none."""


# ------------------------------------------------------------------------------------------------ cells
def number(value: float | None) -> str:
    """Return a number in at most six characters: 9,999, 12.3k, 1.23M."""
    if value is None:
        return ""
    if value < 0:
        return f"-{number(-value)}"
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if round(value) < 10_000:
        return f"{round(value):,}"
    for unit in ("k", "M", "G", "T", "P"):
        value /= 1_000
        if value < 999.5 or unit == "P":
            break
    return f"{value:.0f}{unit}" if value >= 99.95 else f"{value:.1f}{unit}" if value >= 9.995 else f"{value:.2f}{unit}"


def change(value: float | None) -> str:
    """Return a rate that may go either way, with its sign."""
    if not value:
        return "" if value is None else "0"
    return f"+{number(value)}" if value > 0 else number(value)


def whole(value: int | None) -> str:
    """Return a whole number with all its digits."""
    return "" if value is None else f"{value:,}"


def limit(value: int | None) -> str:
    """Return a limit."""
    return "none" if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Return a share."""
    return "" if value is None else f"{100 * value:.1f}%"


def bar(value: float | None, width: int = 10) -> str:
    """Return a share as a bar, in eighths of a character."""
    if value is None:
        return ""
    eighths = round(min(max(value, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return BAR[8] * full + (BAR[rest] if rest else "")


def spark(values: Sequence[float], width: int) -> str:
    """Return the last values as a line of blocks, from 0 to the highest of them."""
    last = list(values)[-width:]
    highest = max(last, default=0.0)
    if highest <= 0.0:
        return SPARKS[0] * len(last)
    return "".join(SPARKS[min(7, int(8 * max(value, 0.0) / highest))] for value in last)


def age(seconds: float) -> str:
    """Return a length of time in its two largest units."""
    whole_s = int(seconds)
    for unit, length, below in (("d", 86_400, ("h", 3_600)), ("h", 3_600, ("min", 60)), ("min", 60, ("s", 1))):
        if whole_s >= length:
            return f"{whole_s // length} {unit} {whole_s % length // below[1]} {below[0]}"
    return f"{whole_s} s"


def some(count: int, noun: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ------------------------------------------------------------------------------------------------ tables
def _talkers(name: str, title: str, says: str, key: str) -> Panel:
    columns = (
        Column("address", "address", 34, is_left=True),
        Column("zone", "zone", 5),
        Column("conns", "connections", 7, number),
        Column("share", "share", 6, percent),
        Column("pkts", "packets", 6, number),
        Column("bytes", "bytes", 6, number),
    )
    return Panel(
        *(name, title, says, columns, lambda row: f"{row['zone']} {row['address']}"),
        sort=2,
        within=lambda row: {"zone": row["zone"], key: row["address"]},
    )


def _of_kind(row: Row) -> dict[str, Any] | None:
    if row["group"] == "protocol":
        return {"proto": row["kind"]}
    if row["kind"] == "unreplied":
        return {"unreplied": True}
    if row["group"].startswith("state of "):
        return {"proto": "sctp" if row["group"].endswith("sctp") else "tcp", "state": row["kind"]}
    return None


PANELS = (
    Panel(
        *("zones", "Zones", "Zones by how full they are; Enter: its connections."),
        (
            Column("zone", "zone", 5),
            Column("connections", "connections", 13, whole),
            Column("limit", "limit", 13, limit),
            Column("full", "fill", 7, percent),
            Column("", "fill", 20, lambda value: bar(value, 20), is_left=True),
            Column("change/s", "change", 9, change),
        ),
        lambda row: str(row["zone"]),
        sort=3,
        within=lambda row: {"zone": row["zone"]},
    ),
    _talkers("sources", "Sources", "Who has opened the most connections; Enter: these.", "src"),
    _talkers("destinations", "Targets", "Who is called the most; Enter: these connections.", "dst"),
    Panel(
        *("kinds", "States", "Protocols, states and kinds of connections; Enter: these."),
        (
            Column("", "group", 13, is_left=True),
            Column("kind", "kind", 18, is_left=True),
            Column("connections", "connections", 12, whole),
            Column("share", "share", 7, percent),
            Column("", "share", 16, lambda value: bar(value, 16), is_left=True),
        ),
        lambda row: f"{row['group']} {row['kind']}",
        sort=-1,
        within=_of_kind,
    ),
    Panel(
        *("workers", "Workers", "Worker processes; load is of one processor."),
        (
            Column("worker", "worker", 6),
            Column("pid", "pid", 7),
            Column("state", "state", 8, is_left=True),
            Column("load", "load", 6, percent),
            Column("pkts/s", "packets", 6, number),
            Column("new/s", "new", 6, number),
            Column("inv/s", "invalid", 6, number),
            Column("queues", "queues", 6),
            Column("deaths", "restarts", 6),
        ),
        lambda row: str(row["worker"]),
        sort=-1,
    ),
    Panel(
        *("queues", "Queues", "Queues of ports, and what a client has not taken."),
        (
            Column("port", "port", 19, is_left=True),
            Column("queue", "queue", 5),
            Column("worker", "worker", 6),
            Column("in/s", "rx_packets", 8, number),
            Column("out/s", "tx_packets", 8, number),
            Column("dropped/s", "tx_full", 9, number),
            Column("bad/s", "bad", 7, number),
        ),
        lambda row: f"{row['port']} {row['queue']}",
        sort=3,
    ),
    Panel(
        *("reasons", "Reasons", "Why packets were invalid, refused or let by; Enter: the latest, explained."),
        (
            Column("reason", "reason", 26, is_left=True),
            Column("became", "fate", 9, is_left=True),
            Column("packets", "count", 15, whole),
            Column("a second", "rate", 9, number),
        ),
        lambda row: row["reason"],
        sort=2,
    ),
)
"""In the order of their keys, 1 to 7."""


def ordered(panel: Panel, rows: Iterable[Row], column: int | None = None, *, is_upward: bool = False) -> list[Row]:
    """Return rows in the order of a column, the highest first; what has no value comes last either way."""
    rows = list(rows)
    column = panel.sort if column is None else column
    if column < 0:
        return rows[::-1] if is_upward else rows
    key = panel.columns[column].key
    there = [row for row in rows if row[key] is not None]
    there.sort(key=lambda row: row[key], reverse=not is_upward)
    rest = [row for row in rows if row[key] is None]
    if "connections" in panel.columns[1].key:  # zones without a limit, by their connections
        rest.sort(key=lambda row: row["connections"], reverse=not is_upward)
    return there + rest


def cells(panel: Panel, row: Row) -> list[str]:
    """Return a row as it is shown; what is too long is cut at its end, with a mark."""
    shown = []
    for column in panel.columns:
        value = row[column.key]
        text = "" if value is None and column.show is str else column.show(value)
        shown.append(text if len(text) <= column.width else f"{text[: column.width - 1]}…")
    return shown


def line(panel: Panel, shown: Iterable[str]) -> str:
    """Return cells as a line."""
    padded = (
        text.ljust(column.width) if column.is_left else text.rjust(column.width)
        for column, text in zip(panel.columns, shown, strict=True)
    )
    return "  ".join(padded).rstrip()


def head(view: Mapping[str, Any]) -> list[str]:
    """Return the lines that stand above the tables."""
    rates, history, sweep, summary = view["rates"], view["history"], view["sweep"], view["summary"]
    most = view["limit"] if view["limit"] is not None else view["capacity"]
    full = view["connections"] / most if most else 0.0

    def rate(name: str) -> str:
        return f"{name:<8}{number(rates[name]) or '-':>6}/s {spark(history[name], SPARK):<{SPARK}}"

    return [
        f"zonetrack {view['instance']}  up {age(view['uptime_s'])}  {some(len(view['workers']), 'worker')}  "
        f"{some(view['clients'], 'client')}",
        f"{view['connections']:,} connections of {most:,}  {percent(full)} {bar(full, 16)}  "
        f"{some(view['zones_in_use'], 'zone')}",
        f"{rate('packets')} {rate('new')} {rate('ended')}".rstrip(),
        f"{rate('invalid')} {rate('refused')} {'bytes':<8}{number(rates['bytes']) or '-':>6}/s",
        f"sweep: {sweep['due']:,} due, {sweep['overdue_s']:.1f} s late  freed {number(rates['swept']) or '-'}/s  "
        f"(counted {summary['age_s']:.0f} s ago in {1_000 * summary['took_s']:.0f} ms)",
    ]
