"""Rings of packet sockets whose worker has died: where its successor goes on.

A worker dies between any two stores.  In a ring the next sees of that at most one thing that was done and not noted: a block
that was given back while `position` still names it, or a frame that was put and not counted (kernels/port_packet has their
protocol); or a place that was counted and not given back (kernels/port_frames).
"""

from __future__ import annotations

import numpy as np

from ...shm.layout import LEAVING

AVAILABLE, TO_USER = 0, 1


def resume_receiving(blocks: np.void, memory: np.ndarray) -> None:
    """Let a successor receive where the worker before it has stopped.

    Args:
        blocks: BLOCKS of the ring, changed.
        memory: u1, the ring.
    """
    blocks["next"] = 0  # an address of the process that has died
    back, taken = divmod(int(blocks["position"]), 1 << 32)
    if not taken:
        return
    start = back % int(blocks["count"]) * int(blocks["block_bytes"])
    status = int(memory[start + 8 : start + 12].view("u4")[0])
    sequence = int(memory[start + 24 : start + 32].view("u8")[0])
    if not status & TO_USER or sequence != blocks["sequence"]:
        blocks["position"] = (back + 1) << 32  # it died after it had given the block back


def resume_frames(ring: np.void, memory: np.ndarray) -> int:
    """Let a successor receive where the worker before it has stopped, in a ring with a place for each frame.

    Args:
        ring: FRAMES of it, changed.
        memory: u1, the ring.

    Returns:
        How many frames the one before had taken and not given back: they are lost.
    """
    first, end = int(ring["returned"]), int(ring["position"])
    counted = _status(ring, memory, first - 1)
    if counted[0] == LEAVING:
        counted[0] = AVAILABLE
    for position in range(first, end):
        _status(ring, memory, position)[0] = AVAILABLE
    ring["returned"] = end
    return end - first


def _status(ring: np.void, memory: np.ndarray, position: int) -> np.ndarray:
    """Return the status of a place of a ring, u4[1]."""
    start = position % int(ring["count"]) * int(ring["frame_bytes"])
    return memory[start : start + 4].view("u4")


def resume_sending(places: np.void, memory: np.ndarray) -> None:
    """Let a successor send where the worker before it has stopped.

    Args:
        places: PLACES of the ring, changed.
        memory: u1, the ring.
    """

    cursor = int(places["cursor"])
    start = cursor % int(places["count"]) * int(places["place_bytes"])
    if places["putting"] == cursor + 1 and memory[start : start + 4].view("u4")[0] != AVAILABLE:
        places["cursor"] = cursor + 1  # it died before it had counted the frame
