"""Whatever segments came, a connection that is listed is found by its next packet, from either side, in both profiles.

The packet may well be invalid: after a gap `netfilter` stays so, as Linux does, until windows are not checked any more
(tests/scripts/gap, gap_liberal, no_sequence_check).  But it belongs to that connection, and no other is made for it.
"""

import hypothesis.strategies as st
import scripts
import wire
from hypothesis import given, settings
from parsing import EXAMPLES

PORTS = (1_000, 1_001, 80)
NUMBERS = (0, 1, 1_000, 2**31, 2**32 - 1)

step = st.tuples(
    st.sampled_from("cs"),
    st.sampled_from(PORTS),
    st.sampled_from(("S", "SA", "A", "PA", "FA", "R", "RA", "SF", "")),
    st.sampled_from(NUMBERS),
    st.sampled_from(NUMBERS),
    st.sampled_from((0, 0, 0, 9, 10, 31, 121)),
)


def packet(side, port, flags, seq, ack):
    """Return a segment of the connection client:port -> server:80."""
    ports = (port, 80) if side == "c" else (80, port)
    return wire.tcp(side, ports, flags, seq, ack, 4096, "", b"x" * ("P" in flags)).packet(4)


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(st.lists(step, max_size=20), st.booleans())
def test_what_is_listed_is_found(steps, ovs):
    world = scripts.World(4)
    world.set("ovs" if ovs else "-ovs")
    for side, port, flags, seq, ack, seconds in steps:
        if seconds:
            world.wait(seconds)
        world.track(packet(side, port, flags, seq, ack))
    before = world.connections()
    assert len({str(sorted((str(one["orig"]), str(one["reply"])))) for one in before}) == len(before)
    for one in before:
        by_client = one["orig"]["src"] == wire.HOSTS["c"][4]
        port = one["orig"]["sport" if by_client else "dport"]
        for side in "cs":
            verdict = world.track(packet(side, port, "A", 7, 7))
            assert int(verdict["incarnation"]) << 32 | int(verdict["record"]) == one["id"]
    assert [one["id"] for one in world.connections()] == [one["id"] for one in before]
    world.close()
