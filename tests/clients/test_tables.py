"""Tables: plain in a pipe, drawn on a terminal."""

import os
import pty
import re
import sys

import pytest
from zonetrack.clients import tables
from zonetrack.clients.connections import HEADINGS

ROWS = [("tcp", "192.0.2.1:40000", "3"), ("icmp", "[2001:db8::1]", "[bold]")]


def test_plain_columns_are_aligned(capsys):
    tables.show(("proto", "source", "n"), ROWS, title="a title")
    assert capsys.readouterr().out.splitlines() == [
        "a title",
        "proto  source           n",
        "tcp    192.0.2.1:40000  3",
        "icmp   [2001:db8::1]    [bold]",
    ]


def test_an_empty_table_has_its_headings(capsys):
    tables.show(("proto", "source"), [])
    assert capsys.readouterr().out == "proto  source\n"


def on_terminal(monkeypatch, headings, rows, title=None, columns=100):
    """Return what ``show`` writes to a terminal."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        tables.show(headings, rows, title)
        stream.flush()
        text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    return text


def test_a_person_sees_a_drawn_table(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = on_terminal(monkeypatch, ("proto", "source", "n"), ROWS, "a title")
    assert "\x1b[1m" in text
    for word in ("a title", "proto", *ROWS[0], *ROWS[1]):
        assert word in text


ANSI = re.compile(r"\x1b\[[0-9;]*m")
LIST = (
    ("udp", "5", "192.0.2.1:5353", "198.51.100.1:53", "", "seen_reply assured", "3 / 2", "164 / 112", "29"),
    (
        "tcp",
        "65535",
        "[2001:db8::1]:40000",
        "[2001:db8::2]:443",
        "ESTABLISHED",
        "seen_reply assured",
        "9 / 9",
        "9 / 9",
        "9",
    ),
)


@pytest.mark.parametrize("columns", [40, 80, 132])
def test_a_table_fits_the_terminal_and_nothing_is_left_out(monkeypatch, columns):
    lines = ANSI.sub("", on_terminal(monkeypatch, HEADINGS, LIST, "[a title]", columns=columns)).splitlines()
    assert all(len(line) <= columns for line in lines)
    shown, all_cells = "".join(lines), "".join(["[a title]", *HEADINGS, *LIST[0], *LIST[1]])
    assert sorted(shown.replace(" ", "")) == sorted(all_cells.replace(" ", ""))


def test_what_has_spaces_gives_way_before_an_address_does(monkeypatch):
    text = ANSI.sub("", on_terminal(monkeypatch, HEADINGS[:6], [row[:6] for row in LIST], columns=80))
    for row in LIST:
        assert any(all(cell in line for cell in row[:5]) for line in text.splitlines()), (
            "as far as its end it is one line"
        )


def test_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in on_terminal(monkeypatch, ("proto", "source", "n"), ROWS)


def test_a_long_table_is_not_drawn(monkeypatch):
    monkeypatch.setattr(tables, "DRAWN_ROWS_MAX", 1)
    assert on_terminal(monkeypatch, ("proto", "source", "n"), ROWS).startswith("proto  source           n\r\n")
