"""A line of progress is shown to who waits at a terminal for what goes elsewhere, and to nobody else."""

import os
import pty
import sys

import pytest
from zonetrack.clients import progress

END = "\0"
"""Written after all that was written before."""


@pytest.fixture
def terminal():
    """Return a function that says what stands on a terminal, and the stream that writes there."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w")

    def seen():
        stream.write(END)
        stream.flush()
        read = ""
        while not read.endswith(END):
            read += os.read(ours, 1 << 16).decode()
        return read.removesuffix(END)

    seen.stream = stream
    yield seen
    stream.close()
    os.close(ours)


def test_a_line_is_written_over_and_gone_at_the_end(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setattr(progress, "PERIOD_S", 0.0)
    with progress.line() as say:
        say("16,384 of 20,000 connections")
        assert terminal() == "\r\x1b[K16,384 of 20,000 connections"
        say("20,000 of 20,000 connections")
    assert terminal().endswith("20,000 connections\r\x1b[K")


def test_it_is_not_written_more_often_than_anybody_can_read(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setattr(progress, "PERIOD_S", 1e9)
    with progress.line() as say:
        for number in range(100):
            say(f"{number} ")
    assert terminal() == "\r\x1b[K0 \r\x1b[K"


def test_nothing_is_shown_beside_what_goes_to_the_terminal(terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    monkeypatch.setattr(sys, "stdout", sys.stderr)
    with progress.line() as say:
        say("16,384 connections")
    assert terminal() == ""


def test_nothing_is_shown_where_nobody_looks(capfd):
    with progress.line() as say:
        say("16,384 connections")
    assert capfd.readouterr() == ("", "")
