"""Flows as IPFIX messages (RFC 7011): one record for both directions (RFC 5103), of rows as events and dumps have them.

A record has the times, both ends, what went each way since the record before, why it was made, the zone (as ingressVRFID),
the connection's id (as flowId), and of one that is translated the tuple behind the translation.  Four templates: IPv4 and
IPv6, each with and without translation.  Records are made column by column.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from .connections import ICMP, ICMPV6, PORTS, STATUS

if TYPE_CHECKING:
    import numpy as np

VERSION = 10
TEMPLATE_SET = 2
REVERSE = 29_305
"""Private enterprise number of fields of the reverse direction (RFC 5103 6.1)."""
UDP_BYTES_MAX = 1_400
"""Of a message over UDP: below the MTU of most ways, as RFC 7011 10.3.3 asks."""
TCP_BYTES_MAX = 32_768
TRANSLATED = STATUS["source_nat"] | STATUS["destination_nat"]
_HEADER = struct.Struct("!HHIII")
_SET = struct.Struct("!HH")


class EndReason(IntEnum):
    """flowEndReason (IANA, IPFIX Information Elements 136)."""

    IDLE = 1
    ACTIVE = 2
    ENDED = 3
    FORCED = 4
    RESOURCES = 5


class Field(NamedTuple):
    """An information element as the templates have it; its name here, number at IANA, and numpy's format."""

    name: str
    number: int
    kind: str
    enterprise: int = 0


# fmt: off
_BEGIN = (
    Field("flowStartMilliseconds",     152, ">u8"),
    Field("flowEndMilliseconds",       153, ">u8"),
)
_BOTH_WAYS = (
    Field("sourceTransportPort",         7, ">u2"),
    Field("destinationTransportPort",   11, ">u2"),
    Field("protocolIdentifier",          4, "u1"),
    Field("flowEndReason",             136, "u1"),
    Field("biflowDirection",           239, "u1"),
    Field("firewallEvent",             233, "u1"),
    Field("ingressVRFID",              234, ">u4"),
    Field("flowId",                    148, ">u8"),
    Field("packetDeltaCount",            2, ">u8"),
    Field("octetDeltaCount",             1, ">u8"),
    Field("reversePacketDeltaCount",     2, ">u8", REVERSE),
    Field("reverseOctetDeltaCount",      1, ">u8", REVERSE),
)
_PORTS_BEHIND = (
    Field("postNAPTSourceTransportPort",      227, ">u2"),
    Field("postNAPTDestinationTransportPort", 228, ">u2"),
)
_FOUR = (
    Field("sourceIPv4Address",           8, "V4"),
    Field("destinationIPv4Address",     12, "V4"),
    Field("icmpTypeCodeIPv4",           32, ">u2"),
)
_SIX = (
    Field("sourceIPv6Address",          27, "V16"),
    Field("destinationIPv6Address",     28, "V16"),
    Field("icmpTypeCodeIPv6",          139, ">u2"),
)
_FOUR_BEHIND = (
    Field("postNATSourceIPv4Address",      225, "V4"),
    Field("postNATDestinationIPv4Address", 226, "V4"),
)
_SIX_BEHIND = (
    Field("postNATSourceIPv6Address",      281, "V16"),
    Field("postNATDestinationIPv6Address", 282, "V16"),
)
# fmt: on
TEMPLATES: dict[int, tuple[Field, ...]] = {
    256: (*_BEGIN, *_FOUR, *_BOTH_WAYS),
    257: (*_BEGIN, *_SIX, *_BOTH_WAYS),
    258: (*_BEGIN, *_FOUR, *_BOTH_WAYS, *_FOUR_BEHIND, *_PORTS_BEHIND),
    259: (*_BEGIN, *_SIX, *_BOTH_WAYS, *_SIX_BEHIND, *_PORTS_BEHIND),
}
"""By number: 256 + 1 for IPv6 + 2 for what is translated."""
CREATED, DELETED, UPDATED = 1, 2, 5
"""firewallEvent (IANA 233)."""


def templates() -> bytes:
    """Return the set of all templates."""
    body = b""
    for number, fields in TEMPLATES.items():
        body += struct.pack("!HH", number, len(fields))
        for field in fields:
            size = int(field.kind.lstrip(">uV"))
            if field.enterprise:
                body += struct.pack("!HHI", field.number | 0x8000, size, field.enterprise)
            else:
                body += struct.pack("!HH", field.number, size)
    return _SET.pack(TEMPLATE_SET, _SET.size + len(body)) + body


