"""The rules of a service: looked at, published, and shown with what has met them.

What is published is compiled rules with their text beside them, so whoever shows them needs nothing but the rulebook.
Rules that stay as they were keep their counters: workers count in the generation that they go by, and when all of them
have left the one before, its counts are carried over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..clients.errors import BusyError
from ..shm import rulebook
from ..shm.layout import GENERATION, HIT, POLICIES_MAX
from ..shm.rulebook import Rulebook, StillInUseError
from ..shm.views import Table
from . import described, rules_check, rules_compile, rules_file, rules_text, trace
from .policies import Policies
from .rehearsal import Rehearsal
from .rules import Names, Rule
from .rules_check import HELPERS

NOTHING = np.zeros((), HIT)
TRACED_MAX = 64
"""Packets that are traced at once."""


class Published:
    """The rules of one service."""

    def __init__(self, book: Rulebook, table: Table, ports: Sequence[str]) -> None:
        """Take them up as they are.

        Args:
            book: of the service.
            table: of the service, for the names of its timeout policies.
            ports: names, in the order of the configuration.
        """
        self.book, self._table = book, table
        table.quarantine = book.quarantine_address
        self._policies = Policies(table)
        self._ports = {name: number for number, name in enumerate(ports, 1)}

    def names(self) -> Names:
        """Return what words in rules stand for now."""
        named = ((self._policies.name(row), row) for row in range(POLICIES_MAX))
        return Names(dict(self._ports), {name: row for name, row in named if name}, HELPERS)

    @property
    def _kept(self) -> Names:
        """What stands for ports in the text that is kept; policies are numbers there, for their names may change."""
        return Names(dict(self._ports), helpers=HELPERS)

    # -------------------------------------------------------------------------------------------- changing
    def check(self, text: str, form: str) -> dict[str, Any]:
        """Return what there is to tell of rules that might be loaded.

        Raises:
            RulesError: with all that is wrong.
        """
        return rules_check.check(text, form, self.names())[1]

    def load(self, text: str, form: str, wait_s: float = rulebook.WAIT_S) -> dict[str, Any]:
        """Let rules hold from now on, and return what there is to tell of them.

        Args:
            text: a file of them.
            form: one of ``rules_file.FORMATS``.
            wait_s: for workers, first to let go of the rules before the last, then to go by these.

        Raises:
            RulesError: with all that is wrong with them; nothing was changed.
            BusyError: a worker has not let go of the rules before the last; nothing was changed.
        """
        rules = rules_file.read(text, form, self.names())
        kept = rules_text.write(rules, self._kept)
        # one row of counters more than there are workers: what the rules before have counted
        compiled = rules_compile.compile_rules(rules, self.book.workers + 1, kept)
        before = self._counted()
        try:
            number = self.book.publish(compiled, wait_s)
        except StillInUseError as error:
            raise BusyError(f"{error}; try again") from error
        followed = self.book.picked_up(wait_s)
        if followed:
            self._carry(number, before)
        return {"number": number, "rules": len(rules), "bytes": len(compiled), "followed": followed}

    def check_file(self, path: str) -> dict[str, Any]:
        """Return what there is to tell of the rules of a file.

        Raises:
            RulesError: with all that is wrong, the file's name before it.
        """
        return rules_check.check_file(path, self.names())

    def load_file(self, path: str, wait_s: float = rulebook.WAIT_S) -> dict[str, Any]:
        """Load the rules of a file.

        Raises:
            RulesError: with all that is wrong, the file's name before it; nothing was changed.
            BusyError: see `load`.
        """
        with rules_check.of_file(path) as text:
            return self.load(text, rules_file.format_of(path), wait_s)

    def clear(self, wait_s: float = rulebook.WAIT_S) -> dict[str, Any]:
        """Let no rules hold: each packet is tracked and committed in the zone of its port, and answered."""
        self.book.withdraw()
        return {"followed": self.book.picked_up(wait_s)}

    # -------------------------------------------------------------------------------------------- showing
    def _rules(self, generation: np.ndarray) -> list[Rule]:
        """Return the rules of a generation as they are numbered."""
        head = generation[: GENERATION.itemsize].view(GENERATION)[0]
        first = int(head["text"])
        text = generation[first : first + int(head["text_bytes"])].tobytes().decode()
        return rules_compile.ordered(rules_text.read(text, self._kept))

    def rules(self) -> list[Rule]:
        """Return the rules that hold, as they are numbered; none where none do."""
        generation = self.book.current
        return [] if generation is None else self._rules(generation)

    def show(self) -> dict[str, Any]:
        """Return the rules that hold, in plain values, each with what has met it.

        Returns:
            ``number``, 0 where there are none, and ``rules``: as in files, with ``packets``, ``bytes``, and ``text``.
        """
        number, hits, rules, names = self.book.number, self.book.hits(), self.rules(), self.names()
        told = []
        for rule, hit in zip(rules, hits, strict=True):
            packets, bytes_ = int(hit["packets"]), int(hit["bytes"])
            text = rules_text.line(rule, names, f"n_packets={packets},n_bytes={bytes_}")
            told.append(rules_file.tree(rule, names) | {"packets": packets, "bytes": bytes_, "text": text})
        return {"number": number, "rules": told}

    def trace(
        self,
        views: np.record,
        text: str,
        zones: Sequence[int],
        assumed: Sequence[str] = (),
        then: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the way of a described packet through the rules, see `trace`.

        Args:
            views: of the participant that asks the table.
            text: describes the packet.
            zones: of the ports, in the order of the configuration.
            assumed: ct_states for ct to find.
            then: describe the packets that follow it, and find what those before them have left.

        Returns:
            Its way, with ``number`` of the rules, and ``then``: the ways of the others.

        Raises:
            ValueError: there is no such packet.
        """
        names, (number, generation, rules) = self.names(), self._snapshot()
        if len(then) >= TRACED_MAX:
            raise ValueError(f"{len(then) + 1} packets, at most {TRACED_MAX} are possible")
        states, rehearsal = trace.assumptions(assumed), Rehearsal(self._table, views)
        first, *others = (
            trace.Trace(packet, names, dict(enumerate(zones, 1)), rehearsal.track, states).run(generation, rules)
            for packet in [described.read(one, names) for one in (text, *then)]
        )
        return {"number": number} | first | {"then": others}

    def _snapshot(self) -> tuple[int, np.ndarray, list[Rule]]:
        """Return number, a copy and the rules of the generation that holds; where none does, of what happens then."""
        while True:
            generation, number = self.book.current, self.book.number
            if generation is None:
                rules = rules_text.read(trace.MONITOR, self._kept)
                return 0, rules_compile.compile_rules(rules), rules
            copied = generation.copy()
            if self.book.number == number:  # else its place may have been written again meanwhile
                return number, copied, self._rules(copied)

    # -------------------------------------------------------------------------------------------- counters
    def _counted(self) -> tuple[np.ndarray, list[Rule]] | None:
        """Return the generation that holds, and its rules."""
        generation = self.book.current
        return None if generation is None else (generation, self._rules(generation))

    def _carry(self, number: int, before: tuple[np.ndarray, list[Rule]] | None) -> None:
        """Add what the rules before have counted to those that are the same, in the row that no worker writes."""
        now = self._counted()
        if before is None or now is None or self.book.number != number:
            return
        old, rules = before
        counts = dict(zip(map(_same, rules), rulebook.total(old), strict=True))
        row = rulebook.counters(now[0])[-1]
        for place, rule in enumerate(now[1]):
            row[place] = counts.get(_same(rule), NOTHING)


def _same(rule: Rule) -> tuple[object, ...]:
    """Return what makes a rule the same as one before: all but its cookie."""
    return *rule.identity, rule.actions
