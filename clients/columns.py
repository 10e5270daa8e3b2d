"""Connections for other programs: a column for each thing that is known of them, as CSV, or as Parquet with its types.

Numbers are numbers, times are seconds or, in Parquet, moments; what does not apply is empty.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from .connections import HELPERS, PORTS, PROTOCOLS
from .errors import ZonetrackError
from .lines import addresses, chosen, named, state_of

if TYPE_CHECKING:
    import numpy as np

    from .pages import Page

Values = Callable[["np.ndarray", "Page"], Any]


class Column(NamedTuple):
    """A column: its name, its type in Parquet, and what makes it of rows."""

    name: str
    kind: str
    values: Values


def _field(name: str) -> Values:
    return lambda rows, _: rows[name].tolist()


def _of_way(name: str, way: int) -> Values:
    return lambda rows, _: rows[name][:, way].tolist()


def _address(name: str) -> Values:
    return lambda rows, _: addresses(rows, name).tolist()


def _port(name: str) -> Values:
    """Return ports, None where a protocol has none."""

    def values(rows: np.ndarray, _: Page) -> list[int | None]:
        import numpy as np

        has_ports = np.isin(rows["protocol"], list(PORTS)).tolist()
        return [port if has else None for port, has in zip(rows[name].tolist(), has_ports, strict=True)]

    return values


def _chosen(names: tuple[str, ...], says: Callable[..., str]) -> Values:
    return lambda rows, _: chosen(rows, names, says).tolist()


def _states(rows: np.ndarray, page: Page) -> list[str]:
    def says(protocol: int, status: int, state: int) -> str:
        return state_of(protocol, status, state, page.states)

    return chosen(rows, ("protocol", "status", "state"), says).tolist()


def _statuses(rows: np.ndarray, page: Page) -> list[str]:
    def says(status: int) -> str:
        return "|".join(name for name, bit in page.status.items() if status & bit)

    return chosen(rows, ("status",), says).tolist()


def _labels(rows: np.ndarray, _: Page) -> list[str]:
    return [f"{high << 64 | low:#x}" if high or low else "" for high, low in rows["label"].tolist()]


COLUMNS = (
    Column("id", "uint64", _field("id")),
    Column("zone", "uint16", _field("zone")),
    Column("proto", "string", _chosen(("protocol",), lambda protocol: PROTOCOLS.get(protocol, str(protocol)))),
    Column("src", "string", _address("src")),
    Column("dst", "string", _address("dst")),
    Column("sport", "uint16", _port("sport")),
    Column("dport", "uint16", _port("dport")),
    Column("reply_src", "string", _address("reply_src")),
    Column("reply_dst", "string", _address("reply_dst")),
    Column("reply_sport", "uint16", _port("reply_sport")),
    Column("reply_dport", "uint16", _port("reply_dport")),
    Column("state", "string", _states),
    Column("status", "string", _statuses),
    Column("orig_packets", "uint64", _of_way("packets", 0)),
    Column("orig_bytes", "uint64", _of_way("bytes", 0)),
    Column("reply_packets", "uint64", _of_way("packets", 1)),
    Column("reply_bytes", "uint64", _of_way("bytes", 1)),
    Column("timeout", "float64", lambda rows, _: (rows["timeout_ms"] / 1000).tolist()),
    Column("mark", "uint32", _field("mark")),
    Column("labels", "string", _labels),
    Column("helper", "string", _chosen(("helper",), lambda helper: named(HELPERS, helper) if helper else "")),
    Column("parent", "uint64", _field("parent")),
    Column("start", "moment", lambda rows, _: rows["start_ms"].tolist()),
)


def write_csv(pages: Iterable[Page], out: IO[str]) -> int:
    """Write connections as CSV, with a line of names; returns how many there were.

    Source:
        RFC 4180, but for the ends of lines, which are those of this system.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in COLUMNS)
    count = 0
    for page in pages:
        rows = page.array()
        count += len(rows)
        columns = [column.values(rows, page) for column in COLUMNS]
        columns[-1] = [f"{moment / 1000:.3f}" for moment in columns[-1]]
        writer.writerows(zip(*columns, strict=True))
    return count


def write_parquet(pages: Iterable[Page], out: IO[bytes]) -> int:
    """Write connections as Parquet; returns how many there were.

    Raises:
        ZonetrackError: pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ZonetrackError("Parquet needs pyarrow: pip install 'zonetrack[parquet]'") from None
    kinds = {"moment": pyarrow.timestamp("ms", tz="UTC"), "string": pyarrow.string()}
    schema = pyarrow.schema(
        [(column.name, kinds.get(column.kind) or pyarrow.type_for_alias(column.kind)) for column in COLUMNS]
    )
    count = 0
    with parquet.ParquetWriter(out, schema) as writer:
        for page in pages:
            rows = page.array()
            if len(rows):
                count += len(rows)
                values = [column.values(rows, page) for column in COLUMNS]
                arrays = [pyarrow.array(one, field.type) for one, field in zip(values, schema, strict=True)]
                writer.write_table(pyarrow.table(arrays, schema))
    return count
