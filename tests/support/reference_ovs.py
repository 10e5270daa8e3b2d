"""A tracker as Open vSwitch's userspace conntrack is one, in plain Python: what the `ovs` profile has to say.

Written from what is known of Open vSwitch (conntrack-tcp.c, which follows OpenBSD's pf of 2009, conntrack-other.c and
conntrack-icmp.c), not from the kernels.  Nothing is shared but the packets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from reference_netfilter import WRAP, Segment

MAXACKWINDOW = 0xFFFF + 1500
SCALE_MAX = 14
SCALE_UNKNOWN = "unknown"

CLOSED, LISTEN, SYN_SENT, SYN_RECV, ESTABLISHED, CLOSE_WAIT, FIN_WAIT_1, CLOSING, LAST_ACK, FIN_WAIT_2, TIME_WAIT = (
    range(11)
)
STATES = (
    *("CLOSED", "LISTEN", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "FIN_WAIT_1", "CLOSING", "LAST_ACK"),
    *("FIN_WAIT_2", "TIME_WAIT"),
)
FIRST_PACKET_S, OPENING_S, ESTABLISHED_S, CLOSING_S, FIN_WAIT_S, CLOSED_S = 30, 30, 86400, 900, 45, 30


def at_least(a: int, b: int) -> bool:
    """Whether sequence number a is b, or comes after it."""
    return (a - b) % WRAP < 2**31


def signed(number: int) -> int:
    """Return a difference of sequence numbers as C's int."""
    number %= WRAP
    return number - WRAP if number >= 2**31 else number


def is_legal(flags: str) -> bool:
    """Whether there may be such flags."""
    if "S" in flags and ("R" in flags or "F" in flags):
        return False
    if "S" not in flags and "A" not in flags and "R" not in flags:
        return False
    return "A" in flags or not set(flags) & set("FPU")


def scale_of(options: bytes) -> int | None:
    """Return the window scale that a SYN offers; options are read while three bytes are left."""
    found = None
    while len(options) >= 3:
        kind, size = options[0], max(options[1], 2)
        if kind == 0:
            break
        if kind == 1:
            size = 1
        elif kind == 3:
            found = min(options[2], SCALE_MAX)
        options = options[size:]
    return found


@dataclass
class Peer:
    """One side (struct tcp_peer)."""

    seqlo: int = 0
    seqhi: int = 0
    max_win: int = 0
    wscale: int | str | None = None
    state: int = CLOSED

    @property
    def shift(self) -> int:
        """Its scale, where it is known."""
        return self.wscale if isinstance(self.wscale, int) else 0


@dataclass
class Connection:
    """A connection; ``opener`` is the side that sent its first packet."""

    opener: str
    expiry_ms: int = 0
    peers: list[Peer] = field(default_factory=lambda: [Peer(), Peer()])


class Verdict(NamedTuple):
    """What became of a segment, and the connection afterwards: states of both sides, the opener's first."""

    label: str
    states: tuple[str, str] | None
    timeout_s: int | None


VALID, VALID_NEW, NEW, INVALID = "est", "new", "reopen", "inv"


