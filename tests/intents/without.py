"""The program once more, with kernels that say nothing of what they are about to do: what is left is what intents cost.

Only what repair reads is left out.  Credit, which stands in the same line and is what zones are counted by, stays.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("kernels", "shm", "service", "clients")
READ = ("step_word", "step_of", "counts_of", "cursor_of")
SILENT = ("set_step", "set_step_with_counts", "set_step_with_cursor", "set_record", "set_segments", "set_zone", "done")
KEPT = "    if field != CREDIT and field != CREDIT_ZONE:\n        return\n"


def copy(to: Path, silent: bool) -> Path:
    """Copy the program.

    Args:
        to: directory that it is made in.
        silent: whether its kernels write no intents.

    Returns:
        The directory that Python must look for it in.
    """
    for layer in LAYERS:
        shutil.copytree(ROOT / layer, to / "zonetrack" / layer, ignore=shutil.ignore_patterns("__pycache__"))
    if silent:
        room = to / "zonetrack" / "kernels" / "intents.py"
        room.write_text(silenced(room.read_text()))
    return to


def silenced(source: str) -> str:
    """Return the text of kernels/intents with nothing in the functions that tell repair something."""
    lines = source.splitlines(keepends=True)
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert {function.name for function in functions} == {*SILENT, *READ, "set_field"}, (
        "kernels/intents has other functions now"
    )
    for function in reversed(functions):
        first = function.body[1].lineno - 1  # behind what it says of itself
        if function.name in SILENT:
            lines[first : function.end_lineno] = ["    return\n"]
        elif function.name == "set_field":
            lines.insert(first, KEPT)
    return "".join(lines)


def run(where: Path, *arguments: str) -> str:
    """Run a command of a copy; returns what it prints."""
    code = "from zonetrack.clients.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(where)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=where, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout
