"""What a process of ours costs, as Linux counts it: seconds of processor time."""

from __future__ import annotations

import os
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 13, 14
"""Fields of /proc/PID/stat (proc_pid_stat(5)), counted from 0."""


def cpu_s(pid: int) -> float | None:
    """Return the seconds that a process has computed, None when it is not there."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = line[line.rindex(")") + 2 :].split()  # a name may hold spaces and parentheses; after it comes field 2
    return (int(fields[_USER - 2]) + int(fields[_SYSTEM - 2])) / TICKS_A_SECOND
