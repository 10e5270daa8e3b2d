"""The page of a real control process: what it shows to a program, and to somebody in Chromium."""

import contextlib
import http.client
import itertools
import json
import os
import shutil

import desk
import numpy as np
import pytest
import tables
from bursts import Bench, tcp
from served import Service
from tables import LATER
from zonetrack.clients.errors import ServerError
from zonetrack.service import web
from zonetrack.service.listening import Address, listen
from zonetrack.shm.layout import Status

ZONE = 5
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    table = tables.small(2000, zones=16)
    maker = tables.Participant(table)
    maker.made(np.stack([desk.key(ZONE, 1000 + n) for n in range(130)]), expiry_ms=LATER)
    maker.made(np.stack([desk.key(7, 1000 + n, 6) for n in range(12)]), expiry_ms=LATER)
    Bench(table).track(tcp("FA", 1, 1), zone=ZONE)
    patch = pytest.MonkeyPatch()
    patch.setattr(web, "HISTORY_STEP_S", 0.01)  # an hour in four seconds
    with (
        listen(Address("127.0.0.1", 0), "web.listen") as listener,
        Service(tmp_path_factory.mktemp("run") / "x.sock", table, sites={"web": listener}) as service,
    ):
        patch.undo()
        service.port = listener.getsockname()[1]
        yield service


def ask(service, path):
    """Return status, type and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.headers["Content-Type"], answer.read().decode()


def test_the_page_has_all_that_it_names_and_nothing_from_elsewhere(service):
    _, kind, text = ask(service, "/")
    assert kind.startswith("text/html") and "://" not in text
    for path in ("/page.js", "/page.css"):
        status, _, asset = ask(service, path)
        assert status == 200 and path[1:] in text
        assert "://" not in asset.replace("http://www.w3.org/2000/svg", "") and "innerHTML" not in asset


def test_views_come_as_events(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    lines = [answer.readline() for _ in range(3)]
    first, second = (json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: "))
    assert first["connections"] == second["connections"] == 142 and second["rates"]["packets"] == 0.0
    connection.close()
    assert service.ask("count") == {"count": 142}


@pytest.mark.parametrize(
    ("query", "count", "whole"),
    [
        ("zone=7", 12, True),
        ("proto=tcp%20dport=53", 12, True),
        ("192.0.2.1%20zone=7", 12, True),
        ("198.51.100.1%20192.0.2.0/24%20zone=7", 12, True),
        ("192.0.2.1", web.FOUND_MAX, False),
        ("203.0.113.9", 0, True),
    ],
)
def test_a_search(service, query, count, whole):
    status, _, body = ask(service, f"/connections?q={query}")
    found = json.loads(body)
    assert (status, len(found["connections"]), found["whole"]) == (200, count, whole)


@pytest.mark.parametrize("query", ["", "zone=many", "zoen=5", "1.2.3", "1.1.1.1%201.1.1.2%201.1.1.3", "__class__=1"])
def test_a_search_for_nonsense_says_what_was_expected(service, query):
    status, _, body = ask(service, f"/connections?q={query}")
    assert status == 400 and json.loads(body)["error"]


def test_explanations_and_history(service):
    (told,) = json.loads(ask(service, "/explain")[2])
    assert (told["zone"], told["reason"]) == (ZONE, "tcp_new_refused")
    assert isinstance(json.loads(ask(service, "/history")[2]), list)


def test_what_a_search_means():
    one, other = web.wanted("192.0.2.1 198.51.100.1 unreplied=yes")
    assert one.names != other.names or one.record.tobytes() != other.record.tobytes()
    assert one.record["status_mask"] & Status.SEEN_REPLY
    with pytest.raises(ServerError):
        web.wanted("zone=70000")


def sync_api():
    return pytest.importorskip("playwright.sync_api")


@contextlib.contextmanager
def chromium():
    """Yield a page in Chromium; at the end nothing has gone wrong in it."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not here")
    with sync_api().sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=PATIENCE_MS)
        sync_api().expect.set_options(timeout=PATIENCE_MS)
        page, faults = browser.new_page(viewport={"width": 900, "height": 1000}, color_scheme="light"), []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda fault: faults.append(str(fault)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        yield page
        assert faults == []
        browser.close()


def screenshot(page, name):
    """Keep a picture of a page for who wants to look at it: ZONETRACK_SCREENSHOTS says where."""
    if os.environ.get("ZONETRACK_SCREENSHOTS"):
        page.screenshot(path=f"{os.environ['ZONETRACK_SCREENSHOTS']}/{name}.png", full_page=True)


def test_an_hour_is_kept_and_no_more(service):
    points = []
    while len(points) < web.HISTORY_POINTS:
        points = json.loads(ask(service, "/history")[2])
    first = points[0]
    while points[0] == first:
        points = json.loads(ask(service, "/history")[2])
    assert len(points) == web.HISTORY_POINTS
    assert all(before["time"] <= after["time"] for before, after in itertools.pairwise(points))


def test_keys_alone_reach_everything(service):
    """Without a mouse: past the head to the tables, along the tabs, into a heading that sorts, to search and answers."""
    with chromium() as page:
        page.goto(f"http://127.0.0.1:{service.port}/")
        sync_api().expect(page.get_by_role("status")).to_have_text("live")
        sync_api().expect(page.locator("#hour figure")).to_have_count(4)
        page.keyboard.press("Tab")
        focused = page.evaluate_handle("document.activeElement").as_element
        assert focused().inner_text() == "Skip to the tables"
        page.keyboard.press("Enter")
        seen = []
        for _ in range(14):
            page.keyboard.press("Tab")
            seen.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert [one for one in seen if one in ("tab-zones", "panel", "zone", "q", "found", "explain", "explained")] == [
            *("tab-zones", "panel", "zone", "q", "found", "explain", "explained")
        ]
        page.get_by_role("button", name="limit").focus()
        page.keyboard.press("Enter")
        sync_api().expect(page.locator("th[aria-sort]")).to_have_text("limit")
        for image in page.locator("#hour svg").all():
            assert ": now " in image.get_attribute("aria-label")


def test_in_chromium(service):
    """Somebody looks, changes table by mouse and keyboard, searches, asks why, and turns the light out."""
    api = sync_api()
    with chromium() as page:
        page.goto(f"http://127.0.0.1:{service.port}/")
        api.expect(page.get_by_role("status")).to_have_text("live")
        api.expect(page.locator("#connections")).to_have_text("142 of 2,000")
        api.expect(page.get_by_role("tabpanel").locator("tbody tr")).to_have_count(2)
        page.get_by_role("tab", name="States").click()
        api.expect(page.get_by_role("cell", name="unreplied")).to_be_visible()
        page.keyboard.press("ArrowRight")
        api.expect(page.get_by_role("tab", name="Workers")).to_be_focused()
        page.get_by_label("Address, or zone=5").fill("zone=7")
        page.keyboard.press("Enter")
        api.expect(page.locator("#found tbody tr")).to_have_count(12)
        page.get_by_role("button", name="Explain the latest").click()
        api.expect(page.locator("#explained dt")).to_contain_text("tcp_new_refused")
        screenshot(page, "light")
        page.get_by_role("button", name="Dark").click()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        screenshot(page, "dark")
        # a telephone: nothing is wider than it, but for tables, which scroll by themselves
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        screenshot(page, "narrow")
