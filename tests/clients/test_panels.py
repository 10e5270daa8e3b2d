"""Cells are short, rows in order, and every line of every table fits into 80 columns."""

import re

import pytest
import watched
from zonetrack.clients import panels
from zonetrack.clients.panels import PANELS
from zonetrack.clients.watching import Watch

BY_NAME = {panel.name: panel for panel in PANELS}


@pytest.fixture
def view():
    watch = Watch()
    watch.take(*watched.answers(), at_s=1.0)
    return watch.take(*watched.answers(later=1), at_s=3.0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""), (0, "0"), (0.25, "0.2"), (9.0, "9"), (9999, "9,999"), (9999.6, "10.0k"), (12_345, "12.3k"),
        (123_456, "123k"), (999_499, "999k"), (999_500, "1.00M"), (1_234_567, "1.23M"), (7.2e12, "7.20T"),
        (2**64, "18447P"), (-12_345, "-12.3k"),
    ],
)  # fmt: skip
def test_numbers_are_short(value, shown):
    assert panels.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, ""), (0.01, "▏"), (0.5, "█████"), (0.55, "█████▌"), (1.0, "██████████"), (7.0, "█" * 10)]
)
def test_bars_are_in_eighths(value, shown):
    assert panels.bar(value) == shown


@pytest.mark.parametrize(
    ("values", "shown"), [([], ""), ([0, 0], "▁▁"), ([0, 1, 2, 4, 8], "▁▂▃▅█"), ([9] + [1] * 8, "████████")]
)
def test_sparks_are_from_nothing_to_the_highest(values, shown):
    assert panels.spark(values, 8) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (7300, "2 h 1 min"), (273_900, "3 d 4 h")]
)
def test_ages_have_two_units(seconds, shown):
    assert panels.age(seconds) == shown


def test_some():
    assert panels.some(1, "zone") == "1 zone" and panels.some(1200, "zone") == "1,200 zones"


def test_everything_fits_into_80_columns(view):
    lines = panels.head(view)
    for panel in PANELS:
        assert sum(column.width + 2 for column in panel.columns) <= 80, "with the padding of a screen's table"
        lines.append(panels.line(panel, [column.heading for column in panel.columns]))
        lines += [panels.line(panel, panels.cells(panel, row)) for row in view[panel.name]]
    assert [line for line in lines if len(line) > 78] == []


def test_what_is_too_long_is_marked(view):
    shown = panels.cells(BY_NAME["sources"], view["sources"][1])
    assert shown[0] == "2001:db8:1234:5678:9abc:def0:1234…"


def test_what_has_no_value_comes_last_either_way(view):
    panel = BY_NAME["zones"]
    assert [row["zone"] for row in panels.ordered(panel, view["zones"])] == [5, 9, 7]
    assert [row["zone"] for row in panels.ordered(panel, view["zones"], is_upward=True)] == [9, 5, 7]
    assert [row["zone"] for row in panels.ordered(panel, view["zones"], 0)] == [9, 7, 5]


def test_tables_that_come_in_order_are_left_so(view):
    panel = BY_NAME["workers"]
    assert [row["worker"] for row in panels.ordered(panel, view["workers"])] == [0, 1]
    assert [row["worker"] for row in panels.ordered(panel, view["workers"], is_upward=True)] == [1, 0]


def test_what_there_is_to_see_of_a_row(view):
    within = {
        panel.name: [panel.within(row) for row in view[panel.name]]
        for panel in PANELS
        if panel.name not in ("workers", "queues", "reasons")
    }
    assert within["zones"][0] == {"zone": 5}
    assert within["sources"][0] == {"zone": 5, "src": "192.0.2.1"}
    assert within["destinations"] == [{"zone": 5, "dst": "198.51.100.1"}]
    assert within["kinds"] == [
        *({"proto": "tcp"}, {"proto": "udp"}),
        *({"proto": "tcp", "state": "ESTABLISHED"}, {"proto": "tcp", "state": "SYN_SENT"}),
        {"proto": "tcp", "state": "ESTABLISHED"},
        *(None, {"unreplied": True}, None, None, None),
    ]


def test_rows_have_names_of_their_own(view):
    for panel in PANELS:
        names = [panel.name_of(row) for row in view[panel.name]]
        assert len(set(names)) == len(names), panel.name


def test_head(view):
    assert panels.head(view) == [
        "zonetrack lab  up 3 d 4 h  2 workers  1 client",
        "900 connections of 1,000  90.0% ██████████████▍  3 zones",
        "packets    500/s █        new          5/s █        ended      0.5/s █",
        "invalid      1/s █        refused      2/s █        bytes    50.0k/s",
        "sweep: 7 due, 1.5 s late  freed 0/s  (counted 0 s ago in 31 ms)",
    ]
    assert all(re.search(r"-/s", line) for line in panels.head(Watch().take(*watched.answers()))[2:4])
