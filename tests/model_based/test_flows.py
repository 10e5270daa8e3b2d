"""Protocols without states of their own, in both profiles, against a few lines of Python each."""

import hypothesis.strategies as st
import segments
import tracker
from hypothesis import given, settings
from parsing import EXAMPLES
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting

UDP, ICMP, GRE, OTHER = 17, 1, 47, 99
WAITS_MS = (0, 0, 1, 1_999, 2_000, 2_001, 29_999, 30_000, 59_999, 60_000, 121_000, 180_000, 599_999, 600_000)
NETFILTER_S = {UDP: (30, 120), ICMP: (30, 30), GRE: (30, 180), OTHER: (600, 600)}
"""Seconds to live, and those of a conversation, where that is another thing."""

steps = st.lists(st.tuples(st.sampled_from("cs"), st.sampled_from(WAITS_MS)), min_size=1, max_size=12)
protocols = st.sampled_from((UDP, ICMP, GRE, OTHER))


class Netfilter:
    """As Linux: until the first reply has gone by nothing changes; then UDP that goes on, and GRE at once, is assured."""

    def __init__(self, protocol):
        self.protocol, self.opener = protocol, None

    def track(self, side, now_ms):
        if self.opener is None or now_ms >= self.expiry_ms:
            self.opener, self.began_ms, self.replied, self.assured = side, now_ms, False, False
            return self.said("N>", now_ms, 0)
        goes_on = self.replied and (self.protocol != UDP or now_ms > self.began_ms + 2_000)
        is_reply = side != self.opener
        self.assured = self.assured or (goes_on and self.protocol in (UDP, GRE))
        label = "E<" if is_reply else "E>" if self.replied else "N>"
        self.replied = self.replied or is_reply
        return self.said(label + "a" * self.assured, now_ms, goes_on)

    def said(self, label, now_ms, goes_on):
        seconds = NETFILTER_S[self.protocol][goes_on]
        self.expiry_ms = now_ms + 1000 * seconds
        return label, seconds


class Ovs:
    """As Open vSwitch: new until a reply, and then half a minute at a time."""

    def __init__(self, protocol):
        self.protocol, self.opener = protocol, None

    def track(self, side, now_ms):
        if self.opener is None or now_ms >= self.expiry_ms:
            self.opener, self.replied = side, False
        is_reply = side != self.opener
        self.replied = self.replied or is_reply
        seconds = 30 if self.replied else 60
        self.expiry_ms = now_ms + 1000 * seconds
        return "E<" if is_reply else "E>" if self.replied else "N>", seconds


def packet(protocol, side, opener):
    """Return a packet of a side; of ICMP, what asks or answers."""
    if protocol == ICMP:
        return segments.query(side, 8 if side == opener else 0)
    return segments.flow(side, protocol)


@settings(max_examples=EXAMPLES * 2, deadline=None)
@given(protocols, steps, st.booleans())
def test_any_packets(protocol, steps, ovs):
    if protocol == ICMP:
        steps = [("c", 0), *steps]  # only who asks may open
    word = SETTINGS_WORD_DEFAULT | Setting.OVS if ovs else SETTINGS_WORD_DEFAULT
    world, reference = tracker.Tracker(settings=word), (Ovs if ovs else Netfilter)(protocol)
    for side, wait_ms in steps:
        world.now_ms += wait_ms
        expired = reference.opener is not None and world.now_ms >= reference.expiry_ms
        if protocol == ICMP and expired and side == "s":
            continue
        seen = world.track(packet(protocol, side, "c"))
        assert (seen.label, seen.timeout_s) == reference.track(side, world.now_ms)
