"""Timeouts between two marks: the line that they follow, its hysteresis, and packets of zones that are set so or not."""

import pytest
import tables
from bursts import Bench, tcp, udp
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.kernels import adaptive, sweep, timeouts
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.service.zone_settings import ZoneSettings

ZONE, OTHER = 3, 4
UDP_MS = int(timeouts.DEFAULTS_MS[Timeout.UDP])
START, END, LOW = 100, 180, 80
FLOOR = int(adaptive.FLOOR_MS)


@pytest.fixture(scope="module")
def table():
    return tables.small(2000)


@pytest.fixture(scope="module")
def views(table):
    return tables.Participant(table).views


@pytest.fixture
def settings(table):
    made = ZoneSettings(table)
    made.set(ZONE, {"adaptive": [START, END]})
    return made


def shortened(table, views, count, length_ms=80_000):
    tables.quotas(table)["count"][ZONE] = count
    try:
        return int(adaptive.shorten(views, u64(ZONE), u64(length_ms)))
    finally:
        tables.quotas(table)["count"][ZONE] = 0


def test_the_line_between_the_marks(table, views, settings):
    expected = {0: 80_000, START: 80_000, START + 1: 63_200, 130: 40_000, 179: FLOOR, END: FLOOR, 500: FLOOR}
    assert {count: shortened(table, views, count) for count in expected} == expected


def test_it_goes_on_below_the_mark_where_it_began(table, views, settings):
    ups_and_downs = (LOW, START, START + 1, START, LOW, LOW - 1, START)
    assert [shortened(table, views, count) for count in ups_and_downs] == [
        *(80_000, 80_000, 63_200, 64_000, 80_000, 80_000, 80_000)
    ]


def test_what_was_short_anyway_stays(table, views, settings):
    assert [shortened(table, views, END, length_ms) for length_ms in (10, FLOOR, FLOOR + 1)] == [10, FLOOR, FLOOR]


def test_marks_that_are_being_changed_shorten_nothing(table, views, settings):
    tables.quotas(table)["adaptive_end"][ZONE] = 0
    assert shortened(table, views, 500) == 80_000


@given(st.integers(0, 1 << 20), st.integers(1, 1 << 20), st.integers(0, 1 << 22), st.integers(1, (1 << 32) - 1))
def test_never_longer_nor_below_the_floor(table, views, start, width, count, length_ms):
    quota = tables.quotas(table)[ZONE : ZONE + 1]
    quota["adaptive_start"], quota["adaptive_end"] = start, start + width
    found = shortened(table, views, count, length_ms)
    assert min(length_ms, FLOOR) <= found <= length_ms
    if count <= start - min(start, width // 4):
        assert found == length_ms


# ---------------------------------------------------------------------------------------------------- packets
@pytest.fixture
def bench():
    made = Bench(tables.small(2000))
    ZoneSettings(made.table).set(ZONE, {"adaptive": [10, 30]})
    yield made
    made.settle()


def left(bench, zone, packet, now_ms=1000):
    return int(bench.track(packet, zone=zone, now_ms=now_ms)[0]["timeout_ms"])


def test_connections_that_are_made_and_that_go_on_have_less_in_a_full_zone(bench):
    assert left(bench, ZONE, udp(1)) == UDP_MS
    bench.track(*(udp(port) for port in range(2, 21)), zone=ZONE)
    bench.track(*(udp(port) for port in range(1, 21)), zone=OTHER)
    assert (bench.count(ZONE), bench.count(OTHER)) == (20, 20)
    assert left(bench, ZONE, udp(1)) == UDP_MS * 10 // 25
    assert left(bench, OTHER, udp(1)) == UDP_MS
    assert left(bench, ZONE, udp(21)) < UDP_MS
    assert left(bench, OTHER, udp(21)) == UDP_MS


def test_a_reset_does_not_make_a_connection_live_longer(bench):
    bench.track(*(udp(port) for port in range(1, 20)), zone=ZONE)
    opened = (tcp("S", 100), tcp("SA", 500, 101, reply=True), tcp("A", 101, 501))
    bench.track(*opened, zone=ZONE)
    close_ms = int(timeouts.DEFAULTS_MS[Timeout.TCP_CLOSE])
    assert left(bench, ZONE, tcp("R", 101)) < close_ms


def test_a_flood_comes_to_rest_between_the_marks(bench):
    """Of connections of one packet a second, as many stand as come within their shortened time: 30 (30 - n) / 25 = n."""
    now_ms = 0
    for port in range(1, 120):
        now_ms += 1_000
        bench.track(udp(port), zone=ZONE, now_ms=now_ms)
        sweep.sweep(bench.views, u64(now_ms), u64(1 << 20))
    assert 15 <= bench.count(ZONE) <= 18 and UDP_MS == 30_000
