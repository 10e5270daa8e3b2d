"""A packet that finds nothing and is not committed takes no lock and writes nothing that anybody else reads."""

import foretelling
import numpy as np
import pytest
import tables
from foretelling import Wanted
from zonetrack.clients import nat_scenarios
from zonetrack.clients.trips import Leg, Stage, Traveller, travel
from zonetrack.kernels import memory
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import PARTICIPANT, PARTICIPANT_BYTES, CtState, Region

NEW = CtState.TRK | CtState.NEW
NOW_MS = 1_000_000
ZONES = 4


class Watching(memory.World):
    """Counts who takes locks."""

    def __init__(self):
        self.swaps = 0

    def swap(self, address, size, expected, desired):
        """Count, and do it."""
        self.swaps += 1
        return super().swap(address, size, expected, desired)


def sent(traveller, me):
    """Send all there is to send."""
    while travel(me.views, traveller.address, u64(NOW_MS)):
        pass
    assert traveller.complaint() is None


def stand(table):
    """Return the bytes of all regions but the place of participant 2."""
    found = {region: np.frombuffer(buffer, "u1").copy() for region, buffer in table.regions.items()}
    first = table.geometry.offsets(Region.CONTROL)["participants"] + PARTICIPANT_BYTES
    found[Region.CONTROL][first : first + PARTICIPANT.itemsize] = 0
    return found


@pytest.mark.parametrize("foretold", [0, 20])
def test_stages_that_find_nothing(foretold, monkeypatch):
    """In zones that hold others, with a rule that would translate, and with connections foretold in other zones."""
    table = tables.small(600, zones=16)
    maker, me = tables.Participant(table), tables.Participant(table)
    others, passing = Traveller(1, 32), Traveller(1, 32)
    for zone in range(ZONES):
        others.aim(Leg.SYN, (Stage(zone, NEW, True, True),), 1000 * (1 + zone), 60)
        sent(others, maker)
    for i in range(foretold):
        parent = foretelling.parent_of(maker, tables.keys(1, zone=9))
        foretelling.add(maker, parent, Wanted(port=i + 1, zone=8 + i % 8), most=foretold)
    before, watching = stand(table), Watching()
    if not JIT:
        monkeypatch.setattr(memory, "world", watching)
    stages = [Stage(zone, NEW, False, False, nat_scenarios.action(0)) for zone in range(ZONES)]
    passing.aim(Leg.ACK, stages, 0, 64)
    sent(passing, me)
    assert watching.swaps == 0
    after = stand(table)
    for region, was in before.items():
        assert np.array_equal(was, after[region]), region.name
