"""Lines made of many rows at once are those made of each alone, whatever stands in them."""

import numpy as np
import pytest
from connection_rows import FIELDS, pack
from zonetrack.clients import formats, lines
from zonetrack.clients.connections import STATUS, TCP_STATES, Rows, describe
from zonetrack.clients.events import Reading
from zonetrack.clients.pages import Page
from zonetrack.shm.layout import CONNECTION, EVENT_ROW, Change, End, EventKind

PROTOCOLS = np.array([1, 2, 6, 6, 6, 17, 17, 33, 47, 50, 58, 99, 132, 136], "u1")
READING = Reading(
    {
        "sequence": 0,
        "dtype": [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in EVENT_ROW.fields.items()],
        "kinds": {kind.name.lower(): int(kind) for kind in EventKind},
        "ends": [end.name.lower() for end in End],
        "changes": {change.name.lower(): int(change) for change in Change},
        "life": 1,
        "table": 7,
    }
)


def some(count, dtype=CONNECTION, seed=1):
    """Return rows with anything in them that a row may have."""
    draw = np.random.default_rng(seed)
    rows = np.zeros(count, dtype)
    rows["protocol"] = draw.choice(PROTOCOLS, count)
    rows["family"] = np.where(rows["protocol"] == 58, 6, np.where(rows["protocol"] == 1, 4, draw.choice([4, 6], count)))
    for name in ("src", "dst", "reply_src", "reply_dst"):
        rows[name] = draw.integers(0, 256, (count, 16))
        rows[name][rows["family"] == 4, :12] = 0
    for name in ("sport", "dport", "reply_sport", "reply_dport"):
        rows[name] = draw.integers(0, 1 << 16, count)
    for name in ("packets", "bytes"):
        rows[name] = draw.choice([0, 1, 65_535, 65_536, 1 << 40], (count, 2))
    rows["timeout_ms"] = draw.choice([0, 999, 1000, 65_535_000, 4_294_967_295], count)
    rows["mark"] = draw.choice([0, 7, 0xFFFFFFFF], count)
    rows["zone"] = draw.choice([0, 5, 65535], count)
    rows["status"] = draw.integers(0, 1 << 10, count) & ~np.uint16(1)
    rows["state"] = draw.integers(0, 9, count)
    rows["helper"] = draw.choice([0, 0, 1, 3, 77], count)
    rows["label"] = draw.choice([0, 0, 1, 1 << 63], (count, 2))
    return rows


def page_of(rows):
    return Page(rows.tobytes(), FIELDS, TCP_STATES, STATUS)


@pytest.mark.parametrize("form", lines.LINES)
def test_the_lines_of_a_page_are_those_of_its_connections(form):
    page = page_of(some(600))
    wanted = [f"{formats.LINES[form](connection)}\n" for connection in page.connections()]
    assert list(lines.of_page(page, form)) == wanted


@pytest.mark.parametrize("form", lines.LINES)
def test_where_replies_mirror_what_was_sent(form):
    page = Page(pack() + pack(protocol=17, src="2001:db8::1", dst="2001:db8::2"), FIELDS, TCP_STATES, STATUS)
    wanted = [f"{formats.LINES[form](describe(row))}\n" for row in Rows(FIELDS).read(page.records)]
    assert list(lines.of_page(page, form)) == wanted


@pytest.mark.parametrize("form", lines.LINES)
def test_a_page_of_nothing(form):
    assert list(lines.of_page(page_of(some(0)), form)) == []


def test_lines_of_events_are_those_of_each_alone():
    draw = np.random.default_rng(2)
    rows = some(600, EVENT_ROW)
    rows["kind"], rows["changes"] = draw.choice([1, 2, 4], 600), draw.integers(0, 16, 600)
    rows["end"] = np.where(rows["kind"] == EventKind.DESTROY, draw.integers(1, len(End), 600), 0)
    batch = READING.batch({"lost": 3, "sequence": 9, "records": rows.tobytes()})
    assert list(lines.conntrack_events(batch, TCP_STATES)) == [
        f"{formats.conntrack_event(event)}\n" for event in batch.events()
    ]
    assert list(lines.conntrack_events(READING.batch({"lost": 3, "sequence": 9, "records": b""}), TCP_STATES)) == [
        "GAP 3\n"
    ]
