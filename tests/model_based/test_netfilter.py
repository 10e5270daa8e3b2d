"""TCP in the `netfilter` profile against a tracker in plain Python that is written as Linux is, segment by segment."""

import hypothesis.strategies as st
import odd_segments
import reference_netfilter
import segments
import tracker
from hypothesis import given, settings
from odd_segments import FIRST
from parsing import EXAMPLES
from reference_netfilter import WRAP, Settings, Verdict
from zonetrack.kernels.tcp_window import PeerFlag
from zonetrack.shm.layout import MAX_RETRANS_SHIFT, SETTINGS_WORD_DEFAULT, Setting

FIELDS = {"end": "td_end", "maxend": "td_maxend", "maxwin": "td_maxwin", "scale": "td_scale"}
FLAGS = {
    "scales": PeerFlag.SCALES,
    "sack_perm": PeerFlag.SACKS,
    "close_init": PeerFlag.CLOSE_BEGUN,
    "be_liberal": PeerFlag.LIBERAL,
    "unacknowledged": PeerFlag.UNACKNOWLEDGED,
    "maxack_set": PeerFlag.MAXACK_KNOWN,
}

switches = st.builds(
    Settings,
    loose=st.sampled_from((True, True, True, False)),
    be_liberal=st.sampled_from((False, False, False, True)),
    ignore_invalid_rst=st.sampled_from((False, False, True)),
    max_retrans=st.sampled_from((3, 3, 1, 0)),
)


def word_of(switches):
    """Return the settings of a zone that mean the same."""
    word = SETTINGS_WORD_DEFAULT & ~(0xFF << MAX_RETRANS_SHIFT) | switches.max_retrans << MAX_RETRANS_SHIFT
    for name in ("loose", "be_liberal", "ignore_invalid_rst"):
        bit = Setting[name.upper()]
        word = word | bit if getattr(switches, name) else word & ~bit
    return word


def numbers(connection, side, base):
    """Return what a sequence number of a side may be near to, as the reference knows it."""
    if connection is None:
        return [(base + FIRST[side]) % WRAP] * odd_segments.NUMBERS
    way = side != connection.opener
    peer, other = connection.seen[way], connection.seen[1 - way]
    bound = (peer.td_end - other.td_maxwin) % WRAP
    return [
        peer.td_end,
        peer.td_end,
        peer.td_maxend,
        other.td_maxack,
        bound,
        connection.last_end,
        connection.last_seq,
        0,
    ]


def found_by(world, side, segment, options):
    """Return what the kernels say of a segment, in the words of the reference."""
    parsed = segments.tcp(side, segment.flags, segment.seq, segment.ack, segment.win, segment.length, options)
    seen = world.track(parsed)
    connection = world.find(parsed[0]["key"])
    packets = (0, 0) if connection is None else tuple(int(n) for n in connection.entry["packets"])
    return Verdict(seen.label, seen.state, seen.timeout_s, seen.assured, seen.unreplied, packets)


def remembered(world, reference):
    """Return in which numbers of either side the two differ; what the next segments will be compared with."""
    connection = next(iter(world.table.values()), None)
    if connection is None or reference.connection is None:
        return []
    differences = []
    for theirs, ours in zip(reference.connection.seen, connection.peers["peer"], strict=True):
        fields = FIELDS | ({"maxack": "td_maxack"} if theirs.maxack_set else {})
        rows = [(name, getattr(theirs, their), int(ours[name])) for name, their in fields.items()]
        rows += [(name, getattr(theirs, name), bool(int(ours["flags"]) & bit)) for name, bit in FLAGS.items()]
        differences += [row for row in rows if row[1] != row[2]]
    return differences


@settings(max_examples=EXAMPLES * 5, deadline=None)
@given(odd_segments.beginnings, odd_segments.steps, switches)
def test_any_segments(beginning, steps, switches):
    world, reference = tracker.Tracker(settings=word_of(switches)), reference_netfilter.Tracker(switches)
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
