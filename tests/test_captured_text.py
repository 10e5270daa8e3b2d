"""The packets that went through an Open vSwitch go through here: `list --format ovs` prints what its dump-conntrack printed.

Once that is what was captured, once what a switch prints that is started for it, where one of that version is installed.
What its userspace datapath has nothing to say of is taken out of our lines: ids and status (it prints 0), counters, start.
"""

import json
import re
import time

import bursts
import checkout
import numpy as np
import pytest
import switch
import tables
from desk import run
from scapy.layers.inet import IP, UDP
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
FRAMES = [
    Ether(type=0x86DD if packet[0] >> 4 == 6 else 0x0800) / Raw(packet)
    for packet in map(bytes.fromhex, CAPTURED["packets"])
]
LAST = 9
"""Port of a connection that is no part of it, made when all others are."""
LATE_S = 60
"""What may pass between a packet and the list of it, here or there."""


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """Return what is listed, by flags, as soon as the packets have gone through."""
    table = tables.small(200, zones=16)
    table.events, table.seats = Events(), Seats()
    table.array(Region.CONTROL, "zones", ZONE)["settings"][CAPTURED["zone"]] |= np.uint16(Setting.OVS)
    bench = bursts.Bench(table)
    bench.track()  # whatever is loaded with the first burst is now
    with Service(tmp_path_factory.mktemp("run") / "x.sock", table) as service:
        for frame in FRAMES:
            bench.track(frame, now_ms=time.monotonic_ns() // 1_000_000, zone=CAPTURED["zone"])
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


@pytest.fixture(scope="module", params=["captured", "live"])
def printed(request):
    """Return what Open vSwitch prints, by flags."""
    if request.param == "captured":
        return CAPTURED["dumps"]
    if reason := switch.missing():
        pytest.skip(reason)
    zone = CAPTURED["zone"]
    with switch.Switch(zone) as made:
        if made.version.split(".")[:2] != CAPTURED["version"].split(".")[:2]:
            pytest.skip(f"lines are those of {CAPTURED['version']}; installed is Open vSwitch {made.version}")
        last = Ether() / IP(src="192.0.2.9", dst="192.0.2.10") / UDP(sport=LAST, dport=LAST)
        made.send(bytes(frame).ljust(60, b"\0") for frame in (*FRAMES, last))
        made.until(zone, f"sport={LAST},")
        dumps = {flags: made.dump(zone, *flags.split()) for flags in CAPTURED["dumps"]}
    return {flags: [line for line in lines if f"sport={LAST}," not in line] for flags, lines in dumps.items()}


@pytest.mark.parametrize("flags", sorted(CAPTURED["dumps"]))
def test_lines_are_those_of_the_real_tool(listed, printed, flags):
    ours, theirs = comparable(listed[flags]), comparable(printed[flags])
    assert sorted(ours) == sorted(theirs)
    for line, left_s in theirs.items():
        assert (ours[line] is None) == (left_s is None)
        assert left_s is None or abs(left_s - ours[line]) <= LATE_S
