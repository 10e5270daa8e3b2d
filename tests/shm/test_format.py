"""The pages of docs that are printed from this layer are current, and say of every field and reason where it stands."""

import checkout
import pytest
from zonetrack.shm import format as pages
from zonetrack.shm import layout, reasons


@pytest.mark.parametrize("name", list(pages.PAGES))
def test_page_is_current(name):
    assert checkout.page(f"{name}.md") == pages.page(name), "run `make docs`"


def test_every_field_of_every_record_has_its_row():
    lines = pages.page("format").splitlines()
    for name, dtype in layout.SHARED.items():
        start = lines.index(f"### {name}, {dtype.itemsize} bytes")
        for field, (kind, offset, *_) in dtype.fields.items():
            row = next(line for line in lines[start:] if f"| `{field}` |" in line)
            assert row.startswith(f"| {offset} | {kind.itemsize} |")


def test_comment_beside_a_field_is_what_the_page_says_of_it():
    notes = pages.field_notes(layout)
    assert notes["HEADER", "size"] == "bytes of the whole segment"
    row = next(line for line in pages.page("format").splitlines() if "| `expiry_ms` |" in line)
    assert row == "| 48 | 8 | u64 | `expiry_ms` | moment | locked |"


def test_every_reason_has_its_row():
    rows = [line.split(" | ")[1].strip("`") for line in pages.page("reasons").splitlines() if line.startswith("| ")]
    words = [reasons.word(reason) for reason in reasons.Reason if reason]
    assert [row for row in rows if row not in ("word", "---")] == words
