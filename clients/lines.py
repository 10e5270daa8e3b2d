"""Many connections as text at once: the lines of ``formats``, made column by column of packed rows.

What a column can be is made into text once: ports, halves of addresses, what a protocol, a state or a status says.  Lines
are then put together of a dozen pieces; rows with something rare (what ICMP and GRE have instead of ports) have that piece
made one by one.  ``formats`` says what a line is, and the tests hold these to it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .connections import (
    ANSWERS,
    COALESCED,
    GRE,
    HELPERS,
    ICMP,
    ICMPV6,
    PEER_STATES,
    PORTS,
    PROTOCOLS,
    SCTP,
    SCTP_STATES,
    STATUS,
    TCP,
)
from .formats import CONNTRACK_PROTOCOLS, EVENT_HEADS, OVS_PROTOCOLS, OVS_STATES, REFUSED

if TYPE_CHECKING:
    import numpy as np

    from .events import Batch
    from .pages import Page

_SEEN_REPLY, _ASSURED, _OVS = STATUS["seen_reply"], STATUS["assured"], STATUS["ovs"]


# ---------------------------------------------------------------------------------------------------- columns
@cache
def _texts(before: str, count: int = 1 << 16) -> np.ndarray:
    """Return the numbers below ``count`` as text, each with something before it."""
    import numpy as np

    return np.array([f"{before}{number}" for number in range(count)], object)


@cache
def _octets(before: str) -> np.ndarray:
    """Return the halves of IPv4 addresses as text."""
    import numpy as np

    return np.array([f"{before}{high}.{low}" for high in range(256) for low in range(256)], object)


def addresses(rows: np.ndarray, name: str) -> np.ndarray:
    """Return the text of a column of addresses."""
    import numpy as np

    packed = np.ascontiguousarray(rows[name])
    halves = packed[:, 12:].view(">u2").reshape(-1, 2)
    texts = _octets("")[halves[:, 0]] + _octets(".")[halves[:, 1]]
    six = np.flatnonzero(rows["family"] != 4)
    if len(six):
        memo: dict[bytes, str] = {}
        whole = packed[six].tobytes()
        for place, i in enumerate(six.tolist()):
            key = whole[16 * place : 16 * place + 16]
            if (text := memo.get(key)) is None:
                text = memo[key] = socket.inet_ntop(socket.AF_INET6, key)
            texts[i] = text
    return texts


def chosen(rows: np.ndarray, names: Sequence[str], says: Callable[..., str]) -> np.ndarray:
    """Return a column of what ``says`` makes of the values of some columns, asked once for each set of them."""
    import numpy as np

    keys = np.zeros(len(rows), "u8")
    for name in names:
        keys = keys << np.uint64(8 * rows[name].dtype.itemsize) | rows[name]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    table = np.array([says(*(int(rows[name][i]) for name in names)) for i in first.tolist()], object)
    return table[inverse]


def _ends(rows: np.ndarray, way: str, ports: tuple[str, str], rare: Callable[[np.void, str], str]) -> np.ndarray:
    """Return what stands behind the addresses of a tuple: ports, or what a protocol has instead."""
    import numpy as np

    texts = _texts(ports[0])[rows[f"{way}sport"]] + _texts(ports[1])[rows[f"{way}dport"]]
    without = np.flatnonzero(~np.isin(rows["protocol"], list(PORTS)))
    for i in without.tolist():
        texts[i] = rare(rows[i], way)
    return texts


def _seconds(rows: np.ndarray) -> np.ndarray:
    """Return the column of timeouts."""
    return _numbers(rows["timeout_ms"] // 1000, " ")


def joined(*columns: np.ndarray) -> Iterator[str]:
    """Return lines of pieces."""
    return map("".join, zip(*(column.tolist() for column in columns), repeat("\n")))


def _numbers(values: np.ndarray, before: str) -> np.ndarray:
    """Return numbers as text, most of which are small."""
    import numpy as np

    small = _texts(before)
    if len(values) and int(values.max()) >= len(small):
        texts = small[np.minimum(values, len(small) - 1)]
        for i in np.flatnonzero(values >= len(small)).tolist():
            texts[i] = f"{before}{values[i]}"
        return texts
    return small[values]


def _icmp(row: np.void, way: str) -> tuple[int, int, int]:
    """Return type, code and id of a tuple of ICMP."""
    kind, code = int(row["dport"]) >> 8, int(row["dport"]) & 0xFF
    if way:
        kind = ANSWERS.get((int(row["family"]), kind), kind)
    return kind, code, int(row["reply_dport"] if way else row["sport"])


def state_of(protocol: int, status: int, state: int, states: Sequence[str]) -> str:
    """Return the one state that is shown of a connection, nothing where there is none."""
    if protocol == TCP and status & _OVS:
        name = named(PEER_STATES, max(state & 15, state >> 4))
        return COALESCED.get(name, name)
    if protocol == TCP:
        return named(states, state)
    return named(SCTP_STATES, state) if protocol == SCTP and not status & _OVS else ""


def named(names: Sequence[str], number: int) -> str:
    """Return the name of a number, or the number where it has none."""
    return names[number] if number < len(names) else str(number)


# ---------------------------------------------------------------------------------------------------- conntrack
def _conntrack_rare(row: np.void, way: str) -> str:
    protocol = int(row["protocol"])
    if protocol in (ICMP, ICMPV6):
        return " type={} code={} id={}".format(*_icmp(row, way))
    if protocol == GRE:
        return f" srckey=0x{int(row[f'{way}sport']):x} dstkey=0x{int(row[f'{way}dport']):x}"
    return ""


def _conntrack_proto(protocol: int) -> str:
    name = PROTOCOLS.get(protocol, "unknown")
    return f"{name if name in CONNTRACK_PROTOCOLS else 'unknown':<8} {protocol}"


def _conntrack_ends(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the columns of both tuples, addresses and ports in one: of the original, and of replies."""
    import numpy as np

    ports = (" sport=", " dport=")
    src, dst = addresses(rows, "src"), addresses(rows, "dst")
    yield " src=" + src + " dst=" + dst + _ends(rows, "", ports, _conntrack_rare)
    mirrored = np.array_equal(rows["reply_src"], rows["dst"]) and np.array_equal(rows["reply_dst"], rows["src"])
    if not mirrored:
        src, dst = addresses(rows, "reply_dst"), addresses(rows, "reply_src")
    yield " src=" + dst + " dst=" + src + _ends(rows, "reply_", ports, _conntrack_rare)


