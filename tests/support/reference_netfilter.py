"""A tracker as Linux 6.18 is one, in plain Python: what the `netfilter` profile has to say of TCP segments and of flows.

Written from the reference behaviour (nf_conntrack_proto_tcp.c and its siblings, and tables measured on a live kernel),
not from the kernels: names and order of the steps are Linux's, numbers are Python's, and nothing is shared but the packets.
Where a bug report shows that Linux is wrong, this is right; those places say MENDED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

ORIGINAL, REPLY = 0, 1
WRAP = 2**32
MAXACKWINCONST = 66000
SCALE_MAX = 14

NONE, SYN_SENT, SYN_RECV, ESTABLISHED, FIN_WAIT, CLOSE_WAIT, LAST_ACK, TIME_WAIT, CLOSE, SYN_SENT2 = range(10)
STATES = (
    *("NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE"),
    "SYN_SENT2",
)
TIMEOUTS_S = (0, 120, 60, 432000, 120, 60, 30, 120, 10, 120)
RETRANS_S, UNACK_S = 300, 300
CLOSING = (FIN_WAIT, CLOSE_WAIT, LAST_ACK, TIME_WAIT, CLOSE)

# flag sets that may be, but for PSH, ECE and CWR
LEGAL = {frozenset(flags) for flags in ("S", "SU", "SA", "R", "RA", "FA", "FAU", "A", "AU")}

# What Linux knows of a segment: SYN, SYN-ACK, FIN, ACK, RST; a letter is the next state, ! invalid, . ignored.
_KEYS = dict(zip("-srefclTCS", range(10), strict=True))
_TABLE = {
    #                 NO SS SR ES FW CW LA TW CL S2
    (ORIGINAL, "S"): "s  s  .  .  .  .  .  s  s  S",
    (ORIGINAL, "SA"): "!  !  r  !  !  !  !  !  !  r",
    (ORIGINAL, "F"): "!  !  f  f  l  l  l  T  C  !",
    (ORIGINAL, "A"): "e  !  e  e  c  c  T  T  C  !",
    (ORIGINAL, "R"): "!  C  C  C  C  C  C  C  C  C",
    (REPLY, "S"): "!  S  !  !  !  !  !  s  !  S",
    (REPLY, "SA"): "!  r  .  .  .  .  .  .  .  r",
    (REPLY, "F"): "!  !  f  f  l  l  l  T  C  !",
    (REPLY, "A"): "!  .  r  e  c  c  T  T  C  .",
    (REPLY, "R"): "!  C  C  C  C  C  C  C  C  C",
}
INVALID, IGNORE = -1, -2
TABLE = {
    key: [INVALID if cell == "!" else IGNORE if cell == "." else _KEYS[cell] for cell in row.split()]
    for key, row in _TABLE.items()
}


def before(a: int, b: int) -> bool:
    """Whether sequence number a comes before b."""
    return (a - b) % WRAP >= 2**31


def after(a: int, b: int) -> bool:
    """Whether sequence number a comes after b."""
    return before(b, a)


class Segment(NamedTuple):
    """A TCP segment; options are its bytes."""

    flags: str
    seq: int
    ack: int = 0
    win: int = 65535
    length: int = 0
    options: bytes = b""

    @property
    def end(self) -> int:
        """Sequence number after it."""
        return (self.seq + self.length + ("S" in self.flags) + ("F" in self.flags)) % WRAP

    @property
    def index(self) -> str:
        """What it is to the table."""
        if "R" in self.flags:
            return "R"
        if "S" in self.flags:
            return "SA" if "A" in self.flags else "S"
        return "F" if "F" in self.flags else "A"

    @property
    def is_legal(self) -> bool:
        """Whether there may be such flags."""
        return frozenset(self.flags) - set("PEC") in LEGAL


def walk(options: bytes):
    """Yield kind and value of each option; one that does not fit ends the list."""
    while options:
        kind = options[0]
        if kind == 0:
            return
        if kind == 1:
            options = options[1:]
            continue
        if len(options) < 2 or options[1] < 2 or options[1] > len(options):
            return
        yield kind, options[2 : options[1]]
        options = options[options[1] :]


@dataclass
class Peer:
    """One side's numbers (struct ip_ct_tcp_state)."""

    td_end: int = 0
    td_maxend: int = 0
    td_maxwin: int = 0
    td_maxack: int = 0
    td_scale: int = 0
    sack_perm: bool = False
    scales: bool = False
    close_init: bool = False
    be_liberal: bool = False
    unacknowledged: bool = False
    maxack_set: bool = False

    def read_options(self, options: bytes) -> None:
        """Learn from the options of a SYN; without any, what was known stays (tcp_options)."""
        if not options:
            return
        self.td_scale = 0
        self.sack_perm = self.scales = self.close_init = self.unacknowledged = self.maxack_set = False
        for kind, value in walk(options):
            if kind == 4 and len(value) == 0:
                self.sack_perm = True
            elif kind == 3 and len(value) == 1:
                self.td_scale = min(value[0], SCALE_MAX)
                self.scales = True


