"""The page of the service is current, and has every key and every transition."""

import checkout
from zonetrack.service import lives, phases, service_page
from zonetrack.service.config import KEYS


def test_page_is_current():
    assert checkout.page("service.md") == service_page.page(), "run `make docs`"


def test_every_key_has_its_row():
    rows = list(service_page.keys())
    for path, one in KEYS.items():
        assert [row for row in rows if row.startswith(f"| `{path}` |") and one.says in row]


def test_every_transition_has_its_row():
    lines = service_page.page().splitlines()
    for before, event, after, why in (*phases.TRANSITIONS, *lives.TRANSITIONS):
        assert f"| {before.name} | {event.name} | {after.name} | {why} |" in lines
