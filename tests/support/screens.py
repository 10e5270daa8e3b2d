"""Screens as lines of text: of an application that a Pilot drives, of a real terminal in tmux, and those that are golden.

ZONETRACK_GOLDEN=write pytest ...    writes them anew; look at each before it is kept
"""

import os
import re
import shutil
import subprocess

import checkout
import pytest
from eventually import until

GOLDEN = checkout.ROOT / "tests" / "data" / "top"
VOLATILE = (
    (re.compile(r"up \d+ (?:s|min \d+ s)"), "up 1 s"),
    (re.compile(r"counted \d+ s ago in \d+ ms"), "counted 0 s ago in 5 ms"),
    (re.compile(r"id +\d+"), "id 1"),
    (re.compile(r"start +[\d.]+"), "start 1.0"),
    (re.compile(r"\b42949\d\d\b"), "4294967"),
)
"""What is another in each run."""


def lines_of(app):
    """Return what an application shows."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def steady(lines):
    """Return lines without what is another in each run."""
    text = "\n".join(lines).rstrip("\n") + "\n"
    for found, instead in VOLATILE:
        text = found.sub(instead, text)
    return text


def text_of(name):
    """Return a screen that was looked at; nothing where there is none yet."""
    path = GOLDEN / f"{name}.txt"
    return path.read_text() if path.exists() else ""


def is_golden(name, lines):
    """Assert that lines are those that were looked at."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("ZONETRACK_GOLDEN") == "write":
        path.write_text(steady(lines))
    assert steady(lines) == path.read_text()


class Terminal:
    """A command in a terminal of 80 columns and 24 lines, in a tmux of its own."""

    def __init__(self, directory, *words):
        self._tmux = shutil.which("tmux")
        if self._tmux is None:
            pytest.skip("tmux is not here")
        self._socket = str(directory / "tmux.sock")
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", *words)

    def _run(self, *words):
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "SHELL": "/bin/sh"}
        environment.pop("TMUX", None)
        done = subprocess.run(
            [self._tmux, "-u", "-S", self._socket, *words], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *keys):
        """Press keys, by tmux's names."""
        self._run("send-keys", *keys)

    def until(self, text):
        """Return the lines of the screen as soon as a text is on them."""
        lines = []

        def is_there():
            lines[:] = [line.rstrip() for line in self._run("capture-pane", "-p").splitlines()]
            return any(text in line for line in lines)

        until(is_there, lambda: f"{text!r} is not on the screen:\n" + "\n".join(lines))
        return lines

    def close(self):
        """End it."""
        subprocess.run([self._tmux, "-S", self._socket, "kill-server"], capture_output=True, check=False)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
