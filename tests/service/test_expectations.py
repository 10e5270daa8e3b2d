"""Expectations as they are shown: with their parents, without what is stale, and of one zone where one is asked for."""

import foretelling
import pytest
import tables
from foretelling import NOW, Wanted, add
from zonetrack.service import expectations
from zonetrack.shm.layout import ExpectationFlag, Foretold, Setting


@pytest.fixture
def one():
    return tables.Participant(tables.small())


@pytest.fixture
def parent(one):
    return foretelling.parent_of(one, tables.keys(1, zone=3))


def test_all_that_is_known_of_one(one, parent):
    add(one, parent, Wanted(zone=3, source_port=20, expiry_ms=NOW + 9_999, kind=Foretold.AUDIO, mark=5, label=(1, 2)))
    assert expectations.listed(one.table, NOW) == [
        {
            "zone": 3,
            "proto": "tcp",
            "proto_num": 6,
            "src": "198.51.100.1",
            "dst": "192.0.2.1",
            "sport": 20,
            "dport": 5000,
            "timeout": 9,
            "helper": "ftp",
            "class": "audio",
            "parent": {"id": parent, "proto": "udp", "src": "0.0.0.1", "dst": "0.0.0.1", "sport": 0, "dport": 0},
            "mark": 5,
            "labels": hex(1 << 64 | 2),
        }
    ]


def test_any_source_and_no_end(one, parent):
    add(one, parent, Wanted(flags=ExpectationFlag.SOURCE_ANY | ExpectationFlag.PERMANENT, expiry_ms=2**64 - 1))
    (found,) = expectations.listed(one.table, NOW)
    assert (found["src"], found["sport"], found["timeout"], found["permanent"]) == (None, 0, None, True)
    assert "mark" not in found and "labels" not in found


def test_they_come_in_their_order_and_by_zone(one, parent):
    for port, zone in ((9, 1), (3, 2), (7, 1)):
        add(one, parent, Wanted(port=port, zone=zone))
    assert [found["dport"] for found in expectations.listed(one.table, NOW)] == [9, 3, 7]
    assert [found["dport"] for found in expectations.listed(one.table, NOW, zone=1)] == [9, 7]
    assert expectations.listed(one.table, NOW, zone=4) == []


def test_what_is_stale_is_not_shown(one, parent):
    add(one, parent, Wanted(port=1, expiry_ms=NOW + 5))
    assert len(expectations.listed(one.table, NOW + 4)) == 1
    assert expectations.listed(one.table, NOW + 5) == []
    tables.zones(one.table)["settings"][0] |= Setting.NO_EXPIRY
    assert len(expectations.listed(one.table, NOW + 5)) == 1
    one.remove(tables.keys(1, zone=3))
    assert expectations.listed(one.table, NOW) == []


def test_what_is_being_changed_is_copied_all_the_same(one, parent):
    add(one, parent)
    foretelling.header(one.table)["version"] += 1
    assert len(expectations.copied(one.table)) == 1
    foretelling.header(one.table)["version"] += 1
