"""Network namespaces without a name: gone when the last process and socket in them is (network_namespaces(7))."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from .errors import ZonetrackError

CLONE_NEWNET = 0x40000000
OWN = "/proc/self/ns/net"
RX_PACKETS = 1
"""Place among an interface's counters in /proc/net/dev."""
TABLE_BYTES_MAX = 1 << 16


class NamespaceError(ZonetrackError):
    """A namespace, or what is to be in it, cannot be made."""


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        code = ctypes.get_errno()
        raise NamespaceError(f"{name}: {os.strerror(code)}: network namespaces take root, or CAP_SYS_ADMIN")


def run(*words: str) -> None:
    """Run ip(8).

    Raises:
        NamespaceError: it is not there, or refuses.
    """
    if shutil.which("ip") is None:
        raise NamespaceError("ip is not here: it is in the package iproute2")
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NamespaceError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespace:
    """A network namespace."""

    def __init__(self) -> None:
        """Make it; IPv6 sends nothing by itself there.

        Raises:
            NamespaceError: it cannot be.
        """
        with _back_home():
            _call("unshare", CLONE_NEWNET)
            self.descriptor = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
            for name in ("all", "default"):
                with contextlib.suppress(OSError):
                    Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            run("link", "set", "lo", "up")

    @property
    def path(self) -> str:
        """What ip(8) takes for it."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in it, this thread and the processes that it starts, until the end of the block."""
        with _back_home():
            _call("setns", self.descriptor, CLONE_NEWNET)
            yield

    def close(self) -> None:
        """Let go of it."""
        os.close(self.descriptor)


@contextlib.contextmanager
def _back_home() -> Iterator[None]:
    """Be in the namespace of now again, after the block."""
    home = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _call("setns", home, CLONE_NEWNET)
        os.close(home)


class Interfaces:
    """What the interfaces of a namespace have counted themselves, as any process may read it, wherever it is."""

    def __init__(self, of: Namespace) -> None:
        """Open the table."""
        with of.entered():
            self._descriptor = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)

    def received(self, name: str) -> int:
        """Return how many packets an interface has received."""
        for line in os.pread(self._descriptor, TABLE_BYTES_MAX, 0).decode().splitlines():
            called, _, counters = line.partition(":")
            if called.strip() == name:
                return int(counters.split()[RX_PACKETS])
        raise NamespaceError(f"there is no interface {name}")

    def __enter__(self) -> Interfaces:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        os.close(self._descriptor)


def add_void(space: Namespace, name: str) -> None:
    """Make an interface that counts as received, and drops, what is sent by it (ifb); up and without ARP."""
    with space.entered():
        run("link", "add", name, "type", "ifb")
        run("link", "set", name, "arp", "off", "up")


def wire(one: Namespace, name: str, other: Namespace, far: str) -> None:
    """Join two namespaces by a pair of interfaces, up and without ARP."""
    with one.entered():
        run("link", "add", name, "type", "veth", "peer", "name", far)
        run("link", "set", far, "netns", other.path)
        run("link", "set", name, "arp", "off", "up")
    with other.entered():
        run("link", "set", far, "arp", "off", "up")
