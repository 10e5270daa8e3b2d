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
from collections.abc import Sequence
from typing import Any

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether

CLONE_NEWNET = 0x40000000
PATIENCE_S = 30
CLIENT_MAC, SERVER_MAC = "02:00:00:00:00:c0", "02:00:00:00:00:50"
ROUTER_MACS = ("02:00:00:00:00:a0", "02:00:00:00:00:a1")
SNAPPED = 65536
MULTICAST = 0xFF
"""First byte of such an address of IPv6."""
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


def _socket_in(namespace: str, interface: str, protocol: int) -> socket.socket:
    """Return a packet socket in a network namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        _enter(there)
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
        made.bind((interface, protocol))
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
            address: of the router there; all are of one family.
            rules: for nft.
        """
        self.protocol = 0x86DD if ":" in address else 0x0800
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
                # an interface without any address of IPv6 says nothing by itself
                silent = "disable_ipv6=1" if self.protocol == 0x0800 or name == of else "addr_gen_mode=1"
                _run("ip", "netns", "exec", name, "sysctl", "-qw", f"net.ipv6.conf.{interface}.{silent}")
                _run("ip", "-n", name, "link", "set", interface, "up")
        settings = ["net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_tcp_be_liberal=0"]
        settings += ["net.ipv6.conf.all.forwarding=1"] if self.protocol == 0x86DD else []
        for interface in ("all", "r0", "r1"):
            settings += [f"net.ipv4.conf.{interface}.{one}=0" for one in ("rp_filter", "send_redirects")]
        _run("ip", "netns", "exec", router, "sysctl", "-qw", *settings)
        whole = ("/32", ()) if self.protocol == 0x0800 else ("/128", ("nodad",))
        _run("ip", "-n", router, "addr", "add", address + whole[0], "dev", "r1", *whole[1])
        for interface, mac, hosts in (("r0", CLIENT_MAC, clients), ("r1", SERVER_MAC, servers)):
            for host in hosts:
                _run("ip", "-n", router, "route", "add", host + whole[0], "dev", interface)
                _run("ip", "-n", router, "neigh", "add", host, "lladdr", mac, "dev", interface, "nud", "permanent")
        _run("ip", "netns", "exec", router, "nft", "-f", "-", text=rules)
        self.sockets = [_socket_in(client, "c0", self.protocol), _socket_in(server, "s0", self.protocol)]

    def send(self, side: int, packet: Any) -> Any:
        """Put a packet in at a side; returns the one that comes out at the other.

        Raises:
            TimeoutError: none has.
        """
        self._put(side, packet)
        return self._take(1 - side, packet)

    def send_parts(self, side: int, packets: Sequence[Any]) -> list[Any]:
        """Put the fragments of a datagram in at a side; returns those that come out at the other, up to the last.

        Raises:
            TimeoutError: some did not come.
        """
        for packet in packets:
            self._put(side, packet)
        came = [self._take(1 - side, packets[0])]
        while came[-1].flags.MF if IP in came[-1] else came[-1][IPv6ExtHdrFragment].m:
            came.append(self._take(1 - side, packets[0]))
        return came

    def _put(self, side: int, packet: Any) -> None:
        mac = (CLIENT_MAC, SERVER_MAC)[side]
        self.sockets[side].send(bytes(Ether(src=mac, dst=ROUTER_MACS[side], type=self.protocol) / packet))

    def _take(self, side: int, packet: Any) -> Any:
        while select.select([self.sockets[side]], [], [], PATIENCE_S)[0]:
            octets, about = self.sockets[side].recvfrom(SNAPPED)
            if about[2] == socket.PACKET_OUTGOING:
                continue
            if self.protocol == 0x0800:
                return IP(octets[14 : 14 + int.from_bytes(octets[16:18], "big")])
            if octets[38] != MULTICAST:  # what the router tells its neighbours
                return IPv6(octets[14 : 54 + int.from_bytes(octets[18:20], "big")])
        raise TimeoutError(f"nothing came out for {packet.summary()}")

    def close(self) -> None:
        """Take it down."""
        for one in self.sockets:
            one.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
