"""What is left of ports: counted from the records, held against what rules may give."""

import numpy as np
import tables
from zonetrack.clients import nat_scenarios
from zonetrack.clients.trips import Leg, Stage, Traveller, travel
from zonetrack.kernels.words import u64
from zonetrack.service import bindings, rules_text
from zonetrack.service.rules import Names
from zonetrack.shm.layout import CtState, Nat

NEW = CtState.TRK | CtState.NEW
RULES = """
ip actions=ct(commit,zone=3,nat(src=203.0.113.1-203.0.113.2:2000-2099)),IN_PORT
priority=1,ipv6 actions=ct(commit,zone=4,nat(src=2001:db8::1)),IN_PORT
"""


def rules(text=RULES):
    return rules_text.read(text, Names({}))


def connect(table, count, first=0, zone=3, ports=(2000, 2099), addresses=1):
    """Make connections that get a source, the first address of the rules."""
    traveller = Traveller(1, 32)
    source = nat_scenarios.action(Nat.SOURCE, 0xCB007101, addresses, ports)
    traveller.aim(Leg.SYN, (Stage(zone, NEW | CtState.SNAT, True, True, source),), first, count)
    me = tables.Participant(table)
    while travel(me.views, traveller.address, u64(1000)):
        pass
    assert traveller.complaint() is None


def rows(table, text=RULES):
    """Return ports, connections, used and free by address and protocol."""
    found = bindings.left(table, rules(text))
    return {
        (row["address"], row["proto"]): (row["ports"], row["connections"], row["used"], row["free"]) for row in found
    }


def test_an_address_that_nobody_has_a_port_of_is_whole():
    found = rows(tables.small())
    assert found["203.0.113.1", "tcp"] == found["203.0.113.2", "udp"] == (100, 0, 0, 100)
    assert found["2001:db8::1", "tcp"] == (65535, 0, 0, 65535)


def test_ports_are_counted_and_those_of_no_rule_are_none_of_its():
    table = tables.small(extension_share=1000)
    connect(table, 30)
    connect(table, 3, 50, ports=(5000, 5002))
    assert rows(table)["203.0.113.1", "tcp"] == (100, 33, 33, 70)
    assert ("203.0.113.1", "udp") not in rows(table)
    assert rows(table)["203.0.113.2", "tcp"] == (100, 0, 0, 100)
    assert rows(table, "ip actions=drop") == {("203.0.113.1", "tcp"): (0, 33, 33, 0)}


def test_slices_add_up(monkeypatch):
    table = tables.small(extension_share=1000)
    connect(table, 60, addresses=2)
    whole = rows(table)
    monkeypatch.setattr(bindings, "SLICE_RECORDS", 7)
    assert rows(table) == whole
    assert sum(used for _, _, used, _ in whole.values()) == 60


def test_a_port_of_two_connections_is_one_port():
    table = tables.small(extension_share=1000)
    connect(table, 1, ports=(2000, 2000))
    entries = tables.entries(table)
    (record,) = np.flatnonzero(entries["life"] & 0xFF == 2)
    entries[record + 1] = entries[record]  # as if to another destination
    assert rows(table)["203.0.113.1", "tcp"] == (100, 2, 1, 99)
