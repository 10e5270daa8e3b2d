"""Connections as messages of syslog (RFC 5424): one for each that begins, ends or changes, with data to search by.

    <134>1 2026-01-01T00:00:00.100Z host zonetrack 77 DESTROY [connection@32473 id="17" zone="5" ...] tcp 192.0.2.1:4 -> ...

The identifier of the data ends in the number that documents may use (RFC 5612); there is none of our own.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from .connections import endpoint

FACILITIES = {
    "kern": 0,
    "user": 1,
    "daemon": 3,
    "auth": 4,
    "authpriv": 10,
    **{f"local{number}": 16 + number for number in range(8)},
}
INFORMATIONAL, WARNING = 6, 4
SEVERITIES = {"new": INFORMATIONAL, "update": INFORMATIONAL, "destroy": INFORMATIONAL, "gap": WARNING}
SD_ID = "connection@32473"
APP_NAME = "zonetrack"
NIL = "-"


def escaped(text: str) -> str:
    """Return a value as it may stand in structured data (RFC 5424 6.3.3)."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("]", "\\]")


def parameters(event: dict[str, Any]) -> dict[str, str]:
    """Return what the structured data of an event says."""
    if event["event"] == "gap":
        return {"lost": str(event["lost"]), "sequence": str(event["sequence"])}
    orig, reply = event["orig"], event["reply"]
    found: dict[str, Any] = {"id": event["id"], "sequence": event["sequence"], "zone": event["zone"]}
    found |= {"proto": event["proto"] if event["proto"] != "unknown" else event["proto_num"]}
    found |= {name: orig[name] for name in ("src", "dst", "sport", "dport", "type", "code") if name in orig}
    translated = {"source_nat", "destination_nat"} & set(event["status"])
    if translated:
        found |= {f"reply_{name}": reply[name] for name in ("src", "dst", "sport", "dport") if name in reply}
    found |= {name: event[name] for name in ("state", "mark", "labels", "helper", "end") if name in event}
    if event["event"] == "destroy":
        found |= {"orig_packets": orig["packets"], "orig_bytes": orig["bytes"]}
        found |= {"reply_packets": reply["packets"], "reply_bytes": reply["bytes"]}
        found["duration"] = f"{max(0.0, event['time'] - event['start']):.3f}"
    return {name: str(value) for name, value in found.items()}


def text_of(event: dict[str, Any]) -> str:
    """Return what a person reads."""
    if event["event"] == "gap":
        return f"{event['lost']} events are missing"
    orig = event["orig"]
    source, destination = endpoint(orig["src"], orig.get("sport")), endpoint(orig["dst"], orig.get("dport"))
    proto = event["proto"] if event["proto"] != "unknown" else event["proto_num"]
    return f"{proto} {source} -> {destination} zone {event['zone']}"


def line(event: dict[str, Any], facility: int, host: str, pid: int) -> bytes:
    """Return the message of an event.

    Args:
        event: as ``events`` of the client libraries has it.
        facility: number of the facility.
        host: name of this host.
        pid: of the process that speaks.
    """
    priority = facility * 8 + SEVERITIES[event["event"]]
    moment = NIL
    if "time" in event:
        seconds, milliseconds = divmod(round(event["time"] * 1000), 1000)
        moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"
    data = " ".join(f'{name}="{escaped(value)}"' for name, value in parameters(event).items())
    head = f"<{priority}>1 {moment} {host or NIL} {APP_NAME} {pid} {event['event'].upper()}"
    return f"{head} [{SD_ID} {data}] {text_of(event)}".encode()


def framed(message: bytes) -> bytes:
    """Return a message as it goes over TCP: its length before it (RFC 6587 3.4.1)."""
    return b"%d %s" % (len(message), message)


def host_name() -> str:
    """Return this host's name."""
    return socket.gethostname() or NIL
