"""save and restore as commands: what they print, and how they end."""

import json
import os
import threading

import numpy as np
import pytest
from desk import run
from outliving import FLOWS, Traffic
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.shm import segment
from zonetrack.shm.layout import CtState
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


def test_a_service_that_runs_is_saved_and_another_begins_with_it(tmp_path):
    """While a client goes on with his flows: all of them live throughout, so all of them are in the file."""
    file, shape = (
        tmp_path / "table",
        ("--max-connections", 2000, "--workers", 2, "--port", "shm:lab,queues=2", "--fresh"),
    )
    with Service(tmp_path, *shape) as service:
        service.until_ready()
        traffic = Traffic(service)
        traffic.asked()
        assert (traffic.answered() & CtState.EST).all()
        over = threading.Event()

        def go_on():
            with np.errstate(over="ignore"):  # another thread: cursors wrap
                while not over.is_set():
                    traffic.asked()

        client = threading.Thread(target=go_on)
        client.start()
        try:
            code, out, _ = run("save", file, "--instance", service.instance, "--json")
        finally:
            over.set()
            client.join()
        assert code == Exit.OK and json.loads(out)["connections"] == 2 * FLOWS
        with service.ask() as ct:
            assert ct.flush() is not None
            code, out, _ = run("restore", file, "--instance", service.instance)
            assert code == Exit.OK and out.startswith(f"{2 * FLOWS} connections, saved 20")
            assert ct.count() == 2 * FLOWS and ct.audit()["broken"] is None
        assert (traffic.asked() & CtState.EST).all()
        traffic.close()
        assert service.stop() == Exit.OK
    with Service(tmp_path, *shape, "--restore", file) as service:
        service.until_ready()
        assert service.hear("restored what was saved")["connections"] == 2 * FLOWS
        traffic = Traffic(service)
        assert (traffic.answered() & CtState.EST).all()
        traffic.close()
        assert service.stop() == Exit.OK
    with Service(tmp_path, *shape, "--restore", tmp_path / "none") as service:
        assert service.wait() == Exit.FAILED
