"""Packet scripts: one line a packet, readable by a network engineer.

    # simultaneous close
    settings be_liberal -loose max_retrans=5
    > S    seq 100 win 1000 <mss1460>     SYN_SENT     new   120s  unreplied
    < SA   seq 900 ack 101 win 1000       SYN_RECV     est   60s
    +59s                                  SYN_RECV     live
    +1s                                   gone         swept

A packet line: ``>`` from the client or ``<`` from the server, flags (``-`` for none), numbers, options in ``<...>``
(tests/support/segments); then the state after it, the ct_state (new, est, inv; other side of the connection than at
first is ``new`` in ``<``), and, where they matter, seconds to live and ``unreplied`` or ``assured``.  What is not
written is not compared, but for unreplied and assured, which are written whenever they hold.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import segments
import tracker
from zonetrack.shm.layout import MAX_RETRANS_SHIFT, Setting

_PACKET = re.compile(
    r"(?P<way>[<>])\s+(?P<flags>[FSRPAUEC]+|-)\s+"
    r"(?P<numbers>(?:(?:seq|ack|win|len)\s+\d+\s+)*)"
    r"(?:<(?P<options>[^>]*)>\s+)?"
    r"(?P<state>[A-Z_0-9]+|gone)\s+(?P<ct_state>new|est|inv)(?:\s+(?P<timeout>\d+)s)?(?:\s+(?P<status>unreplied|assured))?"
)
_WAIT = re.compile(r"\+(?P<seconds>\d+(?:\.\d+)?)s\s+(?P<state>[A-Z_0-9]+|gone)\s+(?P<fate>live|swept)")
_LABELS = {"new": "N", "est": "E", "inv": "I"}


class Difference(NamedTuple):
    """A line of a script that did not go as written."""

    line: int
    text: str
    expected: tuple
    seen: tuple


def run(path: Path) -> list[Difference]:
    """Run a script; return what went otherwise than it says."""
    world = tracker.Tracker()
    differences = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        if text.startswith("settings"):
            for name in text.split()[1:]:
                if name.startswith("max_retrans="):
                    kept = world.settings & ~(0xFF << MAX_RETRANS_SHIFT)
                    world.settings = kept | int(name.partition("=")[2]) << MAX_RETRANS_SHIFT
                    continue
                bit = Setting[name.lstrip("-").upper()]
                world.settings = world.settings & ~bit if name.startswith("-") else world.settings | bit
            continue
        expected, seen = _wait(world, text) if text.startswith("+") else _packet(world, text)
        if expected != seen:
            differences.append(Difference(number, text, expected, seen))
    return differences


def _fields(pattern: re.Pattern, text: str) -> dict[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"not a line of a script: {text!r}")
    return match.groupdict()


def _wait(world: tracker.Tracker, text: str) -> tuple[tuple, tuple]:
    fields = _fields(_WAIT, text)
    world.now_ms += round(1000 * float(fields["seconds"]))
    connection = world.find(segments.tcp("c", "", 0)[0]["key"])
    seen = world.seen("", connection, tracker.Reason.NONE)
    return (fields["state"], fields["fate"]), (seen.state, "swept" if connection is None else "live")


def _packet(world: tracker.Tracker, text: str) -> tuple[tuple, tuple]:
    fields = _fields(_PACKET, text)
    words = fields["numbers"].split()
    numbers = {name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    segment = segments.tcp(
        "c" if fields["way"] == ">" else "s",
        fields["flags"].strip("-"),
        numbers.get("seq", 0),
        numbers.get("ack", 0),
        numbers.get("win", 0),
        numbers.get("len", 0),
        fields["options"] or "",
    )
    seen = world.track(segment)
    status = "assured" if seen.assured else "unreplied" if seen.unreplied else None
    label = seen.label[0]
    expected = (fields["state"], _LABELS[fields["ct_state"]], fields["status"])
    found = (seen.state, label, status)
    if fields["timeout"] is not None:
        return (*expected, int(fields["timeout"])), (*found, seen.timeout_s)
    return expected, found
