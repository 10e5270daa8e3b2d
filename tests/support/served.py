"""A real control process behind a real socket over a real table, and a client of the plainest kind."""

import contextlib
import os
import signal
import socket

import msgpack
from forked import Child
from tables import Participant, small
from zonetrack.clients import errors, wire
from zonetrack.service import control, warmup
from zonetrack.service.config import Control
from zonetrack.service.context import Context
from zonetrack.service.door import open_door
from zonetrack.shm.events import Events
from zonetrack.shm.seats import Seats
from zonetrack.shm.sources import Sources

TIMEOUT_S = 60.0


class Service:
    """Control in a process of its own; the table is shared with the test.

    Args:
        path: of the socket.
        table: small when None.
        group: whose members may read.
        stall_s: how long a client may leave its answers unread.
        workers: what the keeper would say of workers.
        check_config: what the keeper would say of the configuration.
        sites: what listens for HTTP, by what is shown there.
        bounds: of clients, as in the configuration.
    """

    def __init__(
        self, path, table=None, group=None, stall_s=120.0, workers=(), check_config=dict, sites=None, **bounds
    ):
        self.path = str(path)
        if table is None:
            table = small(zones=16)
            table.events, table.seats, table.sources = Events(), Seats(), Sources(table.geometry.connections)
        self.table = table
        self.door = open_door(self.path, group)
        self.clients = []
        self.keeper = {"workers": workers, "check_config": check_config}
        self.stall_s, self.bounds, self.sites = stall_s, bounds, sites or {}
        warmup.load(*control.PIECES)
        self.start()

    def start(self):
        """Start the process."""

        def live(child):
            context = Context(
                instance="test",
                table=self.table,
                door=self.door,
                order=lambda order: child.say(order) or os.getppid(),
                check_config=self.keeper["check_config"],
                workers=lambda: [dict(worker) for worker in self.keeper["workers"]],
                ports=lambda: [{"name": "lab", "zone": 0, "queues": []}],
                bounds=Control(**self.bounds),
                sites=self.sites,
                stall_s=self.stall_s,
            )
            control.run(context, lambda: child.say("ready"))

        self.child = Child(live)
        assert self.child.hear() == "ready"

    def connect(self):
        """Return a new client."""
        client = Client(self.path)
        self.clients.append(client)
        return client

    def ask(self, method, **params):
        """Ask one thing, as a client that comes for it alone."""
        with contextlib.closing(Client(self.path)) as client:
            return client.ask(method, **params)

    def participant(self):
        """Return somebody who makes connections in the table, as a worker would."""
        return Participant(self.table)

    def stop(self):
        """Ask it to end; returns its exit code."""
        if self.child.status is None:
            os.kill(self.child.pid, signal.SIGTERM)
        return self.child.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for client in self.clients:
            client.close()
        if exception[0] is None:
            assert self.stop() == 0
        self.child.kill()
        self.door.close()


class Client:
    """Sends bytes and reads answers, with nothing between the test and the socket."""

    def __init__(self, path, buffer_bytes=None):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        if buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self.socket.connect(path)
        self.reader = wire.answers()
        self.read = []
        self.next_id = 0

    def send(self, data):
        """Send bytes, whatever they are."""
        self.socket.sendall(data)

    def send_value(self, value):
        """Send a MessagePack value, whatever it is."""
        self.send(msgpack.packb(value))

    def send_request(self, method, **params):
        """Send a request; returns its id."""
        self.next_id += 1
        self.send(wire.request(self.next_id, method, params))
        return self.next_id

    def hear(self):
        """Return the next answer; None when the service has hung up."""
        while not self.read:
            data = self.socket.recv(1 << 20)
            if not data:
                self.reader.end()
                return None
            self.reader.feed(data)
            self.read = list(self.reader)
        return self.read.pop(0)

    def ask(self, method, **params):
        """Send a request and return its result, or raise its error."""
        wanted = self.send_request(method, **params)
        answer = self.hear()
        assert answer is not None, "the service hung up"
        if answer.failure:
            raise errors.of(*answer.failure)
        assert answer.id == wanted
        return answer.result

    def last_word(self):
        """Return the code of the last error, after which the service has hung up."""
        answer = self.hear()
        assert answer is not None and answer.id is None and answer.failure, answer
        assert self.hear() is None
        return answer.failure.code

    def close(self):
        """Hang up."""
        self.socket.close()
