"""The corpus through ``zonetrack replay``: whoever tracks a packet says the same of it, and what cannot be read is told.

What each verdict has to be is tests/conformance/test_conformance's matter.
"""

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import corpus
import pytest
from zonetrack.clients.errors import Exit
from zonetrack.kernels.jit import JIT

pytestmark = pytest.mark.skipif(not JIT, reason="the interpreter would take minutes; kernels are tested both ways")

ZONETRACK = Path(sys.executable).parent / "zonetrack"


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


def test_every_packet_is_there_or_an_error_says_why(record_property):
    captures = corpus.present()
    ours, errors = replay(captures, "--each")
    for told in corpus.told("kernel-nocsum"):
        whole = len(ours[told.capture]) == len(told.labels)
        said = any(line.startswith("Error: ") and f"{told.capture}: byte " in line for line in errors.splitlines())
        assert whole != said, f"{told.capture}: {len(ours[told.capture])} packets, and an error said: {said}"
    record_property("corpus_cases", len(captures))


def test_labels_of_the_whole_corpus_do_not_depend_on_the_workers(record_property):
    captures = corpus.present()
    alone, _ = replay(captures)
    for workers in (2, 3):
        together, _ = replay(captures, "--workers", str(workers))
        assert together == alone
    record_property("corpus_cases", len(captures))
