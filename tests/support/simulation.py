"""Several workers run kernels under the interpreter, one shared access at a time, in an order that a seed decides.

Each worker is a greenlet.  Kernels hand every shared access to ``memory.world``; here it first gives other workers a turn,
then goes through a memory that is as weak as the language allows:

    stores   wait in the worker's buffer, which it alone sees.  They leave it in any order, but for those to one address,
             and a release store leaves only when all before it have.  A swap that succeeds and a full fence empty it.
    loads    may give a value that was overwritten since, as if they had been done earlier: not before the worker's last
             acquire, nor before what it last saw or wrote at that address.  An acquire load is itself such a load; what
             follows is not earlier than it.  ``fence_acquire``: what follows is not earlier than any load before.

So a plain load may come before an earlier plain one, an acquire before an earlier plain load, any store after a later
plain one.  What is not modelled: a load that gives what is stored later in time, and loads ordered by an address only
(the protocol does not lean on that: a slot that is followed is loaded with acquire).  Fields of records, reached by
``record_at``, are not shared words: they change at once.  A participant's own place is read by nobody else while it lives,
so accesses to it are no occasion to switch.  Two words that lie together may be accessed as one: what is older is out then.

A seed also decides how often to switch, how long stores wait and how often loads are late, so that among thousands there
are long runs of one worker and wild ones.  When all spin and nothing is waiting in a buffer, that is a deadlock.
"""

from __future__ import annotations

import contextvars
import ctypes
import math
import random
from collections import deque

import addresses
from greenlet import getcurrent, greenlet
from zonetrack.kernels import locks, memory
from zonetrack.shm.layout import DELETE_BYTES, DELETE_LIST_MAX, PAGE_BYTES, ROSTER_MAX, Region

SWITCHES = (1.0, 0.5, 0.2, 0.05, 0.02, 0.005, 0.002)
DRAINS = (1.0, 0.5, 0.2, 0.05)
LATE = (0.0, 0.1, 0.3)
BUFFER_MAX = 12
HISTORY = 4
"""Overwritten values that are remembered of each word."""
IDLE_MAX = 5_000
"""Turns of spinning workers, with no store by anyone, after which nobody will ever go on."""
PAGE_SHIFT = PAGE_BYTES.bit_length() - 1
TRACE_LINES = 80
RELEASE, ACQUIRE = memory.RELEASE, memory.ACQUIRE
WORDS = {4: ctypes.c_uint32, 8: ctypes.c_uint64}


class Deadlock(Exception):
    """All workers spin, and no store is on its way."""


class OutOfBounds(Exception):
    """A word got a value that it must never have."""


class Killed(BaseException):
    """Stands for the end of a process: no kernel catches it."""


class Broken(Exception):
    """Something went wrong in a simulated worker; the message has the seed and the last accesses."""


