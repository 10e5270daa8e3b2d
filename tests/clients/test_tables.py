"""Tables: plain in a pipe, drawn on a terminal."""

import os
import pty
import sys

from zonetrack.clients import tables

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


def test_nothing_is_left_out_where_the_terminal_is_narrow(monkeypatch):
    text = on_terminal(monkeypatch, ("proto", "source", "n"), ROWS, "[a title]", columns=12)
    assert "[a title]" in text
    for row in ROWS:
        assert any(all(cell in line for cell in row) for line in text.splitlines()), "a connection is one line"


def test_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in on_terminal(monkeypatch, ("proto", "source", "n"), ROWS)


def test_a_long_table_is_not_drawn(monkeypatch):
    monkeypatch.setattr(tables, "DRAWN_ROWS_MAX", 1)
    assert on_terminal(monkeypatch, ("proto", "source", "n"), ROWS).startswith("proto  source           n\r\n")
