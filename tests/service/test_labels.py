"""Labels and names of verdicts."""

import pytest
from zonetrack.service import labels
from zonetrack.shm.layout import CtState, VerdictFlag, Way

TRK, NEW, EST, REL, RPL, INV = (CtState[name] for name in ("TRK", "NEW", "EST", "REL", "RPL", "INV"))
ASSURED, UNTRACKED, NOIP, COMMITTED = (VerdictFlag[n] for n in ("ASSURED", "UNTRACKED", "NOIP", "COMMITTED"))


@pytest.mark.parametrize(
    ("ct_state", "way", "flags", "label", "direction"),
    [
        (TRK | NEW, Way.ORIG, COMMITTED, "N>", "orig"),
        (TRK | EST, Way.ORIG, COMMITTED, "E>", "orig"),
        (TRK | EST | RPL, Way.REPLY, COMMITTED | ASSURED, "E<a", "reply"),
        (TRK | REL, Way.ORIG, 0, "R>", "orig"),
        (TRK | REL | RPL, Way.REPLY, ASSURED, "R<a", "reply"),
        (TRK | INV, Way.ORIG, 0, "I", None),
        (TRK | INV, Way.REPLY, ASSURED, "I", None),
        (0, Way.ORIG, UNTRACKED, "U", None),
        (0, Way.ORIG, NOIP, "noip", None),
    ],
)
def test_label_and_direction(ct_state, way, flags, label, direction):
    assert labels.label(ct_state, way, flags) == label
    assert labels.direction(ct_state, way) == direction


@pytest.mark.parametrize(
    ("ct_state", "flags", "label"),
    [
        (TRK | NEW, COMMITTED, "new"),
        (TRK | NEW | REL, COMMITTED, "new|rel"),
        (TRK | EST | RPL, COMMITTED, "est|rpl"),
        (TRK | EST | INV, 0, "est|inv"),
        (TRK | INV, 0, "inv"),
        (0, NOIP, "noip"),
    ],
)
def test_labels_of_the_ovs_profile_are_names_of_bits(ct_state, flags, label):
    assert labels.label(ct_state, Way.ORIG, flags, labels.OVS) == label


def test_names_stand_in_their_order():
    assert labels.names(sum(CtState)) == labels.NAMES
    assert labels.names(TRK | EST | RPL) == ("trk", "est", "rpl")
    assert labels.names(0) == ()


def test_every_bit_has_a_name():
    assert {name.upper() for name in labels.NAMES} == set(CtState.__members__)
