"""Every reason there is: why a packet was invalid, or was not committed, or what became of a record.

One closed list serves as return code, index of a counter, word on the wire and row of the docs.  Where Open vSwitch has
a coverage counter for the same thing, the word is its word without the prefix ``conntrack_``.
"""

from __future__ import annotations

from enum import IntEnum


class Reason(IntEnum):
    """Why; its number is the index of its counter in a participant's COUNTERS, its lower-case name the word shown."""

    NONE = 0
    # The frame could not be read (kernels/packet).
    NOIP = 1  # neither IPv4 nor IPv6 in the frame: nothing to track
    TRUNCATED = 2  # the capture or frame ends inside a header
    L3_HEADER = 3  # version, header length or total length are impossible
    L3CSUM_ERR = 4  # IPv4 header checksum
    EXTENSION_HEADERS = 5  # IPv6 chain broken, or longer than the limit
    L4_HEADER = 6  # transport header shorter than it must be, or its length field lies
    L4CSUM_ERR = 7  # TCP, UDP, ICMP, ICMPv6, SCTP checksum
    FRAGMENT = 8  # a fragment that is not reassembled
    NOT_TRACKED = 9  # neighbour discovery and the like: never tracked
    FRAGMENT_TOO_SMALL = 10  # `ovs`: a fragment but the last shorter than the least; any: one without data
    FRAGMENT_OVERLAP = 11  # a fragment has data of another, or ends where its datagram cannot
    FRAGMENT_EXPIRED = 12  # the rest of its datagram did not come in time, or a worker died over it
    FRAGMENT_TOO_LARGE = 13  # a datagram longer than there can be, or a fragment longer than a buffer
    FRAGMENTS_FULL = 14  # as many fragments wait as may
    PORT_ZERO = 15  # source or destination port 0, which the `ovs` profile does not take
    # The tracker refused it (kernels/track and the protocol's own room).
    INVALID_TCP_FLAGS = 16  # a set of flags that no host sends
    TCP_NEW_REFUSED = 17  # cannot open a connection: not a SYN, and mid-stream pickup is off or impossible
    TCP_STATE = 18  # no transition from this state for this segment
    TCP_SEQ_ABOVE = 19  # data beyond the receiver's window
    TCP_SEQ_BELOW = 20  # data older than the window
    TCP_ACK_ABOVE = 21  # acknowledges what was never sent
    TCP_ACK_BELOW = 22  # acknowledges what was acknowledged long ago
    TCP_RST_SEQ = 23  # a reset whose sequence number cannot be right
    TCP_SYN_CHALLENGE = 24  # let through, not followed: a SYN or SYN-ACK that may belong to another incarnation
    ICMP_TYPE = 25  # a type that opens nothing and answers nothing
    ICMP_UNMATCHED = 26  # an error about no connection we know, or an answer to no request
    ICMP_INNER = 27  # an error whose quoted packet cannot be read
    SCTP_CHUNK = 28  # chunks that are too short, too long, or may not stand together
    SCTP_TAG = 29  # not the verification tag of its association
    SCTP_STATE = 30  # no transition from this state for one of its chunks
    TCP_SEQ_CHK_FAILED = 31  # `ovs` profile: numbers out of the window
    HELPER_REFUSED = 32  # a message of a control channel that cannot be right
    # A commit was refused (kernels/zones, index, entries, half_open, sources).
    HALF_OPEN_FULL = 33  # the zone's budget of connections that have seen no reply
    SOURCE_FULL = 34  # the zone's budget of connections of one source address
    FULL = 40  # global limit
    ZONE_FULL = 41  # the zone's limit
    INDEX_FULL = 42  # no segment or directory left
    SLAB_FULL = 43  # no record left
    EXTENSION_FULL = 44  # no extension record left
    CLASH = 45  # another connection has the reply tuple
    BUSY = 46  # a lock was not had in time
    EXPECTATIONS_FULL = 48  # a helper's expectation had no room
    NAT_EXHAUSTED = 49  # no address and port is free that the rule allows
    # It was believed, though the numbers that its connection had before would have refused it.
    RELEARNED = 52  # nobody saw the connection's packets for a while, so its windows or tags are learned again
    # A message of a translated control channel cannot go on (kernels/messages): what it says would be wrong where it goes.
    HELPER_NO_ROOM = 50  # its frame has no room for what it should say, or does not have all of it
    HELPER_SPLIT = 51  # ends before what it says does: to be sent again in one piece
    # What happened to records and packets, counted but not anybody's fault.
    INSERT = 56
    REMOVE = 57
    MAYBE_NOT_FOUND = 58  # a miss that had to be looked at again
    ADOPTED = 59  # lost the race to insert, took the winner's record
    EXPIRED_ON_LOOKUP = 60
    SPLIT = 61
    SWEPT = 62  # records that the sweep put on the delete list
    EVICTED = 63  # driven out by another when a limit was reached (early_drop)
    FLUSHED = 64
    PACKETS = 65
    BYTES = 66
    HIT = 67
    MISS = 68
    INVALID = 69
    UNTRACKED = 70
    L3CSUM_CHECKED = 71
    L4CSUM_CHECKED = 72
    TCP_SEQ_CHK_BYPASS = 73
    SWEEP_VISITED = 74
    SWEEP_CYCLES = 75
    SWEEP_LOOKED = 106  # records whose hint was due, and not only by a part of its unit
    SWEEPS = 107  # by workers
    SWEEPS_100_US = 108  # of these, that took so long at most
    SWEEPS_1_MS = 109
    SWEEPS_10_MS = 110
    SWEEP_NS = 111  # that all took together
    FRAGMENTS_ACCEPTED = 76  # taken to wait for the rest, or as the last of it
    FRAGMENTS_COMPLETED = 77  # of datagrams that became whole
    FRAGMENTS_EXPIRED = 78
    FRAGMENTS_OVERLAPPED = 79
    FRAGMENTS_TOO_SMALL = 80
    FRAGMENTS_PURGED = 81  # given up, for whoever held them did not ask for their verdict, or died
    EXPECTED = 84  # expectations that helpers made
    EXPECTATION_MATCHED = 85
    EXPECTATION_EXPIRED = 86  # stale: nobody came in time, or their parent went
    HELPER_DROPPED = 87  # expectations that made room for newer ones of their parent
    SAMPLED = 90  # packets with a reason that were kept for `explain`
    # What a packet met in the pipeline (kernels/pipeline).
    RULE_MISSED = 92  # no rule of its table is for such a packet
    RULE_DROPPED = 93  # a rule sends it nowhere
    RULE_TABLES = 94  # went through too many tables
    OUTPUT_UNREACHABLE = 95  # this worker has no queue of that port
    OUTPUT_FULL = 96  # the client of that port has left no room
    OUTPUTS = 97  # frames output
    OUTPUT_TOO_LONG = 112  # a frame longer than the port can send
    # What became of translated packets (kernels/messages, reassembly).
    HELPER_REWRITTEN = 98  # messages of control channels that say something else now
    FRAGMENTS_TRANSLATED = 99
    # What came home of the index (kernels/shrink).
    MERGED = 100  # segments of a zone that holds less than before
    # Tuples that translated TCP connections have left (kernels/quarantine).
    QUARANTINED = 102  # put aside for as long as the other end may remember them
    QUARANTINE_REFUSED = 103  # such a one was free, and passed over
    QUARANTINE_FORGOTTEN = 104  # put aside, but there was no room for so many


def word(reason: int) -> str | None:
    """Return the word for ``reason`` as users see it, None for NONE."""
    return None if reason == Reason.NONE else Reason(reason).name.lower()
