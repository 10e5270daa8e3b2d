"""What users of other trackers ran into, packet by packet (tests/data/bug-reports.json), through parser and tracker.

Each case has raw packets, the verdict and table of a live Linux 6.18, and what is right.  Where the two differ, WRONG says
so.
A live Open vSwitch 4.0.90 was sent the same packets, and the `ovs` profile does as it did, right or wrong.
"""

import json
import re
from pathlib import Path

import gateway
import numpy as np
import pytest
import scripts
import tables
import tracker
import wire
from parsing import parsed_of
from scapy.layers.inet import ICMP, IP, TCP
from zonetrack.kernels import walk
from zonetrack.service import connections, filters, labels
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, CtState, FrameFlag, Nat, Setting, Status

DATA = Path(__file__).parent / "data"
CASES = {case["n"]: case for case in json.loads((DATA / "bug-reports.json").read_text())}
OVS_CASES = {case["n"]: case["steps"] for case in json.loads((DATA / "ovs-bug-reports.json").read_text())}
OF_TRACKING = (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 35, 37, 39, 47, 49, 61)
OF_TABLES = (43, 45, 51, 53)
HELPERS = {"ftp": 21, "tftp": 69}
LABELS = {
    "NEW/orig": "N>",
    "ESTABLISHED/orig": "E>",
    "ESTABLISHED/reply": "E<",
    "RELATED/orig": "R>",
    "RELATED/reply": "R<",
    "INVALID": "I",
    "UNTRACKED": "U",
    "(nothing came out)": ".",
}
PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}
LINE = re.compile(r"(\w+) (?:([A-Z_0-9]+) )?t=(\d+)(?: \[(\w+)\])?")
WRONG = {
    # case, step: label and state that are right
    (13, 6): ("I", "ESTABLISHED"),
    (13, 7): ("E<", "ESTABLISHED"),
    (13, 8): ("E>", "ESTABLISHED"),
}


def table_of(world):
    """Return a tuple per connection: protocol, TCP state, seconds to live, status."""
    rows = []
    for connection in world.table.values():
        seen = world.seen("", connection, tracker.Reason.NONE)
        protocol = PROTOCOLS[int(connection.entry["key"][4]) >> 8 & 0xFF]
        status = "ASSURED" if seen.assured else "UNREPLIED" if seen.unreplied else None
        rows.append((protocol, seen.state if protocol in ("tcp", "sctp") else None, seen.timeout_s, status))
    return sorted(rows, key=str)


def expected_table(lines):
    """Return the same of the lines of a kernel's table."""
    matches = [LINE.fullmatch(line) for line in lines]
    return sorted(((m[1], m[2], int(m[3]), m[4]) for m in matches if m is not None), key=str)


def same(seen, expected):
    """Whether two tables are alike; measured seconds may lag."""
    seen, expected = (sorted(rows, key=lambda row: str((row[:2], row[3:], row[2]))) for rows in (seen, expected))
    return len(seen) == len(expected) and all(
        one[:2] == other[:2] and one[3] == other[3] and 0 <= one[2] - other[2] <= 2
        for one, other in zip(seen, expected, strict=True)
    )


@pytest.mark.parametrize("number", OF_TRACKING)
def test_case(number):
    world = tracker.Tracker()
    for i, step in enumerate(CASES[number]["result"]):
        if "hex" not in step:
            if wait := re.match(r"wait ([\d.]+) s", step["do"]):
                world.now_ms += round(1000 * float(wait[1]))
            else:
                assert step["do"].startswith("conntrack -F"), step["do"]
                world.table.clear()
            continue
        label = world.track(parsed_of(bytes.fromhex(step["hex"]))).label.rstrip("a")
        if (number, i) in WRONG:
            right, state = WRONG[number, i]
            assert (label, [row[1] for row in table_of(world)]) == (right, [state]), step["do"]
            continue
        assert label == LABELS[step["label"]], step["do"]
        assert same(table_of(world), expected_table(step["table"])), (step["do"], table_of(world), step["table"])


@pytest.mark.parametrize("number", OF_TABLES)
def test_case_of_tables(number):
    """What a lone tracker has not: fragments, of which the last to come tells; helpers, with the ports of the case."""
    world = scripts.World(4)
    for i, step in enumerate(CASES[number]["result"]):
        if "hex" not in step:
            if step["do"] == "nft -f helpers.nft":
                for name, port in HELPERS.items():
                    world.help(name, port)
            else:
                assert step["do"].startswith("nft delete table"), step["do"]
            continue
        verdict = world.track(bytes.fromhex(step["hex"]))
        label = labels.label(int(verdict["ct_state"]), int(verdict["direction"]), int(verdict["flags"])).rstrip("a")
        if (number, i) in WRONG:
            assert label == WRONG[number, i][0]
        else:
            assert label == LABELS[step["label"].partition(" + ")[0]], step["do"]
        rows = [
            (
                one["proto"],
                one.get("state"),
                one["timeout"],
                "ASSURED" if "assured" in one["status"] else None if "seen_reply" in one["status"] else "UNREPLIED",
            )
            for one in world.connections()
        ]
        assert same(rows, expected_table(step["table"])), (step["do"], rows, step["table"])
    world.close()


