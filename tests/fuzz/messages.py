"""Messages of every kind at a live control socket: each is answered, or ends its own connection with the reason.

Most are requests with values that were altered; some are any value, or no MessagePack at all.  Beside them another client
counts, and is answered all the while.
"""

from __future__ import annotations

import contextlib
import random
import re
import tempfile
from pathlib import Path

import msgpack
import tables
from served import Client, Service
from zonetrack.clients import wire
from zonetrack.clients.errors import Code, RemoteProtocolError
from zonetrack.service.handlers import METHODS
from zonetrack.shm.events import Events
from zonetrack.shm.seats import Seats

from . import mutation
from .runs import LEAK_BYTES, resident_bytes

BATCH, BOUND = 48, 64
CONNECTIONS = 20
LOOK_EVERY = 2_000
"""Messages between two counts of the other client."""
SAMPLES = {
    "zones.set": {"zone": 1, "settings": {"profile": "ovs", "ftp": 21}},
    "count": {"filter": {"zone": 0, "proto": "udp"}},
    "dump": {"filter": {"zone": 0}, "cursor": 0, "limit": 10},
    "delete": {"filter": {"zone": 0, "dport": 53}},
    "flush": {"zone": 1, "wait": False},
    "explain.recent": {"limit": 5, "zone": 0},
    "limits.set": {"zone": 1, "limit": 10, "default": None, "global": 100},
    "timeouts.set": {"policy": "slow", "timeouts": {"udp": 1.5}, "zone": 2},
    "timeouts.get": {"policy": 0},
    "timeouts.unset": {"policy": "slow"},
    "fragments.set": {"max": 9},
    "events.subscribe": {"types": ["new"], "zone": 1},
    "rules.load": {"text": "table=0,actions=ct(commit)", "format": "text"},
    "rules.trace": {"packet": 'in_port=lab,tcp,payload="PORT 10,0,0,1,4,1\\r\\n"', "then": ["in_port=lab,udp"]},
}
"""Parameters that are right, of methods that take any; the others get names that are known, with any value."""
NOT_ASKED = ("stop", "restart", "config.reload")
"""Orders for the keeper, who is the test here."""
MISTAKE = re.compile(r"^[A-Z]\w*(Error|Exception|Interrupt): ")


def request(chance):
    """Return a value that is a request, or nearly."""
    method = chance.choice([name for name in METHODS if name not in NOT_ASKED])
    known = dict.fromkeys(METHODS[method].parameters, 0)
    given = SAMPLES.get(method, known)
    if chance.random() < 0.3:
        given = known
    params = mutation.value(chance, given)
    if chance.random() < 0.998 and not isinstance(params, dict):
        params = given
    if isinstance(params, dict) and chance.random() < 0.1:
        params.pop(next(iter(params), None), None)
    if chance.random() < 0.03:
        method = mutation.text(chance, method)
    return [0, chance.randrange(1 << 16), method, params]


def packed(value):
    """Return the bytes of a value; what cannot be packed becomes text."""
    try:
        return msgpack.packb(value, default=repr)
    except (ValueError, OverflowError, UnicodeEncodeError):
        return msgpack.packb(repr(value).encode("ascii", "replace").decode())


class World:
    """A control process with a small table, and who talks to it."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        table = tables.small(connections=400, zones=16)
        table.events, table.seats = Events(), Seats()
        self.directory = tempfile.TemporaryDirectory(prefix="zonetrack-fuzz-")
        self.service = Service(Path(self.directory.name) / "x.sock", table, in_flight_max=BOUND, clients_max=8)
        self.service.participant().made(tables.keys(CONNECTIONS))
        self.other = self.service.connect()
        self.hung_up, self.answered, self.codes = 0, 0, {}

    def batch(self, count):
        """Send so many messages by one connection, and hear all that comes back."""
        kind = self.chance.random()
        if kind < 0.05:  # anything at all
            data = [packed(mutation.value(self.chance)) for _ in range(count)]
        else:
            data = [packed(request(self.chance)) for _ in range(count)]
        if kind > 0.95:
            at = self.chance.randrange(count)
            data[at] = mutation.octets(self.chance, data[at])
        client = Client(self.service.path)
        with contextlib.closing(client), contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.send(b"".join(data))
            client.socket.shutdown(1)
            while (heard := self._hear(client)) is not None:
                self._note(heard)
        self.hung_up += 1

    def _hear(self, client):
        """Return the next answer; None at the end, in whose middle a message may be where we sent half of one."""
        try:
            return client.hear()
        except RemoteProtocolError as error:
            raise AssertionError(f"an answer that is none: {error}") from error

    def _note(self, heard):
        if isinstance(heard, wire.Notification):
            return
        self.answered += 1
        if heard.failure is None:
            return
        code, message, _ = heard.failure
        assert code in list(Code), code
        assert not MISTAKE.match(message), message
        self.codes[code] = self.codes.get(code, 0) + 1

    def look(self):
        """Another client is answered."""
        assert self.other.ask("count")["count"] >= 0


def world(seed, cases, tick):
    """Send so many messages."""
    made, done, before = World(seed), 0, 0
    with made.directory, made.service:
        while done < cases:
            count = min(BATCH, cases - done)
            made.batch(count)
            tick(count)
            if done // LOOK_EVERY != (done + count) // LOOK_EVERY:
                made.look()
            done += count
            before = before or (resident_bytes(made.service.child.pid) if done >= cases // 3 else 0)
        made.look()
        grown = resident_bytes(made.service.child.pid) - before
        assert grown <= LEAK_BYTES, f"control grew by {grown:,} bytes"
        found = made.other.ask("audit")["broken"]
        assert found is None, found
    return f"{made.answered:,} answers, of them {dict(sorted(made.codes.items()))}"
