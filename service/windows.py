"""The bounds that a TCP segment was held against, in numbers: those of kernels/tcp_window and of kernels/ovs_tcp.

A bound is told from what the record remembered when the segment was judged (the contents of a sample), by the arithmetic
of the kernels, modulo 2**32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..kernels.ovs_tcp import MAX_ACK_WINDOW, OFFERED, SCALE_MAX, SHIFT, UNKNOWN
from ..kernels.tcp_window import ACK_WINDOW_MIN, PeerFlag
from ..shm.layout import OVS_PEERS, TCP_PEERS
from .arrivals import Arrival, host

MODULUS = 1 << 32
HALF = 1 << 31
SYN, RST, ACK = 0x02, 0x04, 0x10


class Bound(NamedTuple):
    """One comparison of a segment: a number of its, and how far it may go."""

    what: str
    value: int
    limit: int
    is_highest: bool
    """Whether ``limit`` is the highest that will do, else the lowest."""
    why: str

    @property
    def beyond(self) -> int:
        """How far the number is on the wrong side; 0 where it holds."""
        away = self.value - self.limit if self.is_highest else self.limit - self.value
        away %= MODULUS
        return away if away < HALF else 0

    @property
    def text(self) -> str:
        """What is wrong, or would be."""
        side = ("beyond", "highest") if self.is_highest else ("below", "lowest")
        return f"{self.what} {self.value} is {self.beyond} {side[0]} the {side[1]} acceptable {self.limit} ({self.why})"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        end = "highest" if self.is_highest else "lowest"
        return {"what": self.what, "value": self.value, end: self.limit, "holds": not self.beyond, "why": self.why}


def of_netfilter(arrival: Arrival) -> list[Bound]:
    """Return the four bounds of a segment in the `netfilter` profile, in the order in which they are compared."""
    peers = np.frombuffer(arrival.contents, TCP_PEERS)[0]["peer"]
    sender, receiver = peers[arrival.way], peers[1 - arrival.way]
    sender_name, receiver_name = host(arrival, 0), host(arrival, 1)
    sent, granted = int(sender["end"]), int(sender["maxend"])
    window, answered = int(receiver["maxwin"]), int(receiver["end"])
    sack = arrival.sack
    if not arrival.tcp_flags & ACK or (arrival.tcp_flags & RST and not arrival.ack):
        sack = answered  # it acknowledges nothing
    scaled = f"; window scale {receiver['scale']}" if receiver["flags"] & PeerFlag.SCALES else ""
    bounds = [
        Bound("seq", arrival.seq, granted, True, f"highest ack + window of {receiver_name}{scaled}"),
        Bound("ack", sack, answered, True, f"all that {receiver_name} has sent"),
    ]
    if window:
        why = f"{sender_name} has sent {sent}, largest window of {receiver_name} {window}{scaled}"
        bounds.append(Bound("end", arrival.end, (sent - window) % MODULUS, False, why))
    lag = max(int(sender["maxwin"]), int(ACK_WINDOW_MIN))
    why = f"{receiver_name} has sent {answered}, and {lag} back is as old as an ack may be"
    return [*bounds, Bound("ack", sack, (answered - lag) % MODULUS, False, why)]


def of_ovs(arrival: Arrival) -> list[Bound]:
    """Return the bounds of a segment in the `ovs` profile."""
    peers = np.frombuffer(arrival.contents, OVS_PEERS)[0]["peer"]
    sender, receiver = peers[arrival.way], peers[1 - arrival.way]
    sender_name, receiver_name = host(arrival, 0), host(arrival, 1)
    sender_shift, receiver_shift = _shifts(arrival, int(sender["scale"]), int(receiver["scale"]))
    sent, answered = int(sender["seqlo"]), int(receiver["seqlo"])
    seq, end, ack = arrival.seq, arrival.end, arrival.ack
    if not arrival.tcp_flags & ACK or (arrival.tcp_flags & RST and not ack):
        ack = answered
    if seq == end:
        seq = end = sent  # nothing is sent, so it may say any number
    window, far = int(receiver["max_win"]) << receiver_shift, int(MAX_ACK_WINDOW)
    bounds = [
        Bound("end", end, int(sender["seqhi"]), True, f"highest ack + window of {receiver_name}"),
        Bound("seq", seq, (sent - window) % MODULUS, False, f"{sender_name} has sent {sent}, window {window}"),
        Bound("ack", ack, (answered + far) % MODULUS, True, f"{receiver_name} has sent {answered}, and {far} more"),
        Bound(
            *("ack", ack, (answered - (far << sender_shift)) % MODULUS, False),
            f"{receiver_name} has sent {answered}, and {far << sender_shift} back is as old as an ack may be",
        ),
    ]
    if arrival.tcp_flags & RST:
        why = f"a RST must be within 1 of what {sender_name} has sent"
        bounds += [
            Bound("seq", arrival.seq, (sent + 1) % MODULUS, True, why),
            Bound("seq", arrival.seq, (sent - 1) % MODULUS, False, why),
        ]
    return bounds


def _shifts(arrival: Arrival, of_sender: int, of_receiver: int) -> tuple[int, int]:
    """Return the scales of sender and receiver as they count for a segment."""
    known = of_sender & of_receiver
    if arrival.tcp_flags & SYN:
        return 0, 0
    if known & int(OFFERED):
        return of_sender & int(SHIFT), of_receiver & int(SHIFT)
    return (int(SCALE_MAX), int(SCALE_MAX)) if known & int(UNKNOWN) else (0, 0)


def bounds(arrival: Arrival) -> list[Bound]:
    """Return what a segment of a known connection was held against."""
    return of_ovs(arrival) if arrival.is_ovs else of_netfilter(arrival)
