"""What all commands have in common: where the service is, filters that are checked at once, and how they end without one."""

import json
import subprocess
import sys

import click
import pytest
from desk import run
from zonetrack.clients import cli
from zonetrack.clients.errors import Exit
from zonetrack.clients.filters import Filter

ASKING = ["list", "count", "flush", "stats", "coverage", "zones", "workers", "ports", "stop"]
DEEPER = [("limits", "show"), ("timeouts", "show"), ("delete", "--zone", "1")]
HEAVY = {"numba", "numpy", "rich", "asyncio", "uvloop", "llvmlite"}


@pytest.mark.parametrize("command", [*((name,) for name in ASKING), *DEEPER], ids=" ".join)
def test_without_a_service(command, tmp_path):
    code, out, err = run(*command, "--socket", tmp_path / "none")
    assert (code, out) == (Exit.NO_SERVICE, "")
    assert err == (
        f"Error: no service answers at {tmp_path}/none: No such file or directory; "
        "start one with `zonetrack serve`, or say with --socket or --instance which is meant\n"
    )


def test_a_path_that_is_too_long(tmp_path):
    code, _, err = run("count", "--socket", "/" + "x" * 200)
    assert code == Exit.FAILED and "107 bytes at most, this one 201" in err


def test_the_environment_names_the_socket(desk, monkeypatch):
    monkeypatch.setenv("ZONETRACK_SOCKET", desk.socket)
    assert run("count").code == Exit.OK


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--src=192.0.2", "an IPv4 or IPv6 address"),
        ("--dst=::1/129", "a number from 0 to 128"),
        ("--reply-src=host", "an IPv4 or IPv6 address"),
        ("--proto=xtp", "one of icmp"),
        ("--sport=65536", "a number from 0 to 65535"),
        ("--state=OPEN", "one of NONE, SYN_SENT"),
        ("--mark=1/2/3", "a number"),
        ("--nonsense", "No such option"),
    ],
)
def test_a_filter_that_cannot_be_is_a_usage_error_before_anybody_is_asked(option, words):
    code, out, err = run("count", option, "--socket", "/none")
    assert (code, out) == (Exit.USAGE, "") and words in err


@pytest.mark.parametrize("name", ["list", "count", "delete"])
def test_every_filter_has_its_option(name):
    command = cli.group.get_command(click.Context(cli.group), name)
    assert set(Filter.__annotations__) <= {parameter.name for parameter in command.params}


@pytest.mark.parametrize("command", ["count", "list --format jsonl", "stats", "limits show", "flush --zone 65000"])
def test_commands_import_no_more_than_they_need(desk, command):
    script = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from zonetrack.clients.cli import main\n"
        f"sys.argv = ['zonetrack', *{command.split()!r}, '--socket', {desk.socket!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    assert done.returncode == Exit.OK and "zonetrack.clients.sync" in modules
    assert not modules & HEAVY
    assert not [
        name for name in modules if name.startswith(("zonetrack.service", "zonetrack.kernels", "zonetrack.shm"))
    ]
