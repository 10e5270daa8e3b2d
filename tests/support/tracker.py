"""The tracker with a dict for a table: each connection is a bare record, as kernels/track finds it.

What a caller of ``track`` has to do (find, delete, start over, put the expiry off, count) is done here in a few lines of
Python, so tests of protocols need no index, no locks and no segments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from zonetrack.kernels import memory, outcome, timeouts, track
from zonetrack.kernels.flow_states import Flow
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.outcome import Outcome
from zonetrack.kernels.ovs_flows import OvsFlow
from zonetrack.kernels.ovs_tcp_states import Peer
from zonetrack.kernels.sctp_states import Sctp
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import (
    ENTRY,
    OVS_PEERS,
    PARSED,
    POLICY,
    SETTINGS_WORD_DEFAULT,
    TCP_PEERS,
    VERDICT,
    VIEWS,
    CtState,
    PacketKind,
    Status,
    VerdictFlag,
    Way,
)
from zonetrack.shm.reasons import Reason

TCP, SCTP = 6, 132
parsed_at = memory.record_at(PARSED)
verdict_at = memory.record_at(VERDICT)
views_at = memory.record_at(VIEWS)

LABELS = {
    CtState.TRK | CtState.NEW: "N>",
    CtState.TRK | CtState.EST: "E>",
    CtState.TRK | CtState.EST | CtState.RPL: "E<",
    CtState.TRK | CtState.REL: "R>",
    CtState.TRK | CtState.REL | CtState.RPL: "R<",
    CtState.TRK | CtState.INV: "I",
}
"""What the corpus calls a ct_state of the kernel."""
OVS_LABELS = {"N>": "new", "E>": "est", "E<": "est|rpl", "R>": "rel", "R<": "rel|rpl", "I": "inv"}
"""What it calls the same of Open vSwitch."""


@kernel
def opens(parsed, settings):
    """Return the Reason of ``track.opens``."""
    return track.opens(parsed_at(parsed), settings)


@kernel
def begin(entry, parsed, settings):
    """Return the term of ``track.begin``."""
    return track.begin(entry, parsed_at(parsed), settings)


@kernel
def update(entry, way, parsed, settings, now_ms, verdict):
    """Return the outcome of ``track.update``."""
    return track.update(entry, way, parsed_at(parsed), settings, now_ms, verdict)


@kernel
def related(entry, inner_way, parsed, verdict):
    """Fill the verdict on an ICMP error."""
    track.related(entry, inner_way, parsed_at(parsed), verdict)


@kernel
def term_ms(views, policy, term):
    """Return the length of a term."""
    return timeouts.term_ms(views_at(views), policy, term)


def at(array: np.ndarray) -> np.uint64:
    """Return the address of an array of records."""
    return u64(array.ctypes.data)


class Seen(NamedTuple):
    """What became of a packet, and of the connection it belongs to."""

    label: str
    state: str  # "gone" when there is no connection; of TCP in the `ovs` profile both sides', ORIG/REPLY
    timeout_s: int | None
    assured: bool
    unreplied: bool
    reason: Reason


@dataclass
class Connection:
    """One connection: its record, and what the table keeps beside."""

    record: np.ndarray

    @property
    def entry(self) -> np.void:
        """The ENTRY."""
        return self.record[0]

    @property
    def peers(self) -> np.void:
        """The TCP_PEERS in it."""
        return self.entry["protocol"].view(TCP_PEERS)[0]

    @property
    def ovs_peers(self) -> np.void:
        """The OVS_PEERS in it."""
        return self.entry["protocol"].view(OVS_PEERS)[0]

    def has(self, bit: Status) -> bool:
        """Whether a status bit is set."""
        return bool(self.entry["status"] & bit)

    def way(self, high_is_source: int) -> Way:
        """The Way of a packet from the key's high or low endpoint."""
        return Way.ORIG if bool(high_is_source) == self.has(Status.ORIG_IS_HIGH) else Way.REPLY


