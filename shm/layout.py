"""Every shared record, once: fields, sizes, offsets, and a digest of them all.

Nothing else in the project writes down a size or an offset.  Numbers are in host order (an instance lives on one
machine); what is in network order says so by ``_be``.  Kernels reach records by address: ``region base + index * size``.

Who writes what, and under which lock, stands beside each field: *key* only in state NEW, *life* as PROTOCOL says,
*locked* under the record's lock, *owner* by one participant only, *config* by the control plane with one store.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np

FORMAT_VERSION = 2
MAGIC = 0x4B43415254454E5A  # b"ZNETRACK" as a little-endian u64

LINE_BYTES = 64
PAGE_BYTES = 4096

# ---------------------------------------------------------------------------------------------------- limits
ROSTER_MAX = 256
"""Participants at most: 128 workers, control, keeper, and clients of the shared table such as load and replay."""
ZONES_MAX = 65536
POLICIES_MAX = 64
TIMEOUTS_MAX = 56
POLICY_NAME_BYTES = 32
BLOCK_RECORDS = 256
"""Records handed to a participant at once, and the length of a chain in the pool."""
SLOTS = 128
"""Slots in a segment of the index."""
LINE_SLOTS = 8
"""Slots in a cache line."""
DEPTH_MAX = 24
"""Deepest segment: the tag holds 32 bits of the hash, so any depth up to 31 could be split by the slot alone."""
DELETE_LIST_MAX = 128
BURST_PACKETS_MAX = 256
FRAGMENTS_MAX = 1024
"""Fragments that can wait at once, and so the most datagrams that are incomplete."""
DATAGRAM_BYTES_MAX = 65535
"""Longest datagram, header included (RFC 791 3.1); IPv6 adds its header of 40 (RFC 8200 3)."""
COUNTERS_MAX = 128
SAMPLES_MAX = 8
"""Packets with a reason that each participant remembers: the latest ones.  A power of two."""
ZONE_REASONS_MAX = 128
"""Pairs of zone and reason that each participant counts apart."""
QUEUES_MAX = 1024
"""Queues of all ports of a service."""
PORT_SLOTS_MAX = 1 << 16
"""Frames in a ring of a port at most; the number is a power of two."""
FRAME_SLOT_BYTES = 2112
"""A frame's place in a port.  An odd multiple of a line: at 2,048 the first lines of all frames share two sets of L1."""
SEATS_MAX = 1 << 22
"""Half-open connections that all budgets of zones together may allow."""
CONNECTIONS_MAX = 1 << 28
"""Most records: an intent keeps the zone's and the global count, 29 bits each, beside the step in one word."""
UNLIMITED = 0xFFFFFFFF
"""A limit that is none.  0 refuses every commit."""
DUE_UNIT_MS = 16
"""``due[]`` counts in units of 16 ms: 32 bits last for two years of uptime."""


class Region(IntEnum):
    """The segments of an instance; the lower-case name is the last part of the segment's name."""

    CONTROL = 0
    ENTRIES = 1
    DUE = 2
    INDEX = 3
    EXTENSIONS = 4
    FRAGMENTS = 5


# ---------------------------------------------------------------------------------------------------- header
class SegmentState(IntEnum):
    """Life of a segment: NEW while it is being made, READY in use, SEALED after a clean stop."""

    NEW = 1
    READY = 2
    SEALED = 3


HEADER = np.dtype(
    [
        ("magic", "u8"),
        ("version", "u4"),
        ("region", "u4"),
        ("digest", "u8"),  # of all dtypes and constants here
        ("generation", "u8"),  # random, the same in all segments of one creation
        ("boot_id", "u1", (16,)),
        ("size", "u8"),  # bytes of the whole segment
        ("state", "u4"),  # SegmentState, last to be written
        ("created_s", "u4"),  # wall clock
        ("capacity", "u8"),  # connections the table was sized for
        ("zones_in_use_max", "u4"),
        ("extension_share", "u4"),  # extension records per 1,000 connections
        ("secret", "u8", (4,)),  # key of the tuple hash (CONTROL only)
        ("wall_offset_ms", "i8"),  # wall clock minus `now_ms` (CONTROL only)
    ],
    align=True,
)
"""First bytes of every segment.  Fields up to `state` never move; of CONTROL a description follows (shm/descriptions)."""
HEADER_BYTES = PAGE_BYTES

PORT_REGION = 16
"""HEADER.region of a port: its segment is no region of the table."""

# ---------------------------------------------------------------------------------------------------- connection
KEY_WORDS = 5
"""A key: low address (2 words, an IPv4 address in the second), high address (2), then
sport 16 | dport 16 | zone 16 | protocol 8 | family 8, where the low endpoint's port comes first."""

ENTRY = np.dtype(
    [
        # line 0: what every lookup reads
        ("key", "u8", (KEY_WORDS,)),  # canonical: the smaller (address, port) first         key
        ("life", "u8"),  # incarnation 32 | 0 8 | owner 16 | state 8                          life
        ("expiry_ms", "u8"),  # moment                                                       locked
        ("lock", "u4"),  # 0 or owner id
        ("status", "u2"),  # Status bits                                                     locked
        ("state", "u1"),  # protocol state: Tcp, Flow, ...                                   locked
        ("policy", "u1"),  # timeout policy, row of POLICIES                                 locked
        # line 1: what the protocol remembers
        ("protocol", "u1", (LINE_BYTES,)),  # TCP_PEERS, OVS_PEERS or another record of 64 bytes  locked
        # line 2: what users see
        ("packets", "u8", (2,)),  # original, reply                                          locked
        ("bytes", "u8", (2,)),  # IP bytes, as nf_conntrack counts them                      locked
        ("created_ms", "u8"),  # moment                                                      key
        ("parent", "u8"),  # public id of the connection that foretold this one, or 0        key
        ("mark", "u4"),  #                                                                   locked
        ("extension", "u4"),  # index of its EXTENSION + 1, or 0; the first may come later    locked
        ("next", "u4"),  # next record + 1 of the free list it is on                         owner, while FREE
        ("hint", "u4"),  # what stands in due[]: says without a look there whether it must be lowered  locked
    ],
    align=True,
)
ENTRY_BYTES = 192


class Life(IntEnum):
    """State of a record.  LIVE has no owner; NEW and DEAD belong to the participant whose id stands beside."""

    FREE = 0
    NEW = 1
    LIVE = 2
    DEAD = 3


class Status(IntEnum):
    """Bits of ENTRY.status."""

    ORIG_IS_HIGH = 1 << 0  # the opener is the second endpoint of the key
    SEEN_REPLY = 1 << 1
    ASSURED = 1 << 2
    TORN = 1 << 3  # its last writer died in the middle: be liberal until both sides were seen
    HELPER = 1 << 4
    FIXED_TIMEOUT = 1 << 5
    RELATED = 1 << 6  # foretold by an expectation
    OVS = 1 << 7  # judged by the rules of the `ovs` profile for all its life: they say what `state` and `protocol` mean
    SOURCE_NAT = 1 << 8  # the other end sees another source: EXTENSION.reply_key, unless it chanced to be the same
    DESTINATION_NAT = 1 << 9  # likewise another destination
    REPLIER_IS_HIGH = 1 << 10  # who replies is the second endpoint of EXTENSION.reply_key
    SEQUENCE_OFFSETS = 1 << 11  # a payload was made longer or shorter: EXTENSION.sequence_offset says by how much
    SOURCE_COUNTED = 1 << 12  # it is in the count of its source (kernels/sources)


TCP_PEER = np.dtype(
    [
        ("end", "u4"),  # highest sequence number + length sent
        ("maxend", "u4"),  # highest acknowledgment + window that the other side granted
        ("maxwin", "u4"),  # largest window seen, scaled
        ("maxack", "u4"),  # highest acknowledgment sent
        ("scale", "u1"),
        ("flags", "u1"),
        ("reserved", "u2"),
    ],
    align=True,
)
TCP_PEERS = np.dtype(
    [
        ("peer", TCP_PEER, (2,)),  # original, reply
        ("last_seq", "u4"),
        ("last_ack", "u4"),
        ("last_end", "u4"),
        ("last_win", "u2"),
        ("last_way", "u1"),
        ("last_segment", "u1"),
        ("retransmissions", "u1"),
        ("last_scale", "u1"),
        ("last_flags", "u1"),
        ("reserved", "u1", (5,)),
    ],
    align=True,
)
"""ENTRY.protocol of a TCP connection in the `netfilter` profile."""

OVS_PEER = np.dtype(
    [
        ("seqlo", "u4"),  # highest sequence number + length sent
        ("seqhi", "u4"),  # highest acknowledgment + window that the other side granted
        ("max_win", "u2"),  # largest window seen, not scaled
        ("scale", "u1"),  # PeerScale bits and the shift (kernels/ovs_tcp)
        ("reserved", "u1"),
    ],
    align=True,
)
OVS_PEERS = np.dtype(
    [
        ("peer", OVS_PEER, (2,)),  # original, reply
        ("reserved", "u1", (40,)),
    ],
    align=True,
)
"""ENTRY.protocol of a TCP connection in the `ovs` profile; both sides' states are ENTRY.state."""

SCTP_ASSOCIATION = np.dtype(
    [
        ("tag", "u4", (2,)),  # verification tag that packets of each direction carry; 0: unknown
        ("inits", "u1"),  # a bit for each Way in which an INIT went since the last handshake was done
        ("marks", "u1"),  # kernels/sctp
        ("last_way", "u1"),
        ("reserved", "u1", (53,)),
    ],
    align=True,
)
"""ENTRY.protocol of an SCTP association in the `netfilter` profile."""

EXTENSION = np.dtype(
    [
        ("reply_key", "u8", (KEY_WORDS,)),  # canonical, as NAT made it; word 4 = 0: no second key
        ("label", "u8", (2,)),
        ("next", "u4"),  # next extension + 1 of the free list
        (
            "helper_state",
            "u1",
            (43,),
        ),  # what its helper remembers: FTP_STATE or another record that ends with `helper`  locked
        ("helper", "u1"),  # Helper                                                          locked
        # of original, reply: a sequence number, what numbers change by up to that and after that    locked
        ("sequence_offset", "i4", (2, 3)),
    ],
    align=True,
)
EXTENSION_BYTES = 128
"""What most connections do not have."""


class Helper(IntEnum):
    """Who reads the control channel of a protocol, and foretells its other connections."""

    NONE = 0
    FTP = 1
    TFTP = 2
    SIP = 3
    IRC = 4
    PPTP = 5


HELPER_STATE_BYTES = 44
FTP_STATE = np.dtype(
    [
        ("after_line", "u4", (2, 2)),  # of original, reply: sequence numbers at which a line begins
        ("resume", "u4"),  # where a line goes on whose beginning was all that a segment had
        ("value", "u1", (16,)),  # of its address, as far as it was read; of PORT, six numbers
        ("port", "u2"),
        ("delimiter", "u1"),  # of EPRT and 229
        ("patterns", "u1"),  # bits of the patterns that it may still be; 0: no line is unfinished
        ("phase", "u1"),  # kernels/helper_ftp_states, Phase
        ("index", "u1"),  # of the character, number or group of digits to come 4 | that which :: stands before, + 1 4
        ("known", "u1"),  # how many of after_line are known, original 4 | reply 4
        ("helper", "u1"),  # Helper.FTP
    ],
    align=True,
)
"""EXTENSION.helper_state of FTP's control connection."""
PPTP_STATE = np.dtype(
    [
        ("client_call", "u2"),  # number that the client (PNS) chose, which packets to it have
        ("server_call", "u2"),  # likewise the server (PAC)
        ("session", "u1"),  # kernels/helper_pptp, Session
        ("call", "u1"),  # kernels/helper_pptp, Call
        ("known_call", "u2"),  # the client's as the server knows it: another where the client is translated
        ("reserved", "u1", (35,)),
        ("helper", "u1"),  # Helper.PPTP
    ],
    align=True,
)
"""EXTENSION.helper_state of PPTP's control connection."""
SIP_STATE = np.dtype(
    [
        ("invite", "u4"),  # number (CSeq) of the last INVITE
        ("register", "u4"),  # of the last REGISTER
        ("reserved", "u1", (35,)),
        ("helper", "u1"),  # Helper.SIP
    ],
    align=True,
)
"""EXTENSION.helper_state of SIP's signalling."""

