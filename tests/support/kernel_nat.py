"""A router of the kernel's own between two private network namespaces, which translates by nft rules.

    client side  c0 -- r0  router  r1 -- s0  server side

Packets are put in as they are and come out at the other end; nothing of it can be seen from outside.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import socket
import subprocess
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

CLONE_NEWNET = 0x40000000
PATIENCE_S = 5
CLIENT_MAC, SERVER_MAC = "02:00:00:00:00:c0", "02:00:00:00:00:50"
ROUTER_MACS = ("02:00:00:00:00:a0", "02:00:00:00:00:a1")
SNAPPED = 65536
_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str | None:
    """Return why there cannot be such a router here, None where there can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    made = subprocess.run(["ip", "netns", "add", _name("try")], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", _name("try")], check=True)
    return None


def _name(what: str) -> str:
    return f"zonetrack-{os.getpid()}-{what}"


def _run(*words: str, text: str | None = None) -> None:
    done = subprocess.run(words, capture_output=True, text=True, input=text)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def _socket_in(namespace: str, interface: str) -> socket.socket:
    """Return a packet socket in a network namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(there)
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        made.bind((interface, 0x0800))
        return made
    finally:
        _enter(home)
        os.close(there)
        os.close(home)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Router:
    """The router, with hosts on either side."""

    def __init__(self, clients: list[str], servers: list[str], address: str, rules: str) -> None:
        """Make it.

        Args:
            clients: addresses on the client side.
            servers: likewise on the server side.
            address: of the router there.
            rules: for nft.
        """
        self.names = [_name(what) for what in ("client", "router", "server")]
        self.sockets: list[socket.socket] = []
        try:
            self._make(clients, servers, address, rules)
        except BaseException:
            self.close()
            raise

    def _make(self, clients: list[str], servers: list[str], address: str, rules: str) -> None:
        client, router, server = self.names
        for name in self.names:
            _run("ip", "netns", "add", name)
        for here, mac, there, router_mac, of in (
            ("c0", CLIENT_MAC, "r0", ROUTER_MACS[0], client),
            ("s0", SERVER_MAC, "r1", ROUTER_MACS[1], server),
        ):
            veth = ("type", "veth", "peer", "name", there, "netns", router, "address", router_mac)
            _run("ip", "link", "add", here, "netns", of, "address", mac, *veth)
            for name, interface in ((of, here), (router, there)):
                _run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
                _run("ip", "-n", name, "link", "set", interface, "up")
        settings = ["net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_tcp_be_liberal=0"]
        for interface in ("all", "r0", "r1"):
            settings += [f"net.ipv4.conf.{interface}.{one}=0" for one in ("rp_filter", "send_redirects")]
        _run("ip", "netns", "exec", router, "sysctl", "-qw", *settings)
        _run("ip", "-n", router, "addr", "add", f"{address}/32", "dev", "r1")
        for interface, mac, hosts in (("r0", CLIENT_MAC, clients), ("r1", SERVER_MAC, servers)):
            for host in hosts:
                _run("ip", "-n", router, "route", "add", host, "dev", interface)
                _run("ip", "-n", router, "neigh", "add", host, "lladdr", mac, "dev", interface, "nud", "permanent")
        _run("ip", "netns", "exec", router, "nft", "-f", "-", text=rules)
        self.sockets = [_socket_in(client, "c0"), _socket_in(server, "s0")]

    def send(self, side: int, packet: Any) -> Any:
        """Put a packet in at a side; returns the one that comes out at the other.

        Raises:
            TimeoutError: none has.
        """
        mac = (CLIENT_MAC, SERVER_MAC)[side]
        frame = Ether(src=mac, dst=ROUTER_MACS[side], type=0x0800) / packet
        self.sockets[side].send(bytes(frame))
        while select.select([self.sockets[1 - side]], [], [], PATIENCE_S)[0]:
            octets, about = self.sockets[1 - side].recvfrom(SNAPPED)
            if about[2] != socket.PACKET_OUTGOING:
                return IP(octets[14 : 14 + int.from_bytes(octets[16:18], "big")])
        raise TimeoutError(f"nothing came out for {packet.summary()}")

    def close(self) -> None:
        """Take it down."""
        for one in self.sockets:
            one.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
