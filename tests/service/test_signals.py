"""Signals are told as bytes while somebody wants to read them, and do what they did before afterwards."""

import os
import select
import signal

import pytest
from zonetrack.service import signals


def test_signals_are_told_in_order_and_do_nothing_else():
    with signals.told(signal.SIGHUP, signal.SIGUSR2) as heard:
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGHUP)
        read = b""
        while len(read) < 2:
            read += os.read(heard, 64)
        assert sorted(read) == [signal.SIGHUP, signal.SIGUSR2]
        assert not select.select([heard], [], [], 0)[0]


def test_afterwards_all_is_as_before():
    seen = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: seen.append(number))
    try:
        with signals.told(signal.SIGUSR2) as heard:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert os.read(heard, 64) == bytes([signal.SIGUSR2]) and seen == []
        os.kill(os.getpid(), signal.SIGUSR2)
        assert seen == [signal.SIGUSR2]
        assert signal.set_wakeup_fd(-1) == -1
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(heard)
    finally:
        signal.signal(signal.SIGUSR2, before)