# ---------------------------------------------------------------------------------------------------- expectations
EXPECTATIONS_MAX = 2048
"""Expectations at most, of all zones."""
CHAINS = 1024
"""Chains of expectations by destination, and as many by parent."""
FORETOLD_MAX = 8
"""Expectations that one packet may make."""
HELPER_RULES_MAX = 256

EXPECTATION = np.dtype(
    [
        # line 0: what is compared, and what a match takes over
        ("source", "u8", (2,)),  # as an address in a key; any with SOURCE_ANY
        ("destination", "u8", (2,)),
        ("last", "u8"),  # source port, 0: any 16 | destination port 16 | zone 16 | protocol 8 | family 8
        ("parent", "u8"),  # public id of the connection that foretold it; it counts while that connection lives
        ("expiry_ms", "u8"),  # moment
        ("flags", "u4"),  # ExpectationFlag bits; IN_USE is what makes it one
        ("mark", "u4"),  # of the parent, at that time
        # line 1
        ("label", "u8", (2,)),  # likewise
        ("order", "u8"),  # the higher the later it was made
        ("next", "u4", (2,)),  # index + 1 of the next on its chain by destination, by parent
        ("helper", "u1"),  # Helper that made it
        ("kind", "u1"),  # Foretold
        ("child_helper", "u1"),  # Helper that the connection gets
        ("reserved", "u1"),
        ("nat_port", "u2"),  # that the connection gets with the address below, 0: its own, or one like it
        ("reserved1", "u2"),
        ("nat_address", "u8", (2,)),  # with NAT_SOURCE or NAT_DESTINATION
        ("reserved2", "u8"),
    ],
    align=True,
)
EXPECTATION_BYTES = 128


class ExpectationFlag(IntEnum):
    """Bits of EXPECTATION.flags."""

    IN_USE = 1
    SOURCE_ANY = 2  # whoever it comes from
    PERMANENT = 4  # a match leaves it: any number of connections, as long as the parent lives
    CALL = 8  # no expectation, but a call of PPTP: the source port is the key that packets to the destination lack
    NAT_SOURCE = 16  # its parent is translated, so the connection is: it gets another source
    NAT_DESTINATION = 32  # likewise another destination


class Foretold(IntEnum):
    """What kind of connection an expectation foretells; the most of each that a parent may have stand in kernels/helpers."""

    DATA = 0
    AUDIO = 1
    VIDEO = 2
    IMAGE = 3


EXPECTATION_TABLE = np.dtype(
    [
        ("lock", "u4"),  # 0 or owner id
        ("version", "u4"),  # odd while something is being changed                            lock
        ("zone", "u4"),  # whose count is being changed                                       lock
        ("count", "u4"),  # how many there are                                                lock
        ("order", "u8"),  # of the latest                                                     lock
        ("cursor", "u4"),  # where to look next for what is stale                             lock
        ("hint", "u4"),  # where to look for a record that is not in use                      lock
        ("rules", "u4"),  # rows of HELPER_RULES that may be in use                           config
        ("reserved", "u1", (28,)),
    ],
    align=True,
)
EXPECTATION_TABLE_BYTES = 64

# row of HELPER_RULES, one word: IN_USE 1 << 63 | helper 8 << 40 | protocol 8 << 32 | zone 16 << 16 | port 16; 0: none
RULE_IN_USE = 1 << 63
RULE_HELPER_SHIFT = 40
RULE_PROTOCOL_SHIFT = 32
RULE_ZONE_SHIFT = 16

# ---------------------------------------------------------------------------------------------------- index
SEGMENT = np.dtype(
    [
        ("lock", "u4"),  # 0 or owner id
        ("owner", "u4"),  # 0 in the pool, id while private, USED
        ("depth", "u4"),  # hash bits that all its slots share                               lock
        ("zone", "u4"),  # for audit and people; never trusted by a walk                      lock
        ("reserved", "u1", (48,)),
    ],
    align=True,
)
SEGMENT_BYTES = 64
SLOT_BYTES = 8
SEGMENT_SLOT_BYTES = SLOTS * SLOT_BYTES
USED = 0xFFFF
"""Owner word of a segment or directory that a zone names."""

# zone word: version 28 | depth 5 | directory offset 31, enough for the directories of CONNECTIONS_MAX
ZONE_OFFSET_BITS = 31
ZONE_DEPTH_BITS = 5
ZONE_VERSION_SHIFT = ZONE_OFFSET_BITS + ZONE_DEPTH_BITS

ZONE = np.dtype(
    [
        ("word", "u8"),  # version | depth | directory offset (0: none)                      zone lock
        # these three are read as one word (kernels/zones, settings_of)
        ("settings", "u2"),  # Setting bits                                                  config
        ("max_retrans", "u1"),  # retransmissions of one segment after which a timeout is cut  config
        ("policy", "u1"),  # default timeout policy                                          config
        ("expectations", "u4"),  # how many there are in this zone
    ],
    align=True,
)
"""What a packet reads of its zone: dense, hardly ever written, so that it stays in every core's cache."""
ZONE_BYTES = 16

QUOTA = np.dtype(
    [
        ("zone_lock", "u4"),  # guards ZONE.word
        ("count_lock", "u4"),  # guards count
        ("count", "u4"),  # reserved, LIVE or not yet freed
        ("limit", "u4"),  # most connections; UNLIMITED, 0 refuses all                        config
        ("has_limit", "u4"),  # 0: limit follows the default for zones                        config
        ("adaptive_start", "u4"),  # marks of adaptive timeouts (kernels/adaptive)            config
        ("adaptive_end", "u4"),  # 0: there are none                                          config
        ("adapting", "u4"),  # 1: timeouts are shortened now
        ("half_open_limit", "u4"),  # its seats for half-open connections (kernels/half_open)  config
        ("half_open_first", "u4"),  # the first of them                                       config
        ("half_open_hand", "u4"),  # where to look for a free one
        ("source_limit", "u4"),  # connections of one source (kernels/sources), 0: any number    config
        ("has_sources", "u4"),  # 1: some of its connections may be in a count of their source   config
        ("reserved", "u1", (12,)),
    ],
    align=True,
)
"""What a commit writes of its zone: a line of its own, so that commits do not disturb lookups."""
QUOTA_BYTES = 64


class Setting(IntEnum):
    """Bits of ZONE.settings."""

    LOOSE = 1 << 0  # pick up TCP connections in the middle
    BE_LIBERAL = 1 << 1  # only resets out of the window are invalid
    IGNORE_INVALID_RST = 1 << 2
    SEQ_CHECK = 1 << 3
    CHECKSUM = 1 << 4  # verify checksums
    NO_EXPIRY = 1 << 5  # replay: nothing ever expires
    OVS = 1 << 6  # new connections are judged by the rules of the `ovs` profile, else by those of `netfilter`
    EARLY_DROP = 1 << 8  # a limit that refuses one of its connections drives out a less valuable one (kernels/eviction)
    HELPERS = 1 << 7  # some of its connections get a helper: HELPER_RULES has a row for it
    HALF_OPEN = 1 << 9  # it may have only so many connections that have seen no reply (kernels/half_open)
    SOURCES = 1 << 10  # each source may have only so many connections (kernels/sources)
    ADAPTIVE = 1 << 11  # the fuller it is between two marks, the shorter timeouts are (kernels/adaptive)
    OWN = 1 << 15  # set for this zone alone; zones without it are set as GLOBAL.settings says


# how a zone is set, as packets read it: settings 16 | max_retrans 8 | policy 8, from the lowest bit
MAX_RETRANS_SHIFT = 16
POLICY_SHIFT = 24
MAX_RETRANS_DEFAULT = 3
SETTINGS_DEFAULT = Setting.LOOSE | Setting.SEQ_CHECK | Setting.CHECKSUM | Setting.EARLY_DROP
SETTINGS_WORD_DEFAULT = SETTINGS_DEFAULT | MAX_RETRANS_DEFAULT << MAX_RETRANS_SHIFT


POLICY = np.dtype(
    [
        ("timeout_ms", "u4", (TIMEOUTS_MAX,)),  # a length for each Timeout (kernels/timeouts)    config
        ("name", "u1", (POLICY_NAME_BYTES,)),  # ASCII, filled up with 0; empty: known by its row config
    ],
    align=True,
)
"""A timeout policy; where a length is 0, the profile's default holds."""
POLICY_BYTES = 256

GLOBAL = np.dtype(
    [
        ("count_lock", "u4"),
        ("count", "u4"),  # under count_lock
        ("limit", "u4"),  # config
        ("zone_limit_default", "u4"),  # config: limit of zones without their own
        ("settings", "u4"),  # config: settings 16 | max_retrans 8 | 0 of zones that are not OWN
        ("reserved", "u1", (44,)),
    ],
    align=True,
)
"""The global count, alone in its line."""
GLOBAL_BYTES = 64


# ---------------------------------------------------------------------------------------------------- participants
class Step(IntEnum):
    """How far the one operation of a participant has come; kernels/repair says what becomes of it after a death."""

    NONE = 0
    UPDATE = 1
    ALLOC = 3
    LOCKS = 4
    CREATE = 5
    SPLIT = 6
    RESERVED = 9
    MARK = 10
    CLEAR = 12
    CLEARED = 13
    UNCOUNT_WRITING = 15
    UNCOUNTED = 16
    DETACH = 17
    RECLAIM = 18
    SEGFREE = 19
    BATCH_UNCOUNT = 21
    BATCH_UNCOUNT_WRITING = 22
    BATCH_FREE = 23
    CREDIT_WRITING = 24  # taking a burst's credit, counts before it beside; the credit word is the last one written
    SPEND = 25  # taking one from the own credit, its value before beside
    CREDIT_BACK_WRITING = 26  # giving credit back, likewise
    FRAGMENTS = 27  # at the store of fragments; what was done there is told by its own words
    CHANGE = 28  # mark or label of a record, which may get an extension
    MERGE = 29  # two segments of a zone become one (kernels/shrink)
    HALVE = 30  # a directory of half the size
    LAST = 31  # the only segment of a zone goes back
    SOURCE_ENTER = 34  # counting a record where its source is; the count before beside
    SOURCE_LEAVE = 35  # taking it out again; the step that follows and the count before beside


# step word: 0 | zone count before 29 | global count before 29 | step 6; or cursor 58 | step 6
STEP_BITS = 6
BEFORE_BITS = 29

INTENT = np.dtype(
    [
        ("step", "u8"),  # Step | value before, or cursor: what must change together is one store
        ("zone_word", "u8"),
        ("record", "u4"),  # index + 1
        ("incarnation", "u4"),
        ("segment_low", "u4"),  # index + 1 of the lower segment locked
        ("segment_high", "u4"),
        ("segment_split", "u4"),
        ("zone", "u4"),
        ("credit", "u4"),  # connections reserved for this burst and not yet used ...
        ("credit_zone", "u4"),  # ... in this zone
        ("cursor", "u4"),  # of a flush, while the step word says what becomes of one of its records
        ("reserved", "u4", (3,)),
    ],
    align=True,
)
INTENT_BYTES = 64


class Kind(IntEnum):
    """What a participant is."""

    KEEPER = 1
    CONTROL = 2
    WORKER = 3
    TOOL = 4


class Attendance(IntEnum):
    """Where a place on the roster stands.  DEPARTED: its lists may be inherited; DYING: it is being repaired."""

    EMPTY = 0
    JOINING = 1
    PRESENT = 2
    DYING = 3


PARTICIPANT = np.dtype(
    [
        ("intent", INTENT),  # line 0
        # line 1: who it is
        ("pid", "u4"),
        ("attendance", "u4"),
        ("start_ticks", "u8"),  # of the process, from /proc/PID/stat: tells a reused pid
        ("kind", "u4"),
        ("deletes", "u4"),  # length of its delete list                                       owner
        ("clock_ms", "u8"),  # the last `now` it worked with                                  owner
        ("heartbeat", "u8"),
        ("sweep_cursor", "u4"),
        ("segment_hint", "u4"),  # where to look for a free segment
        ("pool_hint", "u4", (2,)),  # [slab] where to look for a chain                        owner
        ("samples", "u8"),  # how many it has taken                                           owner
        # line 2: free lists, single writer
        ("front", "u4", (2,)),  # [slab] first record + 1
        ("front_count", "u4", (2,)),
        ("back", "u4", (2,)),
        ("back_count", "u4", (2,)),
        ("segments_in_vain", "u4"),  # looked at for a free segment, and none was; less with each found    owner
        ("reserved2", "u1", (28,)),
        ("counters", "u8", (COUNTERS_MAX,)),  # by Reason
    ],
    align=True,
)
PARTICIPANT_BYTES = 3 * LINE_BYTES + 8 * COUNTERS_MAX

