"""The corpus beside the project: captures that others made, and what a known tracker said of every packet of them.

It is found as ``../shared/corpus`` from the root.  It is no part of the project, so a test that needs it calls
``present``, which skips where it is absent, and says with ``record_property("corpus_cases", n)`` how many cases it had.
"""

import csv
import gzip
import json
from functools import cache
from typing import Any, NamedTuple

import checkout
import pytest

ROOT = checkout.ROOT.parent / "shared" / "corpus"
INCOMPARABLE = (".", "noip", "toobig", "bad:")
"""Beginnings of labels that are no verdict: the router did not forward the packet, or there was no IP packet to send."""


def present():
    """Return the paths of all captures, in order of their names; skip the test where there are none."""
    if not ROOT.is_dir():
        pytest.skip("../shared/corpus is not here")
    captures = sorted((ROOT / "captures").iterdir())
    assert captures, "../shared/corpus holds no capture"
    return captures


class Told(NamedTuple):
    """What a known tracker said of a capture."""

    capture: str
    labels: list[str]
    mended: list[str]
    """Letters of what was mended of each packet before it was sent: p(added), c(hecksum) and others."""
    table: list[dict[str, Any]]
    """Its connections at the end."""


@cache
def digests():
    """Return the SHA-256 of each capture by its name: what pages call it, for nothing of ours may name one."""
    with (ROOT / "MANIFEST.tsv").open(newline="") as lines:
        return {row["name"]: row["sha256"] for row in csv.DictReader(lines, delimiter="\t")}


def told(kind, as_captured=False):
    """Return what a known tracker said of each capture.

    Args:
        kind: which run of it, as in ``kernel-liberal``.
        as_captured: leave out captures with a packet that was padded (p) or given another IP checksum (c) before it was
            sent: where checksums count, the tracker saw other bytes than the file holds.
    """
    found = []
    with gzip.open(ROOT / f"{kind}.jsonl.gz", "rt") as lines:
        for capture in map(json.loads, lines):
            said = [label.partition(";") for label in capture["labels"]]
            fixes = capture.get("fixes", {})
            mended = [letters or fixes.get(str(n), "") for n, (_, _, letters) in enumerate(said)]
            if not (as_captured and any({"p", "c"} & set(letters) for letters in mended)):
                labels = [label for label, _, _ in said]
                found.append(Told(capture["pcap"], labels, mended, capture["table"]))
    return found
