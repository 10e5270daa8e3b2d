"""TCP in the `ovs` profile against a tracker in plain Python that is written as Open vSwitch is, segment by segment."""

import hypothesis.strategies as st
import odd_segments
import reference_ovs
import segments
import tracker
from hypothesis import given, settings
from odd_segments import FIRST
from parsing import EXAMPLES
from reference_netfilter import WRAP
from reference_ovs import MAXACKWINDOW, SCALE_UNKNOWN, Verdict
from tracker import OVS_LABELS
from zonetrack.kernels.ovs_tcp import PeerScale
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, Setting


def numbers(connection, side, base):
    """Return what a sequence number of a side may be near to, as the reference knows it."""
    if connection is None:
        return [(base + FIRST[side]) % WRAP] * odd_segments.NUMBERS
    way = side != connection.opener
    peer, other = connection.peers[way], connection.peers[1 - way]
    back, loose = peer.seqlo - (other.max_win << other.shift), peer.seqhi + MAXACKWINDOW
    return [peer.seqlo, peer.seqlo, peer.seqhi, back % WRAP, loose % WRAP, (base + FIRST[side]) % WRAP, peer.seqhi, 0]


def found_by(world, side, segment, options):
    """Return what the kernels say of a segment, in the words of the reference."""
    seen = world.track(
        segments.tcp(side, segment.flags, segment.seq, segment.ack, segment.win, segment.length, options)
    )
    states = None if seen.state == "gone" else tuple(seen.state.split("/"))
    return Verdict(OVS_LABELS[seen.label], states, seen.timeout_s)


def scale_bits(wscale):
    """Return a side's scale as the kernels keep it."""
    if wscale is None:
        return 0
    return PeerScale.UNKNOWN if wscale == SCALE_UNKNOWN else PeerScale.OFFERED | wscale


def remembered(world, reference):
    """Return in which numbers of either side the two differ; what the next segments will be compared with."""
    connection = next(iter(world.table.values()), None)
    if connection is None or reference.connection is None:
        return []
    differences = []
    for theirs, ours in zip(reference.connection.peers, connection.ovs_peers["peer"], strict=True):
        rows = [(name, getattr(theirs, name), int(ours[name])) for name in ("seqlo", "seqhi", "max_win")]
        rows.append(("scale", scale_bits(theirs.wscale), int(ours["scale"])))
        differences += [row for row in rows if row[1] != row[2]]
    return differences


@settings(max_examples=EXAMPLES * 5, deadline=None)
@given(odd_segments.beginnings, odd_segments.steps, st.booleans())
def test_any_segments(beginning, steps, seq_check):
    word = (
        SETTINGS_WORD_DEFAULT | Setting.OVS if seq_check else (SETTINGS_WORD_DEFAULT | Setting.OVS) & ~Setting.SEQ_CHECK
    )
    world, reference = tracker.Tracker(settings=word), reference_ovs.Tracker(seq_check)
    reference.now_ms = world.now_ms
    said = []

    def follow(side, segment, options):
        expected = reference.track(side, segment)
        said.append((side, segment, expected))
        assert found_by(world, side, segment, options) == expected, said
        assert remembered(world, reference) == [], said

    for side, segment, options in odd_segments.opening(*beginning):
        follow(side, segment, options)
    for step in steps:
        reference.now_ms = world.now_ms = world.now_ms + step.wait_ms
        other = "s" if step.side == "c" else "c"
        mine, yours = (numbers(reference.connection, side, beginning[2]) for side in (step.side, other))
        follow(step.side, *odd_segments.drawn(step, mine, yours))
