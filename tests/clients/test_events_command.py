"""``zonetrack events`` against a real service: the lines of conntrack and JSON, and that it ends when it has seen enough."""

import json
import subprocess
import sys

import pytest
from desk import run
from peer import running
from zonetrack.clients.errors import Exit

ZONE = 111


def start(desk, *flags):
    """Start the command, and wait until it is told of events."""
    before = desk.service.ask("stats")["events"]["subscribers"]
    command = [sys.executable, "-m", "zonetrack.service", "events", "--socket", desk.socket, *map(str, flags)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while desk.service.ask("stats")["events"]["subscribers"] == before:
        assert process.poll() is None, process.stderr.read()
    return process


def test_in_the_lines_of_conntrack(desk):
    process = start(desk, "--zone", ZONE, "--count", 2)
    desk.fill(ZONE + 1, 1)
    desk.fill(ZONE, 3)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == "2 events\n"
    assert [line.split(" sport")[0] for line in out.splitlines()] == [
        "    [NEW] udp      17 4294967 src=192.0.2.1 dst=198.51.100.1",
    ] * 2


def test_in_json_and_of_some_kinds(desk):
    process = start(desk, "--type", "destroy", "--json", "--count", 3)
    desk.fill(ZONE + 2, 3)
    desk.run("flush", "--zone", ZONE + 2)
    out, _ = process.communicate(timeout=60)
    events = [json.loads(line) for line in out.splitlines()]
    assert [(one["event"], one["end"], one["zone"]) for one in events] == [("destroy", "flushed", ZONE + 2)] * 3


def test_a_gap_is_a_line_of_its_own(tmp_path):
    with running(tmp_path / "s"):
        code, out, err = run("events", "--socket", tmp_path / "s", "--count", 3, "--timestamp")
    lines = out.splitlines()
    assert (code, err) == (Exit.OK, "3 events\n")
    assert lines[0].startswith("[1767225600.500000]\t    [NEW] udp      17 0 src=0.0.0.0 dst=0.0.0.0 sport=0")
    assert lines[2] == "GAP 2" and lines[3].startswith("[1767225600.500000]\t[DESTROY] udp      17 src=")


@pytest.mark.parametrize(
    ("flags", "says"), [(("--type", "old"), "new, update, destroy"), (("--json", "--timestamp"), "JSON has the time")]
)
def test_what_it_does_not_take(flags, says):
    code, _, err = run("events", *flags)
    assert code == Exit.USAGE and says in err
