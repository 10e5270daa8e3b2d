"""Processor time is what Linux says of a process."""

import os
import subprocess
import sys

from zonetrack.service import processes


def test_time_of_this_process():
    before = processes.cpu_s(os.getpid())
    times = os.times()
    after = processes.cpu_s(os.getpid())
    assert before <= times.user + times.system + 0.02 and times.user + times.system <= after + 0.02


def test_a_name_may_hold_what_separates_fields(tmp_path):
    odd = tmp_path / "a) R (b"
    odd.symlink_to(sys.executable)
    with subprocess.Popen([odd, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert processes.cpu_s(process.pid) >= 0.0
        process.communicate(b"\n")


def test_nobody_has_none():
    process = subprocess.Popen(["true"])
    process.wait()
    assert processes.cpu_s(process.pid) is None
