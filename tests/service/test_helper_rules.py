"""Rules of helpers: what is written is what kernels find, and what cannot be is refused before anything is written."""

import pytest
import tables
from zonetrack.clients.errors import BadParameterError
from zonetrack.kernels import helpers
from zonetrack.kernels.words import u64
from zonetrack.service import helper_rules
from zonetrack.service.helper_rules import HelperRules
from zonetrack.shm.layout import HELPER_RULES_MAX, Helper, Setting


@pytest.fixture
def table():
    return tables.small()


def found(table, zone, protocol, port):
    """Return the helper that a kernel finds."""
    return Helper(int(helpers.rule_for(table.views(0), u64(zone), u64(protocol), u64(port))))


def has_setting(table, zone):
    return bool(tables.zones(table)["settings"][zone] & Setting.HELPERS)


def test_a_rule_is_for_one_zone_and_port_and_for_its_protocol(table):
    HelperRules(table).set(3, {"ftp": [21, 2121], "tftp": [69]})
    assert found(table, 3, 6, 21) is found(table, 3, 6, 2121) is Helper.FTP
    assert found(table, 3, 17, 69) is Helper.TFTP
    for other in ((3, 17, 21), (3, 6, 69), (4, 6, 21), (3, 6, 22)):
        assert found(table, *other) is Helper.NONE
    assert has_setting(table, 3) and not has_setting(table, 4)


def test_what_is_set_replaces_what_was_of_that_helper_alone(table):
    rules = HelperRules(table)
    rules.set(0, {"ftp": [21, 22], "sip": [5060]})
    rules.set(1, {"irc": [6667]})
    rules.set(0, {"ftp": [23]})
    assert rules.of(0) == {"ftp": [23], "sip": [5060]} and rules.zones() == [0, 1]
    rules.set(0, {"ftp": [], "sip": []})
    assert rules.of(0) == {} and rules.zones() == [1]
    assert not has_setting(table, 0) and has_setting(table, 1) and found(table, 1, 6, 6667) is Helper.IRC


def test_there_is_room_for_so_many_and_then_nothing_is_written(table):
    rules = HelperRules(table)
    rules.set(0, {"ftp": range(1, HELPER_RULES_MAX + 1)})
    with pytest.raises(BadParameterError, match="at most 256"):
        rules.set(1, {"ftp": [1]})
    assert rules.zones() == [0] and found(table, 0, 6, HELPER_RULES_MAX) is Helper.FTP
    rules.set(0, {"ftp": [5]})
    rules.set(1, {"ftp": [1]})
    assert found(table, 1, 6, 1) is Helper.FTP


def test_two_helpers_do_not_share_a_port(table):
    with pytest.raises(BadParameterError, match="two of them"):
        HelperRules(table).set(0, {"ftp": [21], "irc": [21]})
    assert HelperRules(table).of(0) == {}
    HelperRules(table).set(0, {"ftp": [69], "tftp": [69]})  # of different protocols


@pytest.mark.parametrize("text", ["ftp", "ftp=", "ftp=0", "ftp=65536", "ftp=-1", "gopher=70", "=21"])
def test_what_is_no_name_and_port_is_refused(text):
    with pytest.raises(BadParameterError):
        helper_rules.named_port(text)


def test_name_and_port():
    assert helper_rules.named_port("tftp=6969") == ("tftp", 6969)


def test_ports_of_a_helper_are_read():
    assert [helper_rules.ports("ftp", value) for value in (21, [21, 2121], [], 0)] == [[21], [21, 2121], [], []]
    for value in ("21", [0], True, False, None, 65536, {}):
        with pytest.raises(BadParameterError, match="ftp: a port"):
            helper_rules.ports("ftp", value)


def test_each_helper_has_a_name_and_a_protocol():
    assert set(helper_rules.NAMES.values()) == set(Helper) - {Helper.NONE}
