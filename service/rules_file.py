"""Rules in a file: lines as Open vSwitch writes them, or the same in TOML or JSON, told apart by the file's name.

    [[rules]]                                             {"rules": [{
    table = 0                                                 "table": 0,
    priority = 100                                            "priority": 100,
    match = { tcp = true, nw_src = "10.0.0.0/8" }             "match": {"tcp": true, "nw_src": "10.0.0.0/8"},
    actions = [{ ct = { zone = 5, table = 1 } }]              "actions": [{"ct": {"zone": 5, "table": 1}}]
                                                          }]}

Words and values are those of the lines.  An action is text (``"output:2"``), or a table whose one key is the action and
whose value are its arguments: ``{ct = {commit = true, exec = ["set_field:1->ct_mark"], nat = {src = "10.1.1.1"}}}``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

from . import rule_actions, rule_matches, rules_text
from .rules import Names, Rule, RulesError

TEXT, TOML, JSON = "text", "toml", "json"
FORMATS = (TEXT, TOML, JSON)
_KEYS = ("table", "priority", "cookie", "match", "actions")


def format_of(path: str) -> str:
    """Return which of the FORMATS a file of this name has."""
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    return suffix if suffix in (TOML, JSON) else TEXT


def read(text: str, form: str, names: Names) -> list[Rule]:
    """Return the rules of a file.

    Args:
        text: all of it.
        form: one of FORMATS.
        names: what stands for ports and the like.

    Raises:
        RulesError: with all that is wrong.
    """
    if form == TEXT:
        return rules_text.read(text, names)
    loads: Callable[[str], Any] = tomllib.loads if form == TOML else json.loads
    try:
        tree = loads(text)
    except ValueError as error:  # both modules' own errors are of this kind
        raise RulesError([f"not {form.upper()}: {error}"]) from error
    listed = tree.get("rules") if isinstance(tree, dict) and list(tree) == ["rules"] else None
    if not isinstance(listed, list):
        raise RulesError(["expected one list called rules, and nothing beside it"])
    rules: list[Rule] = []
    complaints: list[str] = []
    for number, tree in enumerate(listed, 1):
        where = f"rule {number}"
        try:
            rules.append(_rule(tree, names, where))
        except ValueError as error:
            complaints.append(f"{where}: {error}")
    if complaints:
        raise RulesError(complaints)
    return rules


def _rule(tree: Any, names: Names, where: str) -> Rule:
    if not isinstance(tree, dict):
        raise ValueError(f"expected a table, found {tree!r}")
    for key in tree:
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}: there are {', '.join(_KEYS)}")
    match = tree.get("match", {})
    if not isinstance(match, dict):
        raise ValueError(f"match: expected a table, found {match!r}")
    pairs: list[tuple[str, str | None]] = [(key, _scalar(tree[key])) for key in rules_text.HEAD if key in tree]
    pairs += [(word, _scalar(value)) for word, value in match.items() if value is not False]
    actions = tree.get("actions")
    if not isinstance(actions, list):
        raise ValueError("actions: expected a list")
    return rules_text.made(pairs, [_action(one) for one in actions], names, where)


def _scalar(value: Any) -> str | None:
    """Return a value as the lines have it; True is a word that stands alone."""
    if value is True:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected text, a number or true, found {value!r}")
    return str(value)


def _action(tree: Any) -> str:
    """Return an action as the lines have it."""
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError(f"an action is text, or a table with one key, not {tree!r}")
    ((name, value),) = tree.items()
    if value is True:
        return name
    if isinstance(value, Mapping):
        return f"{name}({','.join(_arguments(value))})"
    return f"{name}:{_scalar(value)}"


def _arguments(tree: Mapping[str, Any]) -> Iterable[str]:
    for name, value in tree.items():
        if value is False:
            continue
        if isinstance(value, Mapping):
            yield f"{name}({','.join(_arguments(value))})"
        elif isinstance(value, list):
            yield f"{name}({','.join(map(str, value))})"
        elif value is True:
            yield name
        else:
            yield f"{name}={_scalar(value)}"


def tree(rule: Rule, names: Names) -> dict[str, Any]:
    """Return a rule in plain values: what TOML and JSON have for it."""
    told: dict[str, Any] = {"table": rule.table, "priority": rule.priority}
    if rule.cookie:
        told["cookie"] = rule.cookie
    told["match"] = {word: True if value is None else value for word, value in rule_matches.words(rule.match, names)}
    told["actions"] = rule_actions.words(rule.actions, names)
    return told