DELETE = np.dtype(
    [
        ("record", "u4"),
        ("incarnation", "u4"),
        ("segment", "u4"),  # index + 1, as its marker saw it; a hint for sorting
        ("zone_step", "u4"),  # zone << 8 | Step of this entry
    ],
    align=True,
)
"""One line of a delete list."""
DELETE_BYTES = 16


SAMPLE = np.dtype(
    [
        ("number", "u8"),  # 2 * n + 2 of the n-th of its participant; odd while it is being written
        ("now_ms", "u8"),
        ("packet", "u8"),  # the packet's number among those of its participant, from 1
        ("key", "u8", (KEY_WORDS,)),  # that it was looked up by; of one that could not be read, the last word only
        ("contents", "u1", (LINE_BYTES,)),  # ENTRY.protocol as compared; without record the packet, from its IP header
        ("record", "u4"),  # NO_RECORD when there is none
        ("incarnation", "u4"),
        ("seq", "u4"),
        ("ack", "u4"),
        ("sack", "u4"),  # what it acknowledges at most, SACK included
        ("payload_bytes", "u4"),
        ("ip_bytes", "u4"),
        ("l4_bytes", "u4"),
        ("captured_bytes", "u4"),  # from the IP header on
        ("timeout_ms", "u4"),  # remaining after the packet
        ("icmp_word", "u4"),  # as PARSED has it
        ("settings", "u4"),  # of the zone
        ("win", "u2"),
        ("status", "u2"),  # Status bits of the record
        ("tcp_flags", "u2"),  # as PARSED has it
        ("state", "u1"),  # protocol state after the packet
        ("reason", "u1"),  # Reason
        ("ct_state", "u1"),  # CtState bits of the verdict
        ("way", "u1"),  # Way
        ("kind", "u1"),  # PacketKind
        ("flags", "u1"),  # SampleFlag bits
        ("policy", "u1"),  # timeout policy of the record
        ("reserved", "u1", (3,)),
    ],
    align=True,
)
"""A packet that got a reason, and what it was compared with.  Written by its participant, read by anybody."""
SAMPLE_BYTES = 192


class SampleFlag(IntEnum):
    """Bits of SAMPLE.flags."""

    FOUND = 1  # there was a record: ``contents``, ``status`` and ``state`` are of it
    HIGH_IS_SOURCE = 2  # the packet came from the key's second endpoint
    QUOTED = 4  # the key and the bit before are of the packet that an ICMP error quotes


ZONE_REASON = np.dtype(
    [
        ("what", "u4"),  # 1 << 24 | zone << 8 | Reason; 0: free
        ("reserved", "u4"),
        ("count", "u8"),
    ],
    align=True,
)
"""How often packets of a zone got a reason, by one participant.  The last of each counts what had no room."""
ZONE_REASON_BYTES = 16
ZONE_REASON_USED = 1 << 24


# ---------------------------------------------------------------------------------------------------- events
EVENTS_MAX = 1 << 15
"""Events that a participant's ring holds: a reader may be 30 ms behind a worker that makes a million of them a second."""


class EventKind(IntEnum):
    """What happened to a connection; a bit each."""

    NEW = 1
    UPDATE = 2
    DESTROY = 4


class Change(IntEnum):
    """What an UPDATE is about: bits of EVENT.changes."""

    STATE = 1  # of its protocol
    STATUS = 2  # first reply, assured
    MARK = 4
    LABEL = 8


class End(IntEnum):
    """Why a connection was destroyed."""

    NONE = 0
    EXPIRED = 1  # nothing came for as long as its timeout
    CLOSED = 2  # by its hosts: a reset before it was worth a place
    REPLACED = 3  # by another of the same tuple
    DELETED = 4  # a client asked for it
    FLUSHED = 5  # with its zone
    EVICTED = 6  # driven out at a limit


EVENT_RING = np.dtype(
    [
        # line 0
        ("wanted", "u4"),  # EventKind bits that somebody reads                                         config
        ("filters", "u4"),  # times that they were said << 8 | EVENT_FILTERs that hold; 0: all are read  config
        ("reserved", "u1", (56,)),
        # line 1
        ("open", "u8"),  # 1 from before its sequence number is taken until an event is whole           owner
        ("written", "u8"),  # events so far                                                             owner
        ("clock_ms", "u8"),  # moment of what happens now                                               owner
        ("reserved1", "u1", (40,)),
    ],
    align=True,
)
"""The head of a participant's ring of events (shm/events)."""
EVENT_RING_BYTES = 128

EVENT = np.dtype(
    [
        # line 0
        ("number", "u8"),  # 2 * n + 2 of the n-th of its ring; odd while it is being written
        ("sequence", "u8"),  # its place among all events, from 1
        ("time_ms", "u8"),
        ("record", "u4"),
        ("changes", "u2"),  # Change bits
        ("kind", "u1"),  # EventKind
        ("end", "u1"),  # End
        ("helper", "u1"),
        ("reserved", "u1", (31,)),
        # lines 1 to 3: the ENTRY as it was then
        ("entry", "u1", (ENTRY_BYTES,)),
        # line 4: the beginning of its EXTENSION, zero without one
        ("reply_key", "u8", (KEY_WORDS,)),
        ("label", "u8", (2,)),
        ("reserved1", "u8"),
    ],
    align=True,
)
"""What happened to a connection, with all of its record.  Written by one participant, read by control."""
EVENT_BYTES = 320


class Slab(IntEnum):
    """The two slabs, which share one allocator."""

    ENTRIES = 0
    EXTENSIONS = 1


# pool word: owner 16 | count 16 (records in the chain, <= BLOCK_RECORDS) | first record + 1, 32.  0: nothing here.
POOL_OWNER_SHIFT = 48
POOL_COUNT_SHIFT = 32

# ---------------------------------------------------------------------------------------------------- packets
VERDICT = np.dtype(
    [
        ("ct_state", "u1"),  # CtState bits
        ("reason", "u1"),  # Reason, below 256
        ("direction", "u1"),  # Way
        ("flags", "u1"),  # VerdictFlag bits
        ("zone", "u2"),
        ("protocol", "u1"),
        ("state", "u1"),  # protocol state after the packet
        ("record", "u4"),  # index, NO_RECORD when there is none
        ("incarnation", "u4"),
        ("mark", "u4"),
        ("timeout_ms", "u4"),  # remaining after the packet
    ],
    align=True,
)
VERDICT_BYTES = 24
NO_RECORD = 0xFFFFFFFF


class CtState(IntEnum):
    """Open vSwitch's bits of ct_state."""

    NEW = 0x01
    EST = 0x02
    REL = 0x04
    RPL = 0x08
    INV = 0x10
    TRK = 0x20
    SNAT = 0x40
    DNAT = 0x80


class VerdictFlag(IntEnum):
    """Bits of VERDICT.flags."""

    ASSURED = 1
    COMMITTED = 2  # there is a record
    UNTRACKED = 4
    NOIP = 8
    HELD = 16  # a fragment whose datagram is not complete: its verdict comes later


class Way(IntEnum):
    """Which way a packet travels, seen from the host that opened the connection."""

    ORIG = 0
    REPLY = 1


class Link(IntEnum):
    """How a frame begins (kernels/packet)."""

    ETHERNET = 0
    RAW_IP = 1
    COOKED = 2  # Linux cooked capture v1
    COOKED2 = 3  # Linux cooked capture v2
    NULL = 4  # BSD loopback, family in host order of either kind
    LOOP = 5  # OpenBSD loopback, family in network order
    PPP = 6
    CISCO_HDLC = 7
    NFLOG = 8
    PPP_WITH_DIRECTION = 9
    PPPOE = 10  # a PPPoE header without its Ethernet
    UNKNOWN = 255


class FrameFlag(IntEnum):
    """Bits of FRAME.flags."""

    COMMIT = 1  # make a record for what has none
    CHECKSUM_TRUSTED = 2  # the device has verified it, or has yet to fill it in
    QUIET = 4  # of a descriptor: where there are rules, its client wants no answer, only what is output to its port
    FORWARDED = 8  # of a descriptor from the service: no answer, but a frame that a rule has output to this port
    CHECKSUM_PARTIAL = 16  # it has yet to be filled in: there stands the sum of the pseudo header
    IN_PLACE = 32  # it stands in a device's ring: what follows its captured bytes is another's, so it cannot grow
    FRESH = 64  # it was not translated in its zone yet: one that looks as if is another's
    ROOM = 128  # it stands at the beginning of FRAME_SLOT_BYTES that are its own: it may become longer


FRAME = np.dtype(
    [
        ("address", "u8"),  # of the first byte
        ("captured_bytes", "u4"),  # readable
        ("wire_bytes", "u4"),  # as it was on the wire; more than captured when snapped
        ("zone", "u2"),
        ("link", "u1"),  # Link
        ("flags", "u1"),  # FrameFlag bits
        ("ticket", "u4"),  # the caller's; comes back with the verdict of a fragment that had to wait
        ("action", "u8"),  # address of an ACTION, or 0: nothing is asked of its connection
    ],
    align=True,
)
"""One packet of a burst, as whoever received it describes it."""
FRAME_BYTES = 32

ACTION = np.dtype(
    [
        ("flags", "u4"),  # ActionFlag bits
        ("policy", "u4"),  # timeout policy + 1 of a connection that is made, 0: the zone's
        ("mark", "u4"),
        ("mark_mask", "u4"),  # bits of the mark that are set; 0: none
        ("label", "u8", (2,)),
        ("label_mask", "u8", (2,)),
        ("helper", "u4"),  # Helper of a connection that is made, 0: whatever the zone has for its port
        ("nat", "u4"),  # Nat bits
        ("nat_ports", "u2", (2,)),  # first and last to choose from; 0, 0: the packet's own, or one like it
        ("reserved", "u4"),
        (
            "nat_first",
            "u8",
            (2,),
        ),  # first and last address to choose from, two words as in a key; 0, 0: the packet's own
        ("nat_last", "u8", (2,)),
        ("reserved2", "u8", (4,)),
    ],
    align=True,
)
"""What a rule asks of the connection of a packet.  Private to a process."""
ACTION_BYTES = 128


class Nat(IntEnum):
    """Bits of ACTION.nat."""

    APPLY = 1  # translate the packet as its connection is translated
    SOURCE = 2  # a connection that is made gets another source; without this and the next none is translated anew
    DESTINATION = 4  # likewise another destination
    RANDOM = 8  # the search for a port begins anywhere, else where a hash of the tuple says
    PERSISTENT = 16  # the address depends on the opener's address alone
    FORETOLD = 32  # not of a rule, but of an expectation: what stands for a port is changed too, whatever the protocol


class ActionFlag(IntEnum):
    """Bits of ACTION.flags."""

    FORCE = 1  # the packet's sender shall be the opener: a connection that it answers is replaced


PARSED = np.dtype(
    [
        # what the parser found
        ("key", "u8", (KEY_WORDS,)),
        ("hash", "u8"),  # by tuples.hash_key, after the zone is in the key
        ("inner_key", "u8", (KEY_WORDS,)),  # ICMP error: key of the quoted packet
        ("l4", "u8"),  # address of the transport header
        ("icmp_word", "u8"),  # ICMP: type 8 | code 8 | id 16 (type in the highest of 32 bits)
        ("seq", "u4"),  # SCTP: the verification tag
        ("ack", "u4"),  # SCTP: the tag that an INIT or INIT ACK announces
        ("l4_bytes", "u4"),  # transport header and payload, from the IP length
        ("payload_bytes", "u4"),
        ("ip_bytes", "u4"),  # what accounting counts
        ("options_bytes", "u4"),  # TCP options; SCTP: chunks; those that are readable
        ("win", "u2"),
        ("tcp_flags", "u2"),  # low byte of the TCP flags; SCTP: a bit for each Chunk (kernels/sctp_states) there is
        ("reason", "u2"),  # Reason; other than NONE: stop here
        ("protocol", "u1"),
        ("family", "u1"),  # 4 or 6
        ("high_is_source", "u1"),  # 1: the packet comes from the key's second endpoint
        ("inner_high_is_source", "u1"),  # the same of the quoted packet
        ("kind", "u1"),  # PacketKind
        ("can_reply", "u1"),  # 0: equal endpoints, nothing tells which way it goes
        ("plain", "u2"),  # what predicted and openings may foretell (kernels/plain)
        ("found", "u2"),  # 1: `candidate` is a record
        # what the burst keeps between its stages
        ("zone_word", "u8"),
        ("line", "u8"),  # address of the home line
        ("segment", "u4"),
        ("zone", "u4"),
        ("candidate", "u4"),  # record + 1 whose tag stood in the home pair, 0 when none
        ("foreseen", "u2"),  # 1: inner_key is the first tuple to try for the replies, and reply_hash its hash
        ("kept", "u2"),  # 1: this is what the next packet at this place of a burst will be, but for the zone
        ("reply_hash", "u8"),  # of the tuple in inner_key that NAT chose for the replies
        ("entry", "u8"),  # address of the candidate's ENTRY; of a line that is here anyway where there is none
    ],
    align=True,
)


