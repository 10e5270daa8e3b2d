"""Rows of a dump for tests: a TCP connection as the service packs it, except for what a test says."""

import ipaddress

import numpy as np
from zonetrack.service.connections import FIELDS
from zonetrack.shm.layout import CONNECTION

__all__ = ["FIELDS", "pack"]
ADDRESSES = ("src", "dst", "reply_src", "reply_dst")
DEFAULTS = {
    "id": 17,
    "protocol": 6,
    "state": 3,
    "status": 6,
    "timeout_ms": 86_399_999,
    "src": "192.0.2.1",
    "dst": "198.51.100.1",
    "sport": 40000,
    "dport": 80,
}


def pack(**fields):
    """Return the bytes of one row; the reply's tuple mirrors the original's, where it is not given."""
    fields = DEFAULTS | fields
    fields = {
        "reply_src": fields["dst"],
        "reply_dst": fields["src"],
        "reply_sport": fields["dport"],
        "reply_dport": fields["sport"],
        **fields,
    }
    row = np.zeros(1, CONNECTION)
    for name, value in fields.items():
        if name in ADDRESSES:
            parsed = ipaddress.ip_address(value)
            row["family"] = parsed.version
            value = np.frombuffer(parsed.packed.rjust(16, b"\0"), "u1")
        row[name] = value
    return row.tobytes()
