"""Three hours of virtual time at the limit: connections come, end, expire and drive each other out; nothing drifts."""

import numpy as np
import pytest
import tables
from zonetrack.clients.sender import Sender
from zonetrack.clients.traffic import Packet, drive
from zonetrack.kernels import delete_list, sweep
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.words import u64
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import Life
from zonetrack.shm.reasons import Reason
from zonetrack.shm.seats import Seats

HOURS, ZONES = 3, 4
LIMIT, ZONE_LIMIT, HALF_OPEN = (400, 150, 60) if JIT else (200, 75, 30)
STEP_MS = 1_000 if JIT else 180_000
STEPS = HOURS * 3_600_000 // STEP_MS
PACKETS = 64 if JIT else 32
AUDITED = STEPS // 30
KINDS = ((Packet.SYN, Packet.SYN), (Packet.SYN, Packet.ACK), (Packet.SYN, Packet.RST), (Packet.SYN, Packet.SYN_ACK))


@pytest.mark.parametrize("on_full", ["early_drop", "reject"])
def test_hours_at_the_limit(on_full):
    table = tables.small(1_000, zones=ZONES)
    table.seats = Seats()
    settings = ZoneSettings(table)
    for zone in range(ZONES):
        settings.set(zone, {"on_full": on_full})
        tables.set_limit(table, zone, ZONE_LIMIT)
    settings.set(1, {"half_open": HALF_OPEN, "adaptive": [ZONE_LIMIT * 2 // 3, ZONE_LIMIT]})
    tables.totals(table)["limit"] = LIMIT
    workers = [tables.Participant(table) for _ in range(2)]
    sender = Sender(7, 32)
    sender.set(zones=ZONES, first=0, count=1 << 40, end=1 << 60, budget=PACKETS)
    counts, totals = tables.quotas(table)["count"], tables.totals(table)
    rng, now_ms, peak = np.random.default_rng(11), 1_000, 0
    for step in range(STEPS):
        now_ms += STEP_MS
        worker = workers[step % 2]
        sender.set(random=int(rng.integers(1, 1 << 63)))
        sender.send(*KINDS[int(rng.integers(len(KINDS)))])
        drive(worker.views, sender.stream, u64(now_ms))
        sweep.sweep(worker.views, u64(now_ms), u64(int(rng.integers(0, 1_200))))
        if rng.integers(50) == 0:
            worker.flush(int(rng.integers(ZONES)))
        peak = max(peak, int(totals["count"]))
        assert totals["count"] <= LIMIT and (counts <= ZONE_LIMIT).all()
        if step % AUDITED == 0:
            for one in workers:
                delete_list.run(one.views)
            tables.assert_at_rest(table)
            live = tables.entries(table)["life"] & 0xFF == Life.LIVE
            assert int(live.sum()) == int(totals["count"]) == int(counts.sum())
    assert peak == LIMIT
    evicted = sum(worker.counter(Reason.EVICTED) for worker in workers)
    refused = sum(worker.counter(reason) for worker in workers for reason in (Reason.FULL, Reason.ZONE_FULL))
    assert (evicted > 0) == (on_full == "early_drop") and refused > 0
    assert sum(worker.counter(Reason.SWEPT) for worker in workers) > 0
    while any(sweep.sweep(worker.views, u64(1 << 40), u64(1 << 20)) for worker in workers):
        pass
    assert totals["count"] == 0 and not counts.any()
    tables.assert_at_rest(table)
