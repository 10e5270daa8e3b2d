"""Rules compiled to what workers read: one block of arrays that name each other by offsets (GENERATION of shm/layout).

Rules of a table stand in order of priority, those of equal priority in order of the file.  Where many of them ask for a
ct_state the table is parted by it, so that packets of established connections never meet the rules for new ones.  A part
with more than a few rules is cut along each field that its rules ask for: the field's values fall into intervals in each
of which the same rules can match, and each interval has a row with a bit for every rule.  A packet's rows, one of each
field, AND to the rules that can match it, the strongest first (Lakshman and Stiliadis, "High-speed policy-based packet
forwarding", 1998; the summary in front of each row is Baboescu and Varghese's).  A mask that is no interval leaves its
field to the comparison that ends every lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..shm.layout import (
    ACTION,
    CACHED_WORDS,
    DIMENSION,
    DIMENSIONS_MAX,
    FIELDS,
    FIELDS_WORDS,
    GENERATION,
    GENERATION_BYTES,
    GENERATION_BYTES_MAX,
    HIT_BYTES,
    HOP,
    INTERVAL,
    KEEPS_ADDRESS,
    LINE_BYTES,
    NO_TABLE,
    OP,
    RULE,
    RULE_TABLES_MAX,
    RULES_MAX,
    SUBSET,
    TRANSLATES,
    ActionFlag,
    Nat,
    OpKind,
    offset,
)
from .rules import (
    BITS,
    Action,
    Answer,
    Ct,
    CtClear,
    Goto,
    InPort,
    Masked,
    Normal,
    Output,
    Route,
    Rule,
    RulesError,
    Span,
    Wanted,
)

LINEAR_MAX = 8
"""Rules that are gone through one by one: some 4 ns each, where cutting takes 20 for each field."""
STATES = 256
ETH_TYPES = {4: 0x0800, 6: 0x86DD}
FAMILIES = {4: "ip, tcp or the like", 6: "ipv6, tcp6 or the like"}
NAT_WAYS = {"src": Nat.SOURCE, "dst": Nat.DESTINATION}
NAT_FLAGS = {"random": Nat.RANDOM, "persistent": Nat.PERSISTENT}
SHARES_MAX = 2
"""A table is parted by ct_state where all parts together have at most so many times its rules."""


class Dimension(NamedTuple):
    """A place in FIELDS that can be cut: two for what has 128 bits."""

    field: str
    place: int
    size: int
    shift: int
    bits: int


def _dimensions() -> list[Dimension]:
    found = []
    for name, bits in BITS.items():
        place = int(offset(FIELDS, name))
        if bits == 128:
            found += [Dimension(name, place, 8, 64, 64), Dimension(name, place + 8, 8, 0, 64)]
        else:
            found.append(Dimension(name, place, FIELDS[name].itemsize, 0, bits))
    return found


DIMENSIONS = _dimensions()
assert len(DIMENSIONS) <= DIMENSIONS_MAX


# ------------------------------------------------------------------------------------------------ rules
def ordered(rules: Iterable[Rule]) -> list[Rule]:
    """Return rules as they are numbered: by table, the strongest first."""
    return sorted(rules, key=lambda rule: (rule.table, -rule.priority))


def check(rules: Sequence[Rule]) -> list[str]:
    """Return what is wrong with rules that are each well written, but not together or not in this version."""
    complaints = []
    if len(rules) > RULES_MAX:
        complaints.append(f"{len(rules):,} rules, at most {RULES_MAX:,} are possible")
    tables = {rule.table for rule in rules}
    seen: dict[tuple[object, ...], Rule] = {}
    for rule in rules:
        other = seen.setdefault(rule.identity, rule)
        if other is not rule:
            complaints.append(f"{rule.where}: never met, for {other.where} asks for the same with the same priority")
        for action in rule.actions:
            next_table = action.table if isinstance(action, Goto) else getattr(action, "next_table", NO_TABLE)
            if next_table != NO_TABLE and next_table not in tables:
                complaints.append(f"{rule.where}: goes to table {next_table}, which has no rules")
            family = action.nat.family if isinstance(action, Ct) and action.nat is not None else 0
            if family and rule.match.get("eth_type") != Masked(ETH_TYPES[family], 0xFFFF):
                complaints.append(f"{rule.where}: nat to an address of IPv{family} needs {FAMILIES[family]} beside it")
    return complaints


def _put(target: np.void, field: str, wanted: Wanted) -> None:
    """Write what is asked for into a rule's value and mask."""
    assert isinstance(wanted, Masked)
    value, mask = target["value"].view(FIELDS)[0], target["mask"].view(FIELDS)[0]
    for one, number in ((value, wanted.value), (mask, wanted.mask)):
        one[field] = (number >> 64, number & (1 << 64) - 1) if BITS[field] == 128 else number


