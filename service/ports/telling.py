"""What is told of the ports: of each queue what came and went, and what did not, by cause.

Each number has one writer, the worker whose queue it is; readers read.  Bursts and batches are counted by the power of two
that they reach: a list, for 1, 2, 4, 8, 16 and 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...shm.layout import PortKind
from ...shm.queues import Queues

KINDS = {
    PortKind.SHM: "shm",
    PortKind.PACKET: "afpacket",
    PortKind.TAP: "tap",
    PortKind.PCAP: "pcap",
    PortKind.NFQUEUE: "nfqueue",
    PortKind.XDP: "xdp",
    PortKind.FRAMES: "afpacket",
}
COMMON = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "tx_full", "bursts", "batches")
"""Counters of a queue of any kind."""
DEVICE = ("rx_dropped", "rx_truncated", "tx_too_long", "tx_failed")
OWN = {
    PortKind.SHM: ("bad_slots", "bad_lengths", "tx_too_long", "wakes"),
    PortKind.PACKET: DEVICE,
    PortKind.TAP: DEVICE,
    PortKind.PCAP: DEVICE,
    PortKind.NFQUEUE: DEVICE,
    PortKind.XDP: DEVICE,
    PortKind.FRAMES: DEVICE,
}
CAUSES = {
    PortKind.NFQUEUE: ("rx_queue_full", "rx_buffer_full", "rx_abandoned"),
    PortKind.XDP: ("rx_ring_full", "rx_fill_empty", "rx_abandoned", "tx_invalid"),
}
"""What the packets of `rx_dropped` are, where that is known: QUEUE.causes."""


def tell(queues: Queues, dealt: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Return the ports, each with its queues, in plain values.

    Args:
        queues: of the service.
        dealt: the places that each worker sends by.
    """
    owners: dict[int, int | None] = {number: worker for worker, own in enumerate(dealt) for number in own}
    for number in np.flatnonzero(queues.records["receives"]).tolist():
        owners[number] = int(queues.records["holder"][number]) - 1 if queues.records["holder"][number] else None
    told = []
    for number, made in enumerate(queues.ports):
        first = queues.number(number, 0)
        places = range(first, first + made.places(queues.workers))
        rows = [_row(queues.records[place], owners.get(place)) for place in places]
        about = {"name": made.name, "kind": KINDS[made.kind], "zone": made.zone}
        told.append(about | made.about() | {"queues": rows})
    return told


def _row(record: np.void, worker: int | None) -> dict[str, Any]:
    kind = PortKind(int(record["kind"]))
    row: dict[str, Any] = {"queue": int(record["index"]), "worker": worker}
    row |= {name: int(record[name]) for name in (*COMMON, *OWN[kind])}
    row |= dict(zip(CAUSES.get(kind, ()), record["causes"].tolist(), strict=False))
    if kind is PortKind.SHM:
        row["bad_cursors"] = int(record["rx"]["bad_cursors"] + record["tx"]["bad_cursors"])
    return row | {name: record[name].tolist() for name in ("rx_sizes", "tx_sizes")}