class Mapped:
    """The regions of a table as words by address; made once for a table, used by many simulations."""

    def __init__(self, table):
        self.table = table
        self.pages = {}
        self.kept = []
        places = [(table.base[region], buffer) for region, buffer in table.regions.items()]
        if table.events:
            heads = ctypes.c_ubyte * (table.events.ring_address(1) - table.events.base)
            places.append((table.events.base, heads.from_address(table.events.base)))
        if table.sources:
            places.append((table.sources.base, table.sources.cells.view("u1")))
        if table.seats:
            places.append((table.seats.base, table.seats.words[: PAGE_BYTES // 8].view("u1")))
        for base, buffer in places:
            view = memoryview(buffer).cast("B")
            self.kept.append(view)
            words = (view.cast("Q"), view.cast("I"), base)
            for page in range(base >> PAGE_SHIFT, (base + len(view)) >> PAGE_SHIFT):
                self.pages[page] = words
        self.own_low = table.address(Region.CONTROL, "participants")
        self.own_high = table.address(Region.CONTROL, "delete_lists") + ROSTER_MAX * DELETE_LIST_MAX * DELETE_BYTES


def overlaps(buffer, address, size):
    """Whether a store waits that wrote a part of a word, or more than it: a core waits until that is out."""
    return any(entry[1] != size and entry[0] < address + size and address < entry[0] + entry[1] for entry in buffer)


class Worker:
    """A simulated worker: where it stands, what it has stored that others do not see, how late it may look."""

    def __init__(self, name):
        self.name = name
        self.greenlet = None
        self.buffer = []  # (address, size, value, release, number)
        self.number = 0
        self.horizon = 0  # no load may be earlier
        self.latest = 0  # the latest moment of a load so far
        self.seen = {}  # address -> no load of it may be earlier
        self.open = deque()  # operations whose stores are not all out: (number, operation)
        self.left = 0  # shared accesses until it is killed; 0: it is not
        self.stores_left = 0  # likewise of stores and swaps alone


class Simulation(memory.World):
    """One run of some workers from a seed.

    Args:
        mapped: the table's words.
        seed: decides everything.
        impatient: locks are waited for a few turns only, so BUSY happens.
        weak: stores wait and loads are late; else memory is sequentially consistent.
        forget: orders that are lost, a planted fault: RELEASE, ACQUIRE.
        bounds: address -> the most that may ever stand there.
        yields: tries for a lock through the scheduler; None: as many as the kernels have, or few where ``impatient``.
        tracing: remember the last accesses for the report; who runs thousands of seeds does one again that went wrong.
    """

    def __init__(self, mapped, seed, *, impatient=False, weak=True, forget=(), bounds=None, tracing=True, yields=None):
        self.mapped, self.seed, self.impatient, self.forget = mapped, seed, impatient, frozenset(forget)
        self.bounds = bounds or {}
        self.yields = yields
        self.pages, self.own_low, self.own_high = mapped.pages, mapped.own_low, mapped.own_high
        self.random = random.Random(seed)
        self.switching = self.random.choice(SWITCHES)
        self.draining = self.random.choice(DRAINS) if weak else 1.0
        self.late = self.random.choice(LATE) if weak else 0.0
        self.draw = self.random.random
        self.now = 0
        self.history = {}  # address -> deque of (moment of the overwrite, old value)
        self.ready = []
        self.hub = getcurrent()
        self.waiting = 0  # stores in all buffers
        self.current = None
        self.idle = 0
        self.accesses = 0
        self.operations = 0
        self.trace = deque(maxlen=TRACE_LINES)
        self.note = self.trace.append if tracing else (lambda line: None)
        self.names = 0
        self.until_switch = self._stretch()

    # -------------------------------------------------------------------------------------------- running
    def run(self, *bodies):
        """Run each body as a worker until all have ended; what any of them raises ends the run."""
        for body in bodies:
            self.spawn(body)
        before = memory.world, locks.PAUSES_MAX, locks.YIELDS_MAX
        memory.world = self
        if self.impatient or self.yields:
            locks.PAUSES_MAX, locks.YIELDS_MAX = 1, self.yields or self.random.choice((1, 5, 40))
        try:
            while self.ready:
                self.current = worker = self.random.choice(self.ready)
                worker.greenlet.switch()
                self.finish(self.current)
        except Exception as error:
            raise Broken(self.report(error)) from error
        finally:
            memory.world, locks.PAUSES_MAX, locks.YIELDS_MAX = before
            self.current = None

    def spawn(self, body, name=None):
        """Let one more worker run; a successor has the name of who died."""
        if name is None:
            self.names += 1
            name = self.names
        worker = Worker(name)
        worker.horizon = worker.latest = self.now  # who is started later has seen what came before
        worker.greenlet = greenlet(body, self.hub)  # its end is the end of no other
        worker.greenlet.gr_context = contextvars.copy_context()  # numpy keeps there that u64 may wrap
        self.ready.append(worker)
        return worker

    def finish(self, worker):
        """The body of a worker has returned: all its stores come out."""
        self.empty(worker)
        self.ready.remove(worker)

    def report(self, error):
        """Return the seed, the fault, and the last accesses, oldest first."""
        lines = [f"seed {self.seed}: {type(error).__name__}: {error}", f"last {len(self.trace)} accesses:"]
        for who, verb, address, value in self.trace:
            lines.append(f"  {who} {verb} {addresses.name(self.mapped.table, address)} {value:#x}")
        return "\n".join(lines)

    def switch(self):
        """Give a worker a turn, perhaps the same."""
        worker = self.random.choice(self.ready)
        if worker is not self.current:
            self.current = worker
            worker.greenlet.switch()

    def _stretch(self):
        """Return how many accesses pass until the next switch, so that each is one with the same chance."""
        if self.switching >= 1.0:
            return 1
        return 1 + int(math.log(1.0 - self.draw()) / math.log(1.0 - self.switching))

    def turn(self):
        """A shared access is about to happen: others may go first, a store may come out."""
        self.accesses += 1
        self.until_switch -= 1
        if self.until_switch <= 0:
            self.until_switch = self._stretch()
            self.switch()
        if self.waiting and self.draw() < self.draining:
            self.drain_one()

    @staticmethod
    def come_nearer(worker):
        """One access less until a worker is killed, which is before the last of them."""
        worker.left -= 1
        if not worker.left:
            raise Killed

    @staticmethod
    def come_nearer_by_a_store(worker):
        """Likewise where only stores count: what lies between two of them changes nothing that others see."""
        worker.stores_left -= 1
        if not worker.stores_left:
            raise Killed

    # -------------------------------------------------------------------------------------------- stores
    def drain_one(self):
        """Let a store of some worker come out, if there is one."""
        if self.waiting:
            self.drain(self.random.choice([worker for worker in self.ready if worker.buffer]))

    def drain(self, worker):
        """Let a store of a worker come out: any that nothing before it holds back."""
        buffer = worker.buffer
        i = self.random.randrange(len(buffer))
        address = buffer[i][0]
        if buffer[i][3] or any(buffer[j][0] == address for j in range(i)):
            i = 0
        address, size, value, _, _ = buffer.pop(i)
        self.waiting -= 1
        self.apply(worker, address, size, value)
        while worker.open and (not buffer or min(entry[4] for entry in buffer) > worker.open[0][0]):
            worker.open.popleft()[1].end = self.now

    def apply(self, worker, address, size, value):
        """A store becomes visible to all."""
        words8, words4, base = self.pages[address >> PAGE_SHIFT]
        words, i = (words8, address - base >> 3) if size == 8 else (words4, address - base >> 2)
        self.now += 1
        self.idle = 0
        past = self.history.get(address)
        if past is None:
            past = self.history[address] = deque(maxlen=HISTORY)
        past.append((self.now, words[i]))
        words[i] = value
        worker.seen[address] = self.now
        if value > self.bounds.get(address, value):
            raise OutOfBounds(f"{addresses.name(self.mapped.table, address)} is {value}")

    def empty(self, worker):
        """All stores of a worker come out, in some order that is allowed."""
        while worker.buffer:
            self.drain(worker)

    # -------------------------------------------------------------------------------------------- the world
    def load(self, address, size, order):
        page = self.pages.get(address >> PAGE_SHIFT)
        if page is None:
            return WORDS[size].from_address(address).value
        words, i = (page[0], address - page[2] >> 3) if size == 8 else (page[1], address - page[2] >> 2)
        worker = self.current
        if worker is None:
            return words[i]
        if worker.left:
            self.come_nearer(worker)
        if self.own_low <= address < self.own_high:
            return words[i]
        self.turn()
        if overlaps(worker.buffer, address, size):
            self.empty(worker)
        for entry in reversed(worker.buffer):
            if entry[0] == address:
                self.note((worker.name, "loads own", address, entry[2]))
                return entry[2]
        value, moment = words[i], 0
        past = self.history.get(address)
        if past:
            floor = max(worker.horizon, worker.seen.get(address, 0))
            moment = past[-1][0]
            if self.late and moment > floor and self.draw() < self.late:
                at = self.random.choice([k for k in range(len(past)) if past[k][0] > floor])
                value = past[at][1]
                moment = past[at - 1][0] if at else 0
            moment = max(moment, floor)
            worker.seen[address] = moment
            if moment > worker.latest:
                worker.latest = moment
        if order is ACQUIRE and ACQUIRE not in self.forget and moment > worker.horizon:
            worker.horizon = moment
        self.note((worker.name, "loads", address, value))
        return value

    def store(self, address, size, value, order):
        page = self.pages.get(address >> PAGE_SHIFT)
        if page is None:
            WORDS[size].from_address(address).value = value
            return
        worker = self.current
        if worker is not None:
            if worker.stores_left:
                self.come_nearer_by_a_store(worker)
            if worker.left:
                self.come_nearer(worker)
        if worker is None or self.own_low <= address < self.own_high:
            words, i = (page[0], address - page[2] >> 3) if size == 8 else (page[1], address - page[2] >> 2)
            words[i] = value
            return
        self.turn()
        release = order is RELEASE and RELEASE not in self.forget
        self.note((worker.name, "releases" if release else "stores", address, value))
        if overlaps(worker.buffer, address, size):
            self.empty(worker)
        worker.number += 1
        self.waiting += 1
        worker.buffer.append((address, size, value, release, worker.number))
        if self.draining >= 1.0:
            self.empty(worker)
        while len(worker.buffer) > BUFFER_MAX:
            self.drain(worker)

    def swap(self, address, size, expected, desired):
        page = self.pages.get(address >> PAGE_SHIFT)
        words, i = (page[0], address - page[2] >> 3) if size == 8 else (page[1], address - page[2] >> 2)
        worker = self.current
        if worker is not None:
            if worker.stores_left:
                self.come_nearer_by_a_store(worker)
            if worker.left:
                self.come_nearer(worker)
        if worker is None or self.own_low <= address < self.own_high:
            done = words[i] == expected
            if done:
                words[i] = desired
            return done
        self.turn()
        if any(entry[0] == address for entry in worker.buffer):
            self.empty(worker)
        worker.horizon = worker.latest = self.now
        if words[i] != expected:
            self.note((worker.name, "swaps in vain", address, words[i]))
            return False
        self.empty(worker)
        self.apply(worker, address, size, desired)
        worker.horizon = worker.latest = self.now
        self.note((worker.name, "swaps", address, desired))
        return True

    def fence(self, full):
        worker = self.current
        if worker is not None:
            if full:
                self.empty(worker)
                worker.horizon = worker.latest = self.now
            elif ACQUIRE not in self.forget:
                worker.horizon = max(worker.horizon, worker.latest)

    def relax(self):
        worker = self.current
        if worker is None:
            return
        self.idle += 1
        if self.idle > IDLE_MAX:
            raise Deadlock(f"all {len(self.ready)} workers spin")
        self.drain_one()
        others = [other for other in self.ready if other is not worker]
        if others:
            self.current = other = self.random.choice(others)
            other.greenlet.switch()

    # -------------------------------------------------------------------------------------------- operations
    def begin(self, operation):
        """An operation of the running worker begins: not before the last moment that it knows of."""
        self.now += 1
        operation.begin = self.current.horizon if self.late else self.now
        operation.worker, operation.number = self.current.name, self.operations
        self.operations += 1

    def end(self, operation):
        """It has ended: when its last store is out."""
        worker = self.current
        self.now += 1
        operation.end = self.now
        if worker.buffer:
            operation.end = None
            worker.open.append((worker.number, operation))
