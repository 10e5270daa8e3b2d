"""Parsers in Python fuzzed by what they reach: python -m tests.fuzz.guided PARSER [options of libFuzzer].

The extra ``fuzz`` brings the fuzzer (atheris).  It goes on until it finds an exception that nobody meant, or for so long as
``-max_total_time=SECONDS`` says; what it finds is in a file, which `python -m tests.fuzz.guided PARSER FILE` shows again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ["NUMBA_DISABLE_JIT"] = "1"
sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import atheris  # pyright: ignore[reportMissingImports] - of an extra  # noqa: E402

LOOKED_INTO = (
    *(f"zonetrack.service.{room}" for room in ("rules_file", "rules_text", "rule_matches", "rule_actions", "rules")),
    *("zonetrack.service.config_values", "zonetrack.service.ports.specs"),
    *("zonetrack.clients.wire", "zonetrack.clients.framing"),
)
"""Rooms whose branches guide the fuzzer; kernels are none: they would be compiled with its marks in them."""

with atheris.instrument_imports(include=list(LOOKED_INTO), enable_loader_override=False):
    from zonetrack.clients import wire
    from zonetrack.clients.errors import RemoteProtocolError
    from zonetrack.service import config_values, rules_file, rules_text
    from zonetrack.service.rules import Names, RulesError

NAMES = Names({"a": 1, "b": 2})
PARTS_MAX = 16


def rules(data):
    """Read a file of rules; the first byte says of which format."""
    form = rules_file.FORMATS[(data[0] if data else 0) % len(rules_file.FORMATS)]
    text = data[1:].decode("utf-8", "replace")
    try:
        read = rules_file.read(text, form, NAMES)
        written = rules_text.write(read, NAMES)
        assert rules_text.write(rules_text.read(written, NAMES), NAMES) == written
    except RulesError as error:
        assert error.complaints


def messages(data):
    """Read what a client sends, in pieces whose sizes the first byte says."""
    reader, step = wire.requests(), 1 + (data[0] if data else 0) % PARTS_MAX
    try:
        for first in range(1, len(data), step):
            reader.feed(data[first : first + step])
            for message in reader:
                assert isinstance(message, wire.Request)
        reader.end()
    except RemoteProtocolError as error:
        assert str(error)


def ports(data):
    """Read what says of ports."""
    try:
        config_values.ports([data.decode("utf-8", "replace")])
    except ValueError as error:
        assert str(error)


SEEDS = {
    "rules": [
        bytes([rules_file.FORMATS.index(rules_file.format_of(path.name))]) + path.read_bytes()
        for path in sorted((Path(__file__).parents[2] / "docs" / "examples").iterdir())
        if path.suffix in (".rules", ".toml", ".json")
    ],
    "messages": [b"\x03" + wire.request(1, "count", {"filter": {"zone": 5, "proto": "tcp"}}), b"\x00\x94\x00\x01"],
    "ports": [
        b"shm:lab,queues=2,zone=5,slots=8",
        b"afpacket:eth0,fanout=flows",
        b"pcap:a.pcap,out=b.pcap",
        b"tap:t0,name=x",
    ],
}
"""What the fuzzer begins with."""

PARSERS = {one.__name__: one for one in (rules, messages, ports)}


def main(arguments):
    """Fuzz one parser."""
    if len(arguments) < 2 or arguments[1] not in PARSERS:
        sys.exit(f"{arguments[0]}: name one of {', '.join(PARSERS)}")
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[arguments[1]]):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([arguments[0], *arguments[2:], corpus], PARSERS[arguments[1]])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
