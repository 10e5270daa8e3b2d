"""Imports go one way: clients -> service -> kernels -> shm, and each layer knows only the libraries it may.

    shm        what the bytes are             numpy, posix_ipc
    kernels    what happens to the bytes      numpy, numba; llvmlite in linking and memory only; no sockets, clocks, mappings
    service    who does it, and when          kernels, shm, and of clients the wire, its errors, and what a person sees
    clients    how to ask                     nothing of ours; who drives the table itself may import what that takes

A layer that is only named in a string (``clients/cli``) is not imported: that is how a command line stays quick.
"""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import checkout
import pytest


class Import(NamedTuple):
    """One imported module: ``zonetrack.shm.layout`` or ``numpy``, and whether it happens when the room is imported."""

    module: str
    line: int
    eager: bool


class Rule(NamedTuple):
    """What the rooms of a layer may import, by the beginnings of module names; ``without`` wins over the others."""

    ours: tuple[str, ...]
    libraries: tuple[str, ...]
    without: tuple[str, ...] = ()


KERNELS_KNOW_NOTHING_OF = (
    *("asyncio", "mmap", "multiprocessing", "random", "select", "selectors"),
    *("signal", "socket", "subprocess", "threading", "time"),
)
"""A kernel is given its bytes and its `now`; where they come from is not its business."""

SHARED_CLIENT_ROOMS = ("wire", "framing", "errors", "address", "connections", "tables", "watching")
SHARED_CLIENT_ROOMS += ("collectors", "syslog_lines")  # whom exports that the service keeps may tell
"""What both sides of the socket must agree on, and what a person sees whichever of them prints it."""

HEAVY = ("rich", "numpy", "textual")
"""What a client imports when a person is looking, or wants an array, and not before."""

RULES = {
    "shm": Rule(("shm",), ("numpy", "posix_ipc")),
    "kernels": Rule(("kernels", "shm.layout", "shm.reasons"), ("numpy", "numba"), KERNELS_KNOW_NOTHING_OF),
    "service": Rule(
        ("service", "kernels", "shm", *(f"clients.{room}" for room in SHARED_CLIENT_ROOMS)),
        ("numpy", "click", "rich", "msgpack", "uvloop", "prometheus_client", "aiohttp"),
    ),
    "clients": Rule(("clients",), ("click", "rich", "msgpack", "numpy"), ("numba",)),
}

FORWARD = ("forward_trial", "forward_ends", "forward_traffic", "forward_command", "kernel_trial", "stats_trial")
FORWARDERS = Rule(
    (
        *("clients", "kernels", "shm"),
        *(f"service.{room}" for room in ("warmup", "crew", "ports", "rules", "rules_text", "rules_compile")),
    ),
    ("numpy", "click"),
)
"""Clients that are a gateway themselves, with ports and rules."""

DRIVERS = Rule(("clients", "kernels", "shm", "service.warmup", "service.crew"), ("numpy", "click", "rich"))
"""Clients that drive the table themselves: they warm up and fork workers as a replay does."""

SENDERS = Rule(
    ("clients", "shm", *(f"service.{room}" for room in ("captures", "labels", "packets", "warmup"))), ("numpy", "click")
)
"""A client that reads captures, and says of packets what a replay says of them."""

ROOM_RULES = {
    **{
        f"kernels/{room}": RULES["kernels"]._replace(libraries=("numpy", "numba", "llvmlite"))
        for room in ("linking", "memory")
    },
    "service/ports/torn": RULES["service"]._replace(libraries=("numpy", "llvmlite")),  # a handler is native code
    "service/__main__": Rule(("clients.cli",), ()),  # another name for the same command
    "service/warmup": RULES["service"]._replace(libraries=("click", "numpy", "numba")),  # listens to the compiler
    **{f"clients/{room}": Rule(("clients", "kernels", "shm"), ("numpy",)) for room in ("port", "sending")},
    "clients/columns": Rule(("clients",), ("numpy", "pyarrow")),  # of an extra, imported where it is used
    "clients/send_command": SENDERS,
    **{f"clients/{room}": FORWARDERS for room in FORWARD},
    "clients/top_screen": Rule(("clients",), ("rich", "textual")),  # imported when a person is looking
    "clients/stop_command": Rule(
        ("clients", "service.orphans", "service.stopping"), ("click",)
    ),  # nobody is left to ask
    "clients/explain_command": Rule(("clients", "service.explaining", "service.warmup"), ("click",)),
    **{
        f"clients/{room}": DRIVERS
        for room in (
            *("load", "trial", "service_trial", "courier", "scenarios", "driver", "sender", "traffic", "floor"),
            *("zones_trial", "flood_trial", "series"),
        )
    },
    **{f"clients/{room}": DRIVERS for room in ("trips", "nat_scenarios", "nat_trial", "nat_full")},
    "clients/rules_trial": DRIVERS._replace(ours=(*DRIVERS.ours, "service.rules", "service.rules_compile")),
    "clients/answered": DRIVERS._replace(
        ours=(*DRIVERS.ours, *(f"service.{room}" for room in ("control", "context", "door", "listening")))
    ),
    **{f"clients/{room}": DRIVERS for room in ("clients_trial", "dump_trial", "events_trial", "views_trial")},
    "clients/manual": Rule(("clients", "service.config"), ("click",)),  # run when a package is built
    "clients/plot": Rule(("clients",), ("click", "matplotlib")),
}


