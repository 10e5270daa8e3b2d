"""Every claim of docs/security.md names tests, and each of them is there."""

import ast
import re

import checkout

TEST = re.compile(r"`(tests/[a-z_/]+\.py)::(test_\w+)`")
HEADINGS = ("claim", "attack", "---", "who", "whoever", "a client")


def claims():
    """Return the rows of the page that claim something."""
    rows = [line for line in checkout.page("security.md").splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.removeprefix("| ").startswith(HEADINGS)]


def names_in(path):
    """Return the names of the tests in a file."""
    tree = ast.parse((checkout.ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_claim_has_a_test():
    assert len(claims()) > 25
    assert [row for row in claims() if not TEST.search(row)] == []


def test_every_test_that_is_named_is_there():
    named = {(path, name) for row in claims() for path, name in TEST.findall(row)}
    assert [one for one in sorted(named) if one[1] not in names_in(one[0])] == []
