"""How far long work is: one line on the terminal of who waits for it, which is gone when the work is.

It stands on stderr, and nowhere if that is no terminal, or if what is made goes to the terminal itself.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

PERIOD_S = 0.1
"""The line is written no more often."""
_CLEAR = "\r\x1b[K"


@contextlib.contextmanager
def line() -> Iterator[Callable[[str], None]]:
    """Show a line as long as this lasts.

    Yields:
        What shall be told, as often as one likes, how far the work is.
    """
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda text: None
        return
    due_s = 0.0

    def say(text: str) -> None:
        nonlocal due_s
        now_s = time.monotonic()
        if now_s >= due_s:
            due_s = now_s + PERIOD_S
            sys.stderr.write(_CLEAR + text)
            sys.stderr.flush()

    try:
        yield say
    finally:
        sys.stderr.write(_CLEAR)
        sys.stderr.flush()