class Flows(NamedTuple):
    """What is to be told of some connections."""

    rows: np.ndarray
    """Of a dump or of events."""
    packets: np.ndarray
    """u8[n, 2]: original, reply, since the record before."""
    octets: np.ndarray
    reasons: np.ndarray
    """EndReason[n]; 0: it has only begun."""
    ends_ms: np.ndarray
    """u8[n]: the moments up to which it is told."""


def records(flows: Flows) -> Iterator[tuple[int, np.ndarray]]:
    """Yield records by template: its number, and the records as bytes, V[n]."""
    import numpy as np

    rows = flows.rows
    numbers = 256 + (rows["family"] == 6) + 2 * (rows["status"] & TRANSLATED != 0)
    for number, fields in TEMPLATES.items():
        which = np.flatnonzero(numbers == number)
        if len(which):
            yield number, _filled(number, fields, flows, which)


def _filled(number: int, fields: tuple[Field, ...], flows: Flows, which: np.ndarray) -> np.ndarray:
    import numpy as np

    rows, reasons = flows.rows[which], flows.reasons[which]
    made = np.zeros(len(which), [(field.name, field.kind) for field in fields])
    version, size = ("IPv6", 16) if number & 1 else ("IPv4", 4)
    made["flowStartMilliseconds"], made["flowEndMilliseconds"] = rows["start_ms"], flows.ends_ms[which]
    has_ports = np.isin(rows["protocol"], list(PORTS))
    made["sourceTransportPort"] = np.where(has_ports, rows["sport"], 0)
    made["destinationTransportPort"] = np.where(has_ports, rows["dport"], 0)
    is_icmp = np.isin(rows["protocol"], (ICMP, ICMPV6))
    made[f"icmpTypeCode{version}"] = np.where(is_icmp, rows["dport"], 0)
    made["protocolIdentifier"], made["flowEndReason"] = rows["protocol"], reasons
    made["biflowDirection"] = 1  # the initiator's comes first
    made["firewallEvent"] = np.where(reasons == 0, CREATED, np.where(reasons == EndReason.ACTIVE, UPDATED, DELETED))
    made["ingressVRFID"], made["flowId"] = rows["zone"], rows["id"]
    for way, before in enumerate(("packet", "reversePacket")):
        made[f"{before}DeltaCount"] = flows.packets[which, way]
    for way, before in enumerate(("octet", "reverseOctet")):
        made[f"{before}DeltaCount"] = flows.octets[which, way]
    ends = {f"source{version}Address": "src", f"destination{version}Address": "dst"}
    if number >= 258:
        ends |= {f"postNATSource{version}Address": "reply_dst", f"postNATDestination{version}Address": "reply_src"}
        made["postNAPTSourceTransportPort"] = np.where(has_ports, rows["reply_dport"], 0)
        made["postNAPTDestinationTransportPort"] = np.where(has_ports, rows["reply_sport"], 0)
    for name, column in ends.items():
        made[name] = np.ascontiguousarray(rows[column][:, -size:]).view(f"V{size}").reshape(-1)
    return made.view(f"V{made.dtype.itemsize}")


class Exporter:
    """Numbers and cuts the messages of one observation domain.

    Args:
        domain: its number.
        bytes_max: of a message.
    """

    def __init__(self, domain: int, bytes_max: int) -> None:
        self.domain, self.bytes_max = domain, bytes_max
        self.sequence = 0
        """Data records in all messages so far, as RFC 7011 3.1 counts them."""

    def announce(self, time_s: int) -> bytes:
        """Return the message with the templates."""
        return self._message(templates(), time_s, 0)

    def messages(self, flows: Flows, time_s: int) -> Iterator[bytes]:
        """Yield messages with the records of flows."""
        for number, made in records(flows):
            size = made.dtype.itemsize
            most = max(1, (self.bytes_max - _HEADER.size - _SET.size) // size)
            for first in range(0, len(made), most):
                part = made[first : first + most]
                body = _SET.pack(number, _SET.size + size * len(part)) + part.tobytes()
                yield self._message(body, time_s, len(part))

    def _message(self, body: bytes, time_s: int, count: int) -> bytes:
        header = _HEADER.pack(VERSION, _HEADER.size + len(body), time_s & 0xFFFFFFFF, self.sequence, self.domain)
        self.sequence = (self.sequence + count) & 0xFFFFFFFF
        return header + body
