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


def wire(one: Namespace, name: str, other: Namespace, far: str) -> None:
    """Join two namespaces by a pair of interfaces, up and without ARP."""
    with one.entered():
        run("link", "add", name, "type", "veth", "peer", "name", far)
        run("link", "set", far, "netns", other.path)
        run("link", "set", name, "arp", "off", "up")
    with other.entered():
        run("link", "set", far, "arp", "off", "up")
