"""What cannot be is refused, left out or set to what it is where nobody has set it; what can be stays as it is."""

import copy

import numpy as np
import pytest
from zonetrack.service import saved, saved_checks
from zonetrack.service.saved_checks import ImpossibleError, demand
from zonetrack.shm import descriptions
from zonetrack.shm.layout import (
    ENTRY,
    EXPECTATION,
    EXTENSION,
    POLICIES_MAX,
    RULE_HELPER_SHIFT,
    RULE_IN_USE,
    ExpectationFlag,
    Helper,
    Life,
    Setting,
    Status,
)

NOW_MS = 10_000
GOOD = {
    "version": 2,
    "format": 2,
    "now_ms": 5,
    "saved_s": 1.5,
    "geometry": [500, 8, 125],
    "rows": descriptions.rows(),
    "bits": descriptions.numbers(),
    "protocols": descriptions.protocols(),
}
TCP = 5 << 16 | 6 << 8 | 4
"""The last word of a key, without ports."""


def test_what_we_write_can_be():
    demand(GOOD, saved.ROWS)
    demand({name: value for name, value in GOOD.items() if name != "protocols"}, saved.ROWS)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("version", "2", "version is no int"),
        ("now_ms", -1, "now_ms is no moment"),
        ("now_ms", True, "now_ms is no int"),
        ("saved_s", float("nan"), "saved_s is no moment"),
        ("saved_s", 1 << 70, "saved_s is no moment"),
        ("geometry", [1, 2], "not three numbers"),
        ("geometry", [0, 8, 125], "connections must be"),
        ("rows", [], "rows is no dict"),
        ("rows", {"entries": 7}, "not a layout"),
        ("bits", {"Status": {"TORN": -1}}, "numbers of Status"),
        ("bits", {"Status": None}, "numbers of Status"),
        ("protocols", None, "protocols is no map"),
    ],
)
def test_what_a_description_cannot_say(name, value, says):
    with pytest.raises(ImpossibleError, match=says):
        demand(copy.deepcopy(GOOD) | {name: value}, saved.ROWS)


def test_what_is_no_description():
    with pytest.raises(ImpossibleError, match="it is no map"):
        demand([GOOD], saved.ROWS)


def pair(**fields):
    """Return a connection, and what it has more of; names of the latter begin with ``more_``."""
    entry, more = np.zeros(1, ENTRY), np.zeros(1, EXTENSION)
    entry["key"][0, 4], entry["life"], entry["expiry_ms"] = TCP, 7 << 32 | Life.LIVE, NOW_MS + 5
    for name, value in fields.items():
        if name.startswith("more_"):
            more[name.removeprefix("more_")][0] = value
        else:
            entry[name][0] = value
    return entry, more


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"status": Status.ASSURED | Status.TORN, "policy": 63},
        {"extension": 1, "status": Status.SOURCE_NAT, "more_reply_key": [0, 0, 0, 0, 80 << 48 | TCP]},
        {"extension": 1, "status": Status.HELPER, "more_helper": Helper.SIP, "more_helper_state": 9},
    ],
    ids=["plain", "assured", "translated", "helped"],
)
def test_connections_that_can_be_stay_as_they_are(fields):
    entry, more = pair(**fields)
    before = entry.copy(), more.copy()
    assert saved_checks.connections(entry, more, NOW_MS).all()
    assert (entry == before[0]).all() and (more == before[1]).all()


@pytest.mark.parametrize(
    "fields",
    [
        {"key": [0, 0, 0, 0, TCP ^ 1]},
        {"status": Status.DESTINATION_NAT},
        {"status": Status.HELPER},
        {"extension": 1, "more_reply_key": [0, 0, 0, 0, TCP ^ 1 << 16]},
    ],
    ids=["no family", "translated to nothing", "helped by nobody", "answered in another zone"],
)
def test_connections_that_cannot_be_are_left_out(fields):
    assert not saved_checks.connections(*pair(**fields), NOW_MS).any()


def test_what_of_a_connection_cannot_be_is_set():
    entry, more = pair(
        status=0xFFFF & ~(Status.HELPER | Status.SOURCE_NAT | Status.DESTINATION_NAT | Status.SEQUENCE_OFFSETS),
        policy=POLICIES_MAX,
        life=7 << 32 | Life.DEAD,
        expiry_ms=1 << 60,
        created_ms=1 << 60,
    )
    assert saved_checks.connections(entry, more, NOW_MS).all()
    assert not int(entry["status"][0]) & ~saved_checks.every_bit(Status)
    assert (entry["policy"][0], entry["life"][0]) == (0, 7 << 32 | Life.LIVE)
    assert (entry["expiry_ms"][0], entry["created_ms"][0]) == (NOW_MS + saved_checks.LIFETIME_MS_MAX, NOW_MS)


@pytest.mark.parametrize(
    ("helper", "state", "kept"),
    [
        (Helper.FTP, 1, False),
        (Helper.PPTP, 1, True),
        (Helper.PPTP, 0xFF, False),
        (Helper.SIP, 0xFF, True),
        (99, 1, True),
    ],
)
def test_what_helpers_remember(helper, state, kept):
    """Of FTP no line that has gone by; of PPTP no call in no state that there is; nobody acts on what is nobody's."""
    entry, more = pair(extension=1, status=Status.HELPER, more_helper=helper, more_helper_state=state)
    assert saved_checks.connections(entry, more, NOW_MS).all()
    assert more["helper_state"].any() == kept
    assert bool(entry["status"][0] & Status.HELPER) == (helper != 99) and more["helper"][0] == helper % 99


def test_expectations():
    rows = np.zeros(4, EXPECTATION)
    rows["last"], rows["flags"], rows["expiry_ms"] = TCP, 0xFFFFFFFF, 1 << 60
    rows["helper"][1], rows["kind"][2], rows["last"][3] = 99, 99, 0
    (left,) = saved_checks.expectations(rows, NOW_MS)
    assert left["flags"] == saved_checks.every_bit(ExpectationFlag)
    assert left["expiry_ms"] == NOW_MS + saved_checks.LIFETIME_MS_MAX


def test_settings():
    arrays = {name: np.zeros(3, dtype) for name, (dtype, _) in saved.SETTINGS.items()}
    arrays["zones"]["settings"], arrays["zones"]["policy"] = 0xFFFF, [5, 63, 64]
    arrays["quotas"]["adaptive_start"], arrays["quotas"]["adaptive_end"] = [5, 6, 7], [6, 6, 6]
    arrays["policies"]["name"][:, :3] = [list(b"abc"), list(b"a c"), [200, 1, 2]]
    rule = RULE_IN_USE | 21
    arrays["helper_rules"][:] = [rule | Helper.FTP << RULE_HELPER_SHIFT, rule | 99 << RULE_HELPER_SHIFT, 0]
    saved_checks.settings(arrays)
    assert (arrays["zones"]["settings"] == saved_checks.every_bit(Setting)).all()
    assert arrays["zones"]["policy"].tolist() == [5, 63, 0]
    assert arrays["quotas"]["adaptive_end"].tolist() == [6, 0, 0]
    assert [bytes(row).rstrip(b"\0") for row in arrays["policies"]["name"]] == [b"abc", b"", b""]
    assert (arrays["helper_rules"] != 0).tolist() == [True, False, False]
