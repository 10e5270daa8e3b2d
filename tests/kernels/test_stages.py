"""Stages before a burst decides: where a key would stand, which record it points to, and a miss that may be believed."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from bursts import CLIENT, ROUTER, SERVER, Bench, frames_of, tcp, udp
from scapy.all import GRE, ICMP, IP, Ether
from zonetrack.kernels import burst, index, stages
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.verdicts import verdict_at
from zonetrack.shm import segment
from zonetrack.shm.layout import PARSED, VERDICT, ZONE, CtState, Region, Setting
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def bench():
    return Bench(segment.anonymous(Geometry(300, 4, 125)))


def looked_at(bench: Bench, *packets, zone: int = 0) -> np.ndarray:
    """Run the stages over packets; returns a copy of PARSED[len(packets)]."""
    frames, buffers = frames_of(packets, zone)
    places = [np.uint64(bench.views.parsed + i * stages.PARSED_SIZE) for i in np.arange(len(packets), dtype="u8")]
    for i, at in enumerate(places):
        stages.parse(bench.views, np.uint64(frames[i:].ctypes.data), at)
    for stage in (stages.locate, stages.glance, stages.fetch):
        for at in places:
            stage(bench.views, at)
    del buffers
    size = len(packets) * PARSED.itemsize
    return np.frombuffer(ctypes.string_at(int(bench.views.parsed), size), PARSED)


def test_a_zone_without_connections_says_nothing_for_sure(bench):
    parsed = looked_at(bench, udp())
    assert parsed["line"][0] == 0 and parsed["candidate"][0] == 0


def test_a_key_that_is_there_is_named_and_one_that_is_not_is_absent(bench):
    record = bench.track(udp(1))["record"][0]
    parsed = looked_at(bench, udp(1), udp(1, reply=True), udp(2))
    assert parsed["candidate"].tolist() == [record + 1, record + 1, int(index.ABSENT)]
    assert parsed["hash"][0] == parsed["hash"][1] != parsed["hash"][2]
    slots = bench.table.address(Region.INDEX, "slots")
    assert all((int(line) - slots) % 64 == 0 for line in parsed["line"])


def test_what_cannot_be_read_is_looked_for_nowhere(bench):
    bench.track(udp(1))
    parsed = looked_at(bench, bytes(60), bytes(udp(1))[:36])
    assert parsed["reason"].tolist() == [Reason.NOIP, Reason.L3_HEADER]
    assert parsed["candidate"].tolist() == [0, 0]


# ------------------------------------------------------------------------------------------------ what is kept
@kernel
def _keep(views, i, zone, verdict):
    stages.keep(views, i, zone, verdict_at(verdict))


def tracked(bench: Bench, frames: np.ndarray) -> np.ndarray:
    """Track frames as they are; returns their verdicts."""
    verdicts = np.zeros(len(frames), VERDICT)
    at = bench.views, frames.ctypes.data, len(frames), 1000, verdicts.ctypes.data
    burst.track_burst(at[0], *map(np.uint64, at[1:]))
    return verdicts


def kept(bench: Bench, verdicts: np.ndarray, zone: int) -> list[bool]:
    """Say that the packets of the last burst come again, in another zone; returns of which what was read stands."""
    for i in range(len(verdicts)):
        _keep(bench.views, np.uint64(i), np.uint64(zone), np.uint64(verdicts[i:].ctypes.data))
    size = len(verdicts) * PARSED.itemsize
    return [flag == 1 for flag in np.frombuffer(ctypes.string_at(int(bench.views.parsed), size), PARSED)["kept"]]


def test_what_is_kept_is_not_read_again_and_found_in_its_zone(bench):
    packets = [tcp("S", 1), udp(), tcp("A", 2, 901, sport=9)]
    bench.track(*packets, zone=1)
    frames, buffers = frames_of(packets, 2, commit=False)
    verdicts = tracked(bench, frames)
    assert (verdicts["ct_state"] == CtState.TRK | CtState.NEW).all()
    assert kept(bench, verdicts, 1) == [True] * 3
    for buffer in buffers:
        buffer[:] = 0
    frames["zone"] = 1
    again = tracked(bench, frames)
    assert again["reason"].tolist() == bench.track(*packets, zone=1)["reason"].tolist()
    assert (again["record"] != index.MISS).all()
    assert tracked(bench, frames)["reason"].tolist() == [Reason.NOIP] * 3  # for once


@pytest.mark.parametrize(
    "what", ["an error", "a call", "broken", "translated", "of other settings"], ids=lambda what: what.replace(" ", "-")
)
def test_what_may_be_another_packet_there_is_read_again(what, bench):
    error = Ether() / IP(src=ROUTER, dst=CLIENT) / ICMP(type=3, code=1) / IP(bytes(udp())[14:])
    call = Ether() / IP(src=CLIENT, dst=SERVER) / GRE(proto=0x880B, key_present=1, version=1, key=7 << 16)
    packet = {"an error": error, "a call": call, "broken": bytes(60)}.get(what, udp())
    bench.track(udp())
    frames, buffers = frames_of([packet], commit=False)
    verdicts = tracked(bench, frames)
    if what == "translated":
        verdicts["ct_state"] |= np.uint8(CtState.SNAT)
    if what == "of other settings":
        bench.table.array(Region.CONTROL, "zones", ZONE)["settings"][3] ^= int(Setting.CHECKSUM)
    assert kept(bench, verdicts, 3) == [False]
    del buffers
