"""The table of phases: each but the last ends when it is asked to, and none leads back."""

import itertools

from zonetrack.service.phases import AFTER, TRANSITIONS, Event, Phase


def test_the_table_of_phases():
    assert all(row.why and row.after >= row.before for row in TRANSITIONS)
    assert len(AFTER) == len(TRANSITIONS)
    for phase in set(Phase) - {Phase.OVER}:
        assert AFTER[phase, Event.STOP] in (Phase.DRAINING, Phase.CLOSING)
    assert AFTER[AFTER[Phase.DRAINING, Event.DRAINED], Event.CLOSED] is Phase.OVER
    impossible = set(itertools.product(Phase, Event)) - set(AFTER)
    assert {(Phase.SERVING, Event.READY), (Phase.OVER, Event.STOP), (Phase.DRAINING, Event.LEAVE)} < impossible
