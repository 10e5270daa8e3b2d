"""Which queue a packet comes to: a program of classic BPF for a group of packet sockets (packet(7), PACKET_FANOUT_CBPF).

By default by the two addresses of a packet, alike for both directions.  So all of a flow comes to one queue, and with it its
fragments, which have no ports, and the ICMP errors about it: of those the quoted packet's addresses count.  The price is a
coarser spread than by addresses and ports: all flows of two hosts share a queue.

The number that the program returns is taken modulo the members of the group.  Offsets are from the network header; a packet
that ends before what is read gives 0.
"""

from __future__ import annotations

from typing import NamedTuple

NET = 0xFFF00000
"""SKF_NET_OFF: what is added to it is an offset from the network header."""
SPREAD = 0x9E3779B1

# classic BPF, linux/bpf_common.h
LD_W, LD_H, LD_B, LD_W_X, LD_B_X = 0x20, 0x28, 0x30, 0x40, 0x50
LDX_MSH, LDX_MEM, LD_MEM, ST, STX, TAX = 0xB1, 0x61, 0x60, 0x02, 0x03, 0x07
XOR_X, MUL_K, AND_K, RSH_K = 0xAC, 0x24, 0x54, 0x74
JEQ, JSET, JGT, JA = 0x15, 0x45, 0x25, 0x05
RET_A, RET_K = 0x16, 0x06


class Line(NamedTuple):
    """An instruction, with the names of the lines that it jumps to."""

    code: int
    k: int = 0
    then: str = ""
    otherwise: str = ""
    name: str = ""


def _xor(loads: list[tuple[int, int]], after: str) -> list[Line]:
    """Return the lines that leave the exclusive or of some words in M[0], and go on elsewhere."""
    lines = []
    for turn, (code, offset) in enumerate(loads):
        lines.append(Line(code, offset))
        if turn:
            # X may be an offset that is still needed, so the sum so far waits in memory
            lines += [Line(ST, 1), *_combine()]
        lines.append(Line(ST, 0))
    return [*lines, Line(JA, then=after)]


def _combine() -> list[Line]:
    """Return the lines that leave M[0] ^ M[1] in A, and X as it was."""
    return [Line(STX, 2), Line(LDX_MEM, 0), Line(LD_MEM, 1), Line(XOR_X), Line(LDX_MEM, 2)]


def _named(name: str, lines: list[Line]) -> list[Line]:
    return [lines[0]._replace(name=name), *lines[1:]]


ERRORS_4 = (3, 4, 5, 11, 12)
"""Types of ICMP that quote a packet."""

PROGRAM = [
    Line(LD_B, NET),
    Line(AND_K, 0xF0),
    Line(JEQ, 0x40, then="four"),
    Line(JEQ, 0x60, then="six", otherwise="other"),
    Line(RET_K, 0, name="other"),
    # IPv4: an error that is no later fragment, or anything else
    Line(LD_B, NET + 9, name="four"),
    Line(JEQ, 1, otherwise="plain 4"),
    Line(LD_H, NET + 6),
    Line(JSET, 0x1FFF, then="plain 4"),
    Line(LDX_MSH, NET),
    Line(LD_B_X, NET),
    *(Line(JEQ, kind, then="quoted 4") for kind in ERRORS_4),
    Line(JA, then="plain 4"),
    *_named("quoted 4", _xor([(LD_W_X, NET + 8 + 12), (LD_W_X, NET + 8 + 16)], "fold")),
    *_named("plain 4", _xor([(LD_W, NET + 12), (LD_W, NET + 16)], "fold")),
    # IPv6: errors have types 1 to 127
    Line(LD_B, NET + 6, name="six"),
    Line(JEQ, 58, otherwise="plain 6"),
    Line(LD_B, NET + 40),
    Line(JGT, 127, then="plain 6"),
    *_xor([(LD_W, NET + 48 + 8 + 4 * word) for word in range(8)], "fold"),
    *_named("plain 6", _xor([(LD_W, NET + 8 + 4 * word) for word in range(8)], "fold")),
    # the upper half decides as much as the lower one
    Line(LD_MEM, 0, name="fold"),
    Line(MUL_K, SPREAD),
    Line(ST, 0),
    Line(RSH_K, 16),
    Line(TAX),
    Line(LD_MEM, 0),
    Line(XOR_X),
    Line(RET_A),
]


def assemble(lines: list[Line]) -> list[tuple[int, int, int, int]]:
    """Return instructions as struct sock_filter has them: code, jump if true, jump if false, k."""
    places = {line.name: number for number, line in enumerate(lines) if line.name}

    def distance(name: str, number: int) -> int:
        return places[name] - number - 1 if name else 0

    made = []
    for number, line in enumerate(lines):
        if line.code == JA:
            made.append((line.code, 0, 0, distance(line.then, number)))
        else:
            made.append((line.code, distance(line.then, number), distance(line.otherwise, number), line.k))
    return made
