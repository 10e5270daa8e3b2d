"""Files of rules and configurations that were altered: each is taken, or refused with a complaint.

What is taken says the same when it is written and read again; some of it is compiled, and packets meet it.
"""

from __future__ import annotations

import json
import random
import tempfile
import tomllib
from functools import cache
from pathlib import Path

import checkout
from ruled import Switch
from zonetrack.service import config, rules_compile, rules_file, rules_text
from zonetrack.service.config import ConfigError
from zonetrack.service.rules import Names, RulesError

from . import mutation, seeds

NAMES = Names({"a": 1, "b": 2, "lan": 1, "wan": 2})
EXAMPLES = checkout.ROOT / "docs" / "examples"
MET_EVERY = 200
"""Files that are taken between two whose rules packets meet."""
PACKETS = 24


@cache
def files() -> tuple[tuple[str, str], ...]:
    """Return texts that are right, and which of the formats each has."""
    return tuple(
        (path.read_text(), rules_file.format_of(path.name))
        for path in sorted(EXAMPLES.iterdir())
        if path.suffix in (".rules", ".json", ".toml")
    )


CONFIGURATION = """\
workers = 2
ports = ["shm:lab,queues=2", "pcap:-"]
[limits]
global = 5
zones = {5 = 7}
[control]
depth_max = 9
[zones.5]
profile = "ovs"
[timeouts.slow]
tcp_established = 5.5
[metrics]
listen = "127.0.0.1:9"
"""


@cache
def configurations() -> tuple[str, ...]:
    """Return configurations that are right."""
    return (CONFIGURATION, *(path.read_text() for path in sorted((checkout.ROOT / "packaging").glob("*.toml"))))


class World:
    """What reads, and ports whose packets meet rules."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.taken = self.refused = self.met = 0
        self.switch = Switch()
        self._meet(rules_text.read("actions=ct(commit),output:2", NAMES))
        self.file = Path(tempfile.mkdtemp(prefix="zonetrack-fuzz-")) / "x.toml"

    def close(self):
        """Leave nothing."""
        self.switch.__exit__()
        self.file.unlink(missing_ok=True)
        self.file.parent.rmdir()

    def one(self):
        """Read one file."""
        if self.chance.random() < 0.15:
            self._configure()
            return
        text, form = self.chance.choice(files())
        try:
            rules = rules_file.read(self._altered(text, form), form, NAMES)
            written = rules_text.write(rules, NAMES)
            assert rules_text.write(rules_text.read(written, NAMES), NAMES) == written
            self._meet(rules)
        except RulesError as error:
            assert error.complaints and all(error.complaints)
            self.refused += 1
            return
        self.taken += 1

    def _altered(self, text, form):
        if form == rules_file.TEXT or self.chance.random() < 0.5:
            return mutation.text(self.chance, text)
        tree = (tomllib.loads if form == rules_file.TOML else json.loads)(text)
        if form == rules_file.JSON:
            return json.dumps(mutation.value(self.chance, tree), default=repr)
        rule = mutation.value(self.chance, self.chance.choice(tree["rules"]))
        return f"rules = [{_inline(rule)}]"

    def _meet(self, rules):
        if self.taken % MET_EVERY:
            return
        compiled = rules_compile.compile_rules(rules)
        self.switch.rules.publish(compiled)
        first = self.chance.randrange(len(seeds.frames()) - PACKETS)
        packets = [one.data for one in seeds.frames()[first : first + PACKETS]]
        self.switch.through("a", packets)
        self.met += 1

    def _configure(self):
        text = mutation.text(self.chance, self.chance.choice(configurations()))
        self.file.write_text(text, errors="replace")
        try:
            config.load({}, {}, self.file)
            self.taken += 1
        except ConfigError as error:
            assert str(error)
            self.refused += 1


def _inline(value):
    """Return a value as TOML has it within a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_inline(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value, default=repr).lower() if isinstance(value, float) else json.dumps(value, default=repr)


def world(seed, cases, tick):
    """Read so many files."""
    made = World(seed)
    try:
        for _ in range(cases):
            made.one()
            tick()
    finally:
        made.close()
    return f"{made.taken:,} taken, {made.refused:,} refused, packets met {made.met}"
