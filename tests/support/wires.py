"""Network namespaces and pairs of interfaces joined by a wire, made for a test and gone after it; what runs there is real.

A namespace that nobody names lives as long as a process or a socket is in it, so a test that dies leaves nothing behind.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 23, 33
TIMEOUT_S = 60.0

_libc = ctypes.CDLL(None, use_errno=True)


def need():
    """Skip the test where no namespaces can be made."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        pytest.skip("ip(8) is not here")


def _check(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Namespace:
    """A network namespace of its own, with its loopback up, and without the packets that IPv6 sends by itself."""

    def __init__(self):
        need()
        before = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            _check(_libc.unshare(CLONE_NEWNET))
            self.descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
            for name in ("all", "default"):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            run("ip", "link", "set", "lo", "up")
        finally:
            _check(_libc.setns(before, CLONE_NEWNET))
            os.close(before)

    @contextlib.contextmanager
    def entered(self):
        """Be in it, this thread and all processes that it starts, until the end of the block."""
        before = os.open("/proc/self/ns/net", os.O_RDONLY)
        _check(_libc.setns(self.descriptor, CLONE_NEWNET))
        try:
            yield self
        finally:
            _check(_libc.setns(before, CLONE_NEWNET))
            os.close(before)

    def enter(self):
        """Be in it for good."""
        _check(_libc.setns(self.descriptor, CLONE_NEWNET))

    def run(self, *words):
        """Run a command in it."""
        with self.entered():
            return run(*words)

    def close(self):
        """Let go of it."""
        os.close(self.descriptor)


def run(*words):
    """Run a command; what it says against that is the error's text."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    return done.stdout


class Wires:
    """A namespace with pairs of interfaces: ``near0`` is for a port, ``far0`` at the other end of its wire for the test."""

    def __init__(self, count=1, mtu=1500):
        self.namespace = Namespace()
        self._house = contextlib.ExitStack()
        self._house.callback(self.namespace.close)
        self._house.enter_context(self.namespace.entered())
        for number in range(count):
            run("ip", "link", "add", f"near{number}", "type", "veth", "peer", "name", f"far{number}")
            for end in ("near", "far"):
                run("ip", "link", "set", f"{end}{number}", "mtu", str(mtu), "arp", "off", "up")
            with raw(f"near{number}") as near, raw(f"far{number}") as far:
                prove(near, far)
                prove(far, near)
        self.ends = [self._house.enter_context(raw(f"far{number}")) for number in range(count)]

    def send(self, frames, wire=0):
        """Send frames into the far end."""
        for frame in frames:
            self.ends[wire].send(frame)

    def receive(self, count, wire=0):
        """Return so many frames that came to the far end."""
        return [self.ends[wire].recv(1 << 17) for _ in range(count)]

    def quiet(self, wire=0):
        """Return whether nothing has come to the far end."""
        self.ends[wire].setblocking(False)
        try:
            self.ends[wire].recv(1)
        except BlockingIOError:
            return True
        finally:
            self.ends[wire].settimeout(TIMEOUT_S)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._house.close()


def prove(one, other):
    """Send frames until the last one comes: an interface drops them until the system has seen that its wire is there.

    From the first that comes on they all do, so that none is still under way when others are.
    """
    other.settimeout(0.02)
    for sent in range(3000):
        one.send(sent.to_bytes(60, "big"))
        with contextlib.suppress(TimeoutError):
            came = other.recv(100)
            other.settimeout(TIMEOUT_S)
            while came != sent.to_bytes(60, "big"):
                came = other.recv(100)
            return
    raise AssertionError("nothing comes over the wire")


def raw(name):
    """Return a socket that sends and receives whole frames at an interface, but not those that it sent itself."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
    made.bind((name, ETH_P_ALL))
    made.settimeout(TIMEOUT_S)
    return made
