"""Rules looked at before anybody goes by them: read, compiled, and told of in figures.

Away from its service nobody knows the numbers of ports, so any name of one will do; what the service says counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import helper_rules, rules_compile, rules_file
from .rules import Names, Rule, RulesError

HELPERS = {name: int(helper) for name, helper in helper_rules.NAMES.items()}


def check(text: str, form: str, names: Names) -> tuple[list[Rule], dict[str, Any]]:
    """Return the rules of a file, and what there is to tell of them.

    Args:
        text: all of it.
        form: one of ``rules_file.FORMATS``.
        names: what stands for ports and the like.

    Raises:
        RulesError: with all that is wrong.
    """
    rules = rules_file.read(text, form, names)
    compiled = rules_compile.compile_rules(rules)
    return rules, {"rules": len(rules), "tables": len({rule.table for rule in rules}), "bytes": len(compiled)}


@contextlib.contextmanager
def of_file(path: str) -> Iterator[str]:
    """Yield what is in a file; complaints about it then begin with its name.

    Raises:
        RulesError: it cannot be read, or what is raised inside, likewise.
    """
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RulesError([f"{path}: cannot be read: {error}"]) from error
    try:
        yield text
    except RulesError as error:
        raise RulesError([f"{path}: {complaint}" for complaint in error.complaints]) from error


def check_file(path: str, names: Names | None = None) -> dict[str, Any]:
    """Check a file, by itself where no names are given.

    Raises:
        RulesError: with all that is wrong, the file's name before it.
    """
    with of_file(path) as text:
        return check(text, rules_file.format_of(path), names or Names(helpers=HELPERS, is_away=True))[1]
