"""Zones are judged as all are, or on their own; each change is one word, and bits that are none of ours stay."""

import pytest
import tables
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import BadParameterError, UnknownParameterError
from zonetrack.kernels import zones
from zonetrack.kernels.words import u64
from zonetrack.service.zone_settings import ON_FULL_OF, READERS, ZoneSettings, changed, changes, shown
from zonetrack.shm.layout import POLICY_SHIFT, SETTINGS_WORD_DEFAULT, Setting

SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["netfilter", "ovs"]),
        "max_retrans": st.integers(0, 255),
        "on_full": st.sampled_from(["reject", "early_drop"]),
    }
    | {name: st.booleans() for name in READERS if name not in ("profile", "max_retrans", "on_full")},
)


@pytest.fixture
def table():
    return tables.small()


@pytest.fixture
def settings(table):
    return ZoneSettings(table)


def test_a_new_table_has_the_defaults_of_both_profiles(settings):
    assert settings.of(7) == {
        "profile": "netfilter",
        "loose": True,
        "be_liberal": False,
        "ignore_invalid_rst": False,
        "seq_check": True,
        "checksum": True,
        "on_full": "early_drop",
        "max_retrans": 3,
    }
    assert not settings.own.any()


@given(SETTINGS, st.integers(0, 255))
def test_what_is_changed_is_what_is_shown(wanted, policy):
    word = changed(SETTINGS_WORD_DEFAULT | Setting.NO_EXPIRY | policy << POLICY_SHIFT, wanted)
    own = {"on_full": ON_FULL_OF[wanted["profile"]]} if "profile" in wanted else {}
    assert shown(word) == shown(SETTINGS_WORD_DEFAULT) | own | wanted
    assert word & Setting.NO_EXPIRY and word >> POLICY_SHIFT == policy


def test_a_zone_on_its_own_is_left_alone(table, settings):
    tables.zones(table)["policy"][5:7] = 9
    settings.set(5, {"loose": False, "max_retrans": 9})
    settings.set_all({"be_liberal": True, "profile": "ovs"})
    assert settings.of(5) == settings.of(0) | {
        "loose": False,
        "max_retrans": 9,
        "be_liberal": False,
        "profile": "netfilter",
        "on_full": "early_drop",
    }
    assert settings.of(6)["be_liberal"] and settings.of(6)["profile"] == "ovs"
    assert settings.own.nonzero()[0].tolist() == [5]
    assert settings.unset(5) and not settings.unset(5)
    assert settings.of(5) == settings.of(6)
    assert tables.zones(table)["policy"][5:7].tolist() == [9, 9]


def test_a_profile_brings_what_its_system_does_over_a_limit(settings):
    settings.set(3, {"profile": "ovs"})
    settings.set(4, {"profile": "ovs", "on_full": "early_drop"})
    assert [settings.of(zone)["on_full"] for zone in (3, 4)] == ["reject", "early_drop"]
    settings.set(3, {"loose": False})
    settings.set(4, {"profile": "netfilter", "on_full": "reject"})
    assert [settings.of(zone)["on_full"] for zone in (3, 4)] == ["reject", "reject"]
    settings.set(4, {"profile": "netfilter"})
    assert settings.of(4)["on_full"] == "early_drop"
    settings.set_all({"profile": "ovs", "on_full": None})
    assert settings.of(5)["on_full"] == "reject"


def test_packets_read_what_was_set(table, settings):
    settings.set(3, {"seq_check": False, "max_retrans": 200, "profile": "ovs"})
    word = int(zones.settings_of(tables.Participant(table).views, u64(3)))
    assert word & Setting.OVS and not word & Setting.SEQ_CHECK and word >> 16 & 0xFF == 200


def test_what_came_over_the_wire():
    assert changes("settings", {"profile": "ovs", "loose": False}) == {"profile": "ovs", "loose": False}
    with pytest.raises(UnknownParameterError, match="did you mean seq_check"):
        changes("settings", {"seq_chek": True})
    for value in (
        None,
        {},
        [],
        {"loose": 1},
        {"max_retrans": 256},
        {"max_retrans": True},
        {"profile": "linux"},
        {"on_full": True},
        {"on_full": "drop"},
    ):
        with pytest.raises(BadParameterError):
            changes("settings", value)


# ------------------------------------------------------------------------------------------------ helpers
def test_ports_of_helpers_are_settings_of_a_zone(table, settings):
    settings.set(5, changes("settings", {"ftp": [21, 2121], "tftp": 69, "loose": False}))
    assert settings.of(5) == settings.of(6) | {"ftp": [21, 2121], "tftp": [69], "loose": False}
    settings.set(5, changes("settings", {"ftp": 0}))
    assert "ftp" not in settings.of(5) and settings.of(5)["tftp"] == [69]
    settings.set_all({"be_liberal": True})
    assert tables.zones(table)["settings"][5] & Setting.HELPERS
    assert settings.unset(5) and settings.of(5) == settings.of(6)
    assert not tables.zones(table)["settings"][5] & Setting.HELPERS


def test_ports_that_cannot_be_change_nothing(settings):
    with pytest.raises(BadParameterError, match=r"settings\.ftp: a port"):
        changes("settings", {"ftp": 70_000})
    with pytest.raises(BadParameterError, match="two of them"):
        settings.set(5, {"ftp": [21], "irc": [21], "loose": False})
    assert settings.of(5) == settings.of(6) and not settings.is_own(5)
