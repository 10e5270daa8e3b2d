"""Bounds in numbers are those that the kernels compare with: what is refused breaks one, what passes breaks none."""

import numpy as np
import pytest
import tables
from bursts import Bench, tcp
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.all import TCP, Raw
from zonetrack.service import arrivals, windows
from zonetrack.service.samples import Samples
from zonetrack.service.windows import Bound
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import ENTRY, CtState, Region
from zonetrack.shm.reasons import Reason

START = 2**32 - 3000
"""Sequence numbers wrap on the way."""


@pytest.mark.parametrize(
    ("bound", "beyond"),
    [
        (Bound("seq", 10, 10, True, ""), 0),
        (Bound("seq", 11, 10, True, ""), 1),
        (Bound("seq", 9, 10, False, ""), 1),
        (Bound("seq", 10, 10, False, ""), 0),
        (Bound("seq", 3, 2**32 - 2, True, ""), 5),
        (Bound("seq", 2**32 - 2, 3, True, ""), 0),
    ],
)
def test_distances_wrap(bound, beyond):
    assert bound.beyond == beyond
    assert bound.plain()["holds"] == (not beyond)


def established(profile, scale):
    bench = Bench(tables.small(300))
    ZoneSettings(bench.table).set(0, {"profile": profile})
    opening = tcp("S", START), tcp("SA", 5000, START + 1, reply=True), tcp("A", START + 1, 5001)
    for packet in opening[:2]:
        packet[TCP].options = [("WScale", scale)] * (scale > 0)
    made = bench.track(*opening, tcp("A", 5001, START + 1, reply=True))
    return bench, int(made["record"][0])


@pytest.mark.parametrize("profile", ["netfilter", "ovs"])
@given(
    scale=st.sampled_from([0, 7]),
    seq=st.integers(-3_000_000, 3_000_000),
    ack=st.integers(-10_000_000, 200_000),
    length=st.integers(0, 900),
    flags=st.sampled_from(["A", "PA"]),
)
@settings(max_examples=60, deadline=None)
def test_what_is_refused_breaks_a_bound_and_what_passes_breaks_none(profile, scale, seq, ack, length, flags):
    bench, record = established(profile, scale)
    packet = tcp(flags, (START + 1 + seq) % 2**32, (5001 + ack) % 2**32) / Raw(bytes(length))
    before = np.copy(bench.table.array(Region.ENTRIES, "entries", ENTRY)[record]["protocol"])
    verdict = bench.track(packet)[0]
    samples = Samples(bench.table).of(bench.me)
    if verdict["reason"]:
        (sample,) = samples
        arrival = arrivals.of_sample(sample)
        if verdict["ct_state"] & CtState.INV:
            assert arrival.contents == before.tobytes()
            assert any(bound.beyond for bound in windows.bounds(arrival))
            if profile == "netfilter":
                first = next(bound for bound in windows.of_netfilter(arrival) if bound.beyond)
                wanted = {"seq": Reason.TCP_SEQ_ABOVE, "ack": Reason.TCP_ACK_ABOVE}
                assert wanted[first.what] == verdict["reason"]
    else:
        assert len(samples) == 0
