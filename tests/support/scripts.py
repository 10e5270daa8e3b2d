"""Packet scripts: one line a packet, readable by a network engineer, run as real packets through the tracker.

    # simultaneous close
    settings be_liberal -loose max_retrans=5
    > S    seq 100 win 1000 <mss1460>     SYN_SENT     new   120s  unreplied
    < SA   seq 900 ack 101 win 1000       SYN_RECV     est   60s
    +59s                                  SYN_RECV     live
    +1s                                   gone         swept

Each script runs over IPv4 and IPv6, or over what ``family 4`` says; ``profile ovs`` has Open vSwitch's rules; ``helper ftp
21`` has a helper follow connections to a port.

A packet line: ``>`` from the client or ``<`` from the server; what it is; then the state of its connection after it
(``gone`` when there is none), the ct_state (``inv``, ``untracked``, ``held``), and, where they matter, seconds to live and
``unreplied`` or ``assured``, ``related``.  Seconds that are not written are not compared; the other words are written
whenever they hold, but those that ``ovs`` has not.  Of ct_state the names are written as Open vSwitch has them
(``est|rpl``); in ``netfilter``, where the arrow says it, ``rpl`` is left out.

    S, SA, - ...        a TCP segment with these flags: seq ack win len, options in <...> (tests/support/segments)
    udp                 a datagram: len
    echo, echo-reply    or ``icmp TYPE/CODE``: id len
    error NAME          a router's ICMP error about the other side's latest packet (wire.ERRORS, or TYPE/CODE): quote N bytes
    sctp CHUNK          tag, and itag of INIT and INIT-ACK
    proto N             any other protocol: len

TCP, UDP and SCTP have ports 40000 and 80, or ``sport`` and ``dport``.  A payload may be written: ``"HELLO\\r\\n"``.
``bytes A-B`` makes a fragment of those bytes above IP; ``number`` tells datagrams apart.  ``late new inv`` tells what became
of fragments that had waited, in the order in which they came.

``ct(commit,zone=1,nat(src={n}:5000-5009))`` says how packets are tracked from there on, in the words of rules; several on a
line, one after the other: each sees what the one before has made of the packet.  Hosts are written in braces.
``limit 1 3`` gives zone 1 a limit, ``policy 1 udp=7`` gives a timeout policy lengths in seconds.  A packet goes ``from`` and
``to`` other hosts than the arrow says, where it is written; ``that`` is the port, or the identifier, with which the other
side's latest packet went on.  What a packet goes on as stands behind ``=>``:

    > udp             live  new|snat  unreplied  => n:5000-5009 s:80
    < udp to n dport that  live  est|dnat        => s:80 c:40000

A ``mark=`` and a ``label=`` are words of the status.  All checksums of what goes on are looked at.

A segment has a state of TCP, and with ``profile ovs`` those of both peers: ``ESTABLISHED/SYN_SENT``; others are ``live``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import fragmented
import gateway
import naive_fragments
import numpy as np
import tables
import wire
from bursts import Bench
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from zonetrack.kernels import burst, delete_list, sweep
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.timeouts import Timeout
from zonetrack.service import connections, labels, rule_actions, rules_compile
from zonetrack.service.helper_rules import HelperRules
from zonetrack.service.rules import Ct, Names
from zonetrack.shm import segment
from zonetrack.shm.layout import (
    FRAGMENT,
    FRAME,
    FRAME_SLOT_BYTES,
    POLICY,
    VERDICT,
    ZONE,
    CtState,
    FrameFlag,
    Helper,
    Link,
    Region,
    Setting,
    VerdictFlag,
)
from zonetrack.shm.sizing import Geometry

BEGIN_MS = 1_000_000
ZONES = 8
"""Zones whose settings a script changes: all that it has."""
PORTS = {"c": 40000, "s": 80}
NUMBERS = ("seq", "ack", "win", "len", "id", "sport", "dport", "tag", "itag", "number", "quote", "bytes")

ENDS = ("from", "to")
_STATE = r"(?P<state>[A-Z_0-9]+(?:/[A-Z_0-9]+)?|gone|live|-)"
_PACKET = re.compile(
    r"(?P<way>[<>])\s+"
    r"(?P<what>[FSRPAUEC]+|-|udp|echo-reply|echo|(?:icmp|error|sctp|proto)\s+[\w/-]+)\s+"
    rf"(?P<numbers>(?:(?:{'|'.join(NUMBERS)})\s+(?:that|[\d-]+)\s+|(?:from|to)\s+[a-z]\s+)*)"
    r"(?:<(?P<options>[^>]*)>\s+)?"
    r'(?:"(?P<payload>[^"]*)"\s+)?'
    rf"{_STATE}\s+(?P<ct_state>[a-z|]+)(?:\s+(?P<timeout>\d+)s)?(?P<status>(?:\s+[a-z]+(?:=\w+)?)*)"
    r'(?:\s+=>\s+(?P<source>\w+(?::[\d-]+)?)\s+(?P<destination>\w+(?::[\d-]+)?)(?:\s+"(?P<says>[^"]*)")?)?'
)
_HOST = re.compile(r"\{([a-z])\}")
_WAIT = re.compile(rf"\+(?P<seconds>\d+(?:\.\d+)?)s\s+{_STATE}\s+(?P<fate>live|swept)")


class Difference(NamedTuple):
    """A line of a script that did not go as written."""

    line: int
    text: str
    expected: tuple
    seen: tuple


class World:
    """A small table with one zone, and the latest packet of each host."""

    def __init__(self, family: int) -> None:
        self.family = family
        self.bench = Bench(segment.anonymous(Geometry(64, 4, extension_share=1_000)))
        self.zone = self.bench.table.array(Region.CONTROL, "zones", ZONE)[:ZONES]
        self.policies = self.bench.table.array(Region.CONTROL, "policies", POLICY)
        self.names = Names(helpers={helper.name.lower(): int(helper) for helper in Helper if helper})
        self.steps = [(0, FrameFlag.COMMIT, None)]
        self.now_ms = BEGIN_MS
        self.latest: dict[str, bytes] = {}
        """What each side's latest packet has gone on as."""
        self.sent = 0

    @property
    def is_ovs(self) -> bool:
        """Whose rules hold."""
        return bool(int(self.zone["settings"][0]) & Setting.OVS)

    def set(self, text: str) -> None:
        """Change settings of the zone: ``name``, ``-name``, ``max_retrans=N``."""
        for name in text.split():
            word = int(self.zone["settings"][0])
            if name.startswith("max_retrans="):
                self.zone["max_retrans"] = int(name.partition("=")[2])
            else:
                bit = Setting[name.lstrip("-").upper()]
                self.zone["settings"] = word & ~bit if name.startswith("-") else word | bit

    def help(self, name: str, port: int) -> None:
        """Have a helper follow connections to a port."""
        HelperRules(self.bench.table).set(0, {name: [port]})

    def wait(self, seconds: float) -> None:
        """Let time pass, and sweep."""
        self.now_ms += round(1000 * seconds)
        sweep.sweep(self.bench.views, np.uint64(self.now_ms), np.uint64(1 << 20))
        delete_list.run(self.bench.views)

    def close(self) -> None:
        """End with nothing broken; the interpreter would take seconds to look."""
        delete_list.run(self.bench.views)
        if JIT:
            self.bench.settle()

    def track_as(self, text: str) -> None:
        """Have packets tracked so from now on: what ``ct`` actions say, one after the other."""
        hosts = _HOST.sub(lambda host: self.address(host[1]), text)
        self.steps = []
        for ct in rule_actions.read(rule_actions.pieces(hosts), self.names):
            assert isinstance(ct, Ct)
            self.steps.append((ct.zone, FrameFlag.COMMIT if ct.commit else 0, rules_compile.asked(ct)))

    def address(self, host: str) -> str:
        """Return the address of a host as rules have it."""
        address = wire.HOSTS[host][self.family]
        return f"[{address}]" if self.family == 6 else address

    def track(self, packet: bytes) -> Any:
        """Track one packet; returns its last VERDICT."""
        return self.go(packet)[0]

    def go(self, packet: bytes) -> tuple[Any, bytes]:
        """Track one packet; returns its last VERDICT, and what goes on."""
        slot = np.zeros(max(FRAME_SLOT_BYTES, len(packet)), "u1")
        slot[: len(packet)] = np.frombuffer(packet, "u1")
        frames, verdicts = np.zeros(1, FRAME), np.zeros(1, VERDICT)
        frames["address"], frames["link"] = slot.ctypes.data, Link.RAW_IP
        frames["captured_bytes"] = frames["wire_bytes"] = len(packet)
        frames["ticket"] = self.sent
        self.sent += 1
        at = np.uint64(frames.ctypes.data), np.uint64(verdicts.ctypes.data)
        for zone, flags, action in self.steps:
            frames["zone"], frames["flags"] = zone, flags | FrameFlag.ROOM
            frames["action"] = 0 if action is None else action.ctypes.data
            burst.track_burst(self.bench.views, at[0], np.uint64(1), np.uint64(self.now_ms), at[1])
        return verdicts[0], slot[: int(frames["captured_bytes"][0])].tobytes()

    def late(self) -> list[str]:
        """Return the ct_states of fragments that had to wait until now."""
        found = {}
        fragments = self.bench.table.array(Region.FRAGMENTS, "fragments", FRAGMENT)
        scratch = naive_fragments.scratch(self.bench.views)
        while fragmented.collect(self.bench.views, np.uint64(self.now_ms)):
            for number in scratch["late"][: int(scratch["late_count"])]:
                found[int(fragments[int(number)]["ticket"])] = ct_state_of(
                    fragments[int(number)]["verdict"], self.is_ovs
                )
        return [found[ticket] for ticket in sorted(found)]

    def connections(self) -> list[dict[str, Any]]:
        """Return what is alive."""
        return list(connections.listed(self.bench.table, self.now_ms))

    def connection(self, verdict: Any) -> dict[str, Any] | None:
        """Return the connection of a verdict, if it is there still; of one that names none, the only one that is there."""
        alive = self.connections()
        if verdict["incarnation"] and not verdict["flags"] & VerdictFlag.HELD:
            number = int(verdict["incarnation"]) << 32 | int(verdict["record"])
            return next((one for one in alive if one["id"] == number), None)
        return alive[0] if len(alive) == 1 else None


