"""What a run has reached: every labelled access of the kernels, every branch of repair, every step that somebody died in.

The text of a kernel is compiled once more with a store before each place of interest, and the function that everybody calls
gets that code.  So whatever imports it is watched, and a place costs one store.

A place is the line of an access that a comment names (``# R2``, ``A1 before ...``), anywhere in the kernels; and the first
line of each arm of each branch in the rooms of repair, and of the function itself.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from types import CodeType, FunctionType

from zonetrack import kernels
from zonetrack.service.ports import packet_rings, xdp_rings
from zonetrack.shm.layout import Step

LABEL = re.compile(r"#.*\b([RAF][1-9])\b")
ARMS = ("repair", "packet_rings", "xdp_rings")
"""Rooms whose name begins so are watched arm by arm."""


class Reach:
    """Places by number, and which of them this run has reached."""

    def __init__(self, modules=None):
        self.names = []
        self.reached = bytearray()
        for module in modules or _rooms():
            self._watch(module)
        self.reached.extend(bytes(len(self.names)))
        self.steps = [0] * (max(Step) + 1)
        self.seeds = [0] * len(self.names)

    def died_in(self, step):
        """Note the step that somebody was killed in."""
        self.steps[step] += 1

    def end_of_seed(self):
        """Count what this seed has reached."""
        for i, hit in enumerate(self.reached):
            if hit:
                self.seeds[i] += 1
                self.reached[i] = 0

    def missed(self):
        """Return the names of places that no seed reached."""
        return [name for name, seeds in zip(self.names, self.seeds, strict=True) if not seeds]

    def _watch(self, module):
        source = inspect.getsource(module)
        lines = source.splitlines()
        tree = ast.parse(source)
        room = module.__name__.rpartition(".")[2]
        by_arm = room.startswith(ARMS)
        found = False
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            found |= self._instrument(function, room, lines, by_arm)
        if not found:
            return
        code = compile(ast.fix_missing_locations(tree), module.__file__, "exec")
        instrumented = {part.co_name: part for part in code.co_consts if isinstance(part, CodeType)}
        module.__dict__["_reached"] = self.reached
        for function in vars(module).values():
            own = isinstance(function, FunctionType) and function.__module__ == module.__name__
            if own and function.__name__ in instrumented and not function.__code__.co_freevars:
                function.__code__ = instrumented[function.__name__]

    def _instrument(self, function, room, lines, by_arm):
        """Put stores into a function; returns whether there are any."""
        before = len(self.names)
        self._arm(function.body, room, function.name, lines, by_arm, is_arm=by_arm)
        return len(self.names) > before

    def _arm(self, body, room, name, lines, by_arm, is_arm):
        labels = [self._label(statement, lines) for statement in body]
        for statement in body:
            inner = [statement.body] if isinstance(statement, (ast.If, ast.For, ast.While)) else []
            if inner and statement.orelse:
                inner.append(statement.orelse)
            for arm in inner:
                self._arm(arm, room, name, lines, by_arm, is_arm=by_arm)
        for i in reversed(range(len(body))):
            if labels[i]:
                body.insert(i, self._store(f"{labels[i]} {room}.{name}:{body[i].lineno}", body[i]))
        if is_arm:
            skips = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
            body.insert(int(skips), self._store(f"{room}.{name}:{body[int(skips)].lineno}", body[0]))

    def _label(self, statement, lines):
        """Return the label that stands beside the lines of a statement itself, not of what is nested in it."""
        last = statement.end_lineno
        if isinstance(statement, (ast.If, ast.For, ast.While)):
            last = statement.body[0].lineno - 1
        for line in lines[statement.lineno - 1 : last]:
            if match := LABEL.search(line):
                return match[1]
        return None

    def _store(self, name, beside):
        self.names.append(name)
        store = ast.parse(f"_reached[{len(self.names) - 1}] = 1").body[0]
        for node in ast.walk(store):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = beside.lineno
        return store


def _rooms():
    rooms = [
        importlib.import_module(f"{kernels.__name__}.{room.name}") for room in pkgutil.iter_modules(kernels.__path__)
    ]
    return [*rooms, packet_rings, xdp_rings]  # where a successor goes on in a ring that the system shares
