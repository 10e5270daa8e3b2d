"""The command lines that README, the pages of docs and each --help show, taken out of them."""

import re
import shlex

import checkout
from zonetrack.clients.examples import EXAMPLES

GOES_ON = "\\\n"
LINE = re.compile(r"^(?: {4,}|\$ )(zonetrack (?:.*\\\n)*.*)$", re.MULTILINE)
"""A line of code that begins with the command, and those on which it goes on."""


def pages():
    """Return the pages that people read, by name."""
    paths = [checkout.ROOT / "README.md", *sorted((checkout.ROOT / "docs").glob("*.md"))]
    return {path.relative_to(checkout.ROOT).as_posix(): path.read_text() for path in paths if path.exists()}


def split(line):
    """Return the commands of a line, each as words: without comments, `&` and what else a shell would see to."""
    found = []
    for part in re.split(r" ;|\|", line.replace(GOES_ON, " ")):
        words = [word for word in shlex.split(part, comments=True) if word != "&"]
        if words[:1] == ["zonetrack"]:
            found.append(words[1:])
    return found


def shown():
    """Return every command that is shown, as (where, words)."""
    lines = [(name, words) for name, text in pages().items() for line in LINE.findall(text) for words in split(line)]
    return lines + [
        (f"zonetrack {path} --help", shlex.split(typed)) for path, told in EXAMPLES.items() for typed, _ in told
    ]