@dataclass
class Settings:
    """The switches of net.netfilter."""

    loose: bool = True
    be_liberal: bool = False
    ignore_invalid_rst: bool = False
    max_retrans: int = 3


@dataclass
class Connection:
    """An entry; ``opener`` is the side that sent its first packet."""

    opener: str
    created_ms: int
    expiry_ms: int = 0
    seen_reply: bool = False
    assured: bool = False
    packets: list[int] = field(default_factory=lambda: [0, 0])
    state: int = NONE
    seen: list[Peer] = field(default_factory=lambda: [Peer(), Peer()])
    last_index: str = ""
    last_dir: int = 0
    last_seq: int = 0
    last_ack: int = 0
    last_end: int = 0
    last_win: int = 0
    last_wscale: int = 0
    last_scales: bool = False
    last_sack_perm: bool = False
    retrans: int = 0
    challenge: bool = False
    simultaneous: bool = False


class Verdict(NamedTuple):
    """What became of a segment: verdict as the corpus writes it, and the connection afterwards."""

    label: str
    state: str
    timeout_s: int | None
    assured: bool
    unreplied: bool
    packets: tuple[int, int]


ACCEPT, LET_BY, REFUSE, REPEAT, KILL = "accept", "ignore", "invalid", "repeat", "kill"


