"""How zonetrack's verdicts, and the connections it ends with, compare with what others said over the whole corpus.

Each run of another tracker (tests/support/corpus) is done again: every capture alone on a fresh table, in this process,
and on a clock that stands still, as it did for the others.  Two things are held against each other: the label of every
packet, and the connections at the end of each capture.
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import corpus
import numpy as np
from zonetrack.kernels import links
from zonetrack.kernels.clock import BEGIN_MS
from zonetrack.kernels.jit import kernel
from zonetrack.service import connections, labels, replay, warmup
from zonetrack.service.captures import Capture
from zonetrack.shm.layout import CLOCK, NO_RECORD
from zonetrack.shm.reasons import Reason


class Run(NamedTuple):
    """A run of another tracker, and how the same is asked of a replay."""

    options: dict[str, Any]
    as_captured: bool = False
    """Only captures of which the other saw each packet as it is in the file (tests/support/corpus.told)."""

    @property
    def profile(self) -> str:
        """Whose rules decide."""
        return self.options.get("profile", "netfilter")


KERNEL_HELPERS = (("ftp", 21), ("irc", 6667), ("pptp", 1723), ("sip", 5060), ("tftp", 69))
OVS_HELPERS = (("ftp", 21), ("tftp", 69))

RUNS = {
    "kernel-nocsum": Run({"verify": False}),
    "kernel-csum": Run({}, as_captured=True),
    "kernel-liberal": Run({"verify": False, "liberal": True}),
    "kernel-helpers": Run({"verify": False, "helpers": KERNEL_HELPERS}),
    "ovs-nocsum": Run({"profile": "ovs", "verify": False}),
    "ovs-csum": Run({"profile": "ovs"}, as_captured=True),
    "ovs-noseq": Run({"profile": "ovs", "verify": False, "seq_check": False}),
    "ovs-helpers": Run({"profile": "ovs", "verify": False, "helpers": OVS_HELPERS}),
}

ASPECTS = {"netfilter": ("tuple", "state", "packets and bytes"), "ovs": ("tuple", "state", "timeout", "parent")}
"""What is compared of connections, by profile: what the other tracker tells of them."""


class Frozen(replay.Replay):
    """A replay for which no time passes."""

    def clock(self) -> np.ndarray:
        """Return a clock that no packet moves."""
        clock = replay.record(CLOCK)
        clock["latest_ns"] = np.iinfo(np.uint64).max
        clock["now_ms"] = BEGIN_MS
        return clock

    @property
    def now_ms(self) -> int:
        """The one moment."""
        return BEGIN_MS


class Seen(NamedTuple):
    """What zonetrack says of a capture."""

    labels: list[str]
    reasons: list[Reason]
    ids: list[int | None]
    """Of the connection of each packet."""
    connections: list[dict[str, Any]]


class Difference(NamedTuple):
    """A packet that is something else to zonetrack."""

    capture: str
    n: int
    """From 1."""
    theirs: str
    ours: str
    reason: Reason
    mended: str
    """Letters of what was mended before the other saw it (corpus)."""


class TableDifference(NamedTuple):
    """A connection at the end of a capture that is not as the other has it."""

    capture: str
    connection: str
    aspect: str
    theirs: Any
    ours: Any
    mended: str
    """Letters of what was mended of any packet of the capture."""


@dataclass
class Share:
    """So many of so many."""

    right: int = 0
    count: int = 0

    def add(self, is_right: bool) -> None:
        """Count one more."""
        self.right += is_right
        self.count += 1

    @property
    def percent(self) -> float:
        """Of nothing, everything is right."""
        return 100 * self.right / self.count if self.count else 100.0


@dataclass
class Result:
    """One run, compared."""

    packets: Share = field(default_factory=Share)
    captures: Share = field(default_factory=Share)
    assured: Share = field(default_factory=Share)
    classes: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))
    """By their label."""
    aspects: dict[str, Share] = field(default_factory=lambda: defaultdict(Share))
    """By what is compared of connections."""
    differences: list[Difference] = field(default_factory=list)
    table_differences: list[TableDifference] = field(default_factory=list)


@kernel
def _ip_header(link, address, captured):
    return links.find(link, address, captured)


@contextmanager
def mended(path: str, told: corpus.Told) -> Iterator[str]:
    """Give a capture as the other tracker saw it: a router does not forward loopback, so such addresses were mapped."""
    mapped = {n for n, letters in enumerate(told.mended) if "l" in letters}
    if not mapped:
        yield path
        return
    octets, at = bytearray(Path(path).read_bytes()), 0
    with Capture(path) as capture:
        for frames, _ in capture.slices():
            for n, frame in enumerate(frames, at):
                if n in mapped:
                    found = _ip_header(*(np.uint64(frame[name]) for name in ("link", "address", "captured_bytes")))
                    _map_loopback(octets, int(frame["address"]) - int(capture.walk["address"]) + (int(found) >> 8))
            at += len(frames)
    with tempfile.NamedTemporaryFile(suffix=Path(path).suffix) as file:
        file.write(octets)
        file.flush()
        yield file.name


def _map_loopback(octets: bytearray, header: int) -> None:
    """Map the loopback addresses of the IP header that stands there."""
    if octets[header] >> 4 == 4:
        for end in (header + 12, header + 16):
            if octets[end] == 127:
                octets[end : end + 2] = bytes([198, 18])
    else:
        for end in (header + 8, header + 24):
            if octets[end : end + 16] == ipaddress.ip_address("::1").packed:
                octets[end : end + 16] = ipaddress.ip_address("2001:db8:7f::1").packed


def see(path: str, run: Run) -> Seen:
    """Replay one capture as a run wants it."""
    again = Frozen(replay.survey([path]), replay.Options(expiry=False, verdicts=True, **run.options))
    again.work(0)
    rows = again.verdicts[: again.survey.packets].tolist()
    return Seen(
        [labels.label(ct_state, way, flags, run.profile) for ct_state, _, way, flags, *_ in rows],
        [Reason(reason) for _, reason, *_ in rows],
        [None if record == NO_RECORD or not incarnation else incarnation << 32 | record
         for *_, record, incarnation, _, _ in rows],
        list(connections.listed(again.table, again.now_ms, expired=True)),
    )  # fmt: skip


def compare(kind: str) -> Result:
    """Replay all captures of a run, and hold them against what was said then."""
    run, result = RUNS[kind], Result()
    warmup.load("replay.run", "sweep.sweep")
    paths = {path.name: str(path) for path in corpus.present()}
    for told in corpus.told(kind, run.as_captured):
        with mended(paths[told.capture], told) as path:
            seen = see(path, run)
        before = len(result.differences)
        _compare_packets(run, told, seen, result)
        result.captures.add(len(result.differences) == before)
        # of a file with a fault only what stands before it can be compared
        if len(seen.labels) == len(told.labels):
            _compare_connections(run, told, seen, result)
    return result


def _compare_packets(run: Run, told: corpus.Told, seen: Seen, result: Result) -> None:
    """Compare labels, as far as both have them: a bad capture ends early."""
    # a reassembled datagram went on in several frames, all with its label
    for n, (their, our) in enumerate(zip(told.labels, seen.labels, strict=False)):
        if their.startswith(corpus.INCOMPARABLE):
            continue
        their = their.partition("+")[0]
        is_right = their.rstrip("a") == our.rstrip("a")
        result.packets.add(is_right)
        result.classes[their.rstrip("a")].add(is_right)
        if not is_right:
            difference = Difference(told.capture, n + 1, their, our, seen.reasons[n], told.mended[n])
            result.differences.append(difference)
        elif run.profile == "netfilter" and their[1:]:
            result.assured.add(their == our)


# ---------------------------------------------------------------------------------------------------- connections
def _compare_connections(run: Run, told: corpus.Told, seen: Seen, result: Result) -> None:
    """Compare connections, but those that only have packets which never reached the other tracker's verdict."""
    unsaid = [
        i for n, i in enumerate(seen.ids) if n < len(told.labels) and told.labels[n].startswith(corpus.INCOMPARABLE)
    ]
    ours: dict[tuple, list[dict[str, Any]]] = defaultdict(list)
    for connection in seen.connections:
        ours[_tuple(connection)].append(connection)
    theirs = [(_tuple(connection), connection) for connection in told.table]
    for key, connection in theirs:
        found = ours[key].pop(0) if ours[key] else None
        result.aspects["tuple"].add(found is not None)
        if found is None:
            _note(result, told, key, "tuple", "there", "absent")
            continue
        comparable = found["id"] not in unsaid
        for aspect, their, our in _aspects(run, connection, found, comparable):
            result.aspects[aspect].add(their == our)
            if their != our:
                _note(result, told, key, aspect, their, our)
    for key, rest in ours.items():
        for connection in rest:
            if connection["id"] not in unsaid:
                result.aspects["tuple"].add(False)
                _note(result, told, key, "tuple", "absent", "there")


