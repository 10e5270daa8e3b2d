"""SCTP packets as they are on the wire, from the words of a network engineer.

    associations.packet("c", "COOKIE_ECHO", tag=SERVER_TAG)
    associations.packet("s", ("SACK", "DATA"), tag=CLIENT_TAG)

Sides: ``c`` is the key's low endpoint, ``s`` its high one.  A chunk is a name, or bytes as they shall be.
"""

import struct

from parsing import parsed_of
from scapy.layers.inet import IP
from scapy.layers.sctp import SCTP
from zonetrack.kernels.sctp_states import NUMBERS

ADDRESSES = {"c": "192.0.2.1", "s": "198.51.100.1"}
PORTS = {"c": 40000, "s": 3868}
TAGS = {"c": 0x1111AAAA, "s": 0x2222BBBB}
"""The tag that a side announces, so which packets to it carry."""
OTHER = {"c": "s", "s": "c"}

TYPES = {chunk.name: number for number, chunk in NUMBERS.items()} | {"SACK": 3, "ECNE": 12, "I_DATA": 64}


def chunk(number, body=b"", flags=0, length=None):
    """Return a chunk, padded."""
    head = struct.pack("!BBH", number, flags, 4 + len(body) if length is None else length)
    return head + body + bytes(-len(body) % 4)


def init(tag, number=1):
    """Return an INIT, or an INIT ACK."""
    return chunk(number, struct.pack("!IIHHI", tag, 65536, 10, 10, 1))


BODIES = {
    "DATA": struct.pack("!IHHI", 1, 0, 0, 0) + b"abcd",
    "SACK": struct.pack("!IIHH", 1, 65536, 0, 0),
    "HEARTBEAT": b"\0\1\0\4",
    "HEARTBEAT_ACK": b"\0\1\0\4",
    "COOKIE_ECHO": b"cookie",
    "SHUTDOWN": b"\0\0\0\1",
}


def named(name, side, announced=None, flags=0):
    """Return a chunk by its name; INIT and INIT_ACK announce the tag of their side unless told another."""
    if name in ("INIT", "INIT_ACK"):
        return init(TAGS[side] if announced is None else announced, TYPES[name])
    return chunk(TYPES[name], BODIES.get(name, b""), flags)


def raw(side, chunks, tag=None):
    """Return an IP packet; without ``tag`` it carries what it should."""
    chunks = (chunks,) if isinstance(chunks, (str, bytes)) else chunks
    if tag is None:
        tag = 0 if "INIT" in chunks else TAGS[OTHER[side]]
    body = b"".join(one if isinstance(one, bytes) else named(one, side) for one in chunks)
    ip = IP(src=ADDRESSES[side], dst=ADDRESSES[OTHER[side]])
    return bytes(ip / SCTP(sport=PORTS[side], dport=PORTS[OTHER[side]], tag=tag) / body)


def packet(side, chunks, tag=None, **how):
    """Return PARSED[1] of a packet; how: as in `parsing.parsed_of`."""
    return parsed_of(raw(side, chunks, tag), **how)


OPENED = ("c INIT", "s INIT_ACK", "c COOKIE_ECHO", "s COOKIE_ACK")
LED = {
    # how an association comes into a state
    "NONE": (),
    "CLOSED": OPENED[:1],
    "COOKIE_WAIT": OPENED[:2],
    "COOKIE_ECHOED": OPENED[:3],
    "ESTABLISHED": OPENED,
    "SHUTDOWN_SENT": (*OPENED, "c SHUTDOWN"),
    "SHUTDOWN_RECD": (*OPENED, "s SHUTDOWN"),
    "SHUTDOWN_ACK_SENT": (*OPENED, "c SHUTDOWN", "s SHUTDOWN_ACK"),
    "HEARTBEAT_SENT": ("c HEARTBEAT",),
}


def led(world, state):
    """Bring the association of a tracker.Tracker into a state, and see that it is."""
    for step in LED[state]:
        seen = world.track(packet(*step.split()))
        assert seen.reason == 0, step
    assert not LED[state] or seen.state == state
    return world
