"""``zonetrack audit`` says what is wrong with a table, whether somebody works on it or not, and what is not there."""

import contextlib
import json
import os

import pytest
from click.testing import CliRunner
from zonetrack.clients.errors import Exit, NoServiceError
from zonetrack.service import audit_command
from zonetrack.shm import roster, segment
from zonetrack.shm.errors import Missing
from zonetrack.shm.layout import GLOBAL, Kind, Region
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def instance():
    """A small table with a name, which nobody works on."""
    name = f"test-audit-{os.getpid()}"
    with segment.create(name, Geometry(1000, zones_in_use=4)) as made:
        yield made
    with contextlib.suppress(Missing):
        segment.discard(name)


def run(instance, *arguments):
    """Run the command; returns its exit code and its output."""
    result = CliRunner().invoke(audit_command.command, ["--instance", instance.name, *arguments])
    return result.exit_code, result.stdout


def test_a_fresh_table_is_sound(instance):
    assert run(instance) == (Exit.OK, f"{instance.name}, at rest: every invariant holds\n")


def test_a_broken_table_is_named_and_fails(instance):
    instance.table.array(Region.CONTROL, "globals", GLOBAL)["count"] = 3
    code, text = run(instance)
    assert code == Exit.FAILED and text.startswith(f"{instance.name}, at rest: broken: global_count 3 0")
    code, text = run(instance, "--json")
    report = json.loads(text)
    assert code == Exit.FAILED and report["broken"] == "global_count" and report["numbers"][:2] == [3, 0]


def test_a_table_that_somebody_works_on_is_checked_beside_him(instance):
    worker = roster.join(instance.table, Kind.WORKER)
    code, text = run(instance, "--json")
    report = json.loads(text)
    assert (code, report["checked"], report["broken"]) == (Exit.OK, "live", None)
    assert [place.owner for place in roster.present(instance.table)] == [worker]
    roster.leave(instance.table, worker)


def test_no_such_instance():
    result = CliRunner().invoke(audit_command.command, ["--instance", f"none-{os.getpid()}"])
    assert isinstance(result.exception, NoServiceError)
    assert result.exception.exit_code == Exit.NO_SERVICE