class PacketKind(IntEnum):
    """What the tracker has to do with a packet."""

    FLOW = 0  # UDP, ports or addresses only
    TCP = 1
    ICMP_QUERY = 2
    ICMP_ERROR = 3
    UNTRACKED = 4
    SCTP = 5


PARSED_BYTES = PARSED.itemsize

# ---------------------------------------------------------------------------------------------------- fragments
STORE = np.dtype(
    [
        ("lock", "u4"),  # 0 or owner id; guards all of the region but what is config
        ("count", "u4"),  # fragments that are not FREE
        ("due_ms", "u8"),  # no datagram expires before, and nothing has waited too long to be collected
        ("free_fragment", "u4"),  # first + 1 of those that are free
        ("free_datagram", "u4"),
        ("reserved", "u1", (40,)),
        ("flags", "u4"),  # StoreFlag bits                                                   config
        ("count_max", "u4"),  # fragments that may wait, at most FRAGMENTS_MAX               config
        ("bytes_min", "u4"),  # `ovs`: IPv4 packets of all fragments but the last are as long  config
        ("bytes6_min", "u4"),  # likewise of IPv6                                            config
        ("purge_ms", "u4"),  # how long a verdict waits for who holds its fragment           config
        ("reserved1", "u1", (44,)),
    ],
    align=True,
)
"""The head of the store in which fragments wait for the rest of their datagram."""
STORE_BYTES = 128


class StoreFlag(IntEnum):
    """Bits of STORE.flags: of which families fragments are put together; those of the other are refused."""

    IPV4 = 1
    IPV6 = 2


FRAGMENT_BYTES_MIN_DEFAULT, FRAGMENT6_BYTES_MIN_DEFAULT = 1200, 1280
FRAGMENT_BYTES_MIN_LEAST = 400
"""Open vSwitch's defaults, and the least that may be asked for."""
FRAGMENT_COUNT_MAX_DEFAULT = 1000
PURGE_MS_DEFAULT = 10_000

HOLDER = np.dtype([("held", "u4"), ("ready", "u4")], align=True)
"""By owner id - 1: fragments that this participant holds, and the first + 1 of those whose verdict has come."""
HOLDER_BYTES = 8

DATAGRAM = np.dtype(
    [
        ("key", "u8", (KEY_WORDS,)),  # source, destination, then id 32 | zone 16 | protocol 8 | family 8
        ("expiry_ms", "u8"),
        ("generation", "u4"),  # + 1 whenever it ends
        ("state", "u1"),  # Assembly
        ("ovs", "u1"),  # 1: by the rules of the `ovs` profile
        ("owner", "u2"),  # owner id of who received its first fragment
        ("next", "u4"),  # + 1, of its bucket or of those that are free
        ("first", "u4"),  # + 1, of its fragments in order of their offsets
        ("end", "u4"),  # highest end of a fragment
        ("bytes", "u4"),  # of all its fragments together
        ("total", "u4"),  # end of the last fragment + 1, 0 before that has come
        ("reserved", "u4"),
    ],
    align=True,
)
"""What there is of a datagram that came in fragments."""
DATAGRAM_BYTES = 80


class Assembly(IntEnum):
    """State of a datagram."""

    FREE = 0
    OPEN = 1  # in its bucket, waiting for fragments
    WHOLE = 2  # complete and out of its bucket: its verdict is about to be known
    FAILED = 3  # in its bucket until it expires, but refuses fragments (`ovs`)


FRAGMENT = np.dtype(
    [
        ("word", "u8"),  # generation 32 | 0 8 | holder 16 | Wait 8: what repair goes by
        ("verdict", VERDICT),  # when READY
        ("next", "u4"),  # + 1, of its datagram, of its holder's that are READY, or of those that are free
        ("ticket", "u4"),  # FRAME.ticket
        ("offset", "u4"),  # of its data in the datagram
        ("bytes", "u4"),  # of data
        ("ip", "u2"),  # where in the frame the IP header begins
        ("header", "u2"),  # bytes of IP header and what comes before the data
        ("captured", "u2"),  # bytes of the frame that are in the buffer
        ("follows", "u1"),  # 1: was appended right behind the one before it in the datagram
        ("reserved", "u1"),
        ("purge_ms", "u8"),  # READY: moment at which nobody waits for its holder any more
    ],
    align=True,
)
"""A fragment that waits; its frame is in the buffer of the same number."""
FRAGMENT_BYTES = 64


class Wait(IntEnum):
    """State of a fragment: waits for its datagram, for its holder, or is the holder's who is answering it."""

    FREE = 0
    HELD = 1
    READY = 2
    TAKEN = 3


FRAGMENT_GENERATION_SHIFT = 32
FRAGMENT_HOLDER_SHIFT = 8

# ---------------------------------------------------------------------------------------------------- captures
CAPTURE = np.dtype(
    [
        ("address", "u8"),  # of the first byte of the file
        ("bytes", "u8"),  # of the file
        ("position", "u8"),  # of the next record in the file; when there is a fault, of the record that is wrong
        ("time_ns", "u8"),  # of the packet delivered last, since 1970
        ("interfaces", "u8"),  # address of INTERFACE[INTERFACES_MAX]
        ("interface_count", "u4"),  # of the present section
        ("snap_bytes", "u4"),  # pcap: the longest record that the file announces
        ("unit_ns", "u4"),  # pcap: length of a tick of the second timestamp word
        ("record_bytes", "u4"),  # pcap: length of a record header
        ("zone", "u2"),  # given to every frame
        ("frame_flags", "u1"),  # FrameFlag bits, given to every frame
        ("link", "u1"),  # Link, pcap
        ("format", "u1"),  # Format
        ("big", "u1"),  # 1: numbers of this file or section are big-endian
        ("swapped", "u1"),  # LengthOrder, pcap
        ("fault", "u1"),  # Fault
    ],
    align=True,
)
"""Where the walk through a capture file stands.  Private to a process."""

INTERFACE = np.dtype(
    [
        ("multiplier", "u8"),  # ns = ticks * multiplier / divisor
        ("divisor", "u8"),  # 0: divided by 2**shift
        ("offset_s", "u8"),  # added to every timestamp, two's complement
        ("snap_bytes", "u4"),  # 0: no limit
        ("shift", "u1"),
        ("link", "u1"),  # Link
        ("reserved", "u2"),
    ],
    align=True,
)
"""An interface of a section of a pcapng file."""
INTERFACE_BYTES = 32
INTERFACES_MAX = 4096

CLOCK = np.dtype(
    [
        ("latest_ns", "u8"),  # the highest packet time so far, 0 before the first
        ("first_ns", "u8"),  # packet time at which the clock began
        ("elapsed_ns", "u8"),  # since then; never more than expiries can hold
        ("now_ms", "u8"),
    ],
    align=True,
)
"""Capture time as the clock of a replay.  Private to a process."""

REPLAY = np.dtype(
    [
        ("incoming", "u8"),  # address of a FRAME, the packet just read
        ("frames", "u8"),  # address of FRAME[REPLAY_BURST_PACKETS], the burst being gathered
        ("places", "u8"),  # address of u64[...], where in `results` the verdict of each goes
        ("verdicts", "u8"),  # address of VERDICT[...], of the burst
        ("parsed", "u8"),  # address of a PARSED, to find out whose packet it is
        ("results", "u8"),  # address of VERDICT[results_count], shared by all workers
        ("results_count", "u8"),  # 0: verdicts are not wanted
        ("packets", "u8"),  # read so far; the place of the next one
        ("tracked", "u8"),  # of these, given to the tracker by this worker
        ("gathered", "u8"),  # in the burst
        ("shard", "u8"),  # of this worker
        ("shards", "u8"),
    ],
    align=True,
)
"""What one worker of a replay knows.  Private to a process."""
REPLAY_BURST_PACKETS = 32

# ---------------------------------------------------------------------------------------------------- ports
PORT = np.dtype(
    [
        ("queues", "u4"),
        ("slots", "u4"),  # of each ring, a power of two
        ("zone", "u4"),  # of all its packets
        ("reserved", "u4"),
        ("name", "u1", (48,)),  # ASCII, filled up with 0
    ],
    align=True,
)
"""Second page of a port's segment: what a client wants to know.  Clients can write it, so the service never reads it."""

RING = np.dtype(
    [
        ("produced", "u8"),  # descriptors put in since the ring was made                    producer
        ("reserved0", "u1", (120,)),
        ("consumed", "u8"),  # descriptors taken out                                         consumer
        ("reserved1", "u1", (120,)),
        ("waiting", "u4"),  # 1: the consumer sleeps on this word; who sets it to 0 wakes it
        ("reserved2", "u1", (124,)),
    ],
    align=True,
)
"""The words of a ring that its two ends share.  Two lines apart, for a core fetches lines in pairs."""
RING_BYTES = 384

DESCRIPTOR = np.dtype(
    [
        ("tag", "u8"),  # the client's; comes back as it went
        ("slot", "u4"),  # where its frame is, an index into the frames of the ring
        ("captured_bytes", "u4"),  # that are there, at most FRAME_SLOT_BYTES
        ("wire_bytes", "u4"),  # as it was on the wire; more than captured when snapped
        ("link", "u1"),  # Link
        ("flags", "u1"),  # FrameFlag bits: COMMIT, or nobody makes a record for it; QUIET; FORWARDED
        ("reserved", "u1", (2,)),
        ("verdict", VERDICT),  # from the service
    ],
    align=True,
)
"""A frame of a ring, on its way to the service (without verdict) or back."""
DESCRIPTOR_BYTES = 48
NO_TAG = 0xFFFFFFFFFFFFFFFF
"""Tag of what is FORWARDED."""

END = np.dtype(
    [
        ("ring", "u8"),  # address of the RING
        ("descriptors", "u8"),  # address of DESCRIPTOR[slots]
        ("frames", "u8"),  # address of slots * FRAME_SLOT_BYTES
        ("slots", "u8"),  # a power of two
        ("cursor", "u8"),  # what this end has put in, or taken out
        ("peer", "u8"),  # the other end's cursor, as it was when last looked at
        ("bad", "u8"),  # 1: the other end's cursor, when last looked at, could not be
        ("bad_cursors", "u8"),  # how often that began
    ],
    align=True,
)
"""What one end of a ring knows, in memory that the other cannot write."""
END_BYTES = 64


class PortKind(IntEnum):
    """What is at the other side of a port."""

    SHM = 0  # clients that attach to its segment
    PACKET = 1  # a network interface, by packet sockets
    TAP = 2  # a TAP interface, which the service makes
    PCAP = 3  # capture files
    NFQUEUE = 4  # the firewall of the host, which asks what shall become of its packets
    XDP = 5  # a network interface, by sockets that its driver hands frames to
    FRAMES = 6  # a network interface, by packet sockets that hand over each frame by itself


CAUSES = 4
"""Causes of loss that a kind of port tells apart at most (service/ports/telling)."""

TIMESPEC = np.dtype([("seconds", "i8"), ("nanoseconds", "i8")], align=True)
"""struct timespec of a 64-bit machine."""

SIZES = 6
"""Sizes of bursts and batches are counted by the power of two that they reach: 1, 2, 4, 8, 16, 32."""

