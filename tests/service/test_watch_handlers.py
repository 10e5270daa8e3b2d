"""Metrics over the socket: as text, and in plain values."""

import pytest
import tables
from prometheus_client.parser import text_string_to_metric_families
from served import Service
from zonetrack.service.door import Rights
from zonetrack.service.handlers import METHODS


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("run") / "x.sock") as service:
        yield service


def test_rights():
    assert METHODS["metrics"].rights is METHODS["summary"].rights is Rights.READ


def test_text_and_plain_values_have_the_same_families(service):
    text = list(text_string_to_metric_families(service.ask("metrics")["text"]))
    plain = service.ask("metrics", format="plain")["families"]
    assert [family.name for family in text] == [family["name"] for family in plain]
    assert "zonetrack_entries" in {family.name for family in text}


def test_summary(service):
    service.participant().made(tables.keys(7, zone=3))
    found = service.ask("summary")
    assert found["connections"] == 7 and found["protocols"] == {"udp": 7} and found["age_s"] >= 0.0
