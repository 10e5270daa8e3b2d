"""Whose request is answered next: the one whose client has had the least of control's time, weighed by how much it asks.

The order is fair queueing by virtual time (Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996).  A client is due at the
moment, counted in control's time, at which it was due before, plus what its last answer took, times as many of its requests
as waited then; who has asked nothing for a while is due now.  So who waits for each answer before asking anew is served
after the one answer that is under way, whatever others have asked; and who is ahead of nobody is never passed over for
ever, for the time at which the others are due goes on.

    who waits                                    when its turn comes
        one request of the client                when it is due
        more, few such clients                   when it is due
        more, ``CROWD`` such clients or more     when it is due, and control does not rest

A crowd gets a share of a core and no more: after ``WORK_S`` of computing, of all of control's threads, control rests as
long as that share asks, and answers meanwhile only those who have one request waiting.  What the others send stays in
their sockets or within their bounds, so they sleep too, and leave the core to whoever else is on it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import NamedTuple

CROWD = 8
"""Clients with more than one request waiting: of fewer, each may have all that the others leave, as a dump wants."""
WORK_S = 0.002
"""Between two rests: the loop's timers are not finer than a millisecond."""
REST_MAX_S = 0.25
"""Of one rest, whatever was computed before it."""


class Account:
    """What is known of one client."""

    __slots__ = ("due_s",)

    def __init__(self) -> None:
        self.due_s = 0.0


class Turn(NamedTuple):
    """A client that waits to be answered."""

    due_s: float
    number: int  # whoever came first, among those due at once
    account: Account
    waiting: int  # requests of the client, this one among them
    grant: asyncio.Future[None]


class Order:
    """The order of turns, and the rests between; moments are told, so it has no clock of its own.

    Args:
        crowd_percent: of a core, for a crowd.
    """

    def __init__(self, crowd_percent: int) -> None:
        self._rest_per_work = 100 / crowd_percent - 1
        self._ones: list[Turn] = []
        self._many: list[Turn] = []
        """Heaps: who has one request waiting, who has more."""
        self._numbers = itertools.count()
        self._crowd = 0
        """Clients with more than one request, from their entering until they have left."""
        self._virtual_s = 0.0
        """At which he was due whose turn it was last."""
        self._served: Turn | None = None
        self._served_at_s = 0.0
        self._busy_before_s = 0.0
        self._rest_until_s = 0.0
        self.rests = 0

    def enter(self, account: Account, waiting: int, grant: asyncio.Future[None], now_s: float) -> Turn:
        """Wait for a turn."""
        self._charge(now_s)
        account.due_s = max(account.due_s, self._virtual_s)
        turn = Turn(account.due_s, next(self._numbers), account, waiting, grant)
        heapq.heappush(self._many if waiting > 1 else self._ones, turn)
        self._crowd += waiting > 1
        return turn

    def leave(self, turn: Turn) -> None:
        """Have been answered, or wait no more."""
        self._crowd -= turn.waiting > 1

    def next(self, now_s: float, busy_s: float) -> Turn | None:
        """Return whose turn it is; nobody's, where nobody waits or control rests.

        Args:
            now_s: a moment.
            busy_s: what control has computed until now.
        """
        self._charge(now_s)
        heaps = [heap for heap in (self._ones, self._many) if _first(heap) is not None]
        if self._has_to_rest(now_s, busy_s):
            heaps = [heap for heap in heaps if heap is self._ones]
        if not heaps:
            return None
        turn = heapq.heappop(min(heaps, key=lambda heap: heap[0].due_s))  # of two, the first: one request
        self._virtual_s = max(self._virtual_s, turn.due_s)
        self._served, self._served_at_s = turn, now_s
        return turn

    def rest_s(self, now_s: float) -> float:
        """Return how long somebody has to wait who waits now for nothing but the end of a rest; 0: nobody does."""
        return max(0.0, self._rest_until_s - now_s) if _first(self._many) is not None else 0.0

    def _charge(self, now_s: float) -> None:
        """Settle with the client that was answered last."""
        if self._served is not None:
            self._served.account.due_s += (now_s - self._served_at_s) * self._served.waiting
            self._served = None

    def _has_to_rest(self, now_s: float, busy_s: float) -> bool:
        if self._crowd < CROWD:
            self._rest_until_s, self._busy_before_s = 0.0, busy_s
            return False
        if now_s < self._rest_until_s:
            return True
        if self._rest_until_s:
            self._rest_until_s, self._busy_before_s = 0.0, busy_s
        worked_s = busy_s - self._busy_before_s
        if worked_s < WORK_S or not self._rest_per_work:
            return False
        self._rest_until_s = now_s + min(REST_MAX_S, worked_s * self._rest_per_work)
        self.rests += 1
        return True


def _first(heap: list[Turn]) -> Turn | None:
    """Return who is at the head of a heap, after those who have given up waiting."""
    while heap and heap[0].grant.done():
        heapq.heappop(heap)
    return heap[0] if heap else None


class Turns:
    """The turns of control's clients: one begins in each round of the loop, after what has arrived was read.

    Args:
        crowd_percent: see `Order`.
    """

    def __init__(self, crowd_percent: int) -> None:
        self.order = Order(crowd_percent)
        self._is_coming = False
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, account: Account, waiting: int) -> Turn:
        """Wait for a client's turn; whoever takes one has to leave it.

        Args:
            account: of the client.
            waiting: how many of its requests wait, this one among them.
        """
        grant = asyncio.get_running_loop().create_future()
        turn = self.order.enter(account, waiting, grant, time.monotonic())
        self._come()
        try:
            await grant
        except BaseException:
            self.order.leave(turn)
            raise
        return turn

    def leave(self, turn: Turn) -> None:
        """End a turn."""
        self.order.leave(turn)

    def _come(self) -> None:
        """See to the next turn in the next round of the loop, behind what is to be done in it."""
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        self._is_coming = False
        now_s = time.monotonic()
        turn = self.order.next(now_s, time.process_time())
        if turn is not None:
            turn.grant.set_result(None)
            self._come()
        elif self._timer is None and (rest_s := self.order.rest_s(now_s)):
            self._timer = asyncio.get_running_loop().call_later(rest_s, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._come()