QUEUE = np.dtype(
    [
        ("rx", END),  # from the client; another record of as many bytes where it is no ring of ours
        ("tx", END),  # to the client; likewise
        # line 2: who it is
        ("zone", "u4"),
        ("port", "u4"),  # index of its port
        ("index", "u4"),  # in its port
        ("owner", "u4"),  # owner id of the worker that polls it
        ("frame_flags", "u4"),  # FrameFlag bits that its packets may have
        ("pending", "u4"),  # frames in tx that were not handed over yet
        ("rx_packets", "u8"),
        ("rx_bytes", "u8"),  # of whole frames, as on the wire
        ("tx_packets", "u8"),
        ("tx_bytes", "u8"),
        ("tx_full", "u8"),  # frames and answers for which the other side had left no room
        # line 3
        ("bad_slots", "u8"),  # descriptors whose slot there is not
        ("bad_lengths", "u8"),  # and whose length cannot be
        ("bursts", "u8"),
        ("wakes", "u8"),  # times that its client was woken
        ("kind", "u4"),  # PortKind
        ("receives", "u4"),  # 1: there is something to take from it; 0: it only sends
        ("rx_descriptor", "u4"),  # file descriptor to sleep on
        ("tx_descriptor", "u4"),  # file descriptor to send through
        ("rx_dropped", "u8"),  # packets that the operating system had no room for
        ("tx_failed", "u8"),  # times that it would not send
        # line 4
        ("rx_truncated", "u8"),  # packets of which it kept the beginning only
        ("tx_too_long", "u8"),  # frames longer than a place of the other side
        ("batches", "u8"),  # times that frames were handed over
        ("troubled", "u8"),  # 1: the descriptor has an error that Python must look at
        ("touched", "u8"),  # 1: its worker hands it over at the end of the round
        ("lock", "u4"),  # of tx, where it is shared: 0, or number of the worker + 1
        ("shared", "u4"),  # 1: workers beside its own send by it
        ("holder", "u4"),  # number + 1 of the worker that polls it, 0: nobody at the moment             that worker
        ("wanted", "u4"),  # number + 1 of the worker that is to poll it                                  who assigns
        ("unmeasured", "u4"),  # 1: what comes and goes is not counted, only what is lost
        ("tells_segments", "u4"),  # 1: before each frame stands how it is to be cut
        ("rx_sizes", "u8", (SIZES,)),  # bursts by their size
        ("tx_sizes", "u8", (SIZES,)),  # batches by theirs
        ("causes", "u8", (CAUSES,)),  # of `rx_dropped`, as its kind tells them apart
        ("busy_ns", "u8"),  # what its bursts took, as far as they were measured
        ("measured", "u8"),  # bursts that were measured: one in MEASURED_EVERY
        ("reserved2", "u8", (10 - CAUSES,)),
    ],
    align=True,
)
"""A queue of a port as the service keeps it, out of its clients' reach: cursors and counters.  One worker writes it."""
QUEUE_BYTES = 512

MEASURED_EVERY = 64
"""Bursts of a queue of which one is measured: some eight looks at the clock, 30 ns each, for 64 bursts."""
LATENCIES = 32


class Part(IntEnum):
    """What a burst is at, as it is measured."""

    RECEIVE = 0  # frames are taken from a port
    PARSE = 1
    LOOKUP = 2  # the index: lines and records are found and fetched
    TRACK = 3  # a connection is judged and changed, or made
    NAT = 4  # a frame is translated
    RULES = 5  # rules are looked up and done; frames are put where they leave
    TX = 6  # frames are handed over, senders answered


PARTS = 7

PERF = np.dtype(
    [
        ("on", "u8"),  # 1: the burst in hand is measured
        ("mark_ns", "u8"),  # the last look at the clock
        ("began_ns", "u8"),  # the first one of this burst
        ("queue", "u8"),  # address of its QUEUE
        ("bursts", "u8"),  # that were measured
        ("packets", "u8"),  # of them
        ("parts_ns", "u8", (PARTS,)),  # by Part
        ("sweep_ns", "u8"),  # all sweeping, not only what was measured
        ("idle_ns", "u8"),  # calls of the loop that found nothing, likewise
        ("calls_ns", "u8"),  # all of its calls
        ("spec", TIMESPEC),  # scratch
        ("round_packets", "u8"),  # of the round, once a burst of it was measured
        ("latencies", "u8", (LATENCIES,)),  # measured bursts by nanoseconds until handed over, as a power of two
        ("reserved", "u8", (5,)),
    ],
    align=True,
)
"""Where a worker's time goes.  The worker writes it."""
PERF_BYTES = 448

QUEUES_HEAD = np.dtype(
    [
        ("assignments", "u8"),  # how often queues were assigned anew
        ("unmeasured", "u8"),  # 1: workers count nothing but losses
        ("awake", "u8"),  # 1: they never sleep
        ("reserved", "u8", (5,)),
    ],
    align=True,
)
"""What workers look at between two calls of their loop."""

BLOCKS = np.dtype(
    [
        ("blocks", "u8"),  # address of the first
        ("block_bytes", "u8"),
        ("count", "u8"),  # a power of two
        ("position", "u8"),  # blocks given back 32 | packets taken out of the one in hand 32
        ("sequence", "u8"),  # number of the block in hand, once a packet was taken out of it
        ("next", "u8"),  # address of the next packet in it; 0: to be found
        ("reserved", "u8", (2,)),
    ],
    align=True,
)
"""What a worker knows of a ring of TPACKET_V3: QUEUE.rx of a port of kind PACKET."""

FRAMES = np.dtype(
    [
        ("frames", "u8"),  # address of the first place
        ("frame_bytes", "u8"),  # of a place
        ("count", "u8"),  # a power of two
        ("position", "u8"),  # frames taken since the ring was made
        ("returned", "u8"),  # places given back
        ("reserved", "u8", (3,)),
    ],
    align=True,
)
"""What a worker knows of a ring of TPACKET_V2: QUEUE.rx of a port of kind FRAMES."""
LEAVING = 1 << 16
"""Status of one of its places: it is being given back.  The system never sets it, and does not know it."""

PLACES = np.dtype(
    [
        ("places", "u8"),  # address of the first
        ("place_bytes", "u8"),
        ("count", "u8"),  # a power of two
        ("cursor", "u8"),  # places filled since the ring was made
        ("length_max", "u8"),  # of a frame without a VLAN tag, by the interface's MTU
        ("putting", "u8"),  # cursor + 1 from before a frame is put until it is counted: who dies between leaves that
        ("reserved", "u8", (2,)),
    ],
    align=True,
)
"""What a worker knows of a ring of frames to be sent (TPACKET_V2): QUEUE.tx of a port of kind PACKET.  Of kind PCAP it has
one place, and `cursor` counts the bytes that stand there; and QUEUE.rx are the FRAMEs of a file.
"""
PLACE_HEAD_BYTES = 42
"""Before a frame in a place to be sent from: struct tpacket2_hdr and struct virtio_net_hdr."""

QUEUED = np.dtype(
    [
        ("messages", "u8"),  # address of u1[POLL_BURST_PACKETS, QUEUED_MESSAGE_BYTES]: what the system wrote
        ("copies", "u8"),  # address of as many: frames that are longer than FRAME_SLOT_BYTES
        ("headers", "u8"),  # address of a struct mmsghdr for each message
        ("answers", "u8"),  # address of u1[QUEUED_ANSWERS_BYTES]: verdicts that were not handed over yet
        ("cursor", "u8"),  # bytes that stand there
        ("answered", "u8"),  # verdicts that stand there
        ("unanswered", "u8"),  # packets that were taken and whose verdicts were not handed over
        ("number", "u8"),  # of the queue, as the host's firewall knows it
    ],
    align=True,
)
"""What a worker knows of a queue of the host's firewall: QUEUE.rx of a port of kind NFQUEUE."""
QUEUED_MESSAGE_BYTES = 1041 * LINE_BYTES
"""Holds 64 KiB of a packet and what is said of it; an odd number of lines, so that all sets of a cache have beginnings."""
QUEUED_ANSWERS_BYTES = 1 << 18

DIVERTED = np.dtype(
    [
        ("rings", "u8"),  # address of a XSK
        ("position", "u8"),  # frames taken since the rings were made, modulo 2**32
        ("polled", "u8"),  # POLLED, by which the system is woken
        ("reserved", "u8", (5,)),
    ],
    align=True,
)
"""What a worker that receives by a socket of AF_XDP must not forget: QUEUE.rx of a port of kind XDP."""

INJECTED = np.dtype(
    [
        ("rings", "u8"),  # address of a XSK
        ("fresh", "u8"),  # places to send from that were used once, or are in use for the first time
        ("length_max", "u8"),  # of a frame without a VLAN tag, by the interface's MTU
        ("reserved", "u8", (5,)),
    ],
    align=True,
)
"""What a worker that sends by a socket of AF_XDP must not forget: QUEUE.tx of a port of kind XDP."""

XSK = np.dtype(
    [
        ("frames", "u8"),  # address of the memory that frames are in: places to receive in, then places to send from
        ("place_bytes", "u8"),  # of each, a power of two
        ("rx_count", "u8"),  # places to receive in, a power of two; as many have room in the rings of receiving
        ("tx_count", "u8"),  # places to send from, likewise
        ("rx_producer", "u8"),  # addresses of words and entries that are shared with the system
        ("rx_consumer", "u8"),
        ("rx_entries", "u8"),  # address of a struct xdp_desc[rx_count]: frames that came
        ("fill_producer", "u8"),
        ("fill_flags", "u8"),
        ("fill_entries", "u8"),  # address of u64[rx_count]: places that may be received in
        ("tx_producer", "u8"),
        ("tx_consumer", "u8"),
        ("tx_flags", "u8"),
        ("tx_entries", "u8"),  # address of a struct xdp_desc[tx_count]: frames that are to go
        ("sent_producer", "u8"),
        ("sent_consumer", "u8"),
        ("sent_entries", "u8"),  # address of u64[tx_count]: places whose frames have gone
    ],
    align=True,
)
"""Where the rings of a socket of AF_XDP are.  Private to a process."""

POLLED = np.dtype([("descriptor", "i4"), ("events", "i2"), ("came", "i2")], align=True)
"""struct pollfd of poll(2)."""
POLLED_BYTES = 8

POLL = np.dtype(
    [
        ("queues", "u8"),  # address of u64[queue_count], the addresses of the QUEUEs
        ("queue_count", "u8"),
        ("descriptors", "u8"),  # address of DESCRIPTOR[POLL_BURST_PACKETS]
        ("frames", "u8"),  # address of FRAME[POLL_BURST_PACKETS]
        ("bytes", "u8"),  # address of POLL_BURST_PACKETS * FRAME_SLOT_BYTES
        ("verdicts", "u8"),  # address of VERDICT[POLL_BURST_PACKETS]
        ("waits", "u8"),  # address of WAIT[wait_count], the words to sleep on
        ("wait_count", "u8"),
        ("timeout", "u8"),  # address of a TIMESPEC
        ("sleep_ms", "u8"),  # the longest sleep; 0: none
        ("spins_max", "u8"),  # looks at the queues before it sleeps
        ("busy", "u8"),  # 1: there were packets since it slept last, so it spins first
        ("sleeps", "u8"),
        ("pipe", "u8"),  # address of a PIPE
        ("waiting", "u8"),  # address of WAITING[FRAGMENTS_MAX], by fragment
        ("polled", "u8"),  # address of POLLED[polled_count], the descriptors to sleep on
        ("polled_queues", "u8"),  # address of u64[polled_count], the QUEUE of each
        ("polled_count", "u8"),
        ("troubled", "u8"),  # 1: a queue is
        ("perf", "u8"),  # address of a PERF
        ("measured_at", "u8"),  # number of a burst, of MEASURED_EVERY, that is measured; none has MEASURED_EVERY itself
    ],
    align=True,
)
"""What a worker's loop works with.  Private to a process."""
POLL_BURST_PACKETS = 32

WAITING = np.dtype(
    [
        ("descriptor", DESCRIPTOR),
        ("queue", "u8"),  # address of the QUEUE that it came from; 0: that is another worker's now, who drops it
        ("generation", "u4"),  # of the fragment; another has the place if it is not this one any more
        # where rules hold
        ("op", "u4"),  # PASSAGE: the ct that it waits in
        ("op_end", "u4"),
        ("steps", "u4"),
        ("outputs", "u4"),
        ("reserved", "u4"),
        ("rules", "u8"),  # PIPE.word
    ],
    align=True,
)
"""What a worker has to know of a fragment that waits, to answer it or to take it on.  Private to a process."""
WAITING_BYTES = 88

