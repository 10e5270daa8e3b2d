"""Rings of AF_XDP: how they are at first, and where who follows a dead worker goes on (kernels/port_xdp has their protocol).

A worker dies between any two stores.  Of that the next sees in the rings of receiving, and in those of sending, at most that
one of two cursors has moved and the other has not: then the equations of kernels/port_xdp do not hold, one way only.
"""

from __future__ import annotations

import ctypes

import numpy as np

CURSORS = 2**32


def words(address: int, kind: str = "u4", count: int = 1) -> np.ndarray:
    """Return words of memory that is mapped for as long as the rings are."""
    block = (ctypes.c_ubyte * (count * np.dtype(kind).itemsize)).from_address(address)
    return np.frombuffer(memoryview(block).cast("B"), kind)


def offer_all(own: np.void) -> None:
    """Let all places to receive in be received in.

    Args:
        own: XSK of rings that nobody has used.
    """
    count = int(own["rx_count"])
    words(int(own["fill_entries"]), "u8", count)[:] = np.arange(count, dtype="u8") * own["place_bytes"]
    words(int(own["fill_producer"]))[0] = count


def resume_receiving(own: np.void, kept: np.void) -> int:
    """Let a successor receive where the worker before it has stopped.

    Args:
        own: XSK of the rings, which are changed.
        kept: DIVERTED of their QUEUE.

    Returns:
        How many frames the one before had taken and not given back: they are lost.
    """
    count, place_bytes = int(own["rx_count"]), int(own["place_bytes"])
    consumer, producer = words(int(own["rx_consumer"])), words(int(own["fill_producer"]))
    first = (int(producer[0]) - count) % CURSORS  # between R1 and R2 the consumer is behind
    taken = (int(kept["position"]) - first) % CURSORS
    came = words(int(own["rx_entries"]), "u8", 2 * count)[::2]
    free = words(int(own["fill_entries"]), "u8", count)
    for turn in range(taken):
        start = int(came[(first + turn) % count])
        free[(int(producer[0]) + turn) % count] = start // place_bytes * place_bytes
    producer[0] = (int(producer[0]) + taken) % CURSORS
    consumer[0] = (first + taken) % CURSORS
    return taken


def resume_sending(own: np.void, kept: np.void) -> None:
    """Let a successor send where the worker before it has stopped.

    Args:
        own: XSK of the rings, which are changed.
        kept: INJECTED of their QUEUE, changed.
    """
    sent = words(int(own["sent_consumer"]))
    if (int(words(int(own["tx_producer"]))[0]) - int(sent[0]) - int(kept["fresh"])) % CURSORS != 1:
        return
    if kept["fresh"] < own["tx_count"]:  # between R3 and R4
        kept["fresh"] += 1
    else:
        sent[0] = (int(sent[0]) + 1) % CURSORS
