"""A worker goes by the latest rules, and says so."""

from ruled import Switch
from zonetrack.shm.layout import GENERATION, HIT_BYTES


def test_the_latest_generation_is_picked_up_and_acknowledged():
    with Switch() as switch:
        pipe = switch.loop.pipe[0]
        switch.poll()
        assert pipe["generation"] == 0
        for number in (1, 2, 3):
            switch.load(f"priority={number},actions=drop\npriority=0,actions=drop")
            assert switch.rules.picked_up(0) == (number == 1)  # who goes by nothing is in nobody's way
            switch.poll()
            assert switch.rules.picked_up(0)
            at = switch.rules.current.ctypes.data
            assert (pipe["word"], pipe["generation"]) == (switch.rules.published, at)
            assert pipe["hits"] == at + switch.rules.current[: GENERATION.itemsize].view(GENERATION)["hits"][0]
        switch.rules.withdraw()
        assert not switch.rules.picked_up(0)
        switch.poll()
        assert (pipe["generation"], switch.rules.picked_up(0)) == (0, True)


def test_each_worker_counts_in_its_own_row():
    with Switch(text="actions=drop") as switch:
        pipe = switch.loop.pipe[0]
        pipe["worker"] = 2
        switch.poll()
        head = switch.rules.current[: GENERATION.itemsize].view(GENERATION)[0]
        assert pipe["hits"] == switch.rules.current.ctypes.data + head["hits"] + 2 * HIT_BYTES