def _rules(rules: Sequence[Rule], ops: list[np.ndarray], actions: list[np.ndarray]) -> np.ndarray:
    """Return RULE of each; what they do is appended to ``ops`` and ``actions``, once for all that do the same."""
    made, first_of = np.zeros(len(rules), RULE), {}
    made["sport_high"] = made["dport_high"] = 0xFFFF
    for row, rule in zip(made, rules, strict=True):
        for field, wanted in rule.match.items():
            if isinstance(wanted, Span):
                row[f"{field}_low"], row[f"{field}_high"] = wanted
            else:
                _put(row, field, wanted)
        does = tuple((type(action), action) for action in rule.actions)
        if does not in first_of:
            first_of[does] = len(ops)
            ops += [_op(action, actions) for action in rule.actions]
        row["first_op"], row["op_count"] = first_of[does], len(rule.actions)
    return made


def _op(action: Action, actions: list[np.ndarray]) -> np.ndarray:
    made = np.zeros(1, OP)
    made["next_table"] = NO_TABLE
    match action:
        case Output(port):
            made["kind"], made["argument"] = OpKind.OUTPUT, port
        case InPort():
            made["kind"] = OpKind.IN_PORT
        case Normal():
            made["kind"] = OpKind.NORMAL
        case Goto(table):
            made["kind"], made["argument"] = OpKind.GOTO, table
        case CtClear():
            made["kind"] = OpKind.CT_CLEAR
        case Route(source, destination, address, family, mtu):
            made["kind"] = OpKind.ROUTE
            actions.append(_hop(source, address, family, destination, mtu))
            made["action"] = len(actions)
        case Answer(source, address, family):
            made["kind"] = OpKind.ANSWER
            actions.append(_hop(source, address, family))
            made["action"] = len(actions)
        case Ct():
            made["kind"], made["commit"], made["next_table"] = OpKind.CT, action.commit, action.next_table
            made["zone"], made["zone_from"] = action.zone, action.zone_from
            wanted = asked(action)
            if wanted is not None:
                actions.append(wanted)
                made["action"] = len(actions)  # its offset, once that is known
    return made


def _hop(source: int, address: int, family: int, destination: int = 0, mtu: int = 0) -> np.ndarray:
    """Return a HOP, as one of the actions among which it stands."""
    made = np.zeros(1, HOP)
    made["source"], made["destination"] = source, destination
    made["address"] = (address >> 64, address & (1 << 64) - 1)
    made["family"], made["mtu"] = family, mtu
    return made.view(ACTION)


def asked(ct: Ct) -> np.ndarray | None:
    """Return what a ct asks of the connection; None where it asks nothing."""
    made = np.zeros(1, ACTION)
    if ct.force:
        made["flags"] = ActionFlag.FORCE
    if ct.policy is not None:
        made["policy"] = ct.policy + 1
    if ct.mark is not None:
        made["mark"], made["mark_mask"] = ct.mark
    if ct.label is not None:
        for name, number in (("label", ct.label.value), ("label_mask", ct.label.mask)):
            made[name] = (number >> 64, number & (1 << 64) - 1)
    made["helper"] = ct.helper
    if ct.nat is not None:
        made["nat"] = Nat.APPLY | NAT_WAYS.get(ct.nat.way, 0) | sum(NAT_FLAGS.get(flag, 0) for flag in ct.nat.flags)
        made["nat_ports"] = (ct.nat.port_low, ct.nat.port_high)
        for name, number in (("nat_first", ct.nat.low), ("nat_last", ct.nat.high)):
            made[name] = (number >> 64, number & (1 << 64) - 1)
    return made if made.tobytes().strip(b"\0") else None


# ------------------------------------------------------------------------------------------------ subsets
def interval(wanted: Wanted | None, dimension: Dimension) -> tuple[int, int] | None:
    """Return the interval of a dimension in which a rule can match: all of it for a mask that is none; None is no value."""
    most = (1 << dimension.bits) - 1
    if wanted is None:
        return 0, most
    if isinstance(wanted, Span):
        return wanted.low, wanted.high
    value, mask = (number >> dimension.shift & most for number in wanted)
    free = most & ~mask
    return (value, value | free) if free & (free + 1) == 0 else (0, most)