CARRIER = np.dtype(
    [
        ("outward", END),  # to the service
        ("inward", END),  # back
        ("descriptors", "u8"),  # address of DESCRIPTOR[POLL_BURST_PACKETS]
        ("timeout", "u8"),  # address of a TIMESPEC
        ("tag", "u8"),  # of the next frame
        ("patience_ms", "u8"),  # without an answer, until a burst is given up
        ("reserved", "u8", (4,)),
    ],
    align=True,
)
"""What a client needs to have bursts tracked by a service as by a kernel.  Private to a process."""

WAIT = np.dtype([("value", "u8"), ("address", "u8"), ("flags", "u4"), ("reserved", "u4")], align=True)
"""A word to sleep on: struct futex_waitv of futex2(2)."""
WAITS_MAX = 128
"""FUTEX_WAITV_MAX."""

# ---------------------------------------------------------------------------------------------------- rules
RULES_MAX = 4096
"""Rules of all tables: a summary of one word has a bit for each word of a set of so many."""
RULE_TABLES_MAX = 255
NO_TABLE = 0xFFFFFFFF
GENERATION_BYTES_MAX = 16 << 20
"""Of one generation of rules, compiled; two have a place."""

FIELDS = np.dtype(
    [
        ("src", "u8", (2,)),  # as in a key: an IPv4 address stands in the second word
        ("dst", "u8", (2,)),
        ("label", "u8", (2,)),  # of the connection, as EXTENSION has it
        ("mark", "u4"),  # of the connection
        ("zone", "u2"),  # that the packet was tracked in last
        ("in_port", "u2"),  # number of the port that it came from, from 1
        ("sport", "u2"),  # of ICMP: type
        ("dport", "u2"),  # of ICMP: code
        ("vlan", "u2"),  # VLAN_PRESENT and the number of the outer tag, 0 without one
        ("eth_type", "u2"),  # behind the tags
        ("tcp_flags", "u2"),
        ("ct_state", "u1"),  # CtState bits, 0 before the packet is tracked
        ("protocol", "u1"),  # of IP
        ("frag", "u1"),  # FRAG_ANY | FRAG_LATER
        ("reserved", "u1", (3,)),
    ],
    align=True,
)
"""What rules can ask of a packet.  Private to a process."""
FIELDS_BYTES = 72
FIELDS_WORDS = FIELDS_BYTES // 8
VLAN_PRESENT = 0x1000
FRAG_ANY, FRAG_LATER = 1, 2

RULE = np.dtype(
    [
        ("value", "u8", (FIELDS_WORDS,)),  # of FIELDS, under `mask`
        ("mask", "u8", (FIELDS_WORDS,)),
        ("sport_low", "u2"),  # inclusive, as all of these
        ("sport_high", "u2"),
        ("dport_low", "u2"),
        ("dport_high", "u2"),
        ("first_op", "u4"),
        ("op_count", "u4"),  # 0: drop
    ],
    align=True,
)
RULE_BYTES = 160


class OpKind(IntEnum):
    """What a step of a rule's actions does."""

    OUTPUT = 1  # to port `argument`
    IN_PORT = 2  # back to where it came from
    NORMAL = 3  # as a switch does
    CT = 4  # track it
    CT_CLEAR = 5  # forget that it was tracked
    GOTO = 6  # go on with table `argument`
    ROUTE = 13  # send it a hop on its way, by the HOP at `action`
    ANSWER = 14  # answer for the address of the HOP at `action`


class ZoneFrom(IntEnum):
    """Where a ct() has its zone from."""

    NUMBER = 0
    VLAN = 1  # the number in the packet's tag, 0 without one
    IN_PORT = 2  # the number of the port that it came from
    PORT = 3  # what the configuration says for that port


OP = np.dtype(
    [
        ("kind", "u4"),  # OpKind
        ("argument", "u4"),
        ("zone", "u2"),  # of a CT with ZoneFrom.NUMBER
        ("zone_from", "u1"),  # ZoneFrom
        ("commit", "u1"),
        ("next_table", "u4"),  # of a CT: where to go on, NO_TABLE: with the next op
        ("action", "u8"),  # of a CT: offset of its ACTION, 0: none; of a ROUTE or ANSWER: of its HOP
        ("reserved", "u8"),
    ],
    align=True,
)
OP_BYTES = 32

HOP = np.dtype(
    [
        ("source", "u8"),  # Ethernet address of the router there
        ("destination", "u8"),  # of the next hop
        ("address", "u8", (2,)),  # of the router, where it speaks itself; as in a key
        ("family", "u4"),  # of that: 4 or 6
        ("mtu", "u4"),  # of the next link, 0: whatever the port takes
        ("reserved", "u8", (11,)),
    ],
    align=True,
)
"""What ROUTE and ANSWER go by: it stands among the ACTIONs of a generation, and is as long as one."""

SUBSET = np.dtype(
    [
        ("rules", "u8"),  # offset of u4[count], numbers of rules, the strongest first
        ("dimensions", "u8"),  # offset of DIMENSION[dimension_count]
        ("count", "u4"),
        ("dimension_count", "u4"),  # 0: so few rules that they are gone through
        ("words", "u4"),  # of 64 rules each, of a row behind its summary
        ("is_wide", "u4"),  # 1: more words are asked for than one CACHED has
        ("mask", "u8"),  # offset of FIELDS: a bit for each that some rule asks for; 0: so few rules
        ("asked", "u8"),  # where in FIELDS the words that CACHED has stand, in bytes, 8 bits each, the first lowest
        ("more", "u8"),  # likewise, those of a second CACHED
    ],
    align=True,
)
"""Rules of one table that packets of some ct_states can match."""
SUBSET_BYTES = 56

DIMENSION = np.dtype(
    [
        ("bounds", "u8"),  # offset of u8[count], ascending from 0: where each interval begins
        ("rows_of", "u8"),  # offset of u4[count]: the row of each interval
        ("rows", "u8"),  # offset of u8[.., 1 + words]: which words are not 0, then a bit for each rule
        ("count", "u4"),  # of intervals, at least 1
        ("place", "u2"),  # of the value in FIELDS, in bytes
        ("size", "u2"),  # of the value: 1, 2, 4 or 8 bytes
    ],
    align=True,
)
"""One field, cut into intervals in each of which the same rules can match."""
DIMENSION_BYTES = 32
DIMENSIONS_MAX = 24

GENERATION = np.dtype(
    [
        ("number", "u8"),
        ("bytes", "u8"),  # of all of it
        ("tables", "u8"),  # offset of u4[RULE_TABLES_MAX + 1]: offset of u2[256], a subset + 1 by ct_state, or 0
        ("rules", "u8"),  # offset of RULE[rule_count]
        ("ops", "u8"),  # offset of OP[op_count]
        ("subsets", "u8"),  # offset of SUBSET[subset_count]
        ("actions", "u8"),  # offset of ACTION[action_count]
        ("hits", "u8"),  # offset of HIT[workers, rule_count]
        ("text", "u8"),  # offset of the rules as text
        ("rule_count", "u4"),
        ("op_count", "u4"),
        ("subset_count", "u4"),
        ("action_count", "u4"),
        ("text_bytes", "u4"),
        ("workers", "u4"),
        ("asks_label", "u4"),  # 1: some rule asks for ct_label
        ("translates", "u4"),  # TRANSLATES | KEEPS_ADDRESS
        ("interval_count", "u4"),
        ("reserved", "u4"),
        ("intervals", "u8"),  # offset of INTERVAL[interval_count], ascending from 0
        ("reserved1", "u8"),
    ],
    align=True,
)
"""The beginning of a set of rules as workers read it; offsets count from here."""
GENERATION_BYTES = 128

TRANSLATES = 1
"""Of a generation: some rule translates."""
KEEPS_ADDRESS = 2
"""Of a generation: some rule changes a port, and not the address."""

INTERVAL = np.dtype(
    [
        ("first", "u8", (2,)),  # address, as in a key
        ("owner", "u8"),  # a number of its own for each set of rules that may choose these addresses, 0: none may
    ],
    align=True,
)
"""Addresses up to the next interval's, by which rules choose them."""
INTERVAL_BYTES = 24

CACHED_WORDS = 7
"""Of FIELDS; where rules ask for more, two of these in a row make one."""
CACHED = np.dtype(
    [
        ("fields", "u8", (CACHED_WORDS,)),  # of a packet, under the mask of its SUBSET: those that it names
        ("what", "u8"),  # low bits of PIPE.word 32 | SUBSET + 1 16 | rule + 1 16, which is 0 where none matched
    ],
    align=True,
)
"""Which rule packets like one met, in one line.  Private to a process."""
CACHED_BYTES = 64
CACHED_MAX = 1 << 16
CACHED_WAYS = 4
"""4 MiB for each worker, of which it has the pages that its flows have touched."""

HIT = np.dtype([("packets", "u8"), ("bytes", "u8")], align=True)
"""What has met a rule, by one worker, who alone writes it."""
HIT_BYTES = 16

RULEBOOK = np.dtype(
    [
        ("published", "u8"),  # number of the generation << 1 | its slot; 0: there are no rules
        ("number", "u8"),  # of the latest generation; who publishes writes it
        ("reserved", "u8", (6,)),
    ],
    align=True,
)
"""First line of a rulebook (shm/rulebook); a line for each worker follows: what it goes by, as in `published`."""

LEARNED = np.dtype(
    [
        ("where", "u8"),  # Ethernet address 48 | number of a port 16; 0: nothing
        ("seen", "u8"),  # second 48 | VLAN 16
    ],
    align=True,
)
"""Where an Ethernet address was seen.  Any worker writes it; what a torn pair does stands in kernels/learning."""
LEARNED_BYTES = 16
LEARNED_MAX = 4096
LEARNED_WAYS = 4

QUARANTINE_LINES = 1 << 16
"""Lines of eight tuples that are kept from new connections for a while: 4 MiB, which grow as they are used."""

PASSAGE = np.dtype(
    [
        ("hash", "u8"),  # of its connection, the same both ways; 0: it goes alone
        ("stage", "u4"),  # Stage
        ("table", "u4"),  # to be looked up in
        ("op", "u4"),  # to be done next
        ("op_end", "u4"),
        ("steps", "u4"),  # tables gone through
        ("outputs", "u4"),  # ports it went out of
        ("reason", "u4"),  # Reason why it goes no further
        ("translates", "u4"),  # 1: its last ct had it translated, as far as its connection is
        ("form", "u8"),  # which rules may have chosen its addresses; packets of one group have one
        ("tracked_as", "u8"),  # its place + 1 among those that were tracked when it was last; 0: not yet
        ("foreseen", "u8"),  # where its rule in `table` may be remembered (kernels/rule_cache), 0: not known
    ],
    align=True,
)
"""How far a packet has come in the pipeline.  Private to a process."""
PASSAGE_BYTES = 64


class Stage(IntEnum):
    """What a packet in the pipeline waits for."""

    CLASSIFY = 0  # its rule in `table`
    RUN = 1  # its next op
    TRACK = 2  # the verdict of the ct at `op`
    DONE = 3


PIPE = np.dtype(
    [
        ("published", "u8"),  # address of RULEBOOK.published
        ("acknowledged", "u8"),  # address of this worker's word
        ("slots", "u8"),  # address of the first slot of the rulebook
        ("word", "u8"),  # what it goes by, as in `published`
        ("generation", "u8"),  # address of the GENERATION that is, 0: none
        ("hits", "u8"),  # address of this worker's HIT[rule_count]
        ("worker", "u8"),  # its number
        ("learned", "u8"),  # address of LEARNED[LEARNED_MAX]
        ("fields", "u8"),  # address of FIELDS[POLL_BURST_PACKETS]
        ("passages", "u8"),  # address of PASSAGE[POLL_BURST_PACKETS]
        ("frames", "u8"),  # address of FRAME[POLL_BURST_PACKETS], those to be tracked now
        ("verdicts", "u8"),  # address of VERDICT[POLL_BURST_PACKETS], theirs
        ("places", "u8"),  # address of u64[POLL_BURST_PACKETS], their places in the burst
        ("stamps", "u8"),  # address of u64[STAMPS_MAX], by hash: the group that had such a packet last
        ("rows", "u8"),  # address of u64[DIMENSIONS_MAX]
        ("cache", "u8"),  # address of CACHED[CACHED_MAX]
        ("outlets", "u8"),  # address of OUTLET[port_count + 1], by number of the port
        ("outlet_queues", "u8"),  # address of u64[..], the QUEUEs and OUTBOXes by which this worker sends, by port
        ("touched", "u8"),  # address of u64[..], those with frames that were not handed over yet
        ("touched_count", "u8"),
        ("port_count", "u8"),
        ("group", "u8"),  # number of the group in hand
        ("group_first", "u8"),  # in the burst
        ("group_end", "u8"),
        ("gathered", "u8"),  # packets that are tracked now
        ("queue", "u8"),  # address of the QUEUE that the burst came from
        ("batch_max", "u8"),  # frames that wait for a queue at most before they are handed over
        ("flush_interval_ns", "u8"),  # that they may wait while there are packets; 0: to the end of the round
        ("flushed_ns", "u8"),  # when they were handed over last
    ],
    align=True,
)
"""What a worker's pipeline works with.  Private to a process."""
STAMPS_MAX = 4096

