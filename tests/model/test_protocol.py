"""The model: its smaller scenarios have no fault, and known flaws are found.  All: ``make model-all``."""

import pytest

from .audit import audit
from .checker import Scenario, explore, initial_memory
from .repair import repair
from .scenarios import FLAWS, LARGE, SCENARIOS, insert_, puts
from .words import LIVE, NEW, Table, life

SMALL = [name for name in SCENARIOS if name not in LARGE]
FOUND = [flaw for flaw, name in FLAWS.items() if name not in LARGE]
"""Flaws that are looked for here: those that show in a smaller scenario."""


@pytest.mark.parametrize("name", SMALL)
def test_scenario_has_no_fault(name):
    outcome = explore(SCENARIOS[name], repair)
    assert outcome.fault is None, "\n".join((outcome.fault, *outcome.trace))
    assert outcome.complete


@pytest.mark.parametrize("flaw", FOUND)
def test_flaw_is_found(flaw):
    outcome = explore(SCENARIOS[FLAWS[flaw]], repair, (flaw,))
    assert outcome.fault is not None
    assert outcome.trace


def test_every_flaw_names_a_scenario():
    assert set(FLAWS.values()) <= set(SCENARIOS)
    assert set(LARGE) <= set(SCENARIOS)


def test_search_stops_at_its_bound():
    outcome = explore(SCENARIOS["split"], repair, states_max=1000)
    assert outcome.fault is None
    assert not outcome.complete


def test_deadlock_is_a_fault():
    def take_both(first, second):
        def actor(table, me):
            yield 3, table.record_lock + first, me
            yield 3, table.record_lock + second, me
            yield 1, table.record_lock + second, 0
            yield 1, table.record_lock + first, 0

        return actor

    assert explore(Scenario((take_both(0, 1), take_both(0, 1))), repair).fault is None
    assert explore(Scenario((take_both(0, 1), take_both(1, 0))), repair).fault == "deadlock of [1, 2]"


def spoilt(change):
    """Return what audit says of a table with one connection after ``change`` of its memory."""
    table = Table()
    memory = bytearray(initial_memory(table, Scenario((), puts(0))))
    assert audit(table, memory) is None
    change(table, memory)
    return audit(table, memory)


def test_audit_names_what_is_wrong():
    def put(word, value):
        return spoilt(lambda table, memory: memory.__setitem__(getattr(table, word), value))

    assert "held by 2" in put("zone_lock", 2)
    assert "count 2, content 1" in put("count", 2)
    assert "left in state" in put("life", life(NEW, 1, 1))
    assert "slots None" in put("slot", 0)
    assert "owner 0" in put("segment_owner", 0)
    assert "in the pool" in spoilt(lambda table, memory: memory.__setitem__(table.directory_owner + 1, 0))
    assert "is lost" in spoilt(lambda table, memory: memory.__setitem__(table.directory_owner + 2, 3))


def test_audit_sees_a_key_twice():
    table = Table(records=2)
    memory = bytearray(initial_memory(table, Scenario((), (insert_(0),))))
    memory[table.life + 1], memory[table.key + 1] = life(LIVE, 0, 1), memory[table.key]
    memory[table.slot + 1], memory[table.count] = 2, 2
    assert audit(table, memory) == "key 0 has two live records in the index"