def state_of(connection: dict[str, Any] | None) -> str:
    """Return the state as scripts have it."""
    if connection is None:
        return "gone"
    if "state_orig" in connection:
        return f"{connection['state_orig']}/{connection['state_reply']}"
    return connection.get("state", "live")


def run(path: Path, family: int) -> list[Difference]:
    """Run a script over IPv4 or IPv6; return what went otherwise than it says."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(path.read_text().splitlines(), 1)]
    lines = [(n, text) for n, text in lines if text]
    world, differences = World(family), []
    for number, text in lines:
        word, _, rest = text.partition(" ")
        if word == "family":
            if str(family) not in rest.split():
                return []
        elif word == "profile":
            world.set("ovs" if rest.strip() == "ovs" else "-ovs")
        elif word == "settings":
            world.set(rest)
        elif word == "helper":
            name, port = rest.split()
            world.help(name, int(port))
        elif word == "limit":
            zone, limit = rest.split()
            tables.set_limit(world.bench.table, int(zone), int(limit))
        elif word == "policy":
            number_, *lengths = rest.split()
            for name, seconds in (one.split("=") for one in lengths):
                world.policies["timeout_ms"][int(number_), Timeout[name.upper()]] = 1000 * int(seconds)
        elif word.startswith("ct"):
            world.track_as(text)
        else:
            expected, seen = (
                _late(world, rest)
                if word == "late"
                else (_wait(world, text) if text.startswith("+") else _packet(world, text))
            )
            if expected != seen:
                differences.append(Difference(number, text, expected, seen))
    world.close()
    return differences


def _fields(pattern: re.Pattern, text: str) -> dict[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"not a line of a script: {text!r}")
    return match.groupdict()


def _wait(world: World, text: str) -> tuple[tuple, tuple]:
    fields = _fields(_WAIT, text)
    world.wait(float(fields["seconds"]))
    alive = world.connections()
    return (fields["state"], fields["fate"]), (state_of(alive[0] if alive else None), "live" if alive else "swept")


def _late(world: World, text: str) -> tuple[tuple, tuple]:
    return tuple(text.split()), tuple(world.late())


def _packet(world: World, text: str) -> tuple[tuple, tuple]:
    fields = _fields(_PACKET, text)
    side = "c" if fields["way"] == ">" else "s"
    words = fields["numbers"].split()
    numbers = dict(zip(words[::2], words[1::2], strict=True))
    ends = {name: numbers.pop(name) for name in ENDS if name in numbers}
    for name in (name for name, value in numbers.items() if value == "that"):
        numbers[name] = str(_that(world.latest[wire.other(side)]))
    datagram = _datagram(world, side, fields, numbers)
    datagram = datagram._replace(
        source=ends.get("from", datagram.source), destination=ends.get("to", datagram.destination)
    )
    part = tuple(map(int, numbers["bytes"].split("-"))) if "bytes" in numbers else None
    packet = datagram.packet(world.family, part, int(numbers.get("number", 1)))
    verdict, went = world.go(packet)
    world.latest[side] = went
    connection = world.connection(verdict)
    found_state = "-" if fields["state"] == "-" else state_of(connection)
    expected = fields["state"], fields["ct_state"], " ".join((fields["status"] or "").split())
    seen = found_state, ct_state_of(verdict, world.is_ovs), "" if found_state == "-" else status_of(connection)
    if fields["timeout"] is not None:
        expected, seen = (*expected, int(fields["timeout"])), (*seen, connection["timeout"] if connection else None)
    if not verdict["ct_state"] & CtState.INV and part is None:
        assert gateway.is_right(_read(went)), "a checksum is wrong"
    if fields["source"] is None:
        return expected, seen
    return (*expected, *_goes_on(world, fields, went)), (*seen, *_seen_going_on(went, fields))


def _read(packet: bytes) -> Any:
    """Return a packet as scapy has it."""
    return IP(packet) if packet[0] >> 4 == 4 else IPv6(packet)


def _that(packet: bytes) -> int:
    """Return the port that a packet comes from, or its identifier."""
    l4 = _read(packet).payload
    return l4.sport if hasattr(l4, "sport") else l4.id


def _seen_going_on(went: bytes, fields: dict[str, str]) -> tuple:
    """Return addresses and ports of a packet, of ICMP its identifier as both, and its payload where a script asks for it."""
    packet = _read(went)
    ports = [getattr(packet.payload, name, getattr(packet.payload, "id", 0)) or 0 for name in ("sport", "dport")]
    says = bytes(packet.payload.payload) if fields["says"] is not None else b""
    return packet.src, ports[0], packet.dst, ports[1], says


def _goes_on(world: World, fields: dict[str, str], went: bytes) -> tuple:
    """Return what a script says of that; of a port in a range, or that it does not name, what is so."""
    _, sport, _, dport, _ = _seen_going_on(went, fields)
    found = []
    for end, port in ((fields["source"], sport), (fields["destination"], dport)):
        host, _, ports = end.partition(":")
        low, _, high = ports.partition("-")
        right = not ports or int(low) <= port <= int(high or low)
        found += [wire.HOSTS[host][world.family], port if right else ports]
    says = (fields["says"] or "").encode().decode("unicode_escape").encode("latin-1")
    return (*found, says)


def ct_state_of(verdict: Any, is_ovs: bool) -> str:
    """Return a verdict's ct_state as scripts have it."""
    if verdict["flags"] & VerdictFlag.HELD:
        return "held"
    if verdict["flags"] & VerdictFlag.UNTRACKED:
        return "untracked"
    bits = int(verdict["ct_state"]) & ~CtState.TRK
    return "|".join(labels.names(bits if is_ovs else bits & ~CtState.RPL))