OUTLET = np.dtype([("first", "u4"), ("count", "u4")], align=True)
"""Which of its `outlet_queues` a worker sends to a port with.  Private to a process."""
OUTLET_BYTES = 8

OUTBOX = np.dtype(
    [
        ("queue", "u8"),  # address of the QUEUE
        ("descriptors", "u8"),  # address of DESCRIPTOR[POLL_BURST_PACKETS]
        ("bytes", "u8"),  # address of POLL_BURST_PACKETS * FRAME_SLOT_BYTES
        ("count", "u8"),
        ("touched", "u8"),  # as QUEUE has it
        ("reserved", "u8", (3,)),
    ],
    align=True,
)
"""Where frames wait that leave by a queue which several workers send by.  Private to a process."""
IS_OUTBOX = 1
"""Bit of an address among the `outlet_queues`: that of an OUTBOX, not of a QUEUE."""

# ---------------------------------------------------------------------------------------------------- what clients are shown
CONNECTION = np.dtype(
    [
        ("id", "u8"),  # incarnation 32 | record 32: never used twice
        ("parent", "u8"),  # id of the connection that foretold this one, or 0
        ("label", "u8", (2,)),  # as EXTENSION has it
        ("packets", "u8", (2,)),  # original, reply
        ("bytes", "u8", (2,)),  # IP bytes, likewise
        ("start_ms", "u8"),  # since 1970
        ("src", "u1", (16,)),  # network order, of who opened it; an IPv4 address stands in the last four bytes
        ("dst", "u1", (16,)),
        ("reply_src", "u1", (16,)),  # of the reply's tuple
        ("reply_dst", "u1", (16,)),
        ("timeout_ms", "u4"),  # remaining
        ("mark", "u4"),
        ("sport", "u2"),  # of an ICMP query: its id
        ("dport", "u2"),  # of an ICMP query: type of the request 8 | code 8
        ("reply_sport", "u2"),
        ("reply_dport", "u2"),
        ("zone", "u2"),
        ("status", "u2"),  # Status bits, without ORIG_IS_HIGH and REPLIER_IS_HIGH: the tuples say it
        ("protocol", "u1"),
        ("family", "u1"),  # 4 or 6
        ("state", "u1"),  # protocol state
        ("helper", "u1"),
        # of TCP, original and reply
        ("scales", "u1", (2,)),  # shift of the window
        ("peer_flags", "u1", (2,)),  # PeerFlag bits
        ("reserved", "u1", (4,)),
    ],
    align=True,
)
"""A connection as it leaves the table, whole under its record's lock: the row of a dump."""
CONNECTION_BYTES = 168

EVENT_ROW = np.dtype(
    [
        ("sequence", "u8"),  # its place among all events, from 1
        ("time_ms", "u8"),  # since 1970
        ("changes", "u2"),  # Change bits
        ("kind", "u1"),  # EventKind
        ("end", "u1"),  # End
        ("reserved0", "u4"),
        *[(name, *field) for name, *field in CONNECTION.descr],
    ]
)
"""An event as clients read it: what happened, then the CONNECTION as it was then."""
EVENT_ROW_BYTES = 24 + CONNECTION_BYTES

FILTER = np.dtype(
    [
        # of src, dst, reply_src, reply_dst, each as two words like in a key
        ("address", "u8", (8,)),
        ("address_mask", "u8", (8,)),
        ("last", "u8"),  # last word of the key: zone, protocol, family
        ("last_mask", "u8"),
        ("mark", "u4"),
        ("mark_mask", "u4"),
        ("ports", "u4"),  # sport 16 | dport 16
        ("ports_mask", "u4"),
        ("status", "u2"),
        ("status_mask", "u2"),
        # bit sets, both 0: any.  By the protocol state in the `netfilter` profile, by the higher of both sides' in `ovs`
        ("states", "u2"),
        ("ovs_states", "u2"),
    ],
    align=True,
)
"""Which connections are meant: what is under a mask must be equal.  All zero: every connection.  Private to a process, but
for those of readers of events (shm/events)."""
FILTER_BYTES = 168
EVENT_FILTERS_MAX = 8
"""Of readers of events, that workers look at; where there are more, workers write what all together may want."""

TALLY_STATES = 16
TALLY = np.dtype(
    [
        ("connections", "u8"),
        ("expired", "u8"),  # whose time is over, and which the sweep has not met yet
        ("overdue_ms", "u8"),  # the longest of them
        ("unreplied", "u8"),
        ("assured", "u8"),
        ("related", "u8"),
        ("translated", "u8"),
        ("ipv6", "u8"),
        ("protocols", "u8", (256,)),  # by number
        ("tcp", "u8", (TALLY_STATES,)),  # by state, in the `netfilter` profile
        ("ovs", "u8", (TALLY_STATES,)),  # TCP in the `ovs` profile, by the state of the side that has come further
        ("sctp", "u8", (TALLY_STATES,)),
    ],
    align=True,
)
"""What a walk has counted.  Private to a process."""

TALKER_BYTES = LINE_BYTES
TALKER = np.dtype(
    [
        ("address", "u8", (2,)),  # as in a key
        ("who", "u8"),  # zone 16 | side 8 (0: opened them, 1: was called) | IP version 8; 0: nobody
        ("connections", "u8"),  # never too few: of those that had this place before, some may be counted
        ("others", "u8"),  # at most so many of them
        ("packets", "u8"),  # of both ways, of those that were met since it got this place
        ("bytes", "u8"),  # likewise
        ("reserved", "u8"),
    ],
    align=True,
)
TALKERS_PLACES = 8  # among which a talker's hash leads it
TALKERS_BUCKETS = 1 << 10
"""With buckets of eight places: 512 KiB, which the second-level cache holds."""

REASSEMBLY = np.dtype(
    [
        ("frame", FRAME),  # that describes `bytes`
        ("key", "u8", (KEY_WORDS,)),  # of the datagram of the fragment at hand
        ("whole_count", "u8"),  # datagrams that this participant has completed and whose verdict is to be told
        ("whole", "u4", (BURST_PACKETS_MAX, 4)),  # datagram, its generation, packet of the burst, last fragment
        ("late_count", "u8"),  # fragments that were collected
        ("late_next", "u8"),  # of these, the next to be taken on
        ("late", "u4", (BURST_PACKETS_MAX,)),  # which
        ("bytes", "u1", (DATAGRAM_BYTES_MAX + 41,)),  # one datagram, as if it had come whole
    ],
    align=True,
)
"""Where datagrams are put together.  Private to a process."""

LOOK = np.dtype(
    [
        ("hash", "u8"),  # of the tuple
        ("line", "u8"),  # its home line in the index, 0: the zone has none
        ("attempt", "u4"),  # its number among a packet's candidates
        ("ports", "u4"),  # to which replies go 16 | which they come from 16
        ("record", "u4"),  # record + 1 that has its tag, 0: none
        ("is_known", "u4"),  # 1: `map` says that it is taken
        ("map", "u8"),  # address of what is known of its set of ports (kernels/taken_ports), 0: that was not asked
    ],
    align=True,
)
"""A tuple that NAT looks at soon.  Private to a process."""
LOOK_BYTES = 40
LOOKS_MAX = 32
"""Tuples whose memory is fetched at once."""

PORT_MAPS = 64
"""Sets of ports that a participant knows something of (kernels/taken_ports), a power of two: 512 KiB, touched when used."""
PORT_MAP_WORDS = (1 << 16) // 64
PORT_MAP_BYTES = 8 * PORT_MAP_WORDS
PORT_MAPS_HEADER_BYTES = 8 * PORT_MAPS
"""One word for each map: of which set it is."""
PORT_MAPS_BYTES = PORT_MAPS_HEADER_BYTES + PORT_MAPS * PORT_MAP_BYTES

MESSAGE = np.dtype(
    [
        # of who has sent the message, and of the other end: where he is, and where the one he talks to believes him
        ("own", "u8", (2, 2)),
        ("known", "u8", (2, 2)),
        ("own_port", "u4", (2,)),
        ("known_port", "u4", (2,)),
        # a payload on its way into `text`
        ("begin", "u8"),  # address of its first byte
        ("at", "u8"),  # up to where it was copied
        ("length", "u8"),  # of what stands in `text`; more than there is room for: it has none
        # a segment before its numbers became those of its connection
        ("seq", "u4"),
        ("ack", "u4"),
        ("l4", "u8"),
        ("header", "u1", (64,)),  # the transport header with other numbers
        ("text", "u1", (FRAME_SLOT_BYTES,)),
    ],
    align=True,
)
"""A message of a translated control channel, while it is written anew.  Private to a process."""

# ---------------------------------------------------------------------------------------------------- a participant's view
VIEWS = np.dtype(
    [
        # addresses of the first record of each array
        ("globals", "u8"),
        ("zones", "u8"),
        ("quotas", "u8"),
        ("policies", "u8"),
        ("participants", "u8"),
        ("delete_lists", "u8"),
        ("samples", "u8"),
        ("zone_reasons", "u8"),
        ("blocks", "u8"),  # u32[blocks of entries]: 0 never handed out, id of who sweeps the block, USED: an orphan
        ("pool", "u8", (2,)),  # u64[pool_words]: chains of free records
        ("entries", "u8"),
        ("due", "u8"),
        ("segments", "u8"),
        ("slots", "u8"),
        ("directories", "u8"),  # u32[directory_words]
        ("directory_owners", "u8"),  # u32[directories in all]
        ("extensions", "u8"),
        ("expectation_table", "u8"),
        ("expectations", "u8"),
        ("expectation_chains", "u8"),  # u32[2][CHAINS]: index + 1 of the first by destination, by parent
        ("helper_rules", "u8"),  # u64[HELPER_RULES_MAX]
        ("store", "u8"),
        ("holders", "u8"),
        ("fragment_buckets", "u8"),  # u32[FRAGMENTS_MAX]: first datagram + 1
        ("datagrams", "u8"),
        ("fragments", "u8"),
        ("buffers", "u8"),  # FRAME_SLOT_BYTES each
        # sizes
        ("records", "u8", (2,)),  # [slab]
        ("pool_words", "u8", (2,)),
        ("segment_count", "u8"),
        ("directory_words", "u8"),
        ("directory_first", "u8", (DEPTH_MAX + 2,)),  # number of the first directory of each depth
        ("directory_offset", "u8", (DEPTH_MAX + 2,)),  # word where the directories of a depth begin
        # who looks
        ("me", "u8"),  # owner id: roster index + 1
        ("intent", "u8"),  # address of the own PARTICIPANT, which begins with the INTENT
        ("delete_list", "u8"),
        ("counters", "u8"),
        ("own_samples", "u8"),
        ("own_zone_reasons", "u8"),
        ("events", "u8"),  # address of the own EVENT_RING; of one in which nothing is wanted, where there are no events
        ("event_slots", "u8"),  # address of EVENT[EVENTS_MAX]
        ("event_sequence", "u8"),  # address of the sequence number of the latest event of all
        ("event_filters", "u8"),  # address of FILTER[EVENT_FILTERS_MAX] (shm/events)
        ("seats", "u8"),  # u64[SEATS_MAX] of shm/seats, 0: there are none
        ("sources", "u8"),  # u64[source_cells] of shm/sources, 0: there are none
        ("source_cells", "u8"),  # a power of two
        ("secret", "u8", (4,)),
        # private memory of this process
        ("parsed", "u8"),  # PARSED[BURST_PACKETS_MAX]
        ("order", "u8"),  # u64[DELETE_LIST_MAX], for sorting
        ("candidates", "u8"),  # u64[BLOCK_RECORDS]: records of a block that the sweep has to look at
        ("expected", "u8"),  # EXPECTATION: a copy of the one that a packet matched
        ("followed", "u8"),  # ACTION: how the connection that it foretold is translated
        ("foretold", "u8"),  # EXPECTATION[FORETOLD_MAX]: those that a helper is about to make
        ("looks", "u8"),  # LOOK[LOOKS_MAX]
        ("message", "u8"),  # MESSAGE
        ("scratch", "u8"),  # REASSEMBLY
        ("perf", "u8"),  # PERF of a worker; of others a word that is 0
        # memory of the service beside the table
        ("quarantine", "u8"),  # u64[QUARANTINE_LINES][LINE_SLOTS] (kernels/quarantine), 0: there is none
        # private memory of this process again
        ("port_maps", "u8"),  # u64[PORT_MAPS], then u64[PORT_MAPS][PORT_MAP_WORDS] (kernels/taken_ports)
    ],
    align=True,
)
"""What a kernel gets: where everything is, and on whose behalf it runs.  Private to a process, never shared."""


