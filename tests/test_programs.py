"""The programs that docs/examples holds: each is run, against a real service or a capture, and prints what it should."""

import subprocess
import sys

import checkout
import desk
import pytest
from zonetrack.clients import conversation

EXAMPLES = checkout.ROOT / "docs" / "examples"
SEEN = "embedding.md"


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "capture.pcap"
    subprocess.run([sys.executable, "-m", conversation.__name__, str(path)], check=True)
    return str(path)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    made = desk.Desk(tmp_path_factory.mktemp("desk"))
    with made.service:
        made.fill(3, 4)
        yield made


def start(name, argument):
    return subprocess.Popen([sys.executable, str(EXAMPLES / name), argument], stdout=subprocess.PIPE, text=True)


def said(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return out.splitlines()


def test_track_a_capture(capture):
    *connections, last = said(start("track-a-capture.py", capture))
    assert last.endswith(" packets") and any(line.startswith("tcp 192.0.2.") for line in connections)


def test_track_frames(capture):
    invalid, connections = said(start("track-frames.py", capture))
    assert invalid.endswith(" invalid") and int(connections.split()[0]) > 0


def test_table_of_a_service(service):
    assert said(start("table-of-a-service.py", service.socket)) == ["4 connections, 0 bytes"]


def test_follow_events(service):
    before = service.service.ask("stats")["events"]["subscribers"]
    process = start("follow-events.py", service.socket)
    while service.service.ask("stats")["events"]["subscribers"] == before:
        assert process.poll() is None
    service.fill(5, 6)
    service.run("flush", "--zone", 5)
    lines = said(process)
    assert lines == ["new 192.0.2.1 "] * 6 + ["destroy 192.0.2.1 flushed"] * 4


def test_every_program_is_in_the_docs_and_short():
    page = (checkout.ROOT / "docs" / SEEN).read_text()
    programs = sorted(EXAMPLES.glob("*.py"))
    assert len(programs) == 4
    for path in programs:
        assert path.name in page
        body = [
            line for line in path.read_text().splitlines() if line and not line.startswith(("import", "from", '"""'))
        ]
        assert len(body) <= 6, path.name
