"""Alert rules, dashboard and page name series that there are; what parses them elsewhere would parse them."""

import itertools
import json
import re
import shutil
import subprocess

import checkout
import pytest
import tables
import yaml
from zonetrack.service.limits import Quotas
from zonetrack.service.metrics import Metrics
from zonetrack.service.stats import Stats

ALERTS = checkout.ROOT / "docs" / "monitoring" / "alerts.yml"
NAME = re.compile(r"\bzonetrack_[a-z_]+\b")
LABELS_OF_PROMETHEUS = {"instance", "job"}
CONTROL = {"clients": 1, "paused": 0, "requests": 1, "refused": {"busy": 1}, "loop_latency_us": {"p99": 1}}
CONTROL |= {"kept_bytes": 1, "rests": 1}
CONTROL |= {"events": {"subscribers": 1, "sequence": 1, "lost": 0, "lost_by_slow_readers": 0}}


@pytest.fixture(scope="module")
def series():
    """The labels of every series that a service with something of everything has, by name."""
    table = tables.small()
    tables.Participant(table).made(tables.keys(3, zone=1))
    Quotas(table).set_zone(1, 10)
    worker = {"number": 0, "state": "running", "restarts": 0, "packets": 1, "cpu_s": 0.0}
    ports = [{"name": "lab", "queues": [{}]}]
    about = {"version": "1", "name": "x", "format": "0"}
    metrics = Metrics(Stats(table), lambda: [worker], lambda: ports, lambda: CONTROL, about, 10)
    found = {}
    for family in metrics.collect():
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules():
    return [
        rule for group in yaml.safe_load(checkout.page("monitoring/alerts.yml"))["groups"] for rule in group["rules"]
    ]


def panels():
    return json.loads(checkout.page("monitoring/dashboard.json"))["panels"]


def expressions():
    """Yield every expression, with a name for where it stands."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_every_expression_names_series_that_there_are(series):
    named = {where: set(NAME.findall(text)) for where, text in expressions()}
    assert named["ZonetrackTableFillsUp"] == {"zonetrack_entries", "zonetrack_entries_limit"}
    assert {where: names - set(series) for where, names in named.items() if names - set(series)} == {}


def test_every_label_of_an_expression_is_one_of_its_series(series):
    for where, text in expressions():
        known = set().union(LABELS_OF_PROMETHEUS, *(series[name] for name in NAME.findall(text)))
        used = set(re.findall(r"(\w+)\s*=~?\s*\"", text))
        for listed in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", text):
            used |= {label.strip() for label in listed.split(",")}
        assert used <= known, where


def test_every_expression_is_balanced():
    for where, text in expressions():
        for opening, closing in ("()", "[]", "{}"):
            assert text.count(opening) == text.count(closing), where


def test_every_alert_says_what_and_what_to_do():
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 8
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} == set(rule["annotations"])
        assert re.fullmatch(r"[1-9]\d*[smh]", rule.get("for", "1m"))


def test_rules_are_what_promtool_takes():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool, of the package prometheus, is not here")
    checked = subprocess.run([promtool, "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_panels_have_their_places():
    assert len({panel["id"] for panel in panels()}) == len(panels())
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels()], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels())


def test_the_page_names_every_series_with_its_labels(series):
    page = checkout.page("monitoring.md")
    listed = {name: set(filter(None, labels.strip("{}").split(","))) for name, labels in LISTED.findall(page)}
    assert listed == {name: labels for name, labels in series.items() if f"{name}_total" not in series}


LISTED = re.compile(r"`(zonetrack_[a-z_]+)((?:\{[a-z_,]+\})?)`")
