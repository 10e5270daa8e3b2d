"""The corpus beside the project: captures that others made, and what a known tracker said of every packet of them.

It is found as ``../shared/corpus`` from the root.  It is no part of the project, so a test that needs it calls
``present``, which skips where it is absent, and says with ``record_property("corpus_cases", n)`` how many cases it had.
"""

import gzip
import json
from dataclasses import dataclass, field

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


def labels(kind, as_captured=False):
    """Return what a known tracker said, as lists of labels without suffixes, by the name of the capture.

    Args:
        kind: which run of it, as in ``kernel-liberal``.
        as_captured: leave out captures with a packet that was padded (p) or given another IP checksum (c) before it was
            sent: where checksums count, the tracker saw other bytes than the file holds.
    """
    with gzip.open(ROOT / f"{kind}.jsonl.gz", "rt") as lines:
        captures = [json.loads(line) for line in lines]
    found = {}
    for capture in captures:
        said = [label.partition(";") for label in capture["labels"]]
        if not (as_captured and any({"p", "c"} & set(mended) for _, _, mended in said)):
            found[capture["pcap"]] = [label for label, _, _ in said]
    return found


@dataclass
class Agreement:
    """How well labels agree in state and direction; whether a connection is assured is another question."""

    packets: int = 0
    agreeing: int = 0
    captures: int = 0
    whole: int = 0
    differences: list = field(default_factory=list)
    """(capture, number of the packet from 1, their label, our label)."""

    def compare(self, capture, theirs, ours):
        """Add one capture; the shorter list tells how far it is compared, for a bad capture ends early."""
        before = len(self.differences)
        for n, (their, our) in enumerate(zip(theirs, ours, strict=False), 1):
            if their.startswith(INCOMPARABLE):
                continue
            self.packets += 1
            if their.rstrip("a") == our.rstrip("a"):
                self.agreeing += 1
            else:
                self.differences.append((capture, n, their, our))
        self.captures += 1
        self.whole += len(self.differences) == before

    @property
    def packet_share(self):
        """Percentage of packets that agree."""
        return 100 * self.agreeing / self.packets

    @property
    def capture_share(self):
        """Percentage of captures without a difference."""
        return 100 * self.whole / self.captures

    def __str__(self):
        return (
            f"{self.agreeing:,} of {self.packets:,} packets agree ({self.packet_share:.2f} %), "
            f"{self.whole} of {self.captures} captures wholly ({self.capture_share:.2f} %)"
        )