# ---------------------------------------------------------------------------------------------------- translation


def rows_of(table, now_ms):
    """Return what is alive, as rows of a kernel's table."""
    return [
        (
            one["proto"],
            one.get("state"),
            one["timeout"],
            "ASSURED" if "assured" in one["status"] else None if "seen_reply" in one["status"] else "UNREPLIED",
        )
        for one in connections.listed(table, now_ms)
    ]


def translated(world, step, action):
    """Send the packet of a step through a gateway; returns what goes on, if label and table are the kernel's."""
    went = world.send(IP(bytes.fromhex(step["hex"])), action, flags=FrameFlag.FRESH)
    label = labels.label(went.ct_state | CtState.TRK, went.direction, 0)
    assert label == LABELS[step["label"]] and went.reason == tracker.Reason.NONE, step["do"]
    assert same(rows_of(world.table, world.now_ms), expected_table(step["table"])), step["do"]
    return went


@pytest.mark.parametrize(
    "asked",
    [
        {"proto": "udp", "dst": "198.51.100.1", "dport": 8125},
        {"reply_src": "198.51.100.2"},
        {"reply_src": "198.51.100.0/24"},
    ],
)
def test_case_33_what_is_translated_to_one_who_is_gone_can_be_deleted(asked):
    world = gateway.Gateway(helpers=False)
    here = tables.Participant(world.table)
    action, went = None, []
    for step in CASES[33]["result"]:
        if to := re.search(r"dnat to ([\d.]+)", step["do"]):
            action = gateway.rule(Nat.DESTINATION, to[1])
        elif step["do"].startswith("conntrack -D"):
            cursor = np.zeros(1, "u8")
            wanted = filters.read("filter", asked).record
            at = np.uint64(cursor.ctypes.data)
            assert walk.delete(here.views, wanted, np.uint64(world.now_ms), np.uint64(1 << 20), at) == 1
            assert rows_of(world.table, world.now_ms) == []
        elif "hex" in step:
            went.append(translated(world, step, action).packet.dst)
    assert went == ["198.51.100.2", "198.51.100.2", "198.51.100.3"]
    [shown] = connections.listed(world.table, world.now_ms)
    assert (shown["orig"]["dst"], shown["reply"]["src"]) == ("198.51.100.1", "198.51.100.3")
    here.run()
    world.settle()


def test_case_41_pings_with_one_identifier_come_back_to_who_has_sent_them():
    world = gateway.Gateway(helpers=False)
    action = gateway.rule(Nat.SOURCE, "203.0.113.9")
    sent = []
    for step in CASES[41]["result"]:
        if "hex" in step:
            went = translated(world, step, action)
            assert went.packet.src == "203.0.113.9"
            sent.append((IP(bytes.fromhex(step["hex"])).src, went.packet[ICMP].id))
    hosts, identifiers = zip(*sent, strict=True)
    assert hosts == ("192.0.2.1", "192.0.2.2", "192.0.2.3") and len(set(identifiers)) == 3
    for host, identifier in sent[::-1]:
        answer = IP(src="198.51.100.1", dst="203.0.113.9") / ICMP(type=0, id=identifier, seq=1) / b"eeeeeeee"
        went = world.send(answer)
        assert (went.packet.dst, went.packet[ICMP].id) == (host, 500) and went.ct_state & CtState.EST
    world.settle()


def test_case_55_a_service_by_its_name_and_by_its_own_address():
    world = gateway.Gateway(helpers=False)
    to_server = gateway.rule(Nat.DESTINATION, "198.51.100.1")
    went = []
    for step in CASES[55]["result"]:
        if "hex" in step:
            action = to_server if IP(bytes.fromhex(step["hex"])).dst == "198.51.100.100" else gateway.TRANSLATE
            went.append(translated(world, step, action))
    assert [one.packet.dst for one in went] == ["198.51.100.1"] * 2 and went[0].record != went[1].record
    ports = [one.packet[TCP].sport for one in went]
    assert ports[0] == 10000 and ports[1] != 10000
    for port, seq, source in ((ports[0], 1001, "198.51.100.100"), (ports[1], 9001, "198.51.100.1")):
        answer = TCP(sport=80, dport=port, flags="SA", seq=5, ack=seq, window=8192)
        back = world.send(IP(src="198.51.100.1", dst="192.0.2.1") / answer, flags=FrameFlag.FRESH)
        assert (back.packet.src, back.packet[TCP].dport) == (source, 10000) and back.ct_state & CtState.EST
    world.settle()


