"""A configuration is written into a table, and what it does not name is left alone."""

import pytest
from zonetrack.clients.errors import BadParameterError, NothingMatchedError
from zonetrack.service import settings
from zonetrack.service.config import Config, Limits, Tracking
from zonetrack.service.policies import Policies
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm import segment
from zonetrack.shm.layout import GLOBAL, QUOTA, SETTINGS_DEFAULT, UNLIMITED, ZONE, Region, Setting
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def table():
    return segment.anonymous(Geometry(100, zones_in_use=2, extension_share=0))


def test_defaults_change_nothing(table):
    before = bytes(table.regions[Region.CONTROL])
    settings.apply(table, Config())
    assert bytes(table.regions[Region.CONTROL]) == before


def test_limits_that_are_named(table):
    settings.apply(table, Config(limits=Limits(global_=50, default=9, zones={5: 7, 6: UNLIMITED})))
    totals = table.array(Region.CONTROL, "globals", GLOBAL)[0]
    quotas = table.array(Region.CONTROL, "quotas", QUOTA)
    assert (totals["limit"], totals["zone_limit_default"]) == (50, 9)
    assert [(quotas[zone]["has_limit"], quotas[zone]["limit"]) for zone in (4, 5, 6)] == [
        (0, UNLIMITED),
        (1, 7),
        (1, UNLIMITED),
    ]
    settings.apply(table, Config(limits=Limits(default=UNLIMITED)))
    assert (totals["limit"], totals["zone_limit_default"], quotas[5]["limit"]) == (50, UNLIMITED, 7)


def test_no_limit_is_more_than_the_table_was_made_for(table):
    settings.apply(table, Config(limits=Limits(global_=UNLIMITED)))
    assert table.array(Region.CONTROL, "globals", GLOBAL)["limit"][0] == 100
    with pytest.raises(BadParameterError, match="made for 100 connections"):
        settings.apply(table, Config(limits=Limits(global_=101)))


def test_every_zone_is_judged_alike(table):
    zones = table.array(Region.CONTROL, "zones", ZONE)
    zones["settings"][3] |= Setting.NO_EXPIRY
    settings.apply(table, Config(tracking=Tracking(loose=False, be_liberal=True, checksum=False)))
    judged = SETTINGS_DEFAULT & ~Setting.LOOSE & ~Setting.CHECKSUM | Setting.BE_LIBERAL
    assert zones["settings"][0] == zones["settings"][65535] == judged
    assert zones["settings"][3] == judged | Setting.NO_EXPIRY
    settings.apply(table, Config(tracking=Tracking(profile="ovs")))
    assert not zones["settings"][0] & Setting.EARLY_DROP
    settings.apply(table, Config(tracking=Tracking(profile="ovs", on_full="early_drop")))
    assert zones["settings"][0] & Setting.EARLY_DROP
    settings.apply(table, Config())
    assert zones["settings"][0] == SETTINGS_DEFAULT


def test_zones_and_timeouts_that_are_named(table):
    zones = {5: {"profile": "ovs", "loose": False, "policy": "web"}, 6: {"policy": 7}}
    settings.apply(table, Config(timeouts={"web": {"udp_first": 9.5}, 7: {"tcp_close": 3}}, zones=zones))
    policies, words = Policies(table), ZoneSettings(table)
    web = policies.find("web")
    assert policies.get(web)["policies"][0]["timeouts"]["udp_first"] == 9.5
    assert policies.get(7)["policies"][0]["timeouts"]["tcp_close"] == 3
    assert table.array(Region.CONTROL, "zones", ZONE)["policy"][5:7].tolist() == [web, 7]
    assert (words.of(5)["profile"], words.of(5)["loose"], words.is_own(6)) == ("ovs", False, False)
    settings.apply(table, Config(tracking=Tracking(be_liberal=True)))
    assert words.of(5)["profile"] == "ovs" and not words.of(5)["be_liberal"] and words.of(6)["be_liberal"]


def test_a_policy_that_there_is_not_is_named(table):
    with pytest.raises(NothingMatchedError, match="no timeout policy 'wbe'; did you mean web"):
        settings.apply(table, Config(timeouts={"web": {"udp": 9}}, zones={4: {"loose": False, "policy": "wbe"}}))
    assert not ZoneSettings(table).is_own(4)
