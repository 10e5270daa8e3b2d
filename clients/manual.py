"""Man pages and completion, printed from the commands themselves when a package is built.

    python -m zonetrack.clients.manual DIRECTORY

writes below it, as ``share`` of a Unix system has them: ``man/man1``, ``man/man5``, ``bash-completion``,
``zsh/site-functions`` and ``fish/vendor_completions.d``.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ..service.config import FILE_DEFAULT, KEYS, plain
from . import cli, examples
from .errors import Exit

NAME = "zonetrack"
SECTION, FILES_SECTION = 1, 5
CONFIGURATION = f"{NAME}.toml"
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
    yield _title(called, SECTION)
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
        yield from _term(str(FILE_DEFAULT), f"The configuration, {CONFIGURATION}({FILES_SECTION}).")
        yield from _term("/run/zonetrack/INSTANCE.sock", "The control socket, where root starts the service.")
        yield from _term("/dev/shm/zonetrack.INSTANCE.*", "The table; it outlives the service.")
    yield ".SH SEE ALSO"
    others = [NAME] if path else [f"{NAME}\\-{name}" for name in cli.COMMANDS]
    for one in others:
        yield f".BR {one} ({SECTION}),"
    yield f".BR {CONFIGURATION} ({FILES_SECTION})"


def configuration() -> str:
    """Return the man page of the configuration."""
    return "\n".join(_of_configuration()) + "\n"


def _of_configuration() -> Iterator[str]:
    yield _title(CONFIGURATION, FILES_SECTION)
    yield ".ad l"
    yield ".SH NAME"
    yield roff(f"{CONFIGURATION} - configuration of zonetrack serve")
    yield ".SH DESCRIPTION"
    yield roff(
        f"TOML, at {FILE_DEFAULT}, or where --config or ZONETRACK_CONFIG say. Flags win over the environment, that over the "
        "file, and that over the defaults. A key control.clients_max stands in the table [control], and is "
        "ZONETRACK_CONTROL_CLIENTS_MAX in the environment. Keys that are live take effect when the service is told to read "
        "its configuration again (SIGHUP); others at the next start. A key that is not there is an error that names the "
        "nearest one. `zonetrack serve --check-config` shows each key, its value, and where that came from."
    )
    table = None
    for path, one in sorted(KEYS.items(), key=lambda item: item[0].rpartition(".")[0]):
        if path.rpartition(".")[0] != table:
            table = path.rpartition(".")[0]
            yield f".SH {roff(f'TABLE [{table}]' if table else 'KEYS')}"
        default = "" if one.default is None else f" Default: {json.dumps(plain(one.default))}."
        live = " Live." if one.live else ""
        yield from _term(path.rpartition(".")[2], f"{one.says[0].upper()}{one.says[1:]}.{default}{live}")
    yield ".SH EXAMPLES"
    yield from (
        ".nf",
        ".RS",
        roff('workers = 2\nports = ["shm:lab,queues=2"]\n\n[metrics]\nlisten = "127.0.0.1:9810"'),
        ".RE",
        ".fi",
    )
    yield ".SH SEE ALSO"
    yield f".BR {NAME}\\-serve ({SECTION})"


def _title(name: str, section: int) -> str:
    moment = time.strftime("%Y-%m-%d", time.gmtime(_built()))
    return f'.TH {name.upper()} {section} "{moment}" "{NAME} {version(NAME)}"'


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
    texts[f"man/man{FILES_SECTION}/{CONFIGURATION}.{FILES_SECTION}"] = configuration()
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
