"""Why a packet got its verdict: for each reason a row, what was expected, by which rule, and what would have helped.

What no row mentions cannot be explained, so there is one for every reason that a packet can get.  Settings are named as
``zonetrack zones set`` takes them, limits and sizes as the command that sets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..kernels import tcp_states
from ..kernels.tcp_states import Segment
from ..shm.layout import SCTP_ASSOCIATION, TCP_PEERS, CtState, Setting, VerdictFlag, Way
from ..shm.reasons import Reason, word
from . import arrivals, checksums, labels, windows
from .arrivals import Arrival
from .windows import Bound

Words = Callable[[Arrival], str]
Settings = Callable[[Arrival], list[str]]


class Row(NamedTuple):
    """Of one reason: what is said of a packet that got it."""

    expected: Words
    rule: str
    accepted_with: Settings


def says(text: str) -> Words:
    """Return words that are the same for every packet."""
    return lambda arrival: text


def with_(*settings: str) -> Settings:
    """Return settings each of which would have let any such packet pass."""
    return lambda arrival: list(settings)


NOTHING = with_()
_SCTP = 132


# ------------------------------------------------------------------------------------------------ numbers
def _broken(arrival: Arrival, which: Callable[[Bound], bool] = lambda bound: True) -> str:
    if not arrival.found:
        return "its numbers are outside of the window"
    found = [bound.text for bound in windows.bounds(arrival) if bound.beyond and which(bound)]
    return "; ".join(found) or "its numbers are outside of the window"


def _above(arrival: Arrival) -> str:
    """The text for data beyond the window, with the sequence numbers of all of it."""
    if not arrival.found:
        return _broken(arrival)
    bound = windows.bounds(arrival)[0]
    seqs = f"{arrival.seq}..{arrival.end}" if arrival.end != arrival.seq else f"{arrival.seq}"
    return (
        f"seq {seqs} beyond what {arrivals.host(arrival, 1)} granted (highest acceptable {bound.limit} = {bound.why})"
    )


def _reset(arrival: Arrival) -> str:
    """The text for a RST that cannot be right."""
    if not arrival.found:
        return f"RST with seq {arrival.seq} cannot be right"
    wanted = int(np.frombuffer(arrival.contents, TCP_PEERS)[0]["peer"][1 - arrival.way]["maxack"])
    below = (arrival.seq - wanted) % windows.MODULUS >= windows.HALF
    told = f"RST with seq {arrival.seq}, {arrivals.host(arrival, 1)} has acknowledged {wanted}"
    if below:
        return f"{told}: {(wanted - arrival.seq) % windows.MODULUS} below, so it is forged or stale"
    return f"{told}: not exactly that, and a SYN of its own side before it does not make it believable"


def _reset_accepted(arrival: Arrival) -> list[str]:
    return ["ignore_invalid_rst=on", "seq_check=off"] if "below" in _reset(arrival) else ["seq_check=off"]


# ------------------------------------------------------------------------------------------------ states
def _segment(arrival: Arrival) -> Segment:
    return Segment(int(tcp_states.SEGMENTS[arrival.tcp_flags & 0xFF]))


def _sender(arrival: Arrival) -> str:
    return "opener" if arrival.way == Way.ORIG else "other side"


def _no_transition(arrival: Arrival) -> str:
    name = _segment(arrival).name
    return f"in state {arrivals.state_name(arrival)} no {name} from the {_sender(arrival)} is expected"


def _no_chunk(arrival: Arrival) -> str:
    chunks = ", ".join(arrivals.chunks_of(arrival)) or "such chunk"
    if not arrival.found:
        return f"{chunks} of no association that is known, and none begins with that"
    return f"in state {arrivals.state_name(arrival)} no {chunks} from the {_sender(arrival)} is expected"


def _tag(arrival: Arrival) -> str:
    if not arrival.found:
        return f"tag 0x{arrival.seq:08x}: an INIT carries none"
    known = int(np.frombuffer(arrival.contents, SCTP_ASSOCIATION)[0]["tag"][arrival.way])
    wanted = f"0x{known:08x}" if known else "one that was not seen yet"
    return f"tag 0x{arrival.seq:08x}, {wanted} expected from the {_sender(arrival)}; or a stale one is announced"


def _cannot_open(arrival: Arrival) -> str:
    name = _segment(arrival).name
    if _loose_would_do(arrival):
        return f"{name} of no connection that is known, and the zone does not pick up in the middle"
    return f"{name} of no connection that is known, and no connection begins with one"


def _loose_would_do(arrival: Arrival) -> bool:
    opens = tcp_states.STEPS[0, Way.ORIG, _segment(arrival)] != 0
    return bool(opens and not arrival.settings & (Setting.LOOSE | Setting.OVS))


def _loose(arrival: Arrival) -> list[str]:
    return ["loose=on"] if _loose_would_do(arrival) else []


# ------------------------------------------------------------------------------------------------ bytes
def _cut_short(arrival: Arrival) -> str:
    return f"{arrival.captured_bytes} bytes from the IP header on, and a header goes on behind them"


def _ip_checksum(arrival: Arrival) -> str:
    return _sums("IPv4 header checksum", checksums.of_ipv4(arrivals.ip_header(arrival)))


def _transport_checksum(arrival: Arrival) -> str:
    return _sums(f"{arrivals.protocol_name(arrival.protocol)} checksum", checksums.of_transport(arrival.packet))


def _sums(name: str, sums: checksums.Sums | None) -> str:
    if sums is None or sums.found == sums.expected:
        return f"the {name} is wrong"
    return f"{name} 0x{sums.found:04x}, 0x{sums.expected:04x} expected"


def _relearned(arrival: Arrival) -> str:
    what = "tags" if arrival.protocol == _SCTP else "windows"
    numbers = f"tag 0x{arrival.seq:08x}" if arrival.protocol == _SCTP else f"seq {arrival.seq}, ack {arrival.ack}"
    return (
        f"{numbers} would have been refused by what was known; nobody saw the packets of this connection for a while (a "
        f"restart, a restored table, a worker that died over it), so its {what} are learned again from this one"
    )


def _about(arrival: Arrival) -> str:
    if arrival.quoted:
        return f"no connection has the packet that it quotes, {arrivals.line(arrival).partition(' about ')[2]}"
    return "an answer to no request that is known"


def _limit_of_zone(arrival: Arrival) -> list[str]:
    return [f"a higher limit: zonetrack limits set --zone {arrival.zone} N", "on_full=early_drop"]


_CHECKSUM = with_("checksum=off")
_WINDOW = with_("be_liberal=on", "seq_check=off")
_WINDOWS_RULE = (
    "the windows of both sides (kernels/tcp_window: van Rooij, Real Stateful TCP Packet Filtering, bounds I-IV)"
)
_PARSE = "a length that lies, or a header that is not there, cannot be tracked (docs/reasons.md)"
_STATES = "what no row mentions is invalid (docs/tcp-states.md)"
_FRAGMENTS = "fragments are put together before they are tracked"
_FULL = "a commit is refused when there is no room; the packet stays new"

ROWS: dict[str, Row] = {
    "NOIP": Row(says("neither IPv4 nor IPv6"), "only IP is tracked", NOTHING),
    "TRUNCATED": Row(_cut_short, _PARSE, NOTHING),
    "L3_HEADER": Row(says("IP version, header length or total length are impossible"), _PARSE, NOTHING),
    "L3CSUM_ERR": Row(_ip_checksum, "RFC 791 3.1", _CHECKSUM),
    "EXTENSION_HEADERS": Row(says("the chain of IPv6 extension headers is broken, or too long"), "RFC 8200 4", NOTHING),
    "L4_HEADER": Row(says("the transport header is cut short, or its length field lies"), _PARSE, NOTHING),
    "L4CSUM_ERR": Row(_transport_checksum, "RFC 1071", _CHECKSUM),
    "FRAGMENT": Row(says("a fragment that is not put together"), _FRAGMENTS, NOTHING),
    "NOT_TRACKED": Row(says("neighbour discovery and the like"), "never tracked, as by Linux", NOTHING),
    "FRAGMENT_TOO_SMALL": Row(
        says("a fragment before the last that is smaller than the zone's profile takes"),
        "tiny fragments hide headers (RFC 1858)",
        with_("a smaller zonetrack fragments set minimum"),
    ),
    "FRAGMENT_OVERLAP": Row(
        says("two fragments of its datagram overlap"), "RFC 5722 4: the datagram is discarded", NOTHING
    ),
    "FRAGMENT_EXPIRED": Row(says("the rest of its datagram did not come in time"), _FRAGMENTS, NOTHING),
    "FRAGMENT_TOO_LARGE": Row(says("its datagram would have more than 65,535 bytes"), "RFC 791 3.1", NOTHING),
    "FRAGMENTS_FULL": Row(
        says("as many fragments wait as may"), _FRAGMENTS, with_("a higher zonetrack fragments set maximum")
    ),
    "PORT_ZERO": Row(says("port 0"), "Open vSwitch tracks no port 0", with_("profile=netfilter")),
    "INVALID_TCP_FLAGS": Row(
        lambda arrival: f"no host sends the flags {arrivals.flags_of(arrival.tcp_flags)}", _STATES, NOTHING
    ),
    "TCP_NEW_REFUSED": Row(_cannot_open, "RFC 9293 3.5: a connection begins with a SYN", _loose),
    "TCP_STATE": Row(_no_transition, _STATES, NOTHING),
    "TCP_SEQ_ABOVE": Row(_above, _WINDOWS_RULE, _WINDOW),
    "TCP_SEQ_BELOW": Row(_broken, _WINDOWS_RULE, _WINDOW),
    "TCP_ACK_ABOVE": Row(_broken, _WINDOWS_RULE, _WINDOW),
    "TCP_ACK_BELOW": Row(_broken, _WINDOWS_RULE, _WINDOW),
    "TCP_RST_SEQ": Row(
        _reset, "RFC 5961 3: a RST counts if its number is what the other side expects", _reset_accepted
    ),
    "TCP_SYN_CHALLENGE": Row(
        says("it may belong to another connection of the same ports: its receiver will tell"),
        "RFC 5961 4: a SYN is answered by a challenge ACK",
        NOTHING,
    ),
    "ICMP_TYPE": Row(
        says("an ICMP type that opens nothing, answers nothing and quotes nothing"), "kernels/icmp_types", NOTHING
    ),
    "ICMP_UNMATCHED": Row(_about, "RFC 5927: an error is related to the connection of what it quotes", NOTHING),
    "ICMP_INNER": Row(
        says("the packet that it quotes cannot be read, or was not sent by its receiver"),
        "RFC 792, RFC 4443 2.4: at least 8 bytes behind the IP header",
        NOTHING,
    ),
    "SCTP_CHUNK": Row(says("its chunks cannot be, or do not go together"), "RFC 9260 3", NOTHING),
    "SCTP_TAG": Row(_tag, "RFC 9260 8.5: who was not told the tag is no part of the association", NOTHING),
    "SCTP_STATE": Row(_no_chunk, "what no row mentions is invalid (docs/sctp-states.md)", NOTHING),
    "TCP_SEQ_CHK_FAILED": Row(_broken, "the windows of both sides (kernels/ovs_tcp)", with_("seq_check=off")),
    "TCP_SEQ_CHK_BYPASS": Row(_broken, "seq_check is off, so it passed", NOTHING),
    "RELEARNED": Row(
        _relearned,
        "of a connection whose packets nobody saw for a while the next ones are believed (docs/reliability.md)",
        NOTHING,
    ),
    "HELPER_REFUSED": Row(
        says("its helper cannot make sense of it"), "a control message that cannot be is not let through", NOTHING
    ),
    "HELPER_NO_ROOM": Row(
        says("its frame has no room for what its message says where it goes, or not all of it was captured"),
        "a control message of a translated connection goes on translated, or not at all",
        NOTHING,
    ),
    "HELPER_SPLIT": Row(
        says("its message ends in the next segment"),
        "a control message of a translated connection is rewritten in one piece; sent again, it mostly is one",
        NOTHING,
    ),
    "FULL": Row(
        says("as many connections as there may be in all"),
        _FULL,
        with_("a higher limit: zonetrack limits set --global N", "on_full=early_drop"),
    ),
    "HALF_OPEN_FULL": Row(
        says("as many connections without a reply as there may be in its zone"),
        _FULL,
        with_("half_open=N, or 0", "on_full=early_drop"),
    ),
    "SOURCE_FULL": Row(
        says("its source has as many connections in its zone as each may have"),
        "a budget for each source address, so that one cannot take a zone for itself",
        with_("per_source=N, or 0"),
    ),
    "ZONE_FULL": Row(says("as many connections as there may be in its zone"), _FULL, _limit_of_zone),
    "INDEX_FULL": Row(
        says("no segment of the index is left"), _FULL, with_("a larger zones_in_use_max or max_connections")
    ),
    "SLAB_FULL": Row(says("no record is left"), _FULL, with_("a larger max_connections")),
    "EXTENSION_FULL": Row(says("no extension record is left"), _FULL, with_("a larger extension_share")),
    "CLASH": Row(says("another connection has its reply tuple"), "a tuple belongs to one connection", NOTHING),
    "BUSY": Row(says("a lock was not had in time"), "nothing waits long for a lock", NOTHING),
    "NAT_EXHAUSTED": Row(
        says("each address and port that its rule allows is taken"),
        "a tuple belongs to one connection",
        with_("more addresses or ports in the rule"),
    ),
    "EXPECTATIONS_FULL": Row(says("as many expectations as there may be"), _FULL, NOTHING),
}
"""By the name of the reason."""


def row_of(reason: Reason) -> Row:
    """Return the row of a reason."""
    return ROWS[reason.name]


def fate(arrival: Arrival, flags: int = 0) -> str:
    """Return what became of a packet, in two words at most."""
    if arrival.ct_state & CtState.INV:
        return "invalid"
    if flags & VerdictFlag.HELD:
        return "held"
    if not arrival.ct_state:
        return "not tracked"
    if arrival.reason in (Reason.NONE, Reason.RELEARNED):
        return "accepted"
    if arrival.id is None:
        return "not committed"
    return "let by"


def explain(arrival: Arrival, flags: int = 0) -> dict[str, Any]:
    """Return all that there is to say of a packet and its verdict, as JSON has it.

    Args:
        arrival: the packet.
        flags: VerdictFlag bits, where they are known.
    """
    names = labels.names(arrival.ct_state)
    segment = arrivals.segment(arrival)
    told: dict[str, Any] = {
        "zone": arrival.zone,
        "fate": fate(arrival, flags),
        "reason": word(arrival.reason),
        "ct_state": list(names),
        "direction": labels.direction(arrival.ct_state, arrival.way),
        "arrived": arrivals.line(arrival),
        "packet": {
            "proto": arrivals.protocol_name(arrival.protocol),
            "proto_num": arrival.protocol,
            **arrivals.tuple_of(arrival),
            **segment,
            "ip_bytes": arrival.ip_bytes,
        },
        "profile": labels.OVS if arrival.is_ovs or arrival.settings & Setting.OVS else labels.NETFILTER,
        "state": arrivals.state_name(arrival),
        "timeout": None if arrival.id is None else arrival.timeout_ms // 1000,
        "id": arrival.id,
    }
    if arrival.reason is Reason.NONE:
        return told | {"expected": None, "rule": None, "accepted_with": [], "bounds": []}
    row = row_of(arrival.reason)
    checked = arrival.found and segment and arrival.reason.name.startswith("TCP_")
    return told | {
        "expected": row.expected(arrival),
        "rule": row.rule,
        "accepted_with": row.accepted_with(arrival) if told["fate"] in ("invalid", "not committed") else [],
        "bounds": [bound.plain() for bound in windows.bounds(arrival)] if checked else [],
    }
