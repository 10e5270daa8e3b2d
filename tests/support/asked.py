"""Actions: what a rule asks of a connection, as a test says it."""

import numpy as np
import tables
from zonetrack.shm.layout import ACTION, ActionFlag

ALL_32, ALL_128 = (1 << 32) - 1, (1 << 128) - 1


def action(*, force=False, policy=None, mark=0, mark_mask=0, label=0, label_mask=0, helper=0):
    """Return ACTION[1]; label and its mask are numbers of 128 bits."""
    made = np.zeros(1, ACTION)
    made["flags"] = ActionFlag.FORCE if force else 0
    made["policy"] = 0 if policy is None else policy + 1
    made["mark"], made["mark_mask"], made["helper"] = mark, mark_mask, helper
    for name, value in (("label", label), ("label_mask", label_mask)):
        made[name][0] = value >> 64, value & (1 << 64) - 1
    return made


def label_of(table, record):
    """Return the label of a connection; None where it has no extension."""
    link = int(tables.entries(table)["extension"][record])
    if not link:
        return None
    high, low = tables.extensions(table)["label"][link - 1].tolist()
    return high << 64 | low