def status_of(connection: dict[str, Any] | None) -> str:
    """Return the words that scripts have for a connection's status."""
    if connection is None:
        return ""
    status = set(connection["status"])
    words = ["related"] if "related" in status else []
    if "ovs" not in status:
        words += ["assured"] if "assured" in status else [] if "seen_reply" in status else ["unreplied"]
    words += [f"mark={connection['mark']:#x}"] if connection.get("mark") else []
    words += [f"label={connection['labels']}"] if connection.get("labels") else []
    return " ".join(words)


def _datagram(world: World, side: str, fields: dict[str, str], numbers: dict[str, str]) -> wire.Datagram:
    """Return what a packet line describes."""
    what, *of = fields["what"].split()
    number = {name: int(value) for name, value in numbers.items() if name != "bytes"}
    ports = number.get("sport", PORTS[side]), number.get("dport", PORTS[wire.other(side)])
    payload = bytes(number.get("len", 0))
    if fields["payload"] is not None:
        payload = fields["payload"].encode().decode("unicode_escape").encode()
    if what == "udp":
        return wire.udp(side, ports, payload)
    if what in wire.QUERIES:
        return wire.query(side, wire.QUERIES[what][world.family], 0, number.get("id", 7), payload)
    if what == "icmp":
        kind, _, code = of[0].partition("/")
        return wire.query(side, int(kind), int(code or 0), number.get("id", 7), payload)
    if what == "error":
        kind, code = wire.ERRORS[of[0]][world.family] if of[0] in wire.ERRORS else map(int, of[0].split("/"))
        header = 20 if world.family == 4 else 40
        quoted = world.latest[wire.other(side)][: header + number.get("quote", 64)]
        return wire.error("r", wire.other(side), kind, code, quoted)
    if what == "sctp":
        return wire.sctp(side, ports, number.get("tag", 0), of[0], number.get("itag", 0))
    if what == "proto":
        return wire.other_protocol(side, int(of[0]), payload)
    flags, options = what.strip("-"), fields["options"] or ""
    return wire.tcp(
        *(side, ports, flags, number.get("seq", 0), number.get("ack", 0), number.get("win", 0), options), payload
    )
