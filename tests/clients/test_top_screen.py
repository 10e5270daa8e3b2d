"""The screen of top, driven by keys against a real service, and compared with screens that were looked at."""

import asyncio
import sys
import time

import numpy as np
import pytest
import screens
import tables
from bursts import Bench, tcp
from desk import key
from served import Service
from tables import LATER
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.top_screen import Top
from zonetrack.service.limits import Quotas
from zonetrack.shm.layout import Status

SELDOM_S = 3600.0
"""Then it looks once."""
PATIENCE_S = 120.0
FIVE, SEVEN = 5, 7


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    worker = {
        "number": 0,
        "pid": 0,
        "owner": 1,
        "state": "running",
        "restarts": 0,
        "packets": 0,
        "queues": [["lab", 0]],
    }
    table = tables.small(2000, zones=16)
    maker = tables.Participant(table)
    with Service(tmp_path_factory.mktemp("run") / "x.sock", table, workers=[worker]) as service:
        maker.made(np.stack([key(FIVE, 1000 + n) for n in range(30)]), expiry_ms=LATER)
        maker.made(np.stack([key(SEVEN, 1000 + n, 6) for n in range(12)]), expiry_ms=LATER)
        Quotas(table).set_zone(FIVE, 40)
        entries = tables.entries(table)
        entries["state"][entries["key"][:, 4] >> 8 & 0xFF == 6] = 3
        entries["status"][entries["key"][:, 4] >> 16 & 0xFFFF == SEVEN] = Status.SEEN_REPLY | Status.ASSURED
        Bench(table).track(tcp("FA", 1, 1), tcp("FA", 2, 1), zone=FIVE)
        yield service
        entries["state"] = entries["status"] = 0


def driven(service, drive, size=(80, 24), interval_s=SELDOM_S):
    """Run the application, and have it driven; returns it."""
    app = Top(service.path, None, interval_s)

    async def run():
        async with app.run_test(size=size) as pilot:
            await seen(pilot, "connections of")
            await drive(app, pilot)

    asyncio.run(run())
    return app


async def seen(pilot, text):
    """Wait until a text is on the screen; return its lines."""
    lines = await shown(pilot, lambda lines: any(text in line for line in lines))
    assert any(text in line for line in lines), f"{text!r} is not on the screen:\n" + "\n".join(lines)
    return lines


async def golden(pilot, name):
    """Wait until the screen is one that was looked at, as a slow one is in the end."""
    screens.is_golden(name, await shown(pilot, lambda lines: screens.steady(lines) == screens.text_of(name)))


async def shown(pilot, is_right):
    """Return the lines of the screen as soon as they are right, or what they are when they are not after so long."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        await pilot.pause()
        lines = screens.lines_of(pilot.app)
        if is_right(lines) or time.monotonic() > until_s:
            return lines


def test_each_table(service):
    async def drive(app, pilot):
        for number in range(1, 8):
            await pilot.press(str(number))
            await golden(pilot, f"table-{number}")

    driven(service, drive)


def test_the_way_down_from_a_zone_to_a_connection_and_back(service):
    async def drive(app, pilot):
        await seen(pilot, " 75.0%")
        await pilot.press("enter")
        await golden(pilot, "zone")
        await pilot.press("enter")
        await golden(pilot, "connection")
        assert screens.lines_of(app)[0].startswith(" connection ")
        await pilot.press("escape", "escape")
        await seen(pilot, " 1 Zones ")

    driven(service, drive)


WAYS_DOWN = (
    ("2", 0, "sources: 5 192.0.2.1, 30 connections"),
    ("3", 1, "targets: 7 198.51.100.1, 12 connections"),
    ("4", 1, "states: protocol tcp, 12 connections"),
    ("4", 2, "states: state of tcp ESTABLISHED, 12 connections"),
    ("7", 0, "the latest packets with tcp_new_refused"),
)


def test_ways_down_from_other_tables(service):
    async def drive(app, pilot):
        for table, down, title in WAYS_DOWN:
            await pilot.press(table)
            await pilot.pause()
            await pilot.press(*["up"] * 9, *["down"] * down, "enter")
            await seen(pilot, title)
            await pilot.press("escape")

    driven(service, drive)


def test_some_rows_lead_nowhere(service):
    async def drive(app, pilot):
        for table in ("5", "6"):
            await pilot.press(table, "enter")
            await pilot.pause()
            assert len(app.screen_stack) == 1

    driven(service, drive)


def test_sorting(service):
    def zones(lines):
        return [line.split()[0] for line in lines[7:9]]

    async def drive(app, pilot):
        assert zones(screens.lines_of(app)) == ["5", "7"]
        await pilot.press("r")
        await seen(pilot, "full▲")
        await pilot.press("r", "S", "S", "S")
        assert zones(await seen(pilot, "zone▼")) == ["7", "5"]
        await pilot.press("s")
        assert zones(await seen(pilot, "connections▼")) == ["5", "7"]
        await pilot.press("r")
        assert zones(await seen(pilot, "connections▲")) == ["7", "5"]

    driven(service, drive)


def test_filtering(service):
    async def drive(app, pilot):
        await pilot.press("4", "slash", *"tcp")
        lines = await seen(pilot, "/tcp")
        assert [line.split()[0] for line in lines[7:10] if line] == ["protocol", "state"]
        await pilot.press("enter", "enter")  # the first leaves the line, the second takes the row
        await seen(pilot, "states: protocol tcp, 12 connections")
        await pilot.press("escape", "escape")
        assert not any("/tcp" in line for line in await seen(pilot, "unreplied"))

    driven(service, drive)


def test_explanations_and_keys(service):
    async def drive(app, pilot):
        await pilot.press("e")
        await seen(pilot, "invalid, tcp_new_refused")
        await pilot.press("escape", "question_mark")
        screens.is_golden("keys", await seen(pilot, "turn the order round"))
        await pilot.press("escape")
        await seen(pilot, " 1 Zones ")

    driven(service, drive)


def test_it_looks_again_and_not_while_it_is_paused(service):
    async def drive(app, pilot):
        before = app._view
        await pilot.press("p")
        await seen(pilot, "[paused]")
        await app.look()
        assert app._view is before
        await pilot.press("p")
        await pilot.pause()
        await app.look()
        assert app._view is not before and app._view["rates"]["packets"] == 0.0
        await pilot.press("minus", "plus")
        assert app._interval_s == 30.0  # the longest is a minute

    driven(service, drive)


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (200, 60)])
def test_any_size_will_do(service, size):
    async def drive(app, pilot):
        for table in "1234567":
            await pilot.press(table)
            await pilot.pause()
            assert all(len(line) <= size[0] for line in screens.lines_of(app))

    driven(service, drive, size)


def test_a_service_that_goes_ends_it_with_the_reason(tmp_path):
    with Service(tmp_path / "x.sock") as other:

        async def drive(app, pilot):
            other.stop()
            await app.look()
            await pilot.pause()

        app = driven(other, drive)
        assert isinstance(app.failure, ZonetrackError)


def test_in_a_real_terminal(service, tmp_path):
    """The command itself, in tmux, shows what the Pilot saw."""
    words = ("top", "--socket", service.path, "--interval", "3600")
    with screens.Terminal(tmp_path, sys.executable, "-m", "zonetrack.service", *words) as terminal:
        terminal.until(" 75.0%")
        screens.is_golden("table-1", terminal.until("q quit"))
        terminal.type("4")
        screens.is_golden("table-4", terminal.until("unreplied"))
        terminal.type("q")
