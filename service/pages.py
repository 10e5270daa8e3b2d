"""The pages of docs that are printed from the kernels' tables: the TCP states.

    python -m zonetrack.service.pages

``make docs`` writes docs/tcp-states.md with it, and a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ..kernels import tcp_states
from ..kernels.tcp_states import TRANSITIONS, Handling, Segment, Tcp
from ..kernels.timeouts import DEFAULTS_S, Timeout
from ..shm.format import enum_lines, table
from ..shm.layout import Way

INTRODUCTION = """# TCP states

Printed from `kernels/tcp_states.py` and `kernels/timeouts.py` by `make docs`; change it there.

What no row mentions is invalid. A row holds if the segment also fits the window (`kernels/tcp_window.py`), unless its
handling says otherwise.
"""


def diagram() -> Iterator[str]:
    """Yield the changes of state as a picture; what leads back to the same state is left to the table."""
    ways: dict[tuple[Tcp, Tcp], dict[Segment, list[Way]]] = {}
    for row in TRANSITIONS:
        if row.old is not row.new:
            ways.setdefault((row.old, row.new), {}).setdefault(row.segment, []).append(row.way)
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (old, new), segments in ways.items():
        begin = "[*]" if old is Tcp.NONE else old.name
        labels = (
            name.name if len(sides) == len(Way) else f"{sides[0].name} {name.name}" for name, sides in segments.items()
        )
        yield f"    {begin} --> {new.name}: {', '.join(labels)}"
    yield "```"
    yield ""


def matrix() -> Iterator[str]:
    """Yield the table of new states: a row for each state, a column for each segment of each side."""
    after = {(row.old, row.way, row.segment): row.new.name for row in TRANSITIONS}
    columns = [(way, segment) for way in Way for segment in Segment if segment is not Segment.NONE]
    head = ["state", *(f"{'>' if way is Way.ORIG else '<'} {segment.name}" for way, segment in columns)]
    yield from table(head, ([state.name, *(after.get((state, *column), "") for column in columns)] for state in Tcp))


def tcp_states_page() -> Iterator[str]:
    """Yield the lines of docs/tcp-states.md."""
    yield INTRODUCTION
    yield "## Changes of state"
    yield ""
    yield "ORIG: only from the side that opened the connection; REPLY: only from the other."
    yield ""
    yield from diagram()
    yield "## New states"
    yield ""
    yield "`>` from the side that opened the connection, `<` from the other. An empty cell is invalid."
    yield ""
    yield from matrix()
    yield "## Transitions, and why each is there"
    yield ""
    rows = ((*(cell.name for cell in row[:-1]), row.why) for row in TRANSITIONS)
    yield from table(("state", "way", "segment", "new state", "handling", "why"), rows)
    yield from enum_lines(tcp_states, Handling)
    yield from enum_lines(tcp_states, tcp_states.Trait)
    yield "### Timeouts"
    yield ""
    yield "How long a connection in the state may be silent, unless its policy says otherwise."
    yield ""
    lengths = (
        (state.name, f"{DEFAULTS_S[Timeout[f'TCP_{state.name}']]:,} s") for state in Tcp if state is not Tcp.NONE
    )
    yield from table(("state", "timeout"), lengths)


def page() -> str:
    """Return docs/tcp-states.md as text."""
    return "\n".join(tcp_states_page()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
