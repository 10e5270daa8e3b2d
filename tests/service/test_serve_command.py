"""``zonetrack serve`` as people and scripts start it: its flags, the check of a configuration, the line that says ready."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from zonetrack.clients.errors import Exit
from zonetrack.service import serve_command
from zonetrack.service.config import ConfigError
from zonetrack.service.ports.specs import SPEC
from zonetrack.service.serve_command import command
from zonetrack.shm import segment

ABOUT = {
    "pid": 7,
    "instance": "x",
    "socket": "/run/x.sock",
    "connections": 1000,
    "bytes": 5,
    "workers": 2,
    "ports": {"a": 2, "b": 1},
}


@pytest.fixture(autouse=True)
def without_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith("ZONETRACK_"):
            monkeypatch.delenv(name)


def invoke(*arguments, **environment):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], env=environment)


def test_a_configuration_is_checked_without_a_start(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("workers = 2\n")
    result = invoke("--check-config", "--config", file, "--port", "shm:lab", "--fresh", ZONETRACK_MAX_CONNECTIONS="500")
    assert result.exit_code == Exit.OK
    lines = result.stdout.splitlines()
    assert f"workers = 2  # {file}" in lines
    assert 'ports = ["shm:lab,queues=1,zone=0,slots=512"]  # flag' in lines
    assert "max_connections = 500  # environment" in lines
    assert "fresh = true  # flag" in lines
    assert 'instance = "default"  # default' in lines


def test_and_as_json(tmp_path):
    result = invoke("--check-config", "--json", "--workers", 3)
    page = json.loads(result.stdout)
    assert page["file"] is None
    assert page["keys"]["workers"] == {"value": 3, "source": "flag"}


def test_what_is_wrong_is_told(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("worker = 2\n")
    result = invoke("--check-config", "--config", file, "--workers", 0)
    assert isinstance(result.exception, ConfigError)
    assert "unknown key 'worker': nearest is 'workers'" in str(result.exception)
    assert "flag: workers: expected a whole number from 1 to 128, found 0" in str(result.exception)


def test_the_line_that_says_ready(capsys):
    serve_command.announce(ABOUT, False)
    serve_command.announce(ABOUT | {"ports": {}}, False)
    serve_command.announce(ABOUT, True)
    text, none, line = capsys.readouterr().out.splitlines()
    assert text == ("ready pid=7 instance=x socket=/run/x.sock connections=1000 bytes=5 workers=2 ports=a:2,b:1")
    assert none.endswith(" ports=none")
    assert json.loads(line) == {"ready": True} | ABOUT


def test_a_start_in_the_foreground(tmp_path):
    instance = f"test-serve-{os.getpid()}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "zonetrack.service", "serve", "--instance", instance),
            *("--socket", str(tmp_path / "s"), "--max-connections", "1000"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert re.fullmatch(
            rf"ready pid={process.pid} instance={instance} socket={tmp_path}/s "
            r"connections=1000 bytes=\d+ workers=1 ports=none table=new\n",
            line,
        )
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate()
        assert (process.returncode, out) == (Exit.OK, "")
        assert re.search(r"\d\d info keeper\[\d+\]: the table is put away", told)
    finally:
        process.kill()
        segment.discard(instance)


def test_a_wrong_flag_is_wrong_usage():
    done = subprocess.run(
        [sys.executable, "-m", "zonetrack.service", "serve", "--port", "lab"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == Exit.USAGE
    assert done.stderr == (f"Error: flag: ports: expected a port as {SPEC}, found 'lab'\n")