def conntrack(rows: np.ndarray, states: Sequence[str]) -> Iterator[str]:
    """Return the lines of ``formats.conntrack``, each with its end.

    Args:
        rows: of a dump.
        states: names of TCP's states.
    """
    head = chosen(rows, ("protocol",), _conntrack_proto)

    def stated(protocol: int, status: int, state: int) -> str:
        return f" {found}" if (found := state_of(protocol, status, state, states)) else ""

    state = chosen(rows, ("protocol", "status", "state"), stated)
    orig, reply = _conntrack_ends(rows)
    unreplied = chosen(rows, ("status",), lambda status: "" if status & _SEEN_REPLY else " [UNREPLIED]")
    assured = chosen(rows, ("status",), lambda status: " [ASSURED]" if status & _ASSURED else "")
    marked = chosen(rows, ("mark", "zone", "helper"), _conntrack_tail)
    counts = [_numbers(rows[name][:, way], f" {name}=") for way in (0, 1) for name in ("packets", "bytes")]
    return joined(head, _seconds(rows), state, orig, *counts[:2], unreplied, reply, *counts[2:], assured, marked)


def _conntrack_tail(mark: int, zone: int, helper: int) -> str:
    zoned = f" zone={zone}" if zone else ""
    helped = f" helper={named(HELPERS, helper)}" if helper else ""
    return f" mark={mark}{zoned}{helped} use=1"


