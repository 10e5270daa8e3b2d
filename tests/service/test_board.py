"""What is written on the board by one process is read by another."""

import os

from zonetrack.service.board import LINE, Board
from zonetrack.service.lives import Life


def test_a_line_is_a_cache_line():
    assert LINE.itemsize == 64


def test_a_child_writes_and_its_parent_reads():
    hung = Board(2, lambda worker: [("lab", 0)] if worker == 0 else [])
    pid = os.fork()
    if pid == 0:
        hung.lines[1]["owner"], hung.lines[1]["packets"] = 7, 1 << 40
        os._exit(0)
    os.waitpid(pid, 0)
    hung.lines[1]["life"], hung.lines[1]["started_ms"] = Life.RUNNING, 1_500
    first, second = hung.workers()
    assert first["queues"] == [["lab", 0]]
    assert second == {
        "number": 1,
        "pid": 0,
        "state": "running",
        "restarts": 0,
        "started": 1.5,
        "owner": 7,
        "calls": 0,
        "packets": 1 << 40,
        "queues": [],
    }
