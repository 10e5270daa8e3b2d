"""Every kind of value is read from a file's types and from text, and what is wrong with it is said."""

import pytest
from zonetrack.service import config_values
from zonetrack.service.ports.specs import PortSpec
from zonetrack.shm.layout import UNLIMITED


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (config_values.number(1, 128), 2, 2),
        (config_values.number(1, 1_000_000), " 131_072 ", 131_072),
        (config_values.switch, True, True),
        (config_values.switch, "Off", False),
        (config_values.text, "x", "x"),
        (config_values.choice("a", "b"), "b", "b"),
        (config_values.name, "lab-1", "lab-1"),
        (config_values.limit, 0, 0),
        (config_values.limit, "none", UNLIMITED),
        (config_values.zone_limits, {"5": 1000, "7": "none"}, {5: 1000, 7: UNLIMITED}),
        (config_values.zone_limits, "5=1000 7=none", {5: 1000, 7: UNLIMITED}),
        (config_values.ports, [], ()),
        (config_values.ports, "shm:a shm:b,zone=7", (PortSpec("shm", "a"), PortSpec("shm", "b", 1, 7))),
    ],
)
def test_values(read, value, expected):
    assert read(value) == expected


@pytest.mark.parametrize(
    ("read", "value", "words"),
    [
        (config_values.number(1, 128), 0, "from 1 to 128, found 0"),
        (config_values.number(1, 128), True, "found True"),
        (config_values.number(1, 128), "-1", "found '-1'"),
        (config_values.number(1, 128), 1.5, "found 1.5"),
        (config_values.switch, 1, "true or false, found 1"),
        (config_values.text, "", "expected a text"),
        (config_values.choice("a", "b"), "c", "one of a, b, found 'c'"),
        (config_values.name, "a.b", "found 'a.b'"),
        (config_values.limit, -1, "or 'none', found -1"),
        (config_values.zone_limits, {"65536": 1}, "from 0 to 65,535"),
        (config_values.zone_limits, "5", "or 'none', found ''"),
        (config_values.zone_limits, [5], "a table of limits"),
        (config_values.ports, 7, "a list of ports"),
        (config_values.ports, [7], "found 7"),
        (config_values.ports, "shm:a shm:a", "two ports are called 'a'"),
        (config_values.ports, "shm:a,queues=1000 shm:b,queues=25", "at most 1,024 queues in all, found 1,025"),
    ],
)
def test_what_is_wrong_is_said(read, value, words):
    with pytest.raises(ValueError) as raised:
        read(value)
    assert words in str(raised.value)
