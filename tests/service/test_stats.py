"""Figures are sums over all who count, in plain values that the wire can carry."""

import foretelling
import msgpack
import pytest
import tables
from bursts import Bench, tcp
from tables import Participant
from zonetrack.service.limits import Quotas
from zonetrack.service.policies import Policies
from zonetrack.service.stats import OF_PACKETS, ZONES_SHOWN, Fate, Stats
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import ZONE_REASON, ZONE_REASONS_MAX, Region
from zonetrack.shm.reasons import Reason


@pytest.fixture
def table():
    return tables.small(2000, zones=400)


@pytest.fixture
def stats(table):
    return Stats(table)


def test_counters_of_all_are_added_up_by_name(table, stats):
    me, other = Participant(table), Participant(table)
    me.made(tables.keys(5, zone=1))
    other.made(tables.keys(7, zone=2))
    other.remove(tables.keys(2, zone=2))
    counters = stats.counters()
    assert set(counters) == {reason.name.lower() for reason in Reason} - {"none"}
    assert (counters["insert"], counters["remove"]) == (12, 2)
    assert (stats.of_place(me.me)["insert"], stats.of_place(other.me)["insert"]) == (5, 7)


def test_counts_and_totals(table, stats):
    Participant(table).made(tables.keys(5, zone=1))
    assert (stats.count(), stats.count(1), stats.count(2)) == (5, 5, 0)
    totals = stats.totals()
    assert (totals["connections"], totals["limit"], totals["capacity"], totals["zones_in_use"]) == (5, 2000, 2000, 1)
    assert totals["table_bytes"] == table.geometry.total_bytes and totals["expectations"] == 0
    one = Participant(table)
    foretelling.add(one, foretelling.parent_of(one, tables.keys(1)))
    assert stats.totals()["expectations"] == 1


def test_zones_that_are_in_use_or_set_are_shown(table, stats):
    Participant(table).made(tables.keys(5, zone=1))
    Quotas(table).set_zone(2, 10)
    Quotas(table).set_default(99)
    Policies(table).set_zone(3, 7)
    ZoneSettings(table).set(3, {"loose": False, "profile": "ovs", "max_retrans": 5})
    ZoneSettings(table).set(4, {"loose": True})
    settings = ZoneSettings(table).of(0)
    common = {"policy": 0, "policy_name": "default", "settings": settings, "settings_are_own": False, "reasons": {}}
    assert stats.zones() == [
        {"zone": 1, "count": 5, "limit": 99, "limit_is_own": False} | common,
        {"zone": 2, "count": 0, "limit": 10, "limit_is_own": True} | common,
        {"zone": 3, "count": 0, "limit": 99, "limit_is_own": False}
        | {"policy": 7, "policy_name": None, "settings_are_own": True, "reasons": {}}
        | {"settings": settings | {"loose": False, "profile": "ovs", "max_retrans": 5, "on_full": "reject"}},
        {"zone": 4, "count": 0, "limit": 99, "limit_is_own": False} | common | {"settings_are_own": True},
    ]


def test_the_busiest_zones_come_first_and_are_not_too_many(table, stats):
    me = Participant(table)
    for zone in range(300):
        me.made(tables.keys(1 + (zone == 77) + 2 * (zone == 33), zone=zone))
    busiest = stats.busiest()
    assert len(busiest) == ZONES_SHOWN
    assert busiest[:2] == [{"zone": 33, "count": 3}, {"zone": 77, "count": 2}]


def test_all_of_it_can_be_packed(table, stats):
    me = Participant(table)
    me.made(tables.keys(5, zone=1))
    everything = [stats.counters(), stats.of_place(me.me), stats.totals(), stats.busiest()]
    assert msgpack.unpackb(msgpack.packb([*everything, stats.zones()]))


def test_reasons_are_counted_by_place_and_by_zone(table, stats):
    first, second = Bench(table), Bench(table)
    first.track(tcp("FA", 1, 1), tcp("", 1), zone=5)
    second.track(tcp("FA", 1, 1), tcp("FA", 2, 1), zone=5)
    second.track(tcp("FA", 1, 1), zone=65535)
    assert stats.reasons_of_place(first.me) == {"invalid_tcp_flags": 1, "tcp_new_refused": 1}
    assert stats.reasons_of_place(second.me) == {"tcp_new_refused": 3}
    assert stats.reasons_of_zone(5) == {"invalid_tcp_flags": 1, "tcp_new_refused": 3}
    assert (stats.reasons_of_zone(65535), stats.reasons_of_zone(6)) == ({"tcp_new_refused": 1}, {})
    assert stats.reasons_without_zone() == 0
    table.array(Region.CONTROL, "zone_reasons", ZONE_REASON)[ZONE_REASONS_MAX - 1] = (0, 0, 7)
    assert stats.totals()["reasons_without_zone"] == 7


@pytest.mark.parametrize(
    ("reason", "fate"),
    [
        (Reason.FULL, Fate.REFUSED),
        (Reason.NAT_EXHAUSTED, Fate.REFUSED),
        (Reason.TCP_STATE, Fate.INVALID),
        (Reason.HELPER_REFUSED, Fate.INVALID),
        (Reason.NOT_TRACKED, Fate.LET_BY),
    ],
)
def test_what_a_reason_says(reason, fate):
    assert Fate.of(reason) is fate and reason in fate.reasons
    assert sorted(one for fate in Fate for one in fate.reasons) == sorted(OF_PACKETS)


def test_reasons_by_what_they_say(table, stats):
    Bench(table).track(tcp("FA", 1, 1), tcp("", 1), zone=5)
    assert stats.reasons() == {
        "invalid": {"invalid_tcp_flags": 1, "tcp_new_refused": 1}, "refused": {}, "let_by": {},
    }  # fmt: skip


def test_every_reason_of_a_packet_is_one_of_them():
    assert {"zone_full", "tcp_state", "noip", "busy"} <= {reason.name.lower() for reason in OF_PACKETS}
    assert Reason.NONE not in OF_PACKETS and Reason.INSERT not in OF_PACKETS
