"""Rows make a table in which each thing that may happen is found once."""

from enum import IntEnum

import pytest
from zonetrack.shm.transitions import Transition, after


class Lamp(IntEnum):
    """A machine of two states."""

    OFF = 0
    ON = 1


class Switch(IntEnum):
    """What may happen to it."""

    PRESS = 0


def test_rows_become_a_table():
    rows = (Transition(Lamp.OFF, Switch.PRESS, Lamp.ON, "light"), Transition(Lamp.ON, Switch.PRESS, Lamp.OFF, "dark"))
    assert after(rows) == {(Lamp.OFF, Switch.PRESS): Lamp.ON, (Lamp.ON, Switch.PRESS): Lamp.OFF}
    with pytest.raises(ValueError, match="PRESS of ON stands in two rows"):
        after((*rows, rows[1]))
