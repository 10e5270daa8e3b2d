"""What a successor finds in the rings of a packet socket; every death there is in tests/interleave/test_port_rings."""

import numpy as np
import pytest
from zonetrack.service.ports.packet_rings import AVAILABLE, resume_frames, resume_receiving, resume_sending
from zonetrack.shm.layout import BLOCKS, FRAMES, LEAVING, PLACES

BLOCK_BYTES, COUNT, PLACE_BYTES = 256, 4, 64


def received(position, status, sequence=7):
    """Return the position at which a successor goes on; the block in hand has ``sequence`` and number 7 was begun."""
    blocks, memory = np.zeros(1, BLOCKS), np.zeros(COUNT * BLOCK_BYTES, "u1")
    blocks["block_bytes"], blocks["count"], blocks["sequence"], blocks["next"] = BLOCK_BYTES, COUNT, 7, 12345
    blocks["position"] = position
    start = (position >> 32) % COUNT * BLOCK_BYTES
    memory[start + 8 : start + 12].view("u4")[0] = status
    memory[start + 24 : start + 32].view("u8")[0] = sequence
    resume_receiving(blocks[0], memory)
    assert blocks["next"] == 0
    return int(blocks["position"][0])


@pytest.mark.parametrize(
    ("position", "status", "sequence", "goes_on"),
    [
        (6 << 32, 1, 7, 6 << 32),  # nothing of the block was taken
        (6 << 32, 0, 9, 6 << 32),
        (6 << 32 | 3, 1, 7, 6 << 32 | 3),  # three packets were
        (6 << 32 | 3, 0, 7, 7 << 32),  # and the block was given back
        (6 << 32 | 3, 1, 11, 7 << 32),  # and the system has filled it again
    ],
)
def test_where_it_receives(position, status, sequence, goes_on):
    assert received(position, status, sequence) == goes_on


@pytest.mark.parametrize("status", [AVAILABLE, 1, 2])  # nothing, to be sent, being sent
@pytest.mark.parametrize("others", [AVAILABLE, 1, 2])
@pytest.mark.parametrize("putting", [5, 6])
def test_where_it_sends(status, others, putting):
    places, memory = np.zeros(1, PLACES), np.zeros(COUNT * PLACE_BYTES, "u1")
    places["count"], places["place_bytes"], places["cursor"], places["putting"] = COUNT, PLACE_BYTES, 5, putting
    statuses = memory.view("u4")[:: PLACE_BYTES // 4]
    statuses[:], statuses[1] = others, status
    resume_sending(places[0], memory)
    assert places["cursor"] == (6 if putting == 6 and status != AVAILABLE else 5)


def test_frames_in_hand_are_given_back_and_counted():
    ring, memory = np.zeros(1, FRAMES), np.ones(4 * 64, "u1")
    ring["count"], ring["frame_bytes"], ring["returned"], ring["position"] = 4, 64, 7, 9
    assert resume_frames(ring[0], memory) == 2
    assert ring["returned"] == 9
    assert memory.view("u4")[::16].astype(bool).tolist() == [False, True, True, False]
    assert resume_frames(ring[0], memory) == 0


def test_a_frame_that_was_being_given_back_is():
    ring, memory = np.zeros(1, FRAMES), np.zeros(4 * 64, "u1")
    ring["count"], ring["frame_bytes"], ring["returned"], ring["position"] = 4, 64, 4, 4
    memory.view("u4")[::16] = [1, 1, 0, LEAVING]
    assert resume_frames(ring[0], memory) == 0
    assert memory.view("u4")[::16].tolist() == [1, 1, 0, 0]
