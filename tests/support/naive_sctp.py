"""SCTP as a middlebox sees it, in plain words and sets: what kernels/sctp must come to.

States change as a live Linux was seen to change them (tests/data/netfilter-other-matrix.json); the rules for tags are
those of RFC 9260 8.5 and 8.5.1, and what kernels/sctp says of crossing and late INITs and of heartbeats.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

PROBES = json.loads((Path(__file__).parents[1] / "data" / "netfilter-other-matrix.json").read_text())["sctp"]
NAMES = {chunk for _, _, chunk, *_ in PROBES}
AFTER = {
    (state.partition("(")[0], way, chunk): after
    for state, way, chunk, tag, verdict, after, _ in PROBES
    if tag == "right tag" and verdict != "INVALID" and not (state == "NONE" and way == "reply")
}
# these were refused, but on account of a tag that could not be known
AFTER |= {("HEARTBEAT_SENT", "reply", chunk): "HEARTBEAT_SENT" for chunk in ("DATA", "SACK")}
AFTER |= {("CLOSED", "orig", chunk): "CLOSED" for chunk in NAMES}
ALONE = {"INIT", "INIT_ACK", "SHUTDOWN_COMPLETE"}
FIRST = {"COOKIE_ECHO", "COOKIE_ACK"}
LOOKED_AT_LATER = {"INIT", "SHUTDOWN_COMPLETE", "COOKIE_ECHO", "ABORT", "SHUTDOWN_ACK", "HEARTBEAT", "HEARTBEAT_ACK"}
OTHER = {"orig": "reply", "reply": "orig"}


class Refused(Exception):
    """The packet is no part of the association."""


@dataclass
class Association:
    """What is known of two hosts' association."""

    state: str = "NONE"
    tags: dict[str, int] = field(default_factory=lambda: {"orig": 0, "reply": 0})
    """What packets of a way must carry; 0: not known."""
    inits: set[str] = field(default_factory=set)
    challenger: str | None = None
    assured: bool = False

    def track(self, way, chunks, tag):
        """Follow a packet of (name, flags, announced tag); return whether it is part of the association."""
        names = [name for name, _, _ in chunks]
        if not names or (len(names) > 1 and ALONE & set(names)) or FIRST & set(names[1:]):
            return False
        if self.state == "NONE":
            if way == "reply" or any(("NONE", way, name) not in AFTER for name in names):
                return False
            if not {"INIT", "HEARTBEAT"} & set(names):
                self.tags["reply"] = tag
        if not LOOKED_AT_LATER & set(names) and tag != self.tags[way]:
            return False
        try:
            challenges = 0
            for name, flags, announced in chunks:
                challenges += self.chunk(way, name, flags, announced, tag, "DATA" in names, challenges)
        except Refused:
            return False
        return True

    def chunk(self, way, name, flags, announced, tag, with_data, challenges):
        """Take one step; return whether it was only a challenge."""
        if name == "INIT" and tag:
            raise Refused
        if name in ("ABORT", "SHUTDOWN_COMPLETE") and tag != self.tags[OTHER[way] if flags & 1 else way]:
            raise Refused
        if name == "COOKIE_ECHO" and tag != self.tags[way]:
            raise Refused
        if name == "COOKIE_ACK":
            self.inits.clear()
        if name in ("HEARTBEAT", "HEARTBEAT_ACK") and self.heartbeat(way, name, tag, with_data or challenges):
            return True
        after = AFTER.get((self.state, way, name))
        if after is None:
            raise Refused
        if name in ("INIT", "INIT_ACK"):
            self.announce(way, name, announced)
        self.assured |= self.state != "ESTABLISHED" and after == "ESTABLISHED"
        self.state = after
        return False

    def heartbeat(self, way, name, tag, must_match):
        if not self.tags[way]:
            self.tags[way] = tag
        elif tag == self.tags[way]:
            self.challenger = None
        elif must_match:
            raise Refused
        elif name == "HEARTBEAT":
            self.challenger = way
            return True
        elif self.challenger == OTHER[way]:
            self.challenger = None
            self.tags = {way: tag, OTHER[way]: 0}
        else:
            raise Refused
        return False

    def announce(self, way, name, announced):
        back = OTHER[way]
        known, both = self.tags[back], len(self.inits) == 2
        if name == "INIT":
            if not self.inits and known == announced:
                return
            self.inits = {way} if both else self.inits | {way}
        elif known != announced and (both or (known and back not in self.inits)):
            raise Refused
        self.tags[back] = announced