class Tracker:
    """One pair of endpoints, ``c`` and ``s``, and the connection between them, if there is one."""

    def __init__(self, seq_check: bool = True) -> None:
        self.seq_check = seq_check
        self.now_ms = 0
        self.connection: Connection | None = None

    def track(self, side: str, segment: Segment) -> Verdict:
        """Follow one segment from a side."""
        conn = self.connection
        if conn is not None and conn.expiry_ms <= self.now_ms:
            conn = self.connection = None
        if conn is None:
            return self.open(side, segment)
        reply = side != conn.opener
        result = self.update(conn, reply, segment)
        if result == NEW:
            self.connection = None
            return self.open(side, segment)
        return self.verdict("est|rpl" if result == VALID and reply else result)

    def verdict(self, label: str) -> Verdict:
        """Describe what is left."""
        conn = self.connection
        if conn is None:
            return Verdict(label, None, None)
        states = STATES[conn.peers[0].state], STATES[conn.peers[1].state]
        return Verdict(label, states, round((conn.expiry_ms - self.now_ms) / 1000))

    def open(self, side: str, segment: Segment) -> Verdict:
        """Make a connection: of anything but the second half of a handshake."""
        flags = segment.flags
        if not is_legal(flags) or ("S" in flags and "A" in flags):
            return self.verdict("inv")
        conn = self.connection = Connection(side)
        src, dst = conn.peers
        src.seqlo = segment.seq
        src.seqhi = (segment.seq + segment.length + 1 + ("S" in flags) + ("F" in flags)) % WRAP
        src.max_win = max(segment.win, 1)
        if "S" in flags:
            src.wscale = scale_of(segment.options)
            src.max_win = -(-src.max_win >> src.shift)
        else:
            src.wscale = dst.wscale = SCALE_UNKNOWN
        dst.seqhi = dst.max_win = 1
        src.state = SYN_SENT
        self.expire(conn, FIRST_PACKET_S)
        return self.verdict("new")

    def expire(self, conn: Connection, seconds: int) -> None:
        """Put its end off."""
        conn.expiry_ms = self.now_ms + 1000 * seconds

    # ------------------------------------------------------------------------------------------------ tcp_conn_update
    def update(self, conn: Connection, reply: bool, segment: Segment) -> str:
        """Follow one segment of a connection; return what it is to it."""
        src, dst = conn.peers[reply], conn.peers[not reply]
        flags = segment.flags
        if not is_legal(flags):
            return INVALID
        is_syn, is_ack, is_fin, is_rst = (flag in flags for flag in "SAFR")
        if is_syn and not is_ack:
            if src.state >= FIN_WAIT_2 and dst.state >= FIN_WAIT_2:
                return NEW
            if src.state <= SYN_SENT:
                src.state = SYN_SENT
                self.expire(conn, FIRST_PACKET_S)
                return VALID_NEW
        sws = dws = 0
        if not is_syn:
            if isinstance(src.wscale, int) and isinstance(dst.wscale, int):
                sws, dws = src.wscale, dst.wscale
            elif src.wscale == dst.wscale == SCALE_UNKNOWN:
                sws = dws = SCALE_MAX

        seq, ack, win, end = segment.seq, segment.ack, segment.win, segment.end
        check_ackskew = True
        if src.state < SYN_SENT:
            if is_syn and isinstance(dst.wscale, int):
                src.wscale = scale_of(segment.options)
                if src.wscale is not None:
                    sws, dws = src.shift, dst.wscale
                    win = -(-win >> sws)
                else:
                    dst.max_win = (dst.max_win << dst.wscale) & 0xFFFF
                    dst.wscale = None
            src.seqlo = seq
            src.state = SYN_SENT
            reach = (end + max(1, dst.max_win << dws)) % WRAP
            if src.seqhi == 1 or at_least(reach, src.seqhi):
                src.seqhi = reach
                check_ackskew = False
            src.max_win = max(src.max_win, win)

        if not is_ack or (ack == 0 and is_rst):
            ack = dst.seqlo
        if seq == end:
            seq = end = src.seqlo
        ackskew = signed(dst.seqlo - ack) if check_ackskew else 0
        near = {src.seqlo, (src.seqlo + 1) % WRAP, (src.seqlo - 1) % WRAP}
        in_window = (
            at_least(src.seqhi, end)
            and at_least(seq, src.seqlo - (dst.max_win << dws))
            and -MAXACKWINDOW <= ackskew <= MAXACKWINDOW << sws
            and (not is_rst or segment.seq in near)
        )
        strict = in_window or not self.seq_check
        loose = (
            (dst.state < SYN_SENT or dst.state >= FIN_WAIT_2 or src.state >= FIN_WAIT_2)
            and at_least(src.seqhi + MAXACKWINDOW, end)
            and at_least(seq, src.seqlo - MAXACKWINDOW)
        )
        if not strict and not loose:
            return INVALID
        src.max_win = max(src.max_win, win)
        if signed(end - src.seqlo) > 0:
            src.seqlo = end
        if at_least(ack + (win << sws), dst.seqhi):
            dst.seqhi = (ack + max(win << sws, 1)) % WRAP
        if is_fin and src.state < CLOSING:
            src.state = CLOSING
        if strict and is_ack:
            if dst.state == SYN_SENT:
                dst.state = ESTABLISHED
            elif dst.state == CLOSING:
                dst.state = FIN_WAIT_2
        if is_rst:
            src.state = dst.state = TIME_WAIT
        if strict:
            self.expire(conn, self.timeout_s(src.state, dst.state))
        return VALID

    @staticmethod
    def timeout_s(*states: int) -> int:
        """Return how long a connection lives when its sides are in these states."""
        if min(states) >= FIN_WAIT_2:
            return CLOSED_S
        if min(states) >= CLOSING:
            return FIN_WAIT_S
        if min(states) < ESTABLISHED:
            return OPENING_S
        return CLOSING_S if max(states) >= CLOSING else ESTABLISHED_S
