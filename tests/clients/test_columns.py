"""Connections as CSV and as Parquet: a column for each thing, as other programs read them."""

import csv
import io
import sys

import pytest
from connection_rows import FIELDS, pack
from zonetrack.clients.columns import COLUMNS, write_csv, write_parquet
from zonetrack.clients.connections import STATUS, TCP_STATES
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.pages import Page

ROWS = (
    pack(zone=5, packets=[3, 2], bytes=[164, 112], start_ms=1_767_225_600_123, mark=7, helper=1),
    pack(protocol=1, status=0, sport=77, dport=8 << 8, timeout_ms=29_500, label=[1, 2], state=1),
    pack(protocol=99, src="2001:db8::1", dst="2001:db8::2", parent=4, state=1),
)
PAGES = (Page(ROWS[0] + ROWS[1], FIELDS, TCP_STATES, STATUS), Page(b"", FIELDS, TCP_STATES, STATUS))
PAGES += (Page(ROWS[2], FIELDS, TCP_STATES, STATUS),)


def test_csv():
    out = io.StringIO()
    assert write_csv(PAGES, out) == 3
    first, second, third = csv.DictReader(io.StringIO(out.getvalue()))
    assert list(first) == [column.name for column in COLUMNS]
    assert (first["proto"], first["src"], first["sport"], first["dport"]) == ("tcp", "192.0.2.1", "40000", "80")
    assert (first["reply_src"], first["reply_dport"], first["state"]) == ("198.51.100.1", "40000", "ESTABLISHED")
    assert (first["status"], first["timeout"]) == ("seen_reply|assured", "86399.999")
    assert (first["orig_packets"], first["reply_bytes"], first["start"]) == ("3", "112", "1767225600.123")
    assert (first["mark"], first["helper"], first["labels"], first["zone"]) == ("7", "ftp", "", "5")
    assert (second["proto"], second["sport"], second["state"]) == ("icmp", "", "")
    assert second["labels"] == hex(1 << 64 | 2)
    assert (third["proto"], third["src"], third["parent"]) == ("99", "2001:db8::1", "4")


def test_parquet():
    parquet = pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    assert write_parquet(PAGES, out) == 3
    table = parquet.read_table(io.BytesIO(out.getvalue()))
    assert table.column_names == [column.name for column in COLUMNS] and table.num_rows == 3
    assert [str(table.schema.field(name).type) for name in ("sport", "orig_bytes", "start", "src")] == [
        *("uint16", "uint64", "timestamp[ms, tz=UTC]", "string")
    ]
    assert table["sport"].to_pylist() == [40000, None, None]
    assert table["start"][0].as_py().isoformat() == "2026-01-01T00:00:00.123000+00:00"
    assert table["timeout"].to_pylist() == [86399.999, 29.5, 86399.999]


def test_parquet_of_nothing_has_its_columns():
    parquet = pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    assert write_parquet([], out) == 0
    assert parquet.read_table(io.BytesIO(out.getvalue())).num_columns == len(COLUMNS)


def test_parquet_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ZonetrackError, match=r"zonetrack\[parquet\]"):
        write_parquet(PAGES, io.BytesIO())