def _note(result: Result, told: corpus.Told, key: tuple, aspect: str, their: Any, our: Any) -> None:
    protocol, source, destination, *ports = key
    text = f"{protocol} {source} {destination} {' '.join(map(str, ports))}".rstrip()
    mended = "".join(sorted(set().union(*told.mended)))
    result.table_differences.append(TableDifference(told.capture, text, aspect, their, our, mended))


NUMBERS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "dccp": 33, "icmpv6": 58, "sctp": 132, "udplite": 136}
BY_ADDRESSES = (33, 47)
"""Protocols of which the others tell addresses only, even where they know more."""


def _tuple(connection: dict[str, Any]) -> tuple:
    """Return protocol, addresses and ports of the opener's direction; of ICMP, id, type and code."""
    name = str(connection["proto"])
    number = connection.get("proto_num") or NUMBERS.get(name) or int(name)
    orig = connection["orig"]
    ends = [str(ipaddress.ip_address(orig[end])) for end in ("src", "dst")]
    if "type" in orig:
        return number, *ends, *(int(orig[word]) for word in ("id", "type", "code"))
    if "sport" not in orig or number in BY_ADDRESSES or not (int(orig["sport"]) or int(orig["dport"])):
        return number, *ends
    return number, *ends, int(orig["sport"]), int(orig["dport"])


def _aspects(run: Run, their: dict[str, Any], our: dict[str, Any], comparable: bool) -> Iterator[tuple[str, Any, Any]]:
    """Yield what there is to compare of a connection that both have."""
    if run.profile == "ovs":
        if "state_orig" in their:
            yield "state", *((one["state_orig"], one["state_reply"]) for one in (their, our))
        yield "timeout", their["timeout"], our["timeout"]
        if "parent" in their or "parent" in our:
            yield "parent", "parent" in their, "parent" in our
        return
    if not comparable:
        return
    if "state" in their:
        yield "state", their["state"], our.get("state")
    yield "packets and bytes", _counts(their), _counts(our)


def _counts(connection: dict[str, Any]) -> tuple[int, ...]:
    return tuple(int(connection[way][what]) for way in ("orig", "reply") for what in ("packets", "bytes"))


def summary(differences: list[Difference]) -> Counter:
    """Return how many differences there are of each kind: their label, ours, and our reason."""
    return Counter((one.theirs.rstrip("a"), one.ours.rstrip("a"), one.reason.name) for one in differences)
