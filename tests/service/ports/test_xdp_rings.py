"""What a successor finds in the rings of AF_XDP; every death there is in tests/interleave/test_port_rings.py."""

import numpy as np
import pytest
from zonetrack.service.ports.xdp_rings import CURSORS, offer_all, resume_receiving, resume_sending, words
from zonetrack.shm.layout import DIVERTED, INJECTED, XSK

COUNT, PLACE_BYTES = 4, 64


class Rings:
    """Their words, as they are where so many frames were given back or sent."""

    def __init__(self, given_back, sent, position=0, fresh=0):
        self.kept, self.put = np.zeros(1, DIVERTED)[0], np.zeros(1, INJECTED)[0]
        self.own, self.memory = np.zeros(1, XSK)[0], np.zeros(64, "u8")
        self.own["rx_count"] = self.own["tx_count"] = COUNT
        self.own["place_bytes"] = PLACE_BYTES
        names = ("fill_entries", "rx_entries", "fill_producer", "rx_consumer", "tx_producer", "sent_consumer")
        for number, name in enumerate(names):
            self.own[name] = self.memory[8 * number :].ctypes.data
        self.kept["position"], self.put["fresh"] = position, fresh
        self["fill_producer"], self["rx_consumer"] = (given_back[0] + COUNT) % CURSORS, given_back[1]
        self["tx_producer"], self["sent_consumer"] = sent

    def __getitem__(self, name):
        return int(words(int(self.own[name]))[0])

    def __setitem__(self, name, value):
        words(int(self.own[name]))[0] = value


def test_all_places_are_offered():
    rings = Rings((0, 0), (0, 0))
    offer_all(rings.own)
    assert words(int(rings.own["fill_entries"]), "u8", COUNT).tolist() == [0, 64, 128, 192]
    assert rings["fill_producer"] == COUNT


@pytest.mark.parametrize("at", [5, CURSORS - 1])
@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("taken", [0, 2])
def test_what_was_in_hand_is_offered_again(at, behind, taken):
    rings = Rings((at, (at - behind) % CURSORS), (0, 0), position=(at + taken) % CURSORS)
    came = words(int(rings.own["rx_entries"]), "u8", 2 * COUNT)[::2]
    came[:] = [16, 80, 144, 208]
    assert resume_receiving(rings.own, rings.kept) == taken
    assert (rings["fill_producer"] - COUNT) % CURSORS == rings["rx_consumer"] == rings.kept["position"]
    offered = words(int(rings.own["fill_entries"]), "u8", COUNT)
    for turn in range(taken):
        assert offered[(at + turn) % COUNT] == came[(at + turn) % COUNT] // PLACE_BYTES * PLACE_BYTES
    assert resume_receiving(rings.own, rings.kept) == 0


@pytest.mark.parametrize(
    ("sent", "fresh", "goes_on"),
    [
        ((2, 0), 2, (0, 2)),  # at rest
        ((3, 0), 2, (0, 3)),  # a frame was put from a fresh place, and not counted
        ((9, 5), COUNT, (5, COUNT)),
        ((10, 5), COUNT, (6, COUNT)),  # and from one whose frame had gone
        ((2, CURSORS - 3), COUNT, (CURSORS - 2, COUNT)),
    ],
)
def test_where_it_sends(sent, fresh, goes_on):
    rings = Rings((0, 0), sent, fresh=fresh)
    resume_sending(rings.own, rings.put)
    assert (rings["sent_consumer"], rings.put["fresh"]) == goes_on
