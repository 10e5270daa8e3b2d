"""What programs do on hosts that know nothing of a gateway between them: each in a namespace, in a process of its own."""

import os
import socket

from forked import Child
from zonetrack.clients.sync import connect

TIMEOUT_S = 60.0
WINDOW_BYTES = 1 << 18
"""What a server has under way at most: no more than a port has room for while its worker waits for its turn."""


def at(namespace, function, *arguments):
    """Return a child that runs a function in a namespace and says what it returns."""

    def live(child):
        namespace.enter()
        child.say(function(child, *arguments))

    return Child(live)


def serve_bytes(child, ip, port):
    """Accept a connection, and return how many bytes came; the other side gets their number."""
    with socket.create_server((ip, port), family=socket.AF_INET6 if ":" in ip else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
        child.say("listens")
        listener.settimeout(TIMEOUT_S)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(TIMEOUT_S)
            count = 0
            while data := connection.recv(1 << 16):
                count += len(data)
            connection.sendall(str(count).encode())
    return count


def transfer(child, ip, port, count, pauses=False):
    """Send so many bytes, half of them after a word from the test if it pauses; return what the other side says it got."""
    with socket.create_connection((ip, port), timeout=TIMEOUT_S) as connection:
        connection.sendall(bytes(count // 2))
        if pauses:
            child.say("half")
            child.hear()
        connection.sendall(bytes(count - count // 2))
        connection.shutdown(socket.SHUT_WR)
        return int(connection.recv(100))


def refused(child, ip, port):
    """Return how a connection fails."""
    try:
        socket.create_connection((ip, port), timeout=0.5).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


def ports_of(service):
    """Return the first queue of each port, by name."""
    with connect(socket=service.socket) as ct:
        return {port["name"]: port["queues"][0] for port in ct.ports()}


def echo(child, ip, port, count):
    """Answer so many datagrams with what they hold."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.settimeout(TIMEOUT_S)
        server.bind((ip, port))
        child.say("listens")
        for _ in range(count):
            data, peer = server.recvfrom(1 << 16)
            server.sendto(data, peer)
    return count


def ask(child, ip, port, sizes):
    """Send datagrams of some sizes, each when the one before was answered; returns the sizes of the answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.settimeout(TIMEOUT_S)
        came = []
        for size in sizes:
            asker.sendto(os.urandom(size), (ip, port))
            came.append(len(asker.recv(1 << 16)))
        return came
