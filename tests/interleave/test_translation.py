"""Two workers that commit one flow at once: whoever loses finds the winner's binding, and sends its packet on by it."""

import datagrams
import naive_audit
import numpy as np
import tables
import tiny
from simulation import Mapped, Simulation
from zonetrack.clients.nat_scenarios import action
from zonetrack.kernels import burst
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import VERDICT, CtState, Life, Nat, Status
from zonetrack.shm.reasons import Reason

from .plays import NOW, SEEDS
from .test_table import stage

RANDOM = action(Nat.SOURCE | Nat.RANDOM, 0xC0000263, 1, (4000, 4099))
"""What each would choose by itself is another port."""


def test_two_workers_that_commit_one_flow_end_with_one_binding():
    made = stage(extension_share=1000)
    mapped, keys = Mapped(made.table), tiny.aimed(1)
    losers = 0
    for seed in range(round(150 * SEEDS)):
        went, verdicts = {}, {}

        def commit(me, went=went, verdicts=verdicts):
            frames, [packet] = datagrams.burst([datagrams.Packet(keys[0])])
            frames["action"] = RANDOM.ctypes.data
            verdict = np.zeros(1, VERDICT)
            arguments = (frames.ctypes.data, 1, NOW, verdict.ctypes.data)
            burst.track_burst(me.views, *map(u64, arguments))
            went[me.me], verdicts[me.me] = packet.tobytes(), verdict[0]

        before = sum(int(me.place["counters"][Reason.ADOPTED]) for me in made.participants)
        Simulation(mapped, seed).run(*(lambda me=me: commit(me) for me in made.participants[:2]))
        one, other = verdicts.values()
        assert one["reason"] == other["reason"] == 0
        assert one["ct_state"] & other["ct_state"] & CtState.SNAT
        assert (one["record"], one["incarnation"]) == (other["record"], other["incarnation"])
        assert len(set(went.values())) == 1
        entries = tables.entries(made.table)
        live = entries[entries["life"] & 0xFF == Life.LIVE]
        assert np.count_nonzero(live["status"] & Status.SOURCE_NAT) == 1
        assert naive_audit.faults(made.table) == []
        losers += sum(int(me.place["counters"][Reason.ADOPTED]) for me in made.participants) - before
        made.participants[0].remove(keys)
    assert losers > 5  # it came to a race
