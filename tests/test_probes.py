"""What a live Open vSwitch 4.0.90 and a live Linux 6.18 said of single packets and short exchanges.

Their answers are tests/data/ovs-other-matrix.json and netfilter-other-matrix.json: ICMP and what errors quote, odd UDP, TCP,
SCTP and IP, every other protocol.  Fragments of datagrams have tests of their own, and so has TCP.
"""

import json
from pathlib import Path

import associations
import numpy as np
import probes
import pytest
import tracker
from parsing import parsed_of
from probes import CLIENT, CLIENT6, ICMP, ICMPV6, SERVER, SERVER6, icmp, ip
from zonetrack.clients.connections import Rows, describe
from zonetrack.clients.formats import OVS_PROTOCOLS
from zonetrack.service.connections import FIELDS, packed
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Life, Setting
from zonetrack.shm.reasons import Reason

DATA = Path(__file__).parent / "data"
OTHER = json.loads((DATA / "ovs-other-matrix.json").read_text())
LINUX = json.loads((DATA / "netfilter-other-matrix.json").read_text())
LINUX_LABELS = {"NEW/orig": "N>", "ESTABLISHED/reply": "E<", "INVALID": "I", "UNTRACKED": "U"}
SETTINGS = SETTINGS_WORD_DEFAULT | Setting.OVS
SHOWN = ("src", "dst", "sport", "dport", "id", "type", "code")
SCTP_STATES = {"CLOSED(after INIT)": "CLOSED"}


# ---------------------------------------------------------------------------------------------------- Open vSwitch
def table_of(world):
    """Return the connections as dump-conntrack shows them."""
    rows = []
    for connection in world.table.values():
        if connection.entry["expiry_ms"] <= world.now_ms:
            continue
        entry = connection.entry.copy()
        entry["life"] = 1 << 32 | Life.LIVE
        (row,) = Rows(FIELDS).read(packed(np.array([entry]), np.array([0]), world.now_ms, 0).tobytes())
        rows.append(shown(describe(row)))
    return sorted(rows, key=str)


def shown(connection):
    """Return what is compared of a connection: protocol, both tuples, both states, time to live."""
    proto = connection["proto"] if connection["proto"] in OVS_PROTOCOLS else str(connection["proto_num"])
    tuples = [{name: connection[way][name] for name in SHOWN if name in connection[way]} for way in ("orig", "reply")]
    if "type" not in tuples[0]:
        tuples = [{"sport": 0, "dport": 0} | one for one in tuples]
    states = [connection.get(name) for name in ("state_orig", "state_reply")]
    return proto, *(sorted(one.items()) for one in tuples), *states, connection["timeout"]


def same(ours, theirs):
    """Whether two tables are alike; the measured seconds may lag by one."""
    expected = sorted((shown(row | {"proto_num": row["proto"]}) for row in theirs), key=str)
    return len(ours) == len(expected) and all(
        one[:-1] == other[:-1] and 0 <= one[-1] - other[-1] <= 1 for one, other in zip(ours, expected, strict=True)
    )


@pytest.mark.parametrize("group", probes.GROUPS)
def test_as_live_open_vswitch(group):
    differences = []
    found = list(probes.GROUPS[group]())
    assert len(found) == len(OTHER[group])
    for steps, expected in zip(found, OTHER[group], strict=True):
        world = tracker.Tracker(settings=SETTINGS)
        assert len(steps) == len(expected)
        for step, their in zip(steps, expected, strict=True):
            if isinstance(step, float):
                world.now_ms += round(1000 * step)
                continue
            name, packet = step
            assert name == their["do"]
            seen = world.track(parsed_of(packet, ovs=True))
            label = tracker.OVS_LABELS.get(seen.label, seen.label)
            if seen.reason is Reason.FRAGMENT and their["ct_state"] == ".":
                label = "."  # the parser hands it on, to wait for the others
            if label != their["ct_state"] or not same(table_of(world), their["table"]):
                differences.append((name, label, seen.reason.name, their["ct_state"], table_of(world), their["table"]))
    assert differences == []


@pytest.mark.parametrize("state", sorted({probe["state"] for probe in OTHER["sctp"]}))
def test_sctp_has_no_states_here(state):
    """Every chunk with the right tag and a wrong one, from each side, where an association was brought into a state."""
    differences = []
    for probe in OTHER["sctp"]:
        if probe["state"] != state:
            continue
        world = tracker.Tracker(settings=SETTINGS)
        for step in associations.LED[SCTP_STATES.get(state, state)]:
            world.track(associations.packet(*step.split(), ovs=True))
        tag = None if probe["tag"] == "right tag" else 0xDEADBEEF
        side = "c" if probe["dir"] == "orig" else "s"
        seen = world.track(associations.packet(side, probe["chunk"], tag, ovs=True))
        if (tracker.OVS_LABELS[seen.label], seen.timeout_s) != (probe["ct_state"], probe["timeout"]):
            differences.append((probe, seen))
    assert differences == []


def test_no_group_is_forgotten():
    fragments = {"fragments"}
    assert set(OTHER) == {"ovs", *probes.GROUPS, "sctp"} | fragments
    assert len(OTHER["sctp"]) == 432


# ---------------------------------------------------------------------------------------------------- Linux
@pytest.mark.parametrize(("family", "ends", "protocol"), [(4, (CLIENT, SERVER), ICMP), (6, (CLIENT6, SERVER6), ICMPV6)])
def test_the_first_icmp_message_as_live_linux(family, ends, protocol):
    for kind, verdict, entries in LINUX[f"icmp{family}_first"]:
        world = tracker.Tracker()
        seen = world.track(parsed_of(ip(*ends, protocol, icmp(kind))))
        assert (seen.label, len(world.table)) == (LINUX_LABELS[verdict], len(entries)), kind


@pytest.mark.parametrize(("request_", "answer", "asked", "answered", "other"), LINUX["icmp4_pairs"])
def test_pairs_of_icmp_as_live_linux(request_, answer, asked, answered, other):
    world = tracker.Tracker()
    steps = (
        (CLIENT, SERVER, request_, 7, asked),
        (SERVER, CLIENT, answer, 7, answered),
        (SERVER, CLIENT, answer, 8, other),
    )
    for source, target, kind, identifier, verdict in steps:
        seen = world.track(parsed_of(ip(source, target, ICMP, icmp(kind, 0, identifier))))
        assert seen.label == LINUX_LABELS[verdict]


def test_every_other_protocol_as_live_linux():
    for protocol, verdict, entries in LINUX["ip_protos"]:
        world = tracker.Tracker()
        seen = world.track(parsed_of(ip(CLIENT, SERVER, protocol, bytes(24))))
        assert seen.label == LINUX_LABELS[verdict], protocol
        assert len(world.table) == len(entries), protocol
        assert all(0 <= seen.timeout_s - timeout_s <= 1 for _, timeout_s in entries), protocol
