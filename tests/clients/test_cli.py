"""The command group answers at once, imports what it needs and no more, and ends with the agreed exit codes."""

import json
import re
import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from desk import run
from zonetrack.clients import cli
from zonetrack.clients.errors import Exit, NoServiceError, NothingMatchedError, ZonetrackError
from zonetrack.shm.errors import RosterError, SegmentError

HEAVY = ("numba", "numpy", "rich", "llvmlite", "msgpack", "uvloop")


def modules_after(*arguments):
    """Return the names of all modules that a run of the command line has imported."""
    script = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from zonetrack.clients.cli import main\n"
        f"sys.argv = ['zonetrack', *{list(arguments)!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return done, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"], []])
def test_group_imports_nothing_heavy(arguments):
    _, modules = modules_after(*arguments)
    assert "zonetrack.clients.cli" in modules
    assert not modules & set(HEAVY)
    assert not [
        name for name in modules if name.startswith(("zonetrack.service", "zonetrack.kernels", "zonetrack.shm"))
    ]


def test_help_lists_every_command_of_the_table():
    done, _ = modules_after("--help")
    assert done.returncode == Exit.OK
    for name, command in cli.COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert command.help.split(",")[0] in done.stdout


def test_version_is_the_package_version():
    done, _ = modules_after("--version")
    assert done.stdout.strip() == f"zonetrack, version {version('zonetrack')}"


def test_unknown_command_is_a_usage_error():
    done, _ = modules_after("no-such-command")
    assert done.returncode == Exit.USAGE
    assert "no-such-command" in done.stderr


def test_the_service_package_runs_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "zonetrack.service", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == Exit.OK
    assert done.stdout.startswith("Usage: zonetrack ")


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_of_the_table_is_there_and_explains_itself(name):
    command = cli.group.get_command(click.Context(cli.group), name)
    assert isinstance(command, click.Command)
    assert command.help
    for one in command.commands.values() if isinstance(command, click.Group) else [command]:
        assert one.help and any("--json" in parameter.opts for parameter in one.params), "what prints takes --json"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZonetrackError, Exit.FAILED),
        (NoServiceError, Exit.NO_SERVICE),
        (NothingMatchedError, Exit.NOTHING_MATCHED),
        (RosterError, Exit.FAILED),
    ],
)
def test_an_error_for_a_person_is_one_line_and_its_exit_code(error, code, monkeypatch, capsys):
    @click.command()
    def failing():
        raise error("the table is elsewhere")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["zonetrack", "failing"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert capsys.readouterr().err == "Error: the table is elsewhere\n"


def test_shared_memory_that_is_refused_is_a_message_too(monkeypatch, capsys):
    @click.command()
    def failing():
        raise SegmentError("zonetrack.some", 1, 2)

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["zonetrack", "failing"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == Exit.FAILED
    assert capsys.readouterr().err == "Error: zonetrack.some: unusable: expected 1, found 2\n"


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch):
    @click.command()
    def failing():
        raise KeyError("mark")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["zonetrack", "failing"])
    with pytest.raises(KeyError):
        cli.main()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("list", "--format", "ovss"), "ovs"),
        (("replay", "--profile", "netfiltr", "x"), "netfilter"),
        (("load", "forward", "--topology", "pvpp"), "pvp"),
        (("events", "--type", "nwe"), "new"),
        (("limits", "sett"), "set"),
        (("list", "--zoen", "5"), "--zone"),
        (("serve", "--port", "smh:lab", "--check-config"), "shm:lab"),
    ],
)
def test_the_nearest_is_told_of_what_is_not_there(words, meant):
    outcome = run(*words)
    assert outcome.code == Exit.USAGE
    assert re.search(rf"[Dd]id you mean .*{meant}", outcome.err), outcome.err