class Tracker:
    """One pair of endpoints, ``c`` and ``s``, and the connection between them, if there is one."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.now_ms = 0
        self.connection: Connection | None = None

    def track(self, side: str, segment: Segment) -> Verdict:
        """Follow one segment from a side."""
        ct = self.connection
        if ct is not None and ct.expiry_ms <= self.now_ms:
            ct = self.connection = None
        if not segment.is_legal:
            return self.verdict("I")
        if ct is None:
            return self.open(side, segment)
        way = ORIGINAL if side == ct.opener else REPLY
        what = self.packet(ct, way, segment)
        if what == REPEAT:
            self.connection = None
            return self.open(side, segment)
        if what == REFUSE:
            return self.verdict("I")
        label = "E<" if way == REPLY else "E>" if ct.seen_reply else "N>"
        if way == REPLY:
            ct.seen_reply = True
        if what == KILL:
            self.connection = None
        return self.verdict(label + "a" * ct.assured)

    def open(self, side: str, segment: Segment) -> Verdict:
        """Make an entry for a segment that has none (tcp_new)."""
        state = TABLE[ORIGINAL, segment.index][NONE]
        if state == INVALID or (state != SYN_SENT and not self.settings.loose):
            return self.verdict("I")
        ct = Connection(side, self.now_ms)
        sender, receiver = ct.seen
        sender.td_end = sender.td_maxend = segment.end
        sender.td_maxwin = max(segment.win, 1)
        if state == SYN_SENT:
            sender.read_options(segment.options)
        else:
            sender.td_maxend = (segment.end + sender.td_maxwin) % WRAP
            sender.sack_perm = sender.be_liberal = receiver.sack_perm = receiver.be_liberal = True
        self.connection = ct
        assert self.packet(ct, ORIGINAL, segment) == ACCEPT
        return self.verdict("N>")

    def verdict(self, label: str) -> Verdict:
        """Describe what is left."""
        ct = self.connection
        if ct is None:
            return Verdict(label, "gone", None, False, False, (0, 0))
        left_s = round((ct.expiry_ms - self.now_ms) / 1000)
        return Verdict(label, STATES[ct.state], left_s, ct.assured, not ct.seen_reply, (ct.packets[0], ct.packets[1]))

    # ---------------------------------------------------------------------------------------- nf_conntrack_tcp_packet
    def packet(self, ct: Connection, way: int, segment: Segment) -> str:
        """Take one step; return what becomes of the segment."""
        index = segment.index
        old_state = ct.state
        new_state = TABLE[way, index][old_state]
        if new_state == INVALID:
            return REFUSE
        if new_state == SYN_SENT and old_state >= TIME_WAIT and old_state != SYN_SENT2:
            closed = ct.seen[0].close_init or ct.seen[1].close_init
            if closed or (ct.last_dir == way and ct.last_index == "R"):
                return REPEAT
            new_state = IGNORE
        checked = True
        if new_state == IGNORE:
            if index == "SA" and ct.last_index == "S" and ct.last_dir != way and segment.ack == ct.last_end:
                self.resync(ct, way)
                old_state, new_state = SYN_SENT, SYN_RECV
            else:
                self.annotate(ct, way, segment, old_state)
                return LET_BY
        elif new_state == TIME_WAIT:
            if old_state == LAST_ACK and index == "A" and ct.last_dir != way and ct.last_index == "S" and ct.challenge:
                ct.challenge = False
                return LET_BY
        elif new_state == SYN_SENT2:
            ct.simultaneous = True
        elif new_state == SYN_RECV:
            if way == REPLY and index == "A" and ct.simultaneous:
                new_state = ESTABLISHED
        elif new_state == CLOSE and index == "R":
            what, new_state = self.reset(ct, way, segment, old_state)
            if what == REFUSE:
                return REFUSE
            checked = what != ACCEPT
        if checked:
            what = self.in_window(ct, way, segment)
            if what == REFUSE:
                self.handle_invalid(ct, way, index)
            if what != ACCEPT:
                return what
        return self.in_window_now(ct, way, index, old_state, new_state)

    def resync(self, ct: Connection, way: int) -> None:
        """Take the SYN that was let by for the opening one: a SYN-ACK acknowledges it."""
        opener = ct.seen[ct.last_dir]
        opener.td_end = opener.td_maxend = ct.last_end
        opener.td_maxwin = max(ct.last_win, 1)
        opener.td_scale = ct.last_wscale
        ct.challenge = False
        opener.scales, opener.sack_perm = ct.last_scales, ct.last_sack_perm
        opener.close_init = opener.be_liberal = opener.unacknowledged = opener.maxack_set = False
        ct.seen[way] = Peer()

    def annotate(self, ct: Connection, way: int, segment: Segment, old_state: int) -> None:
        """Remember a segment that is let by."""
        ct.last_index, ct.last_dir = segment.index, way
        ct.last_seq, ct.last_end, ct.last_win = segment.seq, segment.end, segment.win
        if segment.index == "S" and way == ORIGINAL:
            offer = Peer()
            offer.read_options(segment.options)
            ct.last_scales, ct.last_wscale, ct.last_sack_perm = offer.scales, offer.td_scale, offer.sack_perm
            ct.challenge = old_state == LAST_ACK
            ct.simultaneous = False
        if old_state == SYN_SENT and segment.index == "A" and way == REPLY:
            ct.last_ack = segment.ack

    def is_established(self, ct: Connection) -> bool:
        """Whether it is assured, and nobody closes it."""
        return ct.state == ESTABLISHED and ct.assured

    def reset(self, ct: Connection, way: int, segment: Segment, old_state: int) -> tuple[str, int]:
        """Return ACCEPT for a RST that needs no window, LET_BY for one that does, REFUSE; and the next state."""
        if old_state in CLOSING:
            return ACCEPT, CLOSE
        new_state, peer, seq = CLOSE, ct.seen[1 - way], segment.seq
        # MENDED (case 13): only a SYN of the other side makes what is known of it doubtful
        answers_syn = ct.last_index == "S" and ct.last_dir != way
        if peer.maxack_set and not answers_syn:
            if seq == 0 and not self.is_established(ct):
                return LET_BY, CLOSE
            if before(seq, peer.td_maxack) and not self.settings.ignore_invalid_rst:
                return REFUSE, old_state
            if not self.is_established(ct) or seq == peer.td_maxack:
                return LET_BY, CLOSE
            if ct.last_index == "S":
                return REFUSE, old_state  # MENDED (case 13): a SYN of its own, and then any RST
            if ct.last_index == "A" and ct.last_dir == way and seq == ct.last_end:
                return LET_BY, CLOSE
            new_state = old_state
        if segment.ack == ct.last_end and (
            (ct.seen_reply and answers_syn) or (not ct.assured and ct.last_index == "A")
        ):
            return ACCEPT, new_state
        if old_state == SYN_SENT and ct.last_index == "A" and ct.last_dir == REPLY and seq == ct.last_ack:
            return ACCEPT, new_state
        return LET_BY, new_state

    def in_window_now(self, ct: Connection, way: int, index: str, old_state: int, new_state: int) -> str:
        """Take over the state, and give the connection its time."""
        ct.last_index, ct.last_dir, ct.state = index, way, new_state
        if old_state != new_state and new_state == FIN_WAIT:
            ct.seen[way].close_init = True
        timeout = TIMEOUTS_S[new_state]
        if ct.retrans >= self.settings.max_retrans and timeout > RETRANS_S:
            timeout = RETRANS_S
        elif index == "R":
            timeout = TIMEOUTS_S[CLOSE]
        elif (ct.seen[0].unacknowledged or ct.seen[1].unacknowledged) and timeout > UNACK_S:
            timeout = UNACK_S
        elif ct.last_win == 0 and timeout > RETRANS_S:
            timeout = RETRANS_S
        if not ct.seen_reply:
            if index == "R":
                return KILL
            if index == "S" and old_state == SYN_SENT:
                return LET_BY  # neither refreshed nor counted
            if new_state == ESTABLISHED:
                timeout = min(timeout, UNACK_S)
        elif not ct.assured and old_state in (SYN_RECV, ESTABLISHED) and new_state == ESTABLISHED:
            ct.assured = True
        ct.expiry_ms = self.now_ms + 1000 * timeout
        ct.packets[way] += 1
        return ACCEPT

    def handle_invalid(self, ct: Connection, way: int, index: str) -> None:
        """Do not let a connection stay for days when both sides end it with numbers that cannot be right."""
        if not ct.assured or index not in ("R", "F"):
            return
        if ct.last_dir != way and ct.last_index in ("R", "F"):
            left_ms = ct.expiry_ms - self.now_ms
            if left_ms >= 120_000:
                ct.expiry_ms = min(ct.expiry_ms, self.now_ms + 1000 * UNACK_S)
        else:
            ct.last_index, ct.last_dir = index, way

    # ---------------------------------------------------------------------------------------- tcp_in_window
    def init_sender(self, sender: Peer, receiver: Peer, way: int, segment: Segment) -> None:
        """Learn a side from its SYN or SYN-ACK."""
        sender.td_end = sender.td_maxend = segment.end
        sender.td_maxwin = max(segment.win, 1)
        sender.read_options(segment.options)
        if way == REPLY and not (sender.scales and receiver.scales):
            sender.td_scale = receiver.td_scale = 0

    def in_window(self, ct: Connection, way: int, segment: Segment) -> str:
        """Compare a segment with what both sides have sent and granted; keep it in mind if it is accepted."""
        sender, receiver = ct.seen[way], ct.seen[1 - way]
        seq, ack, win, end = segment.seq, segment.ack, segment.win, segment.end
        sack = ack
        is_syn, is_ack = "S" in segment.flags, "A" in segment.flags
        if receiver.sack_perm:
            sack = highest_sack(segment)
        if sender.td_maxwin == 0:
            if is_syn:
                self.init_sender(sender, receiver, way, segment)
                if not is_ack:
                    return ACCEPT
            else:
                sender.td_end = end
                sender.td_maxwin = max(win << sender.td_scale, 1)
                sender.td_maxend = (end + sender.td_maxwin) % WRAP
                if receiver.td_maxwin == 0:
                    receiver.td_end = receiver.td_maxend = sack
                elif sack == (receiver.td_end + 1) % WRAP:
                    receiver.td_end = sack
        elif is_syn and after(end, sender.td_end) and ct.state in (SYN_SENT, SYN_RECV):
            self.init_sender(sender, receiver, way, segment)
            if way == REPLY and not is_ack:
                return ACCEPT
        if not is_ack or ("R" in segment.flags and ack == 0):
            ack = sack = receiver.td_end
        # MENDED (case 13): a RST of its own does not answer a SYN
        if "R" in segment.flags and seq == 0 and ct.state == SYN_SENT and way == REPLY:
            seq = end = sender.td_end

        lag = max(MAXACKWINCONST, sender.td_maxwin)
        ack_old = not after(sack, (receiver.td_end - lag - 1) % WRAP)
        ack_new = not before(sack, (receiver.td_end + 1) % WRAP)
        data_old = receiver.td_maxwin != 0 and not after(end, (sender.td_end - receiver.td_maxwin - 1) % WRAP)
        if not before(seq, (sender.td_maxend + 1) % WRAP):
            overshot = (end - sender.td_maxend + 1) % WRAP
            found = REFUSE
            if receiver.td_maxwin and not data_old and not ack_old and not ack_new and overshot <= receiver.td_maxwin:
                sender.td_end = end
                sender.unacknowledged = True
                found = LET_BY
        else:
            found = REFUSE if ack_new else LET_BY if data_old or ack_old else ACCEPT
        if found != ACCEPT:
            return ACCEPT if sender.be_liberal or self.settings.be_liberal else found

        if not is_syn:
            win <<= sender.td_scale
        sender.td_maxwin = max(sender.td_maxwin, (win + sack - ack) % WRAP)
        if after(end, sender.td_end):
            sender.td_end = end
            sender.unacknowledged = True
        if is_ack and (not sender.maxack_set or after(ack, sender.td_maxack)):
            sender.td_maxack = ack
            sender.maxack_set = True
        if receiver.td_maxwin and after(end, sender.td_maxend):
            receiver.td_maxwin = (receiver.td_maxwin + end - sender.td_maxend) % WRAP
        granted = (sack + win) % WRAP
        if after(granted, (receiver.td_maxend - 1) % WRAP):
            receiver.td_maxend = granted if win else (granted + 1) % WRAP
        if ack == receiver.td_end:
            receiver.unacknowledged = False
        if segment.index == "A":
            this = (way, seq, ack, end, segment.win)
            if this == (ct.last_dir, ct.last_seq, ct.last_ack, ct.last_end, ct.last_win):
                ct.retrans += 1
            else:
                ct.last_dir, ct.last_seq, ct.last_ack, ct.last_end, ct.last_win = this
                ct.retrans = 0
        return ACCEPT


def highest_sack(segment: Segment) -> int:
    """Return the highest right edge of the first SACK option, or the acknowledgment if that is higher."""
    sack = segment.ack
    for kind, value in walk(segment.options):
        if kind == 5 and len(value) >= 8 and len(value) % 8 == 0:
            for at in range(4, len(value), 8):
                edge = int.from_bytes(value[at : at + 4])
                if after(edge, sack):
                    sack = edge
            return sack
    return sack
