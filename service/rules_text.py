"""Rules as Open vSwitch's ofctl writes them, one a line: ``table=1,priority=9,tcp,tp_dst=80,actions=ct(commit),output:2``.

What ``dump-flows`` adds (``duration``, ``n_packets``, ``n_bytes``, ``idle_age``) is passed over, so that what is shown can
be loaded.  Empty lines and what follows a ``#`` are nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..shm.layout import RULE_TABLES_MAX
from . import rule_actions, rule_matches
from .rule_matches import number
from .rules import PRIORITY_DEFAULT, PRIORITY_MAX, Names, Rule, RulesError

SHOWN_ONLY = ("duration", "n_packets", "n_bytes", "idle_age", "hard_age")
COOKIE_MAX = (1 << 64) - 1
HEAD = {
    "table": RULE_TABLES_MAX - 1,
    "priority": PRIORITY_MAX,
    "cookie": COOKIE_MAX,
}
"""What is said of a rule beside match and actions, and the highest number of each."""


def read(text: str, names: Names) -> list[Rule]:
    """Return the rules of a text.

    Raises:
        RulesError: with all that is wrong, by line.
    """
    rules: list[Rule] = []
    complaints: list[str] = []
    for line_number, line in enumerate(text.splitlines(), 1):
        plain = line.partition("#")[0].strip()
        if not plain:
            continue
        where = f"line {line_number}"
        try:
            rules.append(line_of(plain, names, where))
        except ValueError as error:
            complaints.append(f"{where}: {error}")
    if complaints:
        raise RulesError(complaints)
    return rules


def line_of(line: str, names: Names, where: str = "") -> Rule:
    """Return the rule of a line.

    Raises:
        ValueError: it is none.
    """
    before, equals, after = line.partition("actions=")
    if not equals:
        raise ValueError("no actions=")
    pairs = [(word, value if sign else None) for word, sign, value in parted(before)]
    return made(pairs, rule_actions.pieces(after), names, where)


def parted(text: str) -> Iterable[tuple[str, str, str]]:
    """Return the words of a match, each parted at its ``=``."""
    return (piece.strip().partition("=") for piece in text.replace(",", " ").split())


def made(pairs: Iterable[tuple[str, str | None]], actions: Iterable[str], names: Names, where: str) -> Rule:
    """Return the rule that words say.

    Args:
        pairs: what is said before the actions, each with its value where it has one.
        actions: each as text.
        names: what stands for ports and the like.
        where: place in the file.

    Raises:
        ValueError: it is none.
    """
    head = {"table": 0, "priority": PRIORITY_DEFAULT, "cookie": 0}
    match = []
    for word, value in pairs:
        if word in HEAD:
            head[word] = number(value or "", HEAD[word])
        elif word not in SHOWN_ONLY:
            match.append((word, value))
    return Rule(**head, match=rule_matches.read(match, names), actions=rule_actions.read(actions, names), where=where)


def line(rule: Rule, names: Names, shown: str = "") -> str:
    """Return a rule as a line.

    Args:
        rule: what to write.
        names: what stands for ports and the like.
        shown: what stands between the head and the match, such as counters.
    """
    head = [f"cookie={rule.cookie:#x}"] if rule.cookie else []
    head += [f"table={rule.table}", *([shown] if shown else []), f"priority={rule.priority}"]
    head += [word if value is None else f"{word}={value}" for word, value in rule_matches.words(rule.match, names)]
    return f"{','.join(head)} actions={','.join(rule_actions.words(rule.actions, names))}"


def write(rules: Iterable[Rule], names: Names) -> str:
    """Return rules as text that `read` takes."""
    return "".join(line(rule, names) + "\n" for rule in rules)
