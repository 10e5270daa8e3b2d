"""save and restore as commands: what they print, and how they end."""

import json
import os

import pytest
from desk import run
from zonetrack.clients.errors import Exit
from zonetrack.shm import segment
from zonetrack.shm.sizing import Geometry

NAME = f"test-saving-{os.getpid()}"


@pytest.fixture
def instance():
    with segment.create(NAME, Geometry(1000, zones_in_use=4)) as made:
        made.seal()
    yield NAME
    segment.discard(NAME)


def test_to_a_file_and_back(instance, tmp_path):
    file = tmp_path / "table"
    code, out, _ = run("save", file, "--instance", instance)
    assert code == Exit.OK and out == f"0 connections, {file.stat().st_size} bytes\n"
    assert run("restore", file, "--instance", instance).code == Exit.FAILED  # there is one
    code, out, _ = run("restore", file, "--instance", instance, "--replace")
    assert code == Exit.OK and out.startswith("0 connections, saved 20")
    assert json.loads(run("save", file, "--instance", instance, "--json").out)["connections"] == 0
    assert json.loads(run("restore", file, "--instance", instance, "--replace", "--json").out)["connections"] == 0


def test_what_is_no_table(instance, tmp_path):
    (tmp_path / "x").write_text("hello")
    code, _, err = run("restore", tmp_path / "x", "--instance", instance, "--replace")
    assert code == Exit.FAILED and "not a saved table" in err
    assert "cannot be read" in run("restore", tmp_path / "none", "--instance", instance).err
    code, _, err = run("save", tmp_path / "none" / "y", "--instance", instance)
    assert code == Exit.FAILED and "cannot be written" in err
    assert run("save", tmp_path / "y", "--instance", "no-such-instance").code == Exit.NO_SERVICE
