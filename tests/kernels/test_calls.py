"""Calls of PPTP: keys are completed for what is known, whichever end is the lower, and left alone otherwise."""

import ctypes

import foretelling
import numpy as np
import pytest
import tables
from foretelling import CLIENT, SERVER, Wanted, add
from zonetrack.kernels import calls, tuples
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import PARSED, ExpectationFlag

GRE = 47
CALL = ExpectationFlag.CALL | ExpectationFlag.PERMANENT


@pytest.fixture
def one():
    participant = tables.Participant(tables.small())
    participant.parent = foretelling.parent_of(participant, tables.keys(1))
    return participant


def call(**more):
    return Wanted(protocol=GRE, flags=CALL, **more)


def completed(one, packet):
    """Complete the key of a packet that stands first in the burst; the key's last word, None when nothing was done."""
    place = (ctypes.c_uint8 * PARSED.itemsize).from_address(int(one.views["parsed"]))
    parsed = np.frombuffer(place, PARSED).view(np.recarray)[0]
    for i in range(5):
        parsed.key[u64(i)] = packet.key[i]
    parsed.high_is_source, parsed.protocol, parsed.hash = packet.high_is_source, packet.protocol, 0
    if not calls.complete(one.views, parsed, u64(0)):
        return None
    at = one.views["parsed"] + tuples.PARSED_KEY
    assert int(parsed.hash) == int(tuples.hash_key(one.views, np.uint64(at)))
    return int(parsed.key[u64(4)])


@pytest.mark.parametrize(("source", "destination"), [(SERVER, CLIENT), (CLIENT, SERVER)])
def test_both_numbers_stand_by_their_ends(one, source, destination):
    ends = {"source": source, "destination": destination}
    add(one, one.parent, call(port=7, source_port=9, **ends))
    last = completed(one, Wanted(protocol=GRE, port=7, **ends).packet(source_port=0))
    numbers = {destination: 7, source: 9}
    assert last >> 48 == numbers[min(CLIENT, SERVER)] and last >> 32 & 0xFFFF == numbers[max(CLIENT, SERVER)]


def test_of_one_host_the_lower_number_stands_first(one):
    ends = {"source": CLIENT, "destination": CLIENT}
    add(one, one.parent, call(port=7, source_port=9, **ends))
    last = completed(one, Wanted(protocol=GRE, port=7, **ends).packet(source_port=0))
    assert (last >> 48, last >> 32 & 0xFFFF) == (7, 9)


def test_what_is_not_known_or_no_call_is_left_alone(one):
    add(one, one.parent, call(port=7, source_port=9))
    add(one, one.parent, Wanted(protocol=GRE, port=8, source_port=9))
    for packet in (
        Wanted(protocol=GRE, port=6).packet(0),
        Wanted(protocol=GRE, port=8).packet(0),
        Wanted(protocol=GRE, port=7).packet(5),
        Wanted(protocol=GRE, port=0).packet(0),
        Wanted(protocol=6, port=7).packet(0),
        Wanted(protocol=GRE, port=7, source=SERVER + 1).packet(0),
        Wanted(protocol=GRE, port=7, zone=1).packet(0),
    ):
        assert completed(one, packet) is None


def test_calls_go_with_their_parent_and_are_no_expectations(one):
    add(one, one.parent, call(port=7, source_port=9))
    assert foretelling.find(one, call(port=7), source_port=9) is None
    one.flush(0)
    assert completed(one, Wanted(protocol=GRE, port=7).packet(0)) is None
