"""The packets that went through an Open vSwitch go through here: `list --format ovs` prints what its dump-conntrack printed.

What its userspace datapath has nothing to say of is taken out of our lines: ids and status (it prints 0), counters, start.
"""

import json
import re
import time

import bursts
import checkout
import numpy as np
import pytest
import tables
from desk import run
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from served import Service
from zonetrack.shm.events import Events
from zonetrack.shm.layout import ZONE, Region, Setting
from zonetrack.shm.seats import Seats

CAPTURED = json.loads((checkout.ROOT / "tests" / "data" / "dump-conntrack.json").read_text())
UNKNOWN_THERE = (
    (re.compile(r"\bid=(\d+)(?=,zone)"), "id=0"),
    (re.compile(r"\bstatus=[\w|]+"), "status=0"),
    (re.compile(r",packets=\d+,bytes=\d+"), ""),
    (re.compile(r",start=[^,]*"), ""),
)
TIMEOUT = re.compile(r",timeout=(\d+)")
LATE_S = 25
"""What may pass between a packet and the list of it."""


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Return what is listed, by flags, as soon as the packets have gone through."""
    table = tables.small(200, zones=16)
    table.events, table.seats = Events(), Seats()
    table.array(Region.CONTROL, "zones", ZONE)["settings"][CAPTURED["zone"]] |= np.uint16(Setting.OVS)
    bench = bursts.Bench(table)
    bench.track()  # whatever is loaded with the first burst is now
    with Service(tmp_path_factory.mktemp("run") / "x.sock", table) as service:
        for octets in map(bytes.fromhex, CAPTURED["packets"]):
            kind = 0x86DD if octets[0] >> 4 == 6 else 0x0800
            bench.track(Ether(type=kind) / Raw(octets), now_ms=time.monotonic_ns() // 1_000_000, zone=CAPTURED["zone"])
        command = ("list", "--socket", service.path, "--format", "ovs")
        return {flags: run(*command, *flags.split()).out.splitlines() for flags in CAPTURED["dumps"]}


def comparable(lines):
    """Return lines without what is not known there, and without timeouts, and these by line."""
    found = {}
    for line in lines:
        for pattern, instead in UNKNOWN_THERE:
            line = pattern.sub(instead, line)
        timeout = TIMEOUT.search(line)
        found[TIMEOUT.sub("", line)] = int(timeout[1]) if timeout else None
    assert len(found) == len(lines)
    return found


@pytest.mark.parametrize("flags", sorted(CAPTURED["dumps"]))
def test_lines_are_those_of_the_real_tool(listed, flags):
    ours, theirs = comparable(listed[flags]), comparable(CAPTURED["dumps"][flags])
    assert sorted(ours) == sorted(theirs)
    for line, left_s in theirs.items():
        assert (ours[line] is None) == (left_s is None)
        assert left_s is None or left_s - LATE_S <= ours[line] <= left_s