def ovs_table_of(world):
    """Return a tuple per connection: protocol, opener's port, both states, seconds to live."""
    rows = []
    for connection in world.table.values():
        seen = world.seen("", connection, tracker.Reason.NONE)
        key = [int(word) for word in connection.entry["key"]]
        protocol = PROTOCOLS[key[4] >> 8 & 0xFF]
        port = key[4] >> 32 & 0xFFFF if connection.has(Status.ORIG_IS_HIGH) else key[4] >> 48
        rows.append((protocol, port, seen.state if protocol == "tcp" else None, seen.timeout_s))
    return sorted(rows, key=str)


def expected_ovs_table(table):
    """Return the same of the rows of dump-conntrack."""
    rows = []
    for row in table:
        states = f"{row['state_orig']}/{row['state_reply']}" if "state_orig" in row else None
        port = row["orig"]["id"] if "id" in row["orig"] else row["orig"]["sport"]
        rows.append((row["proto"], port, states, row["timeout"]))
    return sorted(rows, key=str)


@pytest.mark.parametrize("number", OF_TRACKING)
def test_case_as_open_vswitch(number):
    world = tracker.Tracker(settings=SETTINGS_WORD_DEFAULT | Setting.OVS)
    packets = CASES[number]["result"]
    assert [step["do"] for step in packets] == [step["do"] for step in OVS_CASES[number]]
    for theirs, step in zip(OVS_CASES[number], packets, strict=True):
        if "hex" not in step:
            if wait := re.match(r"wait ([\d.]+) s", step["do"]):
                world.now_ms += round(1000 * float(wait[1]))
            else:
                world.table.clear()
            continue
        parsed = parsed_of(bytes.fromhex(step["hex"]), ovs=True)
        assert tracker.OVS_LABELS[world.track(parsed).label] == theirs["ct_state"], step["do"]
        rows, expected = ovs_table_of(world), expected_ovs_table(theirs["table"])
        assert [row[:3] for row in rows] == [row[:3] for row in expected], step["do"]
        assert all(-1 <= one[3] - other[3] <= 1 for one, other in zip(rows, expected, strict=True)), step["do"]


# ---------------------------------------------------------------------------------------------------- told in words
def flow(number, family=4):
    """Return a UDP datagram of the flow of that number."""
    return wire.udp("c", (1_000 + number, 53), b"").packet(family)


def shake_hands(world, port):
    """Open a connection from a port; returns the labels."""
    ports = {"c": (port, 80), "s": (80, port)}
    steps = (("c", "S", 1_000, 0), ("s", "SA", 5_000, 1_001), ("c", "A", 1_001, 5_001))
    verdicts = [
        world.track(wire.tcp(side, ports[side], flags, seq, ack, 9_000, "", b"").packet(4))
        for side, flags, seq, ack in steps
    ]
    return [labels.label(*(int(one[name]) for name in ("ct_state", "direction", "flags"))) for one in verdicts]


def test_case_57_a_flush_leaves_nothing_of_its_zone():
    world = scripts.World(4)
    for number in range(50):
        world.track(flow(number, 4 if number % 2 else 6))
    assert len(world.connections()) == 50
    tables.Participant(world.bench.table).flush(0)
    assert world.connections() == [] and world.bench.count() == 0
    world.close()


def test_case_59_a_flood_drives_out_itself_and_no_connection_in_use():
    world = scripts.World(4)
    tables.set_limit(world.bench.table, 0, 20)
    for port in range(10):
        assert shake_hands(world, 1_000 + port) == ["N>", "E<", "E>a"]
    for port in range(60):
        world.track(wire.tcp("c", (5_000 + port, 80), "S", 1, 0, 9_000, "", b"").packet(4))
    assured = [one for one in world.connections() if "assured" in one["status"]]
    assert len(assured) == 10 and len(world.connections()) <= 20
    assert world.bench.counter(tracker.Reason.EVICTED) > 0
    for port in range(10):
        assert shake_hands(world, 2_000 + port) == ["N>", "E<", "E>a"]
    refused = world.bench.counter(tracker.Reason.ZONE_FULL)
    verdict = world.track(wire.tcp("c", (9_000, 80), "S", 1, 0, 9_000, "", b"").packet(4))
    assert int(verdict["reason"]) == tracker.Reason.ZONE_FULL and not verdict["incarnation"]
    assert world.bench.counter(tracker.Reason.ZONE_FULL) == refused + 1
    assert all("assured" in one["status"] for one in world.connections()) and len(world.connections()) == 20
    world.close()


def test_case_63_families_are_apart(monkeypatch):
    """Addresses of either family that are the same number are not the same address."""
    monkeypatch.setitem(wire.HOSTS, "c", {4: "192.0.2.1", 6: "::192.0.2.1"})
    monkeypatch.setitem(wire.HOSTS, "s", {4: "198.51.100.1", 6: "::198.51.100.1"})
    world = scripts.World(4)
    for family in (4, 6):
        assert world.track(flow(1, family))["ct_state"] == CtState.TRK | CtState.NEW
    assert len(world.connections()) == 2
    world.close()


def test_no_case_is_forgotten():
    of_translation, in_words = {33, 41, 55}, {57, 59, 63}
    assert set(CASES) == set(OF_TRACKING) | set(OF_TABLES) | of_translation | in_words
