"""Every capture of the corpus through ``zonetrack replay``, held against what Linux said of each packet.

Time stood still for the kernel, so nothing expires here.  Where a packet differs, that is known: fragments are not
reassembled, GRE has no key and SCTP no states of its own yet, and the kernel was sent snapped packets filled up with
zeros.  The numbers are pinned: a change that moves one of them either way has to say so.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import corpus
import pytest
from zonetrack.clients.errors import Exit
from zonetrack.kernels.jit import JIT

pytestmark = pytest.mark.skipif(not JIT, reason="the interpreter would take minutes; kernels are tested both ways")

ZONETRACK = Path(sys.executable).parent / "zonetrack"


class Mode(NamedTuple):
    """A run of the kernel, the options that mean the same, what must be reached (percent), and what is."""

    options: tuple[str, ...]
    as_captured: bool
    packet_share: int
    capture_share: int
    agreeing: int
    packets: int
    whole: int
    captures: int


MODES = {
    "kernel-liberal": Mode(("--liberal", "--checksum", "ignore"), False, 98, 93, 16552, 16631, 350, 369),
    "kernel-nocsum": Mode(("--checksum", "ignore"), False, 97, 91, 16552, 16631, 350, 369),
    "kernel-csum": Mode((), True, 97, 91, 14143, 14218, 303, 321),
}


def replay(captures, *options):
    """Return all labels by the name of their capture, and what stood on stderr."""
    result = subprocess.run(
        [ZONETRACK, "replay", "--packets", "--json", *options, *captures], capture_output=True, text=True, check=False
    )
    assert result.returncode in (Exit.OK, Exit.FAILED), result.stderr
    assert "Traceback" not in result.stderr and "worker" not in result.stderr, result.stderr
    found = defaultdict(list)
    for line in result.stdout.splitlines():
        packet = json.loads(line)
        found[Path(packet["file"]).name].append(packet["label"])
    return found, result.stderr


@pytest.mark.parametrize("kind", MODES)
def test_packets_are_what_the_kernel_says(kind, record_property, capsys):
    captures, mode = corpus.present(), MODES[kind]
    ours, errors = replay(captures, "--each", "--no-expiry", *mode.options)
    agreement = corpus.Agreement()
    for name, theirs in corpus.labels(kind, mode.as_captured).items():
        whole = len(ours[name]) == len(theirs)
        told = any(line.startswith("Error: ") and f"{name}: byte " in line for line in errors.splitlines())
        assert whole != told, f"{name}: {len(ours[name])} of {len(theirs)} packets, and an error said: {told}"
        agreement.compare(name, theirs, ours[name])
    record_property("corpus_cases", agreement.captures)
    with capsys.disabled():
        print(f"\n{kind}: {agreement}")
    assert agreement.packet_share >= mode.packet_share and agreement.capture_share >= mode.capture_share
    assert (agreement.agreeing, agreement.packets) == (mode.agreeing, mode.packets), agreement.differences
    assert (agreement.whole, agreement.captures) == (mode.whole, mode.captures), agreement.differences


def test_labels_of_the_whole_corpus_do_not_depend_on_the_workers(record_property):
    captures = corpus.present()
    alone, _ = replay(captures)
    for workers in (2, 3):
        together, _ = replay(captures, "--workers", str(workers))
        assert together == alone
    record_property("corpus_cases", len(captures))
