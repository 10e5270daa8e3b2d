"""Man pages are what man takes without a warning, and say what --help says; completion scripts are what shells take."""

import os
import shutil
import subprocess
import sys

import click
import pytest
from zonetrack.clients import cli, examples, manual
from zonetrack.service.config import KEYS

ALL = dict(examples.commands(cli.group))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("share")
    return {path.relative_to(directory).as_posix(): path for path in manual.write(directory)}


def tool(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here")
    return found


def test_there_is_a_page_for_every_command(written):
    pages = {name for name in written if name.startswith("man/")}
    of_commands = {f"man/man1/{'-'.join(['zonetrack', *path.split()])}.1" for path in ALL}
    assert pages == of_commands | {"man/man5/zonetrack.toml.5"}


def test_the_configuration_has_a_page_with_every_key():
    text = manual.configuration()
    assert ".SH TABLE [export.ipfix]\n" in text and ".SH KEYS\n" in text
    for path, one in KEYS.items():
        term = text.index(f".B {manual.roff(path.rpartition('.')[2])}\n")
        assert manual.roff(one.says[1:]) in text[term:]


def test_a_page_has_options_commands_and_examples():
    text = manual.page("limits", ALL["limits"])
    assert ".SH COMMANDS" in text and "zonetrack limits show" in text
    text = manual.page("top", ALL["top"])
    for option in ALL["top"].params:
        assert manual.roff(option.opts[0]) in text
    assert "Exit" not in text and ".SH EXIT STATUS" in manual.page("", cli.group)


def test_what_looks_like_a_request_is_text():
    assert manual.roff(".SH x\n'y\n--json \\ z") == "\\&.SH x\n\\&'y\n\\-\\-json \\e z"


def test_pages_are_the_same_for_the_same_sources(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert '"1970-01-01"' in manual.page("", cli.group).splitlines()[0]


def test_troff_has_nothing_to_say_about_them(written):
    groff = tool("groff")
    pages = [path for name, path in written.items() if name.startswith("man/")]
    done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-z", *pages], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_man_shows_one(written):
    page = written["man/man1/zonetrack-top.1"]
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([tool("man"), "-l", page], capture_output=True, text=True, env=environment, check=False)
    if not done.stdout.strip():
        pytest.skip("man is not installed in full here")
    assert "zonetrack top --once --rows 5" in done.stdout


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_a_shell_takes_its_completion(written, shell, check):
    script = written[manual.COMPLETIONS[shell]]
    done = subprocess.run([tool(shell), check, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def completed(words, number):
    """Return what bash is told to complete a line with."""
    environment = {**os.environ, "_ZONETRACK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    script = "import sys\nfrom zonetrack.clients.cli import main\nsys.argv = ['zonetrack']\nmain()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_names_of_commands_and_options_are_completed():
    assert completed("zonetrack l", 1) == ["list", "limits", "load"]
    assert completed("zonetrack list --unr", 2) == ["--unreplied"]
    assert completed("zonetrack limits s", 2) == ["set", "show"]


def test_completing_imports_no_command():
    """A shell waits for it at each press of a key."""
    names = cli.group.shell_complete(click.Context(cli.group), "repl")
    assert [one.value for one in names] == ["replay"]
