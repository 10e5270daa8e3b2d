"""The page of docs that is printed from the table of SCTP states.

    python -m zonetrack.service.sctp_page

``make docs`` writes docs/sctp-states.md with it, and a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ..kernels.sctp_states import TRANSITIONS, Chunk, Sctp, Transition, expand
from ..kernels.timeouts import DEFAULTS_S, Timeout
from ..shm.format import table
from ..shm.layout import Way

INTRODUCTION = """# SCTP states

Printed from `kernels/sctp_states.py` and `kernels/timeouts.py` by `make docs`; change it there.

They are those of the `netfilter` profile; to `ovs`, SCTP is a protocol without states. What no row mentions is invalid. A
row holds if the chunk's packet also has the right verification tag (`kernels/sctp.py`). The chunks of a packet take their
steps one after the other; all that have no column here are OTHER.
"""

CELLS = expand(TRANSITIONS)


def diagram() -> Iterator[str]:
    """Yield the changes of state as a picture; what leads back to the same state is left to the table."""
    ways: dict[tuple[Sctp, Sctp], dict[Chunk, list[Way]]] = {}
    for (old, way, chunk), row in CELLS.items():
        if old is not row.new:
            ways.setdefault((old, row.new), {}).setdefault(chunk, []).append(way)
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (old, new), chunks in ways.items():
        begin = "[*]" if old is Sctp.NONE else old.name
        labels = (
            chunk.name if len(sides) == len(Way) else f"{sides[0].name} {chunk.name}" for chunk, sides in chunks.items()
        )
        yield f"    {begin} --> {new.name}: {', '.join(labels)}"
    yield "```"
    yield ""


def matrix(way: Way) -> Iterator[str]:
    """Yield the table of new states of one direction: a row for each state, a column for each chunk."""
    rows = (
        [state.name, *(CELLS[state, way, chunk].new.name if (state, way, chunk) in CELLS else "" for chunk in Chunk)]
        for state in Sctp
    )
    yield from table(["state", *(chunk.name for chunk in Chunk)], rows)


def cells(row: Transition) -> tuple[str, ...]:
    """Return a transition as the cells of its line."""
    way = row.ways[0].name if len(row.ways) == 1 else "either"
    chunks = ", ".join(chunk.name for chunk in row.chunks) or "all others"
    return row.old.name, way, chunks, row.new.name, row.why


def sctp_states_page() -> Iterator[str]:
    """Yield the lines of docs/sctp-states.md."""
    yield INTRODUCTION
    yield "## Changes of state"
    yield ""
    yield "ORIG: only from the side that opened the association; REPLY: only from the other."
    yield ""
    yield from diagram()
    yield "## New states"
    yield ""
    for way, who in ((Way.ORIG, "the side that opened the association"), (Way.REPLY, "the other side")):
        yield f"From {who}; an empty cell is invalid."
        yield ""
        yield from matrix(way)
    yield "## Transitions, and why each is there"
    yield ""
    yield from table(("state", "way", "chunks", "new state", "why"), map(cells, TRANSITIONS))
    yield "### Timeouts"
    yield ""
    yield "How long an association in the state may be silent, unless its policy says otherwise."
    yield ""
    lengths = (
        (state.name, f"{DEFAULTS_S[Timeout[f'SCTP_{state.name}']]:,} s") for state in Sctp if state is not Sctp.NONE
    )
    yield from table(("state", "timeout"), lengths)


def page() -> str:
    """Return docs/sctp-states.md as text."""
    return "\n".join(sctp_states_page()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