@dataclass
class Tracker:
    """A table of connections by key."""

    settings: int = SETTINGS_WORD_DEFAULT
    now_ms: int = 1_000_000
    table: dict[bytes, Connection] = field(default_factory=dict)
    policy: np.ndarray = field(default_factory=lambda: np.zeros(1, POLICY))

    def __post_init__(self) -> None:
        """Give the kernels a view of the one policy."""
        self.views = np.zeros(1, VIEWS)
        self.views[0]["policies"] = self.policy.ctypes.data
        self.verdict = np.zeros(1, VERDICT)

    def find(self, key: np.ndarray) -> Connection | None:
        """Return the live connection with a key."""
        connection = self.table.get(key.tobytes())
        if connection is not None and connection.entry["expiry_ms"] <= self.now_ms:
            del self.table[key.tobytes()]
            return None
        return connection

    def track(self, parsed: np.ndarray) -> Seen:
        """Track PARSED[1] and say what became of it."""
        packet = parsed[0]
        reason = Reason(int(packet["reason"]))
        if reason is not Reason.NONE:
            return self.seen("U" if packet["kind"] == PacketKind.UNTRACKED else "I", None, reason)
        if packet["kind"] == PacketKind.ICMP_ERROR:
            return self.error(parsed)
        connection = self.find(packet["key"])
        if connection is None:
            return self.open(parsed)
        way = connection.way(packet["high_is_source"])
        if not packet["can_reply"]:
            way = Way.ORIG if connection.has(Status.OVS) else Way.REPLY
        word = update(
            at(connection.record), u64(way), at(parsed), u64(self.settings), u64(self.now_ms), at(self.verdict)
        )
        kind = Outcome(int(outcome.kind_of(u64(word))))
        if kind is Outcome.RESTART:
            del self.table[packet["key"].tobytes()]
            return self.open(parsed)
        self.put_off(connection, u64(word))
        if kind is Outcome.DELETE:
            del self.table[packet["key"].tobytes()]
            connection = None
        elif outcome.is_counted(u64(word)):
            connection.entry["packets"][way] += 1
            connection.entry["bytes"][way] += packet["ip_bytes"]
        return self.seen(self.label(), connection, Reason(int(self.verdict[0]["reason"])))

    def open(self, parsed: np.ndarray) -> Seen:
        """Make a connection of a packet that belongs to none, if it may open one."""
        packet = parsed[0]
        reason = Reason(int(opens(at(parsed), u64(self.settings))))
        if reason is not Reason.NONE:
            return self.seen("I", None, reason)
        connection = Connection(np.zeros(1, ENTRY))
        entry = connection.entry
        entry["key"] = packet["key"]
        entry["created_ms"] = self.now_ms
        entry["status"] = Status.ORIG_IS_HIGH if packet["high_is_source"] else 0
        entry["packets"][0], entry["bytes"][0] = 1, packet["ip_bytes"]
        term = begin(at(connection.record), at(parsed), u64(self.settings))
        entry["expiry_ms"] = self.now_ms + int(term_ms(at(self.views), u64(0), u64(term)))
        self.table[packet["key"].tobytes()] = connection
        return self.seen("N>", connection, Reason.NONE)

    def error(self, parsed: np.ndarray) -> Seen:
        """Relate an ICMP error to the connection of the packet it quotes."""
        packet = parsed[0]
        connection = self.find(packet["inner_key"])
        if connection is None:
            return self.seen("I", None, Reason.ICMP_UNMATCHED)
        related(
            at(connection.record), u64(connection.way(packet["inner_high_is_source"])), at(parsed), at(self.verdict)
        )
        return self.seen(self.label(), connection, Reason(int(self.verdict[0]["reason"])))

    def put_off(self, connection: Connection, word: np.uint64) -> None:
        """Give the connection the time that an outcome grants it."""
        term = u64(outcome.term_of(word))
        if term == outcome.NO_TERM:
            return
        expiry_ms = self.now_ms + int(term_ms(at(self.views), u64(0), term))
        if word & outcome.SHORTEN:
            expiry_ms = min(expiry_ms, int(connection.entry["expiry_ms"]))
        cap_ms = int(self.policy[0]["timeout_ms"][int(outcome.cap_of(term)) & (timeouts.OVS - 1)])
        if word & outcome.SINCE_BEGUN and cap_ms:
            expiry_ms = min(expiry_ms, int(connection.entry["created_ms"]) + cap_ms)
        connection.entry["expiry_ms"] = expiry_ms

    def label(self) -> str:
        """Return what the corpus calls the verdict."""
        verdict = self.verdict[0]
        label = LABELS[int(verdict["ct_state"])]
        return label if label == "I" else label + "a" * bool(verdict["flags"] & VerdictFlag.ASSURED)

    def seen(self, label: str, connection: Connection | None, reason: Reason) -> Seen:
        """Describe a verdict and what is left of the connection."""
        if connection is None:
            return Seen(label, "gone", None, False, False, reason)
        entry = connection.entry
        return Seen(
            label,
            state_of(entry),
            round((int(entry["expiry_ms"]) - self.now_ms) / 1000),
            connection.has(Status.ASSURED),
            not connection.has(Status.SEEN_REPLY),
            reason,
        )


def state_of(entry: np.void) -> str:
    """Return the name of a connection's state, in the words of its profile."""
    state, protocol = int(entry["state"]), (int(entry["key"][4]) >> 8) & 0xFF
    if not entry["status"] & Status.OVS:
        return {TCP: Tcp, SCTP: Sctp}.get(protocol, Flow)(state).name
    return f"{Peer(state & 0xF).name}/{Peer(state >> 4).name}" if protocol == TCP else OvsFlow(state).name