def _ways(rules: Sequence[Rule], dimension: Dimension) -> tuple[np.ndarray, np.ndarray]:
    """Return where the intervals of a dimension begin, and for each, which rules can match there: bool[intervals, rules]."""
    wanted = [rule.match.get(dimension.field) for rule in rules]
    if dimension.bits <= 8:  # any mask, value by value
        values = np.arange(1 << dimension.bits, dtype="u8")
        value, mask = (np.array([one[part] if one is not None else 0 for one in wanted], "u8") for part in (0, 1))
        return values, (values[:, None] & mask) == value
    spans = [interval(one, dimension) for one in wanted]
    low = np.array([span[0] for span in spans if span], "u8")
    high = np.array([span[1] for span in spans if span], "u8")
    most = np.uint64((1 << dimension.bits) - 1)
    starts = np.unique(np.concatenate([np.zeros(1, "u8"), low, high[high < most] + np.uint64(1)]))
    return starts, (low <= starts[:, None]) & (starts[:, None] <= high)


def _rows(can: np.ndarray, words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which row each interval has, and the rows, u64[n, 1 + words], equal ones once."""
    packed = np.zeros((len(can), words * 8), "u1")
    bits = np.packbits(can, axis=1, bitorder="little")
    packed[:, : bits.shape[1]] = bits
    full = packed.view("u8")
    unique, rows_of = np.unique(full, axis=0, return_inverse=True)
    summary = ((unique != 0) << np.arange(words, dtype="u8")).sum(axis=1, dtype="u8")
    return rows_of.reshape(-1).astype("u4"), np.column_stack([summary, unique])


class Block:
    """Bytes that grow; each piece begins on a word."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = GENERATION_BYTES

    def put(self, array: np.ndarray | bytes, align: int = 8) -> int:
        """Append an array; returns its offset."""
        pad = -self.size % align
        data = b"\0" * pad + (array if isinstance(array, bytes) else array.tobytes())
        self.pieces.append(data)
        self.size += len(data)
        return self.size - len(data) + pad


def _asked_for(rules: Sequence[Rule]) -> np.ndarray:
    """Return FIELDS[1] with a bit for each that some of these rules ask for."""
    mask: dict[str, int] = {}
    for rule in rules:
        for field, wanted in rule.match.items():
            mask[field] = mask.get(field, 0) | (0xFFFF if isinstance(wanted, Span) else wanted.mask)
    return fields(**mask)


def _places(mask: np.ndarray) -> tuple[list[int], list[int]]:
    """Return where in FIELDS the words stand that are asked for: as many as CACHED has, and those beyond, if there are any.

    The ports come first and the label last; where there are fewer, a word that nobody asks for makes up the number.
    """
    words = mask.view("u8")
    ports, label = (int(offset(FIELDS, name)) // 8 for name in ("sport", "label"))
    rank = {ports: 0, label: 2, label + 1: 2}
    asked = sorted(np.flatnonzero(words).tolist(), key=lambda word: (rank.get(word, 1), word))
    first = asked[:CACHED_WORDS] + [int(np.argmin(words))] * (CACHED_WORDS - len(asked))
    return [8 * word for word in first], [8 * word for word in asked[CACHED_WORDS:]]


# ------------------------------------------------------------------------------------------------ translations
def _intervals(rules: Sequence[Rule]) -> tuple[int, np.ndarray]:
    """Return TRANSLATES and KEEPS_ADDRESS of rules, and INTERVAL[n]: by which of them addresses may have been chosen."""
    asked = [
        action.nat for rule in rules for action in rule.actions if isinstance(action, Ct) and action.nat is not None
    ]
    if not asked:
        return 0, np.zeros(0, INTERVAL)
    choosing = [nat for nat in asked if nat.way in NAT_WAYS]
    spans = sorted({(nat.low, nat.high) for nat in choosing if nat.low or nat.high})
    bounds = sorted({0, *(low for low, _ in spans), *(high + 1 for _, high in spans)})
    made = np.zeros(len(bounds), INTERVAL)
    owners: dict[tuple[int, ...], int] = {(): 0}
    for row, first in zip(made, bounds, strict=True):
        holding = tuple(number for number, (low, high) in enumerate(spans) if low <= first <= high)
        row["first"] = first >> 64, first & (1 << 64) - 1
        row["owner"] = owners.setdefault(holding, len(owners))
    keeps = any(not (nat.low or nat.high) for nat in choosing)
    return TRANSLATES | (KEEPS_ADDRESS if keeps else 0), made


def _subset(rules: Sequence[Rule], numbers: Sequence[int], block: Block) -> np.ndarray:
    made = np.zeros(1, SUBSET)
    made["rules"], made["count"] = block.put(np.array(numbers, "u4")), len(numbers)
    if len(numbers) <= LINEAR_MAX:
        return made
    mask = _asked_for([rules[number] for number in numbers])
    first, second = _places(mask)
    made["mask"], made["is_wide"] = block.put(mask), bool(second)
    made["asked"], made["more"] = (int.from_bytes(bytes(one), "little") for one in (first, second))
    words = -(-len(numbers) // 64)
    mine = [rules[number] for number in numbers]
    dimensions = []
    for dimension in DIMENSIONS:
        starts, can = _ways(mine, dimension)
        changes = np.concatenate([[True], (can[1:] != can[:-1]).any(axis=1)])
        starts, can = starts[changes], can[changes]
        if len(starts) == 1:
            continue
        rows_of, rows = _rows(can, words)
        one = np.zeros(1, DIMENSION)
        one["bounds"], one["rows_of"] = block.put(starts), block.put(rows_of)
        one["rows"], one["count"] = block.put(rows, LINE_BYTES), len(starts)
        one["place"], one["size"] = dimension.place, dimension.size
        dimensions.append(one)
    if dimensions:
        made["dimensions"] = block.put(np.concatenate(dimensions))
        made["dimension_count"], made["words"] = len(dimensions), words
    return made


def _parts(rules: Sequence[Rule], numbers: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
    """Part the rules of a table by ct_state; returns the ct_states of each part, by the rules that are in it."""
    wanted = [rules[number].match.get("ct_state", Masked(0, 0)) for number in numbers]
    parts: dict[tuple[int, ...], list[int]] = {}
    for state in range(STATES):
        can = tuple(number for number, (value, mask) in zip(numbers, wanted, strict=True) if state & mask == value)
        parts.setdefault(can, []).append(state)
    if sum(map(len, parts)) > SHARES_MAX * len(numbers) + LINEAR_MAX * len(parts):
        return {tuple(numbers): list(range(STATES))}
    return parts


# ------------------------------------------------------------------------------------------------ all of it
def compile_rules(rules: Iterable[Rule], workers: int = 1, text: str = "") -> np.ndarray:
    """Compile rules.

    Args:
        rules: any number, in the order of their file.
        workers: who will count what meets them.
        text: what they are to be shown as, kept with them.

    Returns:
        u1[bytes], a GENERATION and what it names, without a number and with all counters 0.

    Raises:
        RulesError: with all that is wrong with them.
    """
    given = list(rules)
    complaints = check(given)
    if complaints:
        raise RulesError(complaints)
    numbered = ordered(given)
    block, ops, actions = Block(), [], []
    made = _rules(numbered, ops, actions)
    generation = np.zeros(1, GENERATION)
    generation["actions"] = first = block.put(np.concatenate(actions) if actions else b"", LINE_BYTES)
    for op in ops:
        if op["action"][0]:
            op["action"] = first + (op["action"] - 1) * ACTION.itemsize
    generation["ops"] = block.put(np.concatenate(ops) if ops else b"")
    generation["rules"] = block.put(made, LINE_BYTES)

    subsets: list[np.ndarray] = []
    tables = np.zeros(RULE_TABLES_MAX + 1, "u4")
    for table in sorted({rule.table for rule in numbered}):
        numbers = [number for number, rule in enumerate(numbered) if rule.table == table]
        by_state = np.zeros(STATES, "u2")
        for can, states in _parts(numbered, numbers).items():
            if can:
                subsets.append(_subset(numbered, can, block))
                by_state[states] = len(subsets)
        tables[table] = block.put(by_state)
    generation["tables"] = block.put(tables)
    generation["subsets"] = block.put(np.concatenate(subsets) if subsets else b"")
    encoded = text.encode()
    generation["text"], generation["text_bytes"] = block.put(encoded), len(encoded)
    generation["hits"] = block.put(bytes(workers * len(numbered) * HIT_BYTES), LINE_BYTES)
    generation["rule_count"], generation["op_count"] = len(numbered), len(ops)
    generation["subset_count"], generation["action_count"] = len(subsets), len(actions)
    generation["workers"] = workers
    generation["translates"], intervals = _intervals(numbered)
    generation["intervals"], generation["interval_count"] = block.put(intervals), len(intervals)
    generation["asks_label"] = any("label" in rule.match for rule in numbered)
    generation["bytes"] = block.size
    if block.size > GENERATION_BYTES_MAX:
        raise RulesError(
            [f"compiled, the rules are {block.size:,} bytes, at most {GENERATION_BYTES_MAX:,} are possible"]
        )
    return np.frombuffer(generation.tobytes() + b"".join(block.pieces), "u1").copy()


def fields(**values: Any) -> np.ndarray:
    """Return FIELDS[1] of a packet, by name; a number of 128 bits may be one."""
    made = np.zeros(1, FIELDS)
    for name, value in values.items():
        made[name][0] = (value >> 64, value & (1 << 64) - 1) if BITS.get(name) == 128 else value
    return made


assert FIELDS.itemsize == FIELDS_WORDS * 8
