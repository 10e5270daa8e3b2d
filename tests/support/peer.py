"""A tiny service for tests of the clients: a process of its own at a socket, which answers as its methods say.

Most methods answer with what they were asked, so that a test sees what went over the wire.  ``dump`` has rows to give, and
some methods misbehave, each in its own way.

    python peer.py SOCKET ROWS [mortal]

A mortal one names itself as keeper, and ends when it is told to.
"""

import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

from zonetrack.clients import wire
from zonetrack.clients.connections import STATUS, TCP_STATES
from zonetrack.clients.errors import Code

FIELDS = [
    *(["id", "<u8", []], ["parent", "<u8", []], ["label", "<u8", [2]], ["packets", "<u8", [2]], ["bytes", "<u8", [2]]),
    *(["start_ms", "<u8", []], ["src", "|u1", [16]], ["dst", "|u1", [16]], ["reply_src", "|u1", [16]]),
    *(["reply_dst", "|u1", [16]], ["timeout_ms", "<u4", []], ["mark", "<u4", []], ["sport", "<u2", []]),
    *(["dport", "<u2", []], ["reply_sport", "<u2", []], ["reply_dport", "<u2", []], ["zone", "<u2", []]),
    *(["status", "<u2", []], ["protocol", "|u1", []], ["family", "|u1", []], ["state", "|u1", []]),
    ["helper", "|u1", []],
]
EVENT_FIELDS = [
    *(["sequence", "<u8", []], ["time_ms", "<u8", []], ["changes", "<u2", []], ["kind", "|u1", []], ["end", "|u1", []]),
    ["reserved0", "<u4", []],
    *FIELDS,
]
READING = {
    "sequence": 4,
    "dtype": EVENT_FIELDS,
    "kinds": {"new": 1, "update": 2, "destroy": 4},
    "ends": ["none", "expired"],
    "changes": {"state": 1, "status": 2},
    "life": 1,
    "table": 7,
}
MORTAL = "mortal" in sys.argv
ROW_BYTES = 160
PAGE_ROWS = 7


def row(number):
    """Return a row that says its number as id."""
    packed = bytearray(ROW_BYTES)
    packed[:8] = number.to_bytes(8, "little")
    packed[-4:] = bytes([17, 4, 0, 0])
    return bytes(packed)


def event(sequence, kind, changes=0, end=0):
    """Return a row of an event of the connection of the same number."""
    return struct.pack("<QQHBBI", sequence, 1_767_225_600_500, changes, kind, end, 0) + row(sequence)


def notices():
    """Return the bytes of what a subscriber is told: three events, of which two were lost in between, and no more."""
    first = {"lost": 0, "sequence": 6, "records": event(5, 1) + event(6, 2, changes=2)}
    second = {"lost": 2, "sequence": 9, "records": event(9, 4, end=1)}
    other = wire.notification("weather", {"is": "fine"})
    return wire.notification("events", first) + other + wire.notification("events", second)


def answer(request, rows):
    """Return the bytes that answer a request, None to hang up behind what was sent."""
    match request.method:
        case "count":
            return wire.response(request.id, {"count": rows, "params": request.params})
        case "delete":
            return wire.response(request.id, {"deleted": rows, "params": request.params})
        case "dump":
            begin = request.params["cursor"]
            end = min(begin + min(request.params["limit"], PAGE_ROWS), rows)
            page = {"records": b"".join(map(row, range(begin, end))), "next": end if end < rows else None}
            return wire.response(request.id, page | {"dtype": FIELDS, "states": list(TCP_STATES), "status": STATUS})
        case "events.subscribe":
            return wire.response(request.id, READING) + notices()
        case "hello" if MORTAL:
            return wire.response(request.id, {"keeper": os.getpid()})
        case "stop" if MORTAL:
            return wire.response(request.id, {"keeper": os.getpid()})
        case "fail":
            return wire.failure(request.id, request.params["code"], "as you wish", {"asked": True})
        case "silence":
            return b""
        case "nonsense":
            return b"\xc1"
        case "stranger":
            return wire.response(request.id + 1, None)
        case "half":
            return wire.response(request.id, "x" * 100)[:-1]
        case "last_word":
            return wire.failure(None, Code.STOPPING, "goodbye")
        case method:
            return wire.response(request.id, {"method": method, "params": request.params})


HANGS_UP = {"hangup", "half", "last_word"}


def serve(stream, rows):
    """Answer one client until it leaves or is left; ``later`` waits for the next request, and is answered after it."""
    reader, owed = wire.requests(), []
    with stream:
        while data := stream.recv(65536):
            reader.feed(data)
            for request in reader:
                if request.method == "later":
                    owed.append(request)
                    continue
                if request.method != "hangup":
                    stream.sendall(answer(request, rows))
                if request.method in HANGS_UP:
                    return
                if request.method == "stop" and MORTAL:
                    os._exit(0)
                for late in owed:
                    stream.sendall(wire.response(late.id, {"method": "later", "params": late.params}))
                owed.clear()


def main(path, rows):
    """Take clients for ever."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream, rows), daemon=True).start()


@contextmanager
def running(path, rows=20, *mortal):
    """Run a peer at a path; yields its process."""
    command = [sys.executable, __file__, str(path), str(rows), *mortal]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
