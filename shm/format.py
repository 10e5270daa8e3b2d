"""The shared format and the list of reasons as pages of docs, printed from the code that defines them.

    python -m zonetrack.shm.format [format | reasons]

What a field or a reason means stands beside it in the source, as a comment; it is read from there, so that nothing is
said twice.  ``make docs`` writes the pages, and a test compares them.
"""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from enum import IntEnum
from types import ModuleType

import numpy as np

from . import layout, reasons
from .sizing import Geometry

TOUCHED_BY = re.compile(r"(?:^|\s{2,})(key|life|locked|owner|config|lock|zone lock|owner, while FREE)$")
"""The last words of a field's comment, set apart: who writes it, and under which lock."""

FORMAT_INTRODUCTION = """# The shared format

Printed from `shm/layout.py` by `make docs`; change it there.

Format version {version}, digest `{digest:016x}`. Every segment's header carries both, and a process that was built with
others refuses the segment. Numbers are in host order; offsets are in bytes.

*Written*: `key` only in state NEW, `life` as the protocol says, `locked` under the record's lock, `lock` under the
segment's lock, `owner` by one participant only, `config` by the control plane with one store.

## Segments

A segment begins with a HEADER in a page of its own; its arrays follow in this order, each on a boundary of 128 bytes.
The counts below are those of a table of 131,072 connections; `zonetrack doctor` shows any other.
"""

REASONS_INTRODUCTION = """# Reasons

Printed from `shm/reasons.py` by `make docs`; change it there.

Why a packet was invalid, why it was not committed, what became of a record: one closed list of words, each with its own
counter in every worker. A packet has at most one reason."""

ENUMS = (
    *(layout.SegmentState, layout.Life, layout.Status, layout.Setting),
    *(layout.Kind, layout.Attendance, layout.Step),
    *(layout.StoreFlag, layout.Assembly, layout.Wait),
)


def comments(module: ModuleType) -> dict[int, tuple[str, bool]]:
    """Return the comment of each line of a module, and whether the line holds nothing else."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(module)).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            found[token.start[0]] = (token.string.removeprefix("#").strip(), alone)
    return found


def field_notes(module: ModuleType) -> dict[tuple[str, str], str]:
    """Return the comment beside each field of each dtype that a module spells out, by (dtype, field)."""
    beside, notes = comments(module), {}
    for statement in ast.parse(inspect.getsource(module)).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
                note, _ = beside.get(node.lineno, ("", False))
                notes[statement.targets[0].id, str(node.elts[0].value)] = note
    return notes


def docstrings(module: ModuleType) -> dict[str, str]:
    """Return the string that stands below each assignment of a module, in one line."""
    body = ast.parse(inspect.getsource(module)).body
    found = {}
    for statement, below in itertools.pairwise(body):
        if isinstance(statement, ast.Assign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            name = statement.targets[0]
            assert isinstance(name, ast.Name)
            found[name.id] = " ".join(str(below.value.value).split())
    return found


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield the lines of a table."""
    head = list(head)
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |"
    yield ""


def type_name(dtype: np.dtype) -> str:
    """Return how a field's type is written: ``u64``, ``u64[5]``, ``INTENT``."""
    base, shape = dtype.base, "".join(f"[{length}]" for length in dtype.shape)
    if base.fields:
        return next(name for name, known in layout.SHARED.items() if known == base) + shape
    return f"{base.kind}{base.itemsize * 8}{shape}"


def record_lines(name: str, dtype: np.dtype, notes: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield the byte table of a record."""
    assert dtype.fields is not None
    rows = []
    for field, (kind, offset, *_) in dtype.fields.items():
        note = notes.get((name, field), "")
        touched = TOUCHED_BY.search(note)
        rows.append(
            (
                offset,
                kind.itemsize,
                type_name(kind),
                f"`{field}`",
                TOUCHED_BY.sub("", note),
                touched[1] if touched else "",
            )
        )
    yield from table(("offset", "bytes", "type", "field", "what", "written"), rows)


def format_page() -> Iterator[str]:
    """Yield the lines of docs/format.md."""
    notes, about = field_notes(layout), docstrings(layout)
    yield FORMAT_INTRODUCTION.format(version=layout.FORMAT_VERSION, digest=layout.digest())
    geometry = Geometry(131_072)
    rows = [
        (region.name, f"`{array}`", f"{geometry.offsets(region)[array]:,}", f"{count:,}", size)
        for region in layout.Region
        for array, (count, size) in geometry.arrays(region).items()
    ]
    yield from table(("segment", "array", "offset", "records", "bytes each"), rows)
    yield "## Records"
    yield ""
    for name, dtype in layout.SHARED.items():
        yield f"### {name}, {dtype.itemsize} bytes"
        yield ""
        if name in about:
            yield about[name]
            yield ""
        yield from record_lines(name, dtype, notes)
    yield "## Numbers"
    yield ""
    for enum in ENUMS:
        yield from enum_lines(layout, enum)


def enum_lines(module: ModuleType, enum: type[IntEnum]) -> Iterator[str]:
    """Yield an enum as a table: number, name, and the comment beside it."""
    beside = comments(module)
    yield f"### {enum.__name__}"
    yield ""
    yield " ".join((enum.__doc__ or "").split())
    yield ""
    lines, first = inspect.getsourcelines(enum)
    notes = {}
    for number, line in enumerate(lines, first):
        member = re.match(r"\s+([A-Z][A-Z0-9_]*) = ", line)
        if member and number in beside:
            notes[member[1]] = beside[number][0]
    yield from table(
        ("number", "name", "what"), ((member.value, member.name, notes.get(member.name, "")) for member in enum)
    )


def reasons_page() -> Iterator[str]:
    """Yield the lines of docs/reasons.md."""
    yield REASONS_INTRODUCTION
    beside = comments(reasons)
    lines, first = inspect.getsourcelines(reasons.Reason)
    rows: list[tuple[int, str, str]] = []
    heading = ""
    for number, line in enumerate(lines, first):
        note, alone = beside.get(number, ("", False))
        member = re.match(r"\s+([A-Z][A-Z0-9_]*) = (\d+)", line)
        if alone:
            yield from reason_lines(heading, rows)
            heading, rows = note, []
        elif member and int(member[2]):
            rows.append((int(member[2]), f"`{member[1].lower()}`", note))
    yield from reason_lines(heading, rows)


def reason_lines(heading: str, rows: list[tuple[int, str, str]]) -> Iterator[str]:
    """Yield a group of reasons under its heading."""
    if rows:
        yield ""
        yield f"## {heading.rstrip('.')}"
        yield ""
        yield from list(table(("number", "word", "what"), rows))[:-1]


PAGES = {"format": format_page, "reasons": reasons_page}


def page(name: str) -> str:
    """Return a page of docs as text."""
    return "\n".join(PAGES[name]()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(sys.argv[1] if len(sys.argv) > 1 else "format"))
