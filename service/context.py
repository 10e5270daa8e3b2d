"""What the keeper hands to the control process: the table, the door, and what only the keeper can do or knows."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from ..shm.queues import Queues
from ..shm.rulebook import Rulebook
from ..shm.views import Table
from .config import Control, Metrics
from .door import Door


class Order(IntEnum):
    """What a client may have the keeper do, through control."""

    STOP = 1  # as SIGTERM does
    DISCARD = 2  # stop, and remove the table
    RELOAD = 3  # as SIGHUP does
    RESTART = 4  # begin anew, with the program as it is now, beside the workers; then replace them, one at a time


@dataclass(frozen=True)
class Context:
    """The world of the control process, all of it inherited from the keeper by the fork."""

    instance: str
    table: Table
    door: Door
    order: Callable[[Order], int]
    """Passes an order to the keeper, does not wait until it is carried out, and returns the keeper's pid."""
    check_config: Callable[[], dict[str, Any]]
    """Reads the configuration anew, and returns what to tell whoever asked for a reload; raises ConfigError."""
    workers: Callable[[], list[dict[str, Any]]]
    """Each worker in plain values; ``owner`` is its place on the roster, 0 when it has none."""
    ports: Callable[[], list[dict[str, Any]]]
    """Each port and its queues in plain values, with their counters."""
    rules: Rulebook = field(default_factory=lambda: Rulebook(1))
    """That packets meet."""
    queues: Queues = field(default_factory=lambda: Queues([]))
    """Of all ports."""
    bounds: Control = field(default_factory=Control)
    metrics: Metrics = field(default_factory=Metrics)
    sites: dict[str, socket.socket] = field(default_factory=dict)
    """What listens for HTTP, by what is shown there."""
    keeper: Callable[[], int] = os.getppid
    """Returns the pid of the keeper; of this process, where there is none at the moment."""
    origin: dict[str, Any] = field(default_factory=lambda: {"from": "new"})
    """Where what is in the table comes from: see opening.Held."""
    stall_s: float = 10.0
    """How long a client may leave its answers unread once no more of them are kept for it."""
