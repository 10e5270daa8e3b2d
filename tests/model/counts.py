"""Counts of connections: reserved and given back under the count locks, so that repair can tell what was done.

One at a time (``add``), or in *credits*: a participant takes several at once, spends them from its own line with no
lock, and gives the rest back.  Unspent credits are counted, so limits are exact.
"""

from __future__ import annotations

from .sources import enter
from .words import LOAD, LOCK, OWN_LOAD, OWN_STEP, OWN_STORE, STORE, SWAP, Step, step_word

UP = (Step.RESERVE, Step.RESERVE_WRITING, Step.RESERVED)
DOWN = (Step.UNCOUNT, Step.UNCOUNT_WRITING, Step.UNCOUNTED)


def lock_counts(table, me, zone):
    """Lock the zone's count, then the global one; return both."""
    yield LOCK, table.count_lock + zone, me
    if table.total_limit:
        yield LOCK, table.total_lock, me
    count = yield LOAD, table.count + zone
    total = 0
    if table.total_limit:
        total = yield LOAD, table.total
    return count, total


def write_counts(table, zone, count, total):
    """Store both; their locks are held and the step says what they were."""
    yield STORE, table.count + zone, count
    if table.total_limit:
        yield STORE, table.total, total


def unlock_counts(table, zone):
    """Unlock both."""
    if table.total_limit:
        yield STORE, table.total_lock, 0
    yield STORE, table.count_lock + zone, 0


def room(table, count, total):
    """Return how many more the limits allow."""
    left = table.limit - count
    return min(left, table.total_limit - total) if table.total_limit else left


def add(table, me, zone, steps):
    """Count one more (UP) or one less (DOWN); False when a limit forbids it."""
    wanted, writing, done = steps
    change = 1 if steps == UP else -1
    if "atomic_count" in table.flaws:
        while True:
            value = yield LOAD, table.count + zone
            if change > 0 and value >= table.limit:
                return False
            swapped = yield SWAP, table.count + zone, value, value + change
            if swapped:
                break
        yield OWN_STEP, table.intent(me, "step"), step_word(done)
        return True
    yield OWN_STEP, table.intent(me, "step"), step_word(wanted)
    count, total = yield from lock_counts(table, me, zone)
    if change > 0 and room(table, count, total) < 1:
        yield from unlock_counts(table, zone)
        return False
    yield OWN_STEP, table.intent(me, "step"), step_word(writing, count, total)
    yield from write_counts(table, zone, count + change, total + change)
    yield OWN_STEP, table.intent(me, "step"), step_word(done)
    yield from unlock_counts(table, zone)
    return True


def reserve(table, me, zone, record, key):
    """Count the connection that an insert is about to commit: from the credit, which is taken first if there is none.

    Then it is counted where its source is: nothing else can fail, and a refusal there leaves the credit.
    """
    if not table.credits:
        reserved = yield from add(table, me, zone, UP)
        return reserved
    credit = yield OWN_LOAD, table.intent(me, "credit")
    if not credit:
        credit = yield from take_credit(table, me, zone)
        if not credit:
            return False
    if table.cells:
        good = yield from enter(table, me, record, key)
        if not good:
            return False
    if "spend_apart" in table.flaws:
        yield OWN_STORE, table.intent(me, "credit"), credit - 1
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.RESERVED)
        return True
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.SPEND, credit)
    yield OWN_STORE, table.intent(me, "credit"), credit - 1
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.RESERVED)
    return True


def take_credit(table, me, zone):
    """Reserve as many as wanted and allowed; there is no credit now.  Returns how many, 0 when a limit forbids it."""
    yield OWN_STORE, table.intent(me, "credit_zone"), zone
    yield OWN_STEP, table.intent(me, "step"), step_word(Step.RESERVE)
    count, total = yield from lock_counts(table, me, zone)
    taken = min(table.credits, room(table, count, total))
    if taken > 0:
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.CREDIT_WRITING, count, total)
        yield from write_counts(table, zone, count + taken, total + taken)
        yield OWN_STORE, table.intent(me, "credit"), taken
        yield OWN_STEP, table.intent(me, "step"), step_word(Step.LOCKS)
    yield from unlock_counts(table, zone)
    return max(taken, 0)


def give_back(table, me, after):
    """Give unspent credit back; ``after`` is the step that follows."""
    if not table.credits:
        return
    credit = yield OWN_LOAD, table.intent(me, "credit")
    if credit:
        zone = yield OWN_LOAD, table.intent(me, "credit_zone")
        count, total = yield from lock_counts(table, me, zone)
        writing = Step.CREDIT_WRITING if "credit_one_step" in table.flaws else Step.CREDIT_BACK_WRITING
        yield OWN_STEP, table.intent(me, "step"), step_word(writing, count, total)
        yield from write_counts(table, zone, count - credit, total - credit)
        yield OWN_STORE, table.intent(me, "credit"), 0
        yield OWN_STEP, table.intent(me, "step"), step_word(after)
        yield from unlock_counts(table, zone)


def settle(table, me):
    """The end of a burst."""
    yield from give_back(table, me, Step.NONE)
