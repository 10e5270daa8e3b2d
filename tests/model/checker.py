"""Every interleaving of single accesses, and every moment of a kill: breadth first, so the first fault has a short trace.

An actor's local state is read from its generators' frames (instruction and locals), so equal states are one node and a
step once taken is a table look-up.  Rules for actors: a yield is a statement of its own, locals are hashable, a loop
variable is unique in its loop, the table is called ``table``.  Memory is sequentially consistent.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .audit import audit, present, wrong_counts
from .words import (
    BEGIN,
    END,
    LOAD,
    LOCK,
    OWN_LOAD,
    OWN_SHIFT,
    OWN_STEP,
    OWN_STORE,
    STORE,
    SWAP,
    USED,
    WAIT,
    Step,
    Table,
)

OWN = frozenset((OWN_STORE, OWN_STEP, OWN_LOAD))
VERBS = ("load", "store", "swap", "lock", "intent", "step", "reads intent", "begins", "ends", "learns of the death of")
CACHE_MAX = 500_000
JUDGED = ("find", "sent", "insert")
"""Operations whose answer is held against what was there meanwhile."""
NOBODY = -1
"""Node of an actor that was killed."""


@dataclass(frozen=True)
class Scenario:
    """Who does what on which table."""

    actors: tuple
    setup: tuple = ()
    """Operations done one after the other before the actors begin."""
    table: dict = field(default_factory=dict)
    wide: int = 0
    """Zone 0 begins with a directory of this depth whose entries all name one segment: its split is a plain one."""
    kill: int = 0
    """The participant that is killed, at any access; a repairer follows."""
    twice: bool = False
    """Whether the repairer is killed too, and followed by another."""


@dataclass(frozen=True)
class Outcome:
    """What an exploration found."""

    fault: str | None
    states: int
    steps: int
    complete: bool
    trace: tuple[str, ...]


class Program:
    """An actor as an automaton that is learned step by step."""

    def __init__(self, make):
        self.make, self.ids, self.accesses, self.history, self.next = make, {}, [], [], {}
        self.start = self._node(())

    def _node(self, history):
        actor = self.make()
        access = None
        try:
            access = next(actor)
            for value in history:
                access = actor.send(value)
        except StopIteration:
            access = None
        frames = []
        inner = actor
        while inner is not None and inner.gi_frame is not None:
            frame = inner.gi_frame
            names = tuple((name, value) for name, value in frame.f_locals.items() if name != "table")
            frames.append((inner.gi_code, frame.f_lasti, names))
            inner = inner.gi_yieldfrom
        key = (access, tuple(frames)) if access is not None else None
        node = self.ids.get(key)
        if node is None:
            node = self.ids[key] = len(self.accesses)
            self.accesses.append(access)
            self.history.append(history)
        return node

    def step(self, node, value):
        """Return the node that follows when the access of ``node`` gave ``value``."""
        after = self.next.get((node, value))
        if after is None:
            after = self.next[node, value] = self._node((*self.history[node], value))
        return after


def perform(memory, access):
    """Do one access on a bytearray, alone; return what it gave."""
    kind, word = access[0], access[1]
    if kind in (LOAD, OWN_LOAD):
        return memory[word]
    if kind in (STORE, OWN_STORE):
        memory[word] = access[2] & 255
    elif kind == OWN_STEP:
        memory[word : word + 3] = access[2]
    elif kind == LOCK:
        assert not memory[word], "nobody else runs, so the lock cannot be held"
        memory[word] = access[2]
    elif kind == SWAP and memory[word] == access[2]:
        memory[word] = access[3]
        return 1
    return 0


def _alone(memory, actor):
    value = None
    while True:
        try:
            access = actor.send(value)
        except StopIteration:
            return
        value = perform(memory, access)


def initial_memory(table, scenario):
    """Return memory after the setup."""
    memory = bytearray(len(table.names))
    if scenario.wide:
        for i in range(1 << scenario.wide):
            memory[table.directory + 3 + i] = 1
        memory[table.zone] = scenario.wide * 8 + 3
        memory[table.segment_depth] = 1
        memory[table.segment_owner] = memory[table.directory_owner + 3] = USED
    kept = table.flaws, table.credits
    table.flaws, table.credits = frozenset(), 1 if table.cells else 0  # who would spend all of it has none left
    for operation in scenario.setup:
        _alone(memory, operation(table, 1))
    table.flaws, table.credits = kept
    memory[table.intents :] = bytes(len(memory) - table.intents)
    return bytes(memory)


class Search:
    """One exploration."""

    def __init__(self, scenario, flaws, repair):
        self.scenario = scenario
        self.table = table = Table(actors=len(scenario.actors), flaws=flaws, **scenario.table)
        self.makers = [
            lambda operation=operation, me=me: operation(table, me)
            for me, operation in enumerate(scenario.actors, start=1)
        ]
        self.last = len(self.makers)  # the last participant that is no repairer
        if scenario.kill:
            self.makers.append(lambda: repair(table, scenario.kill, scenario.kill))
            if scenario.twice:
                self.makers.append(lambda: repair(table, self.last + 1, scenario.kill))
        self.indexed = (
            (table.zone, table.zone + table.zones),
            (table.directory, table.directory_owner),
            (table.slot, table.segment_owner),
            (table.life, table.record_lock),
        )
        self.counted = (
            (table.count, table.directory),
            (table.life, table.record_lock),
            (table.cell, len(table.names)),
        )
        self.views: dict = {}
        self.steps = 0

    def present(self, memory):
        """Return the keys in the index, remembered by the words that decide it."""
        key = b"".join(memory[low:high] for low, high in self.indexed)
        found = self.views.get(key)
        if found is None:
            if len(self.views) > CACHE_MAX:
                self.views.clear()
            found = self.views[key] = present(self.table, memory)
        return found

    def run(self, states_max):
        """Explore until a fault, the end, or ``states_max`` states."""
        self.programs = [Program(make) for make in self.makers]
        memory = initial_memory(self.table, self.scenario)
        root = (memory, tuple(p.start for p in self.programs), (None,) * len(self.programs), 0)
        self.seen = {root: None}
        self.queue = deque([root])
        fault, last = None, None
        while self.queue and fault is None and len(self.seen) <= states_max:
            state = self.queue.popleft()
            fault, last = self._expand(state)
        trace = self._trace(state, last) if fault else ()
        return Outcome(fault, len(self.seen), self.steps, not self.queue or fault is not None, trace)

    def _expand(self, state):
        """Add the states that follow; return a fault and the access that made it."""
        memory, nodes, ghosts, dead = state
        accesses = [p.accesses[n] if n >= 0 else None for p, n in zip(self.programs, nodes, strict=True)]
        todo = range(len(nodes))
        for actor in todo:
            if accesses[actor] is not None and accesses[actor][0] in OWN:
                todo = (actor,)  # nobody else looks, so its place among the others' accesses does not matter
                break
        moved = False
        for actor in todo:
            access = accesses[actor]
            if access is None or (access[0] == LOCK and memory[access[1]]) or (access[0] == WAIT and dead != access[1]):
                continue
            moved = True
            self.steps += 1
            fault, new, value = self._step(state, actor, access)
            if fault:
                return fault, (actor + 1, access, value)
            self._add(new, state, (actor + 1, access, value))
        victim = self.scenario.kill
        if victim:
            actor = self.last if dead else victim - 1  # first the participant, then (twice) its repairer
            access = accesses[actor]
            again = self.scenario.twice and dead == victim and access is not None and access[0] != WAIT
            if access is not None and (not dead or again):
                nodes = (*nodes[:actor], NOBODY, *nodes[actor + 1 :])
                ghosts = (*ghosts[:actor], None, *ghosts[actor + 1 :])
                self._add((memory, nodes, ghosts, actor + 1), state, (actor + 1, None, 0))
        if not moved:
            waiting = [a + 1 for a, access in enumerate(accesses) if access is not None and access[0] != WAIT]
            return (f"deadlock of {waiting}" if waiting else audit(self.table, memory)), None
        return None, None

    def _add(self, new, state, how):
        if new not in self.seen:
            self.seen[new] = (state, how)
            self.queue.append(new)

    def _step(self, state, actor, access):
        """Return (fault, new state, what the access gave)."""
        memory, nodes, ghosts, dead = state
        kind, word = access[0], access[1]
        value, after = 0, memory
        if kind in (LOAD, OWN_LOAD):
            value = memory[word]
        elif kind in (STORE, OWN_STORE):
            after = memory[:word] + bytes((access[2] & 255,)) + memory[word + 1 :]
        elif kind == OWN_STEP:
            after = memory[:word] + access[2] + memory[word + 3 :]
        elif kind == LOCK or (kind == SWAP and memory[word] == access[2]):
            value = int(kind == SWAP)
            after = memory[:word] + bytes((access[-1],)) + memory[word + 1 :]
        elif kind == BEGIN and access[1] in JUDGED:
            keys = access[2] if isinstance(access[2], tuple) else (access[2],)
            there = self.present(memory) >> _bit(access[1], keys) & 1
            ghosts = (*ghosts[:actor], (access[1], keys, there, 1 - there), *ghosts[actor + 1 :])
        fault = None
        if after is not memory:
            if any(low <= word < high for low, high in self.indexed):
                found = self.present(after)
                if isinstance(found, str):
                    return found, None, value
                ghosts = tuple(ghost and _look(ghost, found) for ghost in ghosts)
            if any(low <= word < high for low, high in self.counted):
                fault = wrong_counts(self.table, after)
        node = self.programs[actor].step(nodes[actor], value)
        if fault is None:
            node, ghosts, fault = self._end(actor, node, ghosts)
        return fault, (after, (*nodes[:actor], node, *nodes[actor + 1 :]), ghosts, dead), value

    def _end(self, actor, node, ghosts):
        """Judge what operations say at their END, which follows the access just made.

        Args:
            ghosts: for each actor what it is about: (kind, keys, was present at some moment, was absent).
        """
        program = self.programs[actor]
        access = program.accesses[node]
        fault = None
        while access is not None and access[0] == END and fault is None:
            kind, what, answer = access[1:4]
            ghost = ghosts[actor]
            if kind == "detach":  # an insert that passed its check before lands in the detached directory
                flying = {key for g in ghosts if g and g[0] == "insert" for key in g[1]}
                ghosts = tuple((g[0], g[1], 1, g[3]) if g and g[1][0] in flying else g for g in ghosts)
            elif kind in ("find", "sent"):
                if answer >= 0 and not ghost[2]:
                    fault = f"find of key {what} hit, but it was absent all the time"
                if answer < 0 and not ghost[3]:
                    fault = f"find of key {what} missed, but it was present all the time"
            elif kind == "insert":
                if answer == "exists" and not ghost[2]:
                    fault = f"insert of key {what[0]} adopted, but it was absent all the time"
                if answer in self.table.never:
                    fault = f"insert of key {what[0]} answered {answer}"
            if kind in JUDGED:
                ghosts = (*ghosts[:actor], None, *ghosts[actor + 1 :])
            node = program.step(node, 0)
            access = program.accesses[node]
        return node, ghosts, fault

    def _trace(self, state, last):
        path = [last] if last else []
        while self.seen[state] is not None:
            state, how = self.seen[state]
            path.append(how)
        return tuple(self._show(*how) for how in reversed(path))

    def _show(self, actor, access, value):
        if access is None:
            return f"{actor} is killed"
        kind, word = access[0], access[1]
        if kind in (BEGIN, END, WAIT):
            return f"{actor} {VERBS[kind]} {access[1:]}"
        name = self.table.names[word]
        if kind in (LOAD, OWN_LOAD):
            return f"{actor} {VERBS[kind]} {name} = {value}"
        if kind == OWN_STEP:
            return f"{actor} {VERBS[kind]} := {Step(access[2][0]).name} {tuple(access[2][1:])}"
        if kind == LOCK:
            return f"{actor} {VERBS[kind]} {name}"
        return f"{actor} {VERBS[kind]} {name} := {access[-1]}{'' if kind != SWAP or value else ' failed'}"


def _bit(kind, keys):
    """Return the bit of what is present that an operation is about: one that tells directions apart means an own key."""
    return keys[0] + (OWN_SHIFT if kind == "sent" else 0)


def _look(ghost, found):
    kind, keys, there, absent = ghost
    now = found >> _bit(kind, keys) & 1
    return kind, keys, there | now, absent | (1 - now)


def explore(scenario, repair, flaws=(), states_max=5_000_000):
    """Explore a scenario with some cures switched off."""
    return Search(scenario, flaws, repair).run(states_max)
