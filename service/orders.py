"""Orders of clients, on their way from control to the keeper: a byte each, into a pipe of the house.

Where nobody keeps at the moment the order waits there, and a keeper is started, which adopts the others and finds it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from . import orphans
from .context import Order
from .house import House


class Orders:
    """The way of orders, in control's process."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._started: subprocess.Popen[bytes] | None = None

    def give(self, order: Order) -> int:
        """Pass an order on; return the pid of the keeper that will hear it."""
        keeper = self._house.estate.keeper  # before it hears of this: it may leave at once
        os.write(self._house.order, bytes([order]))
        if keeper:
            return keeper
        if self._started is None or self._started.poll() is not None:
            self._house.estate.add(again=orphans.ORDERED)  # it shall adopt us, whatever its flags say of a fresh table
            self._started = subprocess.Popen(command(), stdin=subprocess.DEVNULL, start_new_session=True)
        return self._started.pid


def command() -> list[str]:
    """Return the command line that began this program."""
    return [sys.executable, *sys.orig_argv[1:]]
