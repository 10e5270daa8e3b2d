"""Signals as something to read: a descriptor tells their numbers, a byte each, and nothing else is done about them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def told(*numbers: signal.Signals) -> Iterator[int]:
    """Yield a descriptor from which the numbers of signals can be read; afterwards they do again what they did before."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, writer)
        undo.callback(os.close, reader)
        os.set_blocking(writer, False)
        for number in numbers:
            undo.callback(signal.signal, number, signal.signal(number, lambda *_: None))
        undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer, warn_on_full_buffer=False))
        yield reader
