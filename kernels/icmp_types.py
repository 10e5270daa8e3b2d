"""What an ICMP or ICMPv6 message is to a tracker: a query, an answer, an error about another packet, or nothing.

As nf_conntrack sees it, and Open vSwitch, which knows fewer types; numbers from
https://www.iana.org/assignments/icmp-parameters and icmpv6-parameters.  A type that has no row is of no use to a tracker:
it opens nothing and answers nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ..shm.layout import Setting
from .jit import inlined
from .words import EIGHT, LOW_8, SEVEN, THREE, TWO, u64


class Role(IntEnum):
    """What a message does."""

    NONE = 0
    REQUEST = 1
    ANSWER = 2
    ERROR = 3
    UNTRACKED = 4


class Known(IntEnum):
    """In which profile a type is known."""

    EVERYWHERE = 0
    NETFILTER = 1


class Message(NamedTuple):
    """A row: family, type, what it does, the type of the request that it is or answers, its name, and who knows it."""

    family: int
    type: int
    role: Role
    request: int
    name: str
    known: Known = Known.EVERYWHERE


# fmt: off
MESSAGES = (
    #       family  type  role            request
    Message(4,   8, Role.REQUEST,     8, "echo request"),
    Message(4,   0, Role.ANSWER,      8, "echo reply"),
    Message(4,  13, Role.REQUEST,    13, "timestamp request"),
    Message(4,  14, Role.ANSWER,     13, "timestamp reply"),
    Message(4,  15, Role.REQUEST,    15, "information request"),
    Message(4,  16, Role.ANSWER,     15, "information reply"),
    Message(4,  17, Role.REQUEST,    17, "address mask request", Known.NETFILTER),
    Message(4,  18, Role.ANSWER,     17, "address mask reply", Known.NETFILTER),
    Message(4,   3, Role.ERROR,       0, "destination unreachable"),
    Message(4,   4, Role.ERROR,       0, "source quench"),
    Message(4,   5, Role.ERROR,       0, "redirect"),
    Message(4,  11, Role.ERROR,       0, "time exceeded"),
    Message(4,  12, Role.ERROR,       0, "parameter problem"),

    Message(6, 128, Role.REQUEST,   128, "echo request"),
    Message(6, 129, Role.ANSWER,    128, "echo reply"),
    Message(6, 139, Role.REQUEST,   139, "node information query", Known.NETFILTER),
    Message(6, 140, Role.ANSWER,    139, "node information response", Known.NETFILTER),
    Message(6,   1, Role.ERROR,       0, "destination unreachable"),
    Message(6,   2, Role.ERROR,       0, "packet too big"),
    Message(6,   3, Role.ERROR,       0, "time exceeded"),
    Message(6,   4, Role.ERROR,       0, "parameter problem"),
    # what neighbours say to each other never crosses a router, and most of it goes to groups: no reply can be foretold
    Message(6, 130, Role.UNTRACKED,   0, "multicast listener query", Known.NETFILTER),
    Message(6, 131, Role.UNTRACKED,   0, "multicast listener report", Known.NETFILTER),
    Message(6, 132, Role.UNTRACKED,   0, "multicast listener done", Known.NETFILTER),
    Message(6, 133, Role.UNTRACKED,   0, "router solicitation", Known.NETFILTER),
    Message(6, 134, Role.UNTRACKED,   0, "router advertisement", Known.NETFILTER),
    Message(6, 135, Role.UNTRACKED,   0, "neighbour solicitation", Known.NETFILTER),
    Message(6, 136, Role.UNTRACKED,   0, "neighbour advertisement", Known.NETFILTER),
    Message(6, 143, Role.UNTRACKED,   0, "multicast listener report v2", Known.NETFILTER),
    Message(6, 151, Role.UNTRACKED,   0, "multicast router advertisement", Known.NETFILTER),
    Message(6, 152, Role.UNTRACKED,   0, "multicast router solicitation", Known.NETFILTER),
)
# fmt: on

_SIZE = 256
TYPES = np.zeros(4 * _SIZE, np.uint16)
"""[(profile is ovs) * 512 + (family == 6) * 256 + type] -> type of the request << 8 | Role; what `find` reads."""
for _message in MESSAGES:
    for _profile in range(2 if _message.known == Known.EVERYWHERE else 1):
        _index = (2 * _profile + (_message.family == 6)) * _SIZE + _message.type
        assert TYPES[_index] == 0, "two rows for one type"
        TYPES[_index] = _message.request << 8 | _message.role
TYPES.setflags(write=False)

_OVS = u64(Setting.OVS)
_OVS_SHIFT = THREE
assert Setting.OVS << 3 == 2 * _SIZE


@inlined
def find(family, number, settings):
    """Return what is known of a type of ICMP (family 4) or ICMPv6 (6) in a zone's profile, for `role` and `request`."""
    return u64(TYPES[((settings & _OVS) << _OVS_SHIFT) | ((family & TWO) << SEVEN) | number])


@inlined
def role(found):
    """Return the Role of a message."""
    return found & LOW_8


@inlined
def request(found):
    """Return the type of the request that a query is, or an answer answers."""
    return found >> EIGHT


@inlined
def ports(found, code, identifier):
    """Return what stands for the source's and the destination's port in a query or an answer.

    Args:
        found: what `find` returned for the type.
        code: u64, of the message; it stays in the key, as in nf_conntrack: an answer has the code of its request.
        identifier: u64, the 16 bits behind the checksum.
    """
    responder = (request(found) << EIGHT) | code
    if role(found) == u64(Role.REQUEST):
        return identifier, responder
    return responder, identifier
