"""How long a connection may be silent: the names of all timeouts, their defaults, and the length that a policy gives.

Names and defaults are those of Linux nf_conntrack (net.netfilter.nf_conntrack_*_timeout_*, Linux 6.18) and of Open vSwitch
(ovs-vswitchd.conf.db, CT_Timeout_Policy); what both have has one name and two defaults.  A policy is a row of lengths in
milliseconds; 0 in a row means the default of the connection's profile, so a row of zeros is a policy that changes nothing.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..shm.layout import POLICY_BYTES, TIMEOUTS_MAX
from . import memory
from .jit import inlined
from .outcome import cap_of, timeout_of
from .words import FOUR, ONE, ZERO, u64


class Timeout(IntEnum):
    """Position in POLICY.timeout_ms; the lower-case name is what users see."""

    TCP_SYN_SENT = 0
    TCP_SYN_RECV = 1
    TCP_ESTABLISHED = 2
    TCP_FIN_WAIT = 3
    TCP_CLOSE_WAIT = 4
    TCP_LAST_ACK = 5
    TCP_TIME_WAIT = 6
    TCP_CLOSE = 7
    TCP_SYN_SENT2 = 8
    TCP_MAX_RETRANS = 9  # cap: the same segment came four times, or the window is zero
    TCP_UNACKNOWLEDGED = 10  # cap: data is outstanding
    UDP = 11
    UDP_STREAM = 12
    ICMP = 13
    ICMPV6 = 14
    GENERIC = 15
    GRE = 16
    GRE_STREAM = 17
    SCTP_CLOSED = 18
    SCTP_COOKIE_WAIT = 19
    SCTP_COOKIE_ECHOED = 20
    SCTP_ESTABLISHED = 21
    SCTP_SHUTDOWN_SENT = 22
    SCTP_SHUTDOWN_RECD = 23
    SCTP_SHUTDOWN_ACK_SENT = 24
    SCTP_HEARTBEAT_SENT = 25
    UDP_FIRST = 26  # Open vSwitch's, for all that is neither TCP nor ICMP: one packet was seen
    UDP_SINGLE = 27  # several, from one side
    UDP_MULTIPLE = 28  # from both
    ICMP_FIRST = 29
    ICMP_REPLY = 30
    UDP_ONE_WAY_MAX = 31  # cap: how long one side alone keeps an entry, from its first packet on; 0: for ever
    FRAGMENT = 32  # of a datagram, from its first fragment
    FRAGMENT6 = 33


DEFAULTS_S = {
    Timeout.TCP_SYN_SENT: 120,
    Timeout.TCP_SYN_RECV: 60,
    Timeout.TCP_ESTABLISHED: 432000,  # 5 days; RFC 5382 REQ-5 wants at least 2 h 4 min
    Timeout.TCP_FIN_WAIT: 120,
    Timeout.TCP_CLOSE_WAIT: 60,
    Timeout.TCP_LAST_ACK: 30,
    Timeout.TCP_TIME_WAIT: 120,
    Timeout.TCP_CLOSE: 10,
    Timeout.TCP_SYN_SENT2: 120,
    Timeout.TCP_MAX_RETRANS: 300,
    Timeout.TCP_UNACKNOWLEDGED: 300,
    Timeout.UDP: 30,
    Timeout.UDP_STREAM: 120,
    Timeout.ICMP: 30,
    Timeout.ICMPV6: 30,
    Timeout.GENERIC: 600,
    Timeout.GRE: 30,
    Timeout.GRE_STREAM: 180,
    Timeout.SCTP_CLOSED: 10,
    Timeout.SCTP_COOKIE_WAIT: 3,
    Timeout.SCTP_COOKIE_ECHOED: 3,
    Timeout.SCTP_ESTABLISHED: 210,
    Timeout.SCTP_SHUTDOWN_SENT: 3,
    Timeout.SCTP_SHUTDOWN_RECD: 3,
    Timeout.SCTP_SHUTDOWN_ACK_SENT: 3,
    Timeout.SCTP_HEARTBEAT_SENT: 30,
    Timeout.UDP_ONE_WAY_MAX: 0,
    Timeout.FRAGMENT: 30,
    Timeout.FRAGMENT6: 60,
}

DEFAULTS_OVS_S = {
    Timeout.TCP_SYN_SENT: 30,
    Timeout.TCP_SYN_RECV: 30,
    Timeout.TCP_ESTABLISHED: 86400,
    Timeout.TCP_FIN_WAIT: 900,
    Timeout.TCP_TIME_WAIT: 45,
    Timeout.TCP_CLOSE: 30,
    Timeout.UDP_FIRST: 60,
    Timeout.UDP_SINGLE: 60,
    Timeout.UDP_MULTIPLE: 30,
    Timeout.ICMP_FIRST: 60,
    Timeout.ICMP_REPLY: 30,
    Timeout.FRAGMENT: 15,
    Timeout.FRAGMENT6: 15,
}
assert set(DEFAULTS_S) | set(DEFAULTS_OVS_S) == set(Timeout) and max(Timeout) < TIMEOUTS_MAX

OVS = 1 << 6
"""Beside a Timeout: as the `ovs` profile has it."""
assert TIMEOUTS_MAX <= OVS


def compile_defaults() -> NDArray[np.uint32]:
    """Return DEFAULTS_MS; what a profile does not know is as long as in the other."""
    defaults = np.zeros(2 * OVS, np.uint32)
    for profile, first, other in ((0, DEFAULTS_S, DEFAULTS_OVS_S), (OVS, DEFAULTS_OVS_S, DEFAULTS_S)):
        for timeout in Timeout:
            defaults[profile | timeout] = 1000 * (first[timeout] if timeout in first else other[timeout])
    defaults.setflags(write=False)
    return defaults


DEFAULTS_MS = compile_defaults()
"""u32[2 * OVS], milliseconds, by Timeout with the bit of its profile; 0 where there is no such timeout."""

_POLICY_BYTES = u64(POLICY_BYTES)
_TIMEOUT = u64(OVS - 1)


@inlined
def length_ms(views, policy, timeout):
    """Return the length of a Timeout, with the bit of its profile, in a policy, in milliseconds."""
    length = memory.le32(views.policies + policy * _POLICY_BYTES + (timeout & _TIMEOUT) * FOUR)
    if length == ZERO:
        length = u64(DEFAULTS_MS[timeout])
    return length


@inlined
def term_ms(views, policy, term):
    """Return the length of a term: the shorter of its timeout and its cap, if that is not 0.  The term is not NO_TERM."""
    timeout = timeout_of(term)
    cap = cap_of(term)
    length = length_ms(views, policy, timeout)
    if cap != timeout:
        length = min(length - ONE, length_ms(views, policy, cap) - ONE) + ONE  # one less than 0 is the most
    return length
