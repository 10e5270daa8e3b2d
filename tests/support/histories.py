"""What workers did to keys and were told, and whether it could have happened one after the other.

Of each key an operation sees and makes PRESENT or ABSENT at one moment between its begin and its end (Herlihy and Wing,
"Linearizability", 1990).  Operations of one worker happen in its order.  Histories here are short, so each order is tried,
with states remembered (Wing and Gong, 1993).
"""

from __future__ import annotations

from dataclasses import dataclass

ABSENT, PRESENT = False, True


@dataclass
class Operation:
    """One operation on one key.

    ``outcomes`` are the pairs (state before, state after) that its answer allows; None when it said nothing, as BUSY does.
    ``begin`` and ``end`` are moments; end None: it may take effect at any time later.
    """

    what: str
    key: int
    outcomes: tuple[tuple[bool, bool], ...] = ()
    begin: int = 0
    end: int | None = None
    worker: int = 0
    number: int = 0
    """Place among the operations of its worker."""


FOUND = ((PRESENT, PRESENT),)
MISSED = ((ABSENT, ABSENT),)
MADE = ((ABSENT, PRESENT),)
THERE = ((ABSENT, PRESENT), (PRESENT, PRESENT))
"""It is there now, whoever made it."""
REMOVED = ((PRESENT, ABSENT),)
GONE = ((PRESENT, ABSENT), (ABSENT, ABSENT))
"""After it the key is absent, whatever was before: a flush."""
PERHAPS = ((PRESENT, ABSENT), (PRESENT, PRESENT), (ABSENT, ABSENT))
"""It may have removed the key: a sweep."""
NOTHING = ((PRESENT, PRESENT), (ABSENT, ABSENT))
"""It was refused."""


def _precedes(one, other):
    if one.worker == other.worker:
        return one.number < other.number
    return one.end is not None and one.end < other.begin


def explains(operations, before, after):
    """Return whether operations on one key, in some order, lead from ``before`` to ``after`` with the answers given."""
    operations = list(operations)
    waits = [{j for j, other in enumerate(operations) if _precedes(other, one)} for one in operations]
    everything = (1 << len(operations)) - 1
    seen = set()
    stack = [(0, before)]
    while stack:
        done, state = stack.pop()
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if done == everything:
            if state == after:
                return True
            continue
        for i, operation in enumerate(operations):
            if done >> i & 1 or any(not done >> j & 1 for j in waits[i]):
                continue
            stack += [(done | 1 << i, new) for old, new in operation.outcomes if old == state]
    return False


def faults(operations, before, after):
    """Return a sentence for each key whose history cannot be explained.

    Args:
        operations: of all workers and keys.
        before, after: the sets of keys that were and are present.
    """
    for key in sorted({operation.key for operation in operations} | set(before) | set(after)):
        mine = [operation for operation in operations if operation.key == key]
        if not explains(mine, key in before, key in after):
            lines = [
                f"  {o.begin}-{o.end} {o.worker} {o.what}" for o in sorted(mine, key=lambda o: (o.begin, o.number))
            ]
            yield "\n".join([f"key {key}: {key in before} before, {key in after} after, but", *lines])