def imports_of(path, room):
    """Return every import of a room, relative ones resolved to ``zonetrack.<layer>.<room>``."""
    package = ["zonetrack", *Path(room).parts[:-1]]
    found = []

    def walk(node, eager):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.extend(Import(alias.name, child.lineno, eager) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(package[: len(package) + 1 - child.level]) if child.level else ""
                module = ".".join(part for part in (base, child.module) if part)
                # `from .. import shm` and `from ..shm import layout` name modules; of `from x import f` only x matters
                names = [f".{alias.name}" for alias in child.names] if module.count(".") < 2 and base else [""]
                found.extend(Import(module + name, child.lineno, eager) for name in names)
            if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
                walk(child, eager and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    walk(ast.parse(path.read_text(), str(path)), True)
    return found


def begins_with(module, names):
    """Return whether ``module`` is one of ``names`` or lies inside one of them."""
    return any(module == name or module.startswith(name + ".") for name in names)


def complaints(path, room, rule):
    """Return a line for each import of a room that its rule does not allow."""
    wrong = []
    for module, line, eager in imports_of(path, room):
        where = f"{room}:{line} imports {module}"
        if begins_with(module, checkout.LAYERS):
            wrong.append(f"{where}: the layers are installed under zonetrack only")
        elif begins_with(module, ("zonetrack",)):
            if not begins_with(module.removeprefix("zonetrack."), rule.ours):
                wrong.append(f"{where}: no arrow goes there")
        elif begins_with(module, rule.without):
            wrong.append(f"{where}: this layer does without")
        elif module.partition(".")[0] not in sys.stdlib_module_names and not begins_with(module, rule.libraries):
            wrong.append(f"{where}: not a library of this layer")
        elif rule is RULES["clients"] and eager and begins_with(module, HEAVY):
            wrong.append(f"{where}: imported only when it is needed")
    return wrong


@pytest.mark.parametrize("room", list(checkout.rooms()))
def test_every_arrow_points_down(room):
    rule = ROOM_RULES.get(room) or RULES[room.partition("/")[0]]
    assert complaints(checkout.rooms()[room], room, rule) == []


@pytest.mark.parametrize(
    ("room", "source", "complaint"),
    [
        ("shm/x", "from ..kernels import words", "no arrow goes there"),
        ("shm/x", "import numba", "not a library of this layer"),
        ("kernels/x", "from ..service.replay import command", "no arrow goes there"),
        ("kernels/x", "from ..shm.segment import attach", "no arrow goes there"),
        ("kernels/x", "def f():\n    import time", "this layer does without"),
        ("kernels/x", "from llvmlite import ir", "not a library of this layer"),
        ("kernels/x", "import kernels.words", "the layers are installed under zonetrack only"),
        ("service/x", "from ..clients import load", "no arrow goes there"),
        ("service/x", "from zonetrack.clients.cli import main", "no arrow goes there"),
        ("clients/x", "from ..shm import layout", "no arrow goes there"),
        ("clients/x", "from .. import kernels", "no arrow goes there"),
        ("clients/x", "import rich.table", "imported only when it is needed"),
        ("clients/x", "import numpy as np", "imported only when it is needed"),
    ],
)
def test_a_wrong_arrow_is_seen(room, source, complaint, tmp_path):
    path = tmp_path / "x.py"
    path.write_text(source)
    found = complaints(path, room, RULES[room.partition("/")[0]])
    assert len(found) == 1 and found[0].endswith(complaint)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        (
            "kernels/x",
            "from ..shm import layout\nfrom ..shm.layout import ENTRY\nfrom . import words\nimport numpy as np",
        ),
        ("service/x", "from ..clients.errors import ZonetrackError\nfrom ..kernels import burst\nimport asyncio"),
        ("clients/x", "def show():\n    from rich.table import Table"),
        ("clients/x", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy as np"),
    ],
)
def test_a_right_arrow_is_left_alone(room, source, tmp_path):
    path = tmp_path / "x.py"
    path.write_text(source)
    assert complaints(path, room, RULES[room.partition("/")[0]]) == []


def test_rules_name_rooms_that_are_there():
    assert [room for room in ROOM_RULES if room not in checkout.rooms()] == []


def test_layers_are_not_installed_under_their_bare_names():
    """With the root on ``sys.path``, ``import kernels`` would load a second copy of every kernel and every enum."""
    assert checkout.ROOT not in [Path(entry).resolve() for entry in sys.path]
    assert [layer for layer in checkout.LAYERS if find_spec(layer)] == []
