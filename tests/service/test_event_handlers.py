"""What kinds of events a client may name."""

import pytest
from zonetrack.clients.errors import BadParameterError
from zonetrack.service.door import Rights
from zonetrack.service.event_handlers import kinds
from zonetrack.service.handlers import METHODS
from zonetrack.shm.layout import EventKind


def test_names_become_bits():
    assert kinds("kinds", ["new", "destroy", "new"]) == EventKind.NEW | EventKind.DESTROY


@pytest.mark.parametrize("value", [None, "new", [], [1], ["old"], ["new"] * 65])
def test_what_is_no_list_of_names_is_refused(value):
    with pytest.raises(BadParameterError, match="kinds"):
        kinds("kinds", value)


def test_whoever_may_look_may_be_told():
    assert {METHODS[name].rights for name in ("events.subscribe", "events.unsubscribe")} == {Rights.READ}
