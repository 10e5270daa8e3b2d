"""Conversations over a table with helpers: packets as scapy makes them, labels as people read them."""

from __future__ import annotations

import foretelling
import numpy as np
import tables
from bursts import CLIENT, SERVER, frames_of
from scapy.all import IP, TCP, UDP, Ether, IPv6
from zonetrack.kernels import burst
from zonetrack.service import labels
from zonetrack.shm.layout import EXTENSION, VERDICT, Helper, Region, Setting
from zonetrack.shm.reasons import Reason

CLIENT6, SERVER6 = "2001:db8::1", "2001:db8:1::1"
REQUEST = b"\x00\x01file\x00octet\x00"
"""Of TFTP: read this file."""
PORTS = {
    Helper.FTP: (6, 21),
    Helper.TFTP: (17, 69),
    Helper.SIP: (17, 5060),
    Helper.IRC: (6, 6667),
    Helper.PPTP: (6, 1723),
}


class Bench:
    """A small table, one participant, and rules for every helper on its port."""

    def __init__(self, ovs=False, zone=0):
        self.table = tables.small()
        self.one = tables.Participant(self.table)
        self.zone, self.now_ms = zone, 1000
        foretelling.set_rules(
            self.table, *((helper, protocol, zone, port) for helper, (protocol, port) in PORTS.items())
        )
        settings = tables.zones(self.table)["settings"]
        settings[zone] = int(settings[zone]) & ~Setting.CHECKSUM | (Setting.OVS if ovs else 0)

    def verdicts(self, *packets, commit=True, captured_bytes=None):
        """Track packets, each in a burst of its own and captured to so many bytes; returns VERDICT[n]."""
        found = np.zeros(len(packets), VERDICT)
        for i, packet in enumerate(packets):
            frames, buffers = frames_of([packet], self.zone, commit)
            if captured_bytes is not None:
                [buffer] = buffers = [np.frombuffer(bytes(packet)[:captured_bytes], "u1").copy()]
                frames["address"], frames["captured_bytes"] = buffer.ctypes.data, len(buffer)
            at = np.uint64(found.ctypes.data + i * VERDICT.itemsize)
            burst.track_burst(self.one.views, np.uint64(frames.ctypes.data), np.uint64(1), np.uint64(self.now_ms), at)
            assert len(buffers) == 1
        return found

    def labels(self, *packets, **how):
        """Track packets; returns their labels, by the names of ct_state where a zone is of the `ovs` profile."""
        return [self.label(verdict) for verdict in self.verdicts(*packets, **how)]

    def label(self, verdict):
        state, way, flags = int(verdict["ct_state"]), int(verdict["direction"]), int(verdict["flags"])
        if tables.zones(self.table)["settings"][self.zone] & Setting.OVS:
            return "|".join(name for name in labels.names(state) if name != "trk")
        return labels.label(state, way, flags).rstrip("a")

    def reasons(self, *packets):
        """Track packets; returns their reasons."""
        return [Reason(int(verdict["reason"])) for verdict in self.verdicts(*packets)]

    @property
    def foretold(self):
        """The expectations there are."""
        return foretelling.all_of(self.table)

    @property
    def entries(self):
        """All records, ENTRY[n]."""
        return tables.entries(self.table)

    def extension(self, record):
        """Return the EXTENSION of a record."""
        link = int(self.entries["extension"][record])
        return self.table.array(Region.EXTENSIONS, "extensions", EXTENSION)[link - 1]

    def settle(self):
        """Run the delete list; then nothing is broken."""
        self.one.run()
        tables.assert_at_rest(self.table)


class Stream:
    """A TCP connection whose sequence numbers are kept."""

    def __init__(self, sport=40000, dport=21, client=CLIENT, server=SERVER):
        self.ends = ((client, sport), (server, dport))
        self.seq = [1000, 9000]

    def segment(self, reply=False, flags="A", payload=b"", seq=None):
        """Return a segment; it moves the sequence number on unless ``seq`` says where it stands."""
        (source, sport), (destination, dport) = self.ends[::-1] if reply else self.ends
        at = self.seq[reply] if seq is None else seq
        ip = IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)
        tcp = TCP(
            sport=sport, dport=dport, flags=flags, seq=at, ack=self.seq[not reply] if "A" in flags else 0, window=8192
        )
        if seq is None:
            self.seq[reply] = (at + len(payload) + ("S" in flags) + ("F" in flags)) % 2**32
        return Ether() / ip / tcp / payload

    def opened(self):
        """Return the three packets of a handshake."""
        return [self.segment(flags="S"), self.segment(True, "SA"), self.segment()]

    def say(self, payload, reply=False, seq=None):
        """Return a segment with payload."""
        return self.segment(reply, "PA", payload, seq)


def syn(source, sport, destination, dport):
    """Return a SYN from anywhere to anywhere."""
    ip = IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)
    return Ether() / ip / TCP(sport=sport, dport=dport, flags="S", seq=5, window=8192)


def datagram(source, sport, destination, dport, payload=b"x"):
    """Return a datagram from anywhere to anywhere."""
    ip = IPv6(src=source, dst=destination) if ":" in source else IP(src=source, dst=destination)
    return Ether() / ip / UDP(sport=sport, dport=dport) / payload


def request(payload=REQUEST):
    """Return the client's request of a file, by TFTP."""
    return datagram(CLIENT, 2000, SERVER, 69, payload)


def answer(sport=3000, destination=CLIENT, source=SERVER):
    """Return the server's first block of it, from some port."""
    return datagram(source, sport, destination, 2000, b"\x00\x03\x00\x01data")


def tunnel(source, destination, call):
    """Return a packet of PPTP's GRE, which names the call of its receiver."""
    header = b"\x30\x81\x88\x0b\x00\x04" + call.to_bytes(2, "big") + bytes(8)
    return Ether() / IP(src=source, dst=destination, proto=47) / header