def conntrack_events(batch: Batch, states: Sequence[str]) -> Iterator[str]:
    """Yield the lines of ``formats.conntrack_event``, each with its end; a gap first."""
    if batch.lost:
        yield f"GAP {batch.lost}\n"
    rows, changes = batch.array(), batch.reading.changes
    if not len(rows):
        return
    kinds, ends = batch.reading.kinds, batch.reading.ends

    def answered(status: int, end: int) -> str:
        return "" if status & _SEEN_REPLY and ends[end] != REFUSED else " [UNREPLIED]"

    def tail(mark: int, changed: int, zone: int, helper: int, kind: int) -> str:
        marked = f" mark={mark}" if mark or changed & changes["mark"] else ""
        helped = f" helper={named(HELPERS, helper)}" if helper and kinds[kind] != "destroy" else ""
        return f"{marked}{f' zone={zone}' if zone else ''}{helped}"

    def stated(protocol: int, status: int, state: int, kind: int, changed: int) -> str:
        if kinds[kind] == "update" and not changed & changes["state"]:
            return ""
        return f" {found}" if (found := state_of(protocol, status, state, states)) else ""

    is_over = rows["kind"] == next(number for number, name in kinds.items() if name == "destroy")
    head = chosen(rows, ("kind", "protocol"), lambda kind, of: f"{EVENT_HEADS[kinds[kind]]:>9} {_conntrack_proto(of)}")
    seconds = _seconds(rows)
    seconds[is_over & (rows["timeout_ms"] < 1000)] = ""
    state = chosen(rows, ("protocol", "status", "state", "kind", "changes"), stated)
    orig, reply = _conntrack_ends(rows)
    unreplied = chosen(rows, ("status", "end"), answered)
    assured = chosen(rows, ("status",), lambda status: " [ASSURED]" if status & _ASSURED else "")
    counts = [_numbers(rows[name][:, way], f" {name}=") for way in (0, 1) for name in ("packets", "bytes")]
    for column in counts:
        column[~is_over] = ""
    marked = _tails(rows, tail)
    yield from joined(head, seconds, state, orig, *counts[:2], unreplied, reply, *counts[2:], assured, marked)


def _tails(rows: np.ndarray, tail: Callable[..., str]) -> np.ndarray:
    """Return the ends of lines; of values that are too wide for one key, by way of two."""
    import numpy as np

    names = ("mark", "changes", "zone", "helper", "kind")
    memo: dict[tuple[int, ...], str] = {}
    found = np.empty(len(rows), object)
    for i, key in enumerate(zip(*(rows[name].tolist() for name in names), strict=True)):
        if (text := memo.get(key)) is None:
            text = memo[key] = tail(*key)
        found[i] = text
    return found


# ---------------------------------------------------------------------------------------------------- dump-conntrack
def _ovs_rare(row: np.void, way: str) -> str:
    if int(row["protocol"]) in (ICMP, ICMPV6):
        kind, code, id = _icmp(row, way)
        return f",id={id},type={kind},code={code}"
    return ",sport=0,dport=0"


def _ovs_proto(protocol: int) -> str:
    name = PROTOCOLS.get(protocol, "unknown")
    return name if name in OVS_PROTOCOLS else str(protocol)


def ovs(rows: np.ndarray, states: Sequence[str]) -> Iterator[str]:
    """Return the lines of ``formats.ovs``, without what -m and -s add, each with its end; arguments as of ``conntrack``."""
    import numpy as np

    def stated(protocol: int, status: int, state: int) -> str:
        one = state_of(protocol, status, state, states)
        if protocol == TCP and not status & _OVS:
            one = OVS_STATES.get(one, one)
            one = COALESCED.get(one, one)
        return f",protoinfo=(state={one})" if one else ""

    ports = (",sport=", ",dport=")
    src, dst = addresses(rows, "src"), addresses(rows, "dst")
    orig = src + ",dst=" + dst + _ends(rows, "", ports, _ovs_rare)
    mirrored = np.array_equal(rows["reply_src"], rows["dst"]) and np.array_equal(rows["reply_dst"], rows["src"])
    if not mirrored:
        src, dst = addresses(rows, "reply_dst"), addresses(rows, "reply_src")
    reply = "),reply=(src=" + dst + ",dst=" + src + _ends(rows, "reply_", ports, _ovs_rare)
    labels = np.full(len(rows), "", object)
    for i in np.flatnonzero(rows["label"].any(axis=1)).tolist():
        labels[i] = f",labels={int(rows['label'][i][0]) << 64 | int(rows['label'][i][1]):#x}"
    columns = (
        chosen(rows, ("protocol",), lambda protocol: f"{_ovs_proto(protocol)},orig=(src="),
        orig,
        reply,
        chosen(rows, ("zone",), lambda zone: f"),zone={zone}" if zone else ")"),
        chosen(rows, ("mark",), lambda mark: f",mark={mark}" if mark else ""),
        labels,
        chosen(rows, ("protocol", "status", "state"), stated),
        chosen(rows, ("helper",), lambda helper: f",helper={named(HELPERS, helper)}" if helper else ""),
    )
    return joined(*columns)


LINES: Mapping[str, Callable[[Any, Sequence[str]], Iterator[str]]] = {"conntrack": conntrack, "ovs": ovs}


def of_page(page: Page, form: str) -> Iterator[str]:
    """Yield the lines of a page of a dump, in one of the formats of ``LINES``."""
    rows = page.array()
    return LINES[form](rows, page.states) if len(rows) else iter(())