# ---------------------------------------------------------------------------------------------------- checks
def _no_implicit_padding(dtype: np.dtype) -> bool:
    """Whether the fields of ``dtype`` and of the records in it fill it exactly."""
    fields = dtype.fields or {}
    used = 0
    for field, *_ in fields.values():
        used += field.itemsize
        base = field.base
        if base.fields and not _no_implicit_padding(base):
            return False
    return used == dtype.itemsize


SHARED = {
    "HEADER": HEADER,
    "ENTRY": ENTRY,
    "TCP_PEER": TCP_PEER,
    "TCP_PEERS": TCP_PEERS,
    "OVS_PEER": OVS_PEER,
    "OVS_PEERS": OVS_PEERS,
    "SCTP_ASSOCIATION": SCTP_ASSOCIATION,
    "EXTENSION": EXTENSION,
    "FTP_STATE": FTP_STATE,
    "PPTP_STATE": PPTP_STATE,
    "SIP_STATE": SIP_STATE,
    "EXPECTATION": EXPECTATION,
    "EXPECTATION_TABLE": EXPECTATION_TABLE,
    "SEGMENT": SEGMENT,
    "ZONE": ZONE,
    "QUOTA": QUOTA,
    "POLICY": POLICY,
    "GLOBAL": GLOBAL,
    "INTENT": INTENT,
    "PARTICIPANT": PARTICIPANT,
    "DELETE": DELETE,
    "SAMPLE": SAMPLE,
    "ZONE_REASON": ZONE_REASON,
    "STORE": STORE,
    "HOLDER": HOLDER,
    "DATAGRAM": DATAGRAM,
    "FRAGMENT": FRAGMENT,
    "PORT": PORT,
    "RING": RING,
    "VERDICT": VERDICT,
    "DESCRIPTOR": DESCRIPTOR,
}
"""Every record that lives in a segment; docs/format.md is printed from it."""


BESIDE = {
    "END": END,
    "BLOCKS": BLOCKS,
    "FRAMES": FRAMES,
    "INJECTED": INJECTED,
    "PLACES": PLACES,
    "QUEUED": QUEUED,
    "DIVERTED": DIVERTED,
    "QUEUE": QUEUE,
    "PERF": PERF,
    "QUEUES_HEAD": QUEUES_HEAD,
    "RULEBOOK": RULEBOOK,
    "LEARNED": LEARNED,
    "GENERATION": GENERATION,
    "FIELDS": FIELDS,
    "RULE": RULE,
    "OP": OP,
    "HOP": HOP,
    "ACTION": ACTION,
    "SUBSET": SUBSET,
    "DIMENSION": DIMENSION,
    "INTERVAL": INTERVAL,
    "HIT": HIT,
    "EVENT_RING": EVENT_RING,
    "EVENT": EVENT,
    "FILTER": FILTER,
}
"""Every record of the memory beside the table that processes of a service share, and that outlives a keeper."""


def offset(dtype: np.dtype, field: str) -> np.uint64:
    """Return the byte offset of ``field`` as a u64, which kernels take in as a constant."""
    fields: Any = dtype.fields  # numpy 2.4 types its keys as literal strings
    return np.uint64(fields[field][1])


def _hash_of(records: dict[str, np.dtype], enums: tuple[type[IntEnum], ...], constants: str) -> int:
    """Return 64 bits that change with any of these."""
    h = hashlib.blake2b(digest_size=8)
    for name, dtype in records.items():
        h.update(f"{name}{dtype.descr}{dtype.itemsize}".encode())
    for enum in enums:
        h.update("".join(f"{m.name}={m.value};" for m in enum).encode())
    h.update(constants.encode())
    return int.from_bytes(h.digest(), "little")


def digest() -> int:
    """Return 64 bits that change with any layout, constant or number of a table that processes must agree on."""
    enums = (
        *(Region, SegmentState, Life, Status, Setting, Step, Kind, Attendance, Slab, SampleFlag),
        *(Helper, ExpectationFlag, Foretold),
        *(StoreFlag, Assembly, Wait),
    )
    constants = (
        f"{FORMAT_VERSION} {ROSTER_MAX} {ZONES_MAX} {POLICIES_MAX} {TIMEOUTS_MAX} {BLOCK_RECORDS} {SLOTS} {DEPTH_MAX} "
        f"{DELETE_LIST_MAX} {COUNTERS_MAX} {SAMPLES_MAX} {ZONE_REASONS_MAX} {FRAGMENTS_MAX} "
        f"{DUE_UNIT_MS} {ZONE_OFFSET_BITS} {ZONE_DEPTH_BITS} {STEP_BITS} {BEFORE_BITS} "
        f"{POOL_OWNER_SHIFT} {POOL_COUNT_SHIFT} {USED} {FRAME_SLOT_BYTES} {PORT_REGION} "
        f"{EXPECTATIONS_MAX} {CHAINS} {HELPER_RULES_MAX} {RULE_HELPER_SHIFT} {RULE_PROTOCOL_SHIFT} "
        f"{RULE_ZONE_SHIFT} {FRAGMENT_GENERATION_SHIFT} {FRAGMENT_HOLDER_SHIFT}"
    )
    return _hash_of(SHARED, enums, constants)


def digest_beside() -> int:
    """Return 64 bits that change with anything that processes must agree on of the memory beside a table."""
    enums = (PortKind, Part, FrameFlag, OpKind, ZoneFrom, Nat, ActionFlag, Stage, EventKind, Change, End)
    constants = (
        f"{ROSTER_MAX} {SEATS_MAX} {EVENTS_MAX} {CAUSES} {SIZES} {PARTS} {LATENCIES} {FRAME_SLOT_BYTES} "
        f"{GENERATION_BYTES_MAX} {RULES_MAX} {RULE_TABLES_MAX} {DIMENSIONS_MAX} {LEARNED_MAX} {LEARNED_WAYS} "
        f"{QUARANTINE_LINES} {LINE_SLOTS} {TRANSLATES} {KEEPS_ADDRESS} {VLAN_PRESENT} {PLACE_HEAD_BYTES} {EVENT_FILTERS_MAX}"
    )
    return _hash_of(BESIDE, enums, constants)


for _name, _dtype in SHARED.items():
    assert _no_implicit_padding(_dtype), f"{_name} has implicit padding"
assert ENTRY.itemsize == ENTRY_BYTES == 3 * LINE_BYTES
assert offset(ENTRY, "protocol") == LINE_BYTES and offset(ENTRY, "packets") == 2 * LINE_BYTES
assert TCP_PEERS.itemsize == OVS_PEERS.itemsize == SCTP_ASSOCIATION.itemsize == LINE_BYTES
assert EXTENSION.itemsize == EXTENSION_BYTES
assert offset(EXTENSION, "helper") + 1 - offset(EXTENSION, "helper_state") == HELPER_STATE_BYTES
assert FTP_STATE.itemsize == PPTP_STATE.itemsize == SIP_STATE.itemsize == HELPER_STATE_BYTES
assert EXPECTATION.itemsize == EXPECTATION_BYTES and offset(EXPECTATION, "label") == LINE_BYTES
assert EXPECTATION_TABLE.itemsize == EXPECTATION_TABLE_BYTES
assert SEGMENT.itemsize == SEGMENT_BYTES and SLOTS % (2 * LINE_SLOTS) == 0
assert ZONE.itemsize == ZONE_BYTES and QUOTA.itemsize == QUOTA_BYTES and GLOBAL.itemsize == GLOBAL_BYTES
assert INTENT.itemsize == INTENT_BYTES and PARTICIPANT.itemsize == PARTICIPANT_BYTES
assert (
    FRAME.itemsize == FRAME_BYTES
    and ACTION.itemsize == ACTION_BYTES
    and DELETE.itemsize == DELETE_BYTES
    and VERDICT.itemsize == VERDICT_BYTES
    and POLICY.itemsize == POLICY_BYTES
    and SAMPLE.itemsize == SAMPLE_BYTES
    and ZONE_REASON.itemsize == ZONE_REASON_BYTES
)
assert max(Step) < 1 << STEP_BITS and STEP_BITS + 2 * BEFORE_BITS <= 64 and CONNECTIONS_MAX < 1 << BEFORE_BITS
assert TALKER.itemsize == TALKER_BYTES and _no_implicit_padding(TALKER) and _no_implicit_padding(TALLY)
assert CONNECTION.itemsize == CONNECTION_BYTES and _no_implicit_padding(CONNECTION) and _no_implicit_padding(FILTER)
assert EVENT_ROW.itemsize == EVENT_ROW_BYTES and _no_implicit_padding(EVENT_ROW)
assert EVENT_RING.itemsize == EVENT_RING_BYTES and _no_implicit_padding(EVENT_RING)
assert EVENT.itemsize == EVENT_BYTES and _no_implicit_padding(EVENT) and offset(EVENT, "entry") == LINE_BYTES
assert offset(EVENT, "reply_key") == 4 * LINE_BYTES and offset(EXTENSION, "label") == 8 * KEY_WORDS
assert INTERFACE.itemsize == INTERFACE_BYTES and REPLAY_BURST_PACKETS <= BURST_PACKETS_MAX
assert STORE.itemsize == STORE_BYTES and HOLDER.itemsize == HOLDER_BYTES
assert DATAGRAM.itemsize == DATAGRAM_BYTES and FRAGMENT.itemsize == FRAGMENT_BYTES
assert RING.itemsize == RING_BYTES and DESCRIPTOR.itemsize == DESCRIPTOR_BYTES
assert WAITING.itemsize == WAITING_BYTES
assert END.itemsize == BLOCKS.itemsize == PLACES.itemsize == QUEUED.itemsize == END_BYTES
assert QUEUE.itemsize == QUEUE_BYTES and DIVERTED.itemsize == INJECTED.itemsize == FRAMES.itemsize == END_BYTES
assert all(_no_implicit_padding(one) for one in (QUEUED, DIVERTED, INJECTED, XSK))
assert POLLED.itemsize == POLLED_BYTES and all(_no_implicit_padding(one) for one in (QUEUE, BLOCKS, PLACES, POLL))
assert PERF.itemsize == PERF_BYTES and QUEUES_HEAD.itemsize == LINE_BYTES and max(Part) < PARTS
assert _no_implicit_padding(PERF) and MEASURED_EVERY & (MEASURED_EVERY - 1) == 0
assert FIELDS.itemsize == FIELDS_BYTES and RULE.itemsize == RULE_BYTES and OP.itemsize == OP_BYTES
assert HOP.itemsize == ACTION_BYTES and _no_implicit_padding(HOP)
assert SUBSET.itemsize == SUBSET_BYTES and DIMENSION.itemsize == DIMENSION_BYTES
assert INTERVAL.itemsize == INTERVAL_BYTES and CACHED.itemsize == CACHED_BYTES
assert GENERATION.itemsize == GENERATION_BYTES and HIT.itemsize == HIT_BYTES and RULES_MAX <= 64 * 64
assert RULEBOOK.itemsize == LINE_BYTES and LEARNED.itemsize == LEARNED_BYTES and PASSAGE.itemsize == PASSAGE_BYTES
assert OUTLET.itemsize == OUTLET_BYTES
assert all(
    _no_implicit_padding(one)
    for one in (
        FIELDS,
        RULE,
        OP,
        SUBSET,
        DIMENSION,
        INTERVAL,
        CACHED,
        GENERATION,
        HIT,
        RULEBOOK,
        LEARNED,
        PASSAGE,
        PIPE,
        OUTLET,
    )
)
assert FRAME_SLOT_BYTES // LINE_BYTES % 2 == 1 and FRAME_SLOT_BYTES % LINE_BYTES == 0
assert ROSTER_MAX < USED and HEADER.itemsize <= HEADER_BYTES
