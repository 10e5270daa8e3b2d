"""Expectations made, looked for and listed by hand: no helper and no packet but a key."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import tables
from zonetrack.kernels import awaited, expecting
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    EXPECTATION,
    EXPECTATION_TABLE,
    HELPER_RULES_MAX,
    PARSED,
    RULE_HELPER_SHIFT,
    RULE_IN_USE,
    RULE_PROTOCOL_SHIFT,
    RULE_ZONE_SHIFT,
    ExpectationFlag,
    Foretold,
    Helper,
    Region,
    Setting,
)
from zonetrack.shm.reasons import Reason

CLIENT, SERVER = 0xC0000201, 0xC6336401
"""192.0.2.1 and 198.51.100.1: the lower address stands first in a key."""
NOW = 100_000
LATER = 1 << 40


@dataclass(frozen=True)
class Wanted:
    """An expectation, or with a source port the packet that is looked for."""

    destination: int = CLIENT
    port: int = 5000
    source: int = SERVER
    source_port: int = 0
    zone: int = 0
    protocol: int = 6
    flags: int = 0
    expiry_ms: int = LATER
    kind: int = Foretold.DATA
    mark: int = 0
    label: tuple[int, int] = (0, 0)

    @property
    def last(self):
        """The last word."""
        ports = self.source_port << 48 | self.port << 32
        return ports | self.zone << 16 | self.protocol << 8 | 4

    def packet(self, source_port=1024):
        """Return the PARSED of a packet from source to destination."""
        parsed = np.zeros(1, PARSED).view(np.recarray)[0]
        high_is_source = (self.source, source_port) > (self.destination, self.port)
        ends = ((self.source, source_port), (self.destination, self.port))
        (low, low_port), (high, high_port) = sorted(ends)
        parsed.key[:] = 0, low, 0, high, low_port << 48 | high_port << 32 | (self.last & 0xFFFFFFFF)
        parsed.high_is_source = high_is_source
        parsed.zone, parsed.protocol, parsed.family = self.zone, self.protocol, 4
        return parsed


class Scene:
    """A table with two participants and two parents."""

    def __init__(self):
        self.table = tables.small()
        self.one, self.other = tables.Participant(self.table), tables.Participant(self.table)
        self.key, self.other_key = tables.keys(1), tables.keys(1, first=2)
        self.parent = parent_of(self.one, self.key)
        self.other_parent = parent_of(self.one, self.other_key)

    def counts(self, zone=0):
        """Return how many the table counts, and the zone."""
        return int(header(self.table)["count"]), int(tables.zones(self.table)["expectations"][zone])

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if exception == (None, None, None):
            tables.assert_at_rest(self.table)


def record(address):
    """Return the EXPECTATION at an address of private memory."""
    memory = (ctypes.c_uint8 * EXPECTATION.itemsize).from_address(int(address))
    return np.frombuffer(memory, EXPECTATION)[0]


def parent_of(participant, keys, records=None):
    """Return the public id of the connection of a key, made if there is none."""
    found = participant.find(keys)
    if int(found[0]) == tables.NONE:
        found = participant.made(keys)
    life = int(tables.entries(participant.table)["life"][int(found[0])])
    return life >> 32 << 32 | int(found[0])


def described(parent, wanted=Wanted()):
    """Return what is to be expected, EXPECTATION[1]."""
    fields = np.zeros(1, EXPECTATION)
    fields["source"][0], fields["destination"][0] = (0, wanted.source), (0, wanted.destination)
    fields["last"], fields["parent"], fields["expiry_ms"] = wanted.last, parent, wanted.expiry_ms
    fields["flags"], fields["mark"], fields["kind"] = wanted.flags, wanted.mark, wanted.kind
    fields["helper"], fields["label"][0] = Helper.FTP, wanted.label
    return fields


def add(participant, parent, wanted=Wanted(), most=8, now_ms=NOW):
    """Make an expectation; returns the Reason."""
    fields = described(parent, wanted)
    return Reason(int(expecting.add(participant.views, u64(fields.ctypes.data), u64(most), u64(now_ms))))


def find(participant, wanted=Wanted(), source_port=1024, now_ms=NOW):
    """Look for the expectation of a packet; returns the parent that it names, None, or "busy"."""
    return _answer(participant, awaited.find(participant.views, wanted.packet(source_port), u64(now_ms)))


def claim(participant, wanted=Wanted(), source_port=1024, now_ms=NOW):
    """Look for the expectation of a packet and take it; answers as ``find``."""
    answer = find(participant, wanted, source_port, now_ms)
    if answer is None or answer == "busy":
        return answer
    return _answer(participant, awaited.claim(participant.views, wanted.packet(source_port), u64(now_ms)))


def _answer(participant, found):
    if found == awaited.FOUND:
        return int(record(participant.views["expected"])["parent"])
    return "busy" if found == awaited.BUSY else None


def all_of(table):
    """Return the expectations in use, EXPECTATION[n]."""
    records = table.array(Region.CONTROL, "expectations", EXPECTATION)
    return records[records["flags"] & ExpectationFlag.IN_USE != 0]


def header(table):
    """Return the EXPECTATION_TABLE."""
    return table.array(Region.CONTROL, "expectation_table", EXPECTATION_TABLE)[0]


def set_rules(table, *rules):
    """Write the rules of helpers: (Helper, protocol, zone, port) each."""
    words = table.array(Region.CONTROL, "helper_rules", "u8")
    assert len(rules) <= HELPER_RULES_MAX
    for i, (helper, protocol, zone, port) in enumerate(rules):
        words[i] = (
            RULE_IN_USE | helper << RULE_HELPER_SHIFT | protocol << RULE_PROTOCOL_SHIFT | zone << RULE_ZONE_SHIFT | port
        )
        tables.zones(table)["settings"][zone] |= Setting.HELPERS
    header(table)["rules"] = len(rules)
