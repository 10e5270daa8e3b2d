"""Man pages and completion, printed from the commands themselves when a package is built.

    python -m zonetrack.clients.manual DIRECTORY

writes below it, as ``share`` of a Unix system has them: ``man/man1``, ``bash-completion``, ``zsh/site-functions`` and
``fish/vendor_completions.d``.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from . import cli, examples
from .errors import Exit

NAME = "zonetrack"
SECTION = 1
COMPLETIONS = {
    "bash": f"bash-completion/completions/{NAME}",
    "zsh": f"zsh/site-functions/_{NAME}",
    "fish": f"fish/vendor_completions.d/{NAME}.fish",
}
CODES = {
    Exit.OK: "It is done.",
    Exit.FAILED: "The operation failed; the text says why.",
    Exit.USAGE: "The command line was wrong.",
    Exit.NO_SERVICE: "No service answers.",
    Exit.NOTHING_MATCHED: "What was named is not there.",
}
VARIABLES = {
    "ZONETRACK_SOCKET": "Path of the control socket, where --socket does not say.",
    "ZONETRACK_INSTANCE": "Name of the instance, where --instance does not say.",
    "ZONETRACK_CONFIG": "File of the configuration, where --config does not say.",
    "ZONETRACK_*": "Any key of the configuration, in capitals, with _ for the dot.",
    "NO_COLOR": "No colours.",
}


# ------------------------------------------------------------------------------------------------ man pages
def roff(text: str) -> str:
    """Return text so that troff takes it for text: hyphens are to be found and copied, no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def page(path: str, command: click.Command) -> str:
    """Return the man page of a command.

    Args:
        path: its words; the group itself has none.
        command: it.
    """
    return "\n".join(_lines(path, command)) + "\n"


def _lines(path: str, command: click.Command) -> Iterator[str]:
    called = "-".join([NAME, *path.split()])
    context = click.Context(command, info_name=" ".join([NAME, *path.split()]))
    yield f'.TH {called.upper()} {SECTION} "{time.strftime("%Y-%m-%d", time.gmtime(_built()))}" "{NAME} {version(NAME)}"'
    yield ".ad l"
    yield ".SH NAME"
    yield roff(f"{called} - {_first(command)}")
    yield ".SH SYNOPSIS"
    yield f".B {roff(' '.join([NAME, *path.split()]))}"
    yield roff(" ".join(command.collect_usage_pieces(context)))
    yield ".SH DESCRIPTION"
    for paragraph in inspect.cleandoc(command.help or "").replace("\b", "").split("\n\n"):
        yield ".PP"
        yield roff(paragraph.strip("\n"))
    options = [found for one in command.get_params(context) if (found := one.get_help_record(context))]
    if options:
        yield ".SH OPTIONS"
        for term, says in options:
            yield from _term(term, says)
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _term(name, _first(below))
    told = examples.of(path)
    if told:
        yield ".SH EXAMPLES"
        for typed, says in told:
            yield from (".PP", roff(says), ".PP", ".nf", ".RS", roff(f"{NAME} {typed}"), ".RE", ".fi")
    if not path:
        yield ".SH EXIT STATUS"
        for code, says in CODES.items():
            yield from _term(str(int(code)), says)
        yield ".SH ENVIRONMENT"
        for variable, says in VARIABLES.items():
            yield from _term(variable, says)
        yield ".SH FILES"
        yield from _term(
            "/etc/zonetrack/zonetrack.toml", "The configuration; `zonetrack serve --check-config` shows it."
        )
        yield from _term("/run/zonetrack/INSTANCE.sock", "The control socket, where root starts the service.")
        yield from _term("/dev/shm/zonetrack.INSTANCE.*", "The table; it outlives the service.")
    yield ".SH SEE ALSO"
    others = [NAME] if path else [f"{NAME}\\-{name}" for name in cli.COMMANDS]
    for place, one in enumerate(others):
        yield f".BR {one} ({SECTION}){',' if place < len(others) - 1 else ''}"


def _term(term: str, says: str) -> Iterator[str]:
    yield ".TP"
    yield f".B {roff(term)}"
    yield roff(says)


def _first(command: click.Command) -> str:
    """Return the first sentence of what a command says of itself."""
    text = " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def _built() -> float:
    """Return the moment that pages are of, the same for the same sources (reproducible-builds.org)."""

    return float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())


# ------------------------------------------------------------------------------------------------ completion
def completion(shell: str) -> str:
    """Return the script that completes our command lines in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(cli.group, {}, NAME, f"_{NAME.upper()}_COMPLETE").source()


def write(directory: Path) -> list[Path]:
    """Write all of it below a directory; return what was written."""
    pages = {"-".join([NAME, *path.split()]): (path, one) for path, one in examples.commands(cli.group)}
    texts = {f"man/man{SECTION}/{name}.{SECTION}": page(path, one) for name, (path, one) in pages.items()}
    texts |= {where: completion(shell) for shell, where in COMPLETIONS.items()}
    written = []
    for where, text in texts.items():
        (directory / where).parent.mkdir(parents=True, exist_ok=True)
        (directory / where).write_text(text)
        written.append(directory / where)
    return written


if __name__ == "__main__":
    for _path in write(Path(sys.argv[1])):
        click.echo(_path)
