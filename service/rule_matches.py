"""What a packet must be like, in Open vSwitch's words: ``tcp,nw_src=10.0.0.0/8,tp_dst=80,ct_state=+trk+new``.

Words come alone (``tcp``) or with a value.  Each row says what a word is about, how its value is read and written, and what
must be said beside it, for a port says nothing about a packet without ports.  Beyond Open vSwitch, ports may be a range:
``tp_dst=1024-65535``.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..shm.layout import FRAG_ANY, FRAG_LATER, VLAN_PRESENT, CtState
from .rules import BITS, Masked, Names, Span, Wanted

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
ICMP, TCP, UDP, DCCP, ICMPV6, SCTP, UDP_LITE = 1, 6, 17, 33, 58, 132, 136
WITH_PORTS = (TCP, UDP, SCTP, UDP_LITE, DCCP)

WORDS = {
    "arp": (ARP, None),
    "ip": (IPV4, None),
    "ipv6": (IPV6, None),
    "icmp": (IPV4, ICMP),
    "icmp6": (IPV6, ICMPV6),
    "tcp": (IPV4, TCP),
    "tcp6": (IPV6, TCP),
    "udp": (IPV4, UDP),
    "udp6": (IPV6, UDP),
    "sctp": (IPV4, SCTP),
    "sctp6": (IPV6, SCTP),
}
"""Words that stand alone: EtherType and protocol."""
NO_VLAN = 0xFFFF
"""What ``dl_vlan`` calls a packet without a tag."""
FRAGMENTS = {
    "no": Masked(0, FRAG_ANY),
    "yes": Masked(FRAG_ANY, FRAG_ANY),
    "first": Masked(FRAG_ANY, FRAG_ANY | FRAG_LATER),
    "later": Masked(FRAG_ANY | FRAG_LATER, FRAG_ANY | FRAG_LATER),
    "not_later": Masked(0, FRAG_LATER),
}
TCP_FLAGS = {"fin": 1, "syn": 2, "rst": 4, "psh": 8, "ack": 16, "urg": 32, "ece": 64, "cwr": 128, "ns": 256}
CT_FLAGS = {bit.name.lower(): int(bit) for bit in CtState}


# ------------------------------------------------------------------------------------------------ values
def number(text: str, most: int) -> int:
    """Read a number, decimal or with 0x."""
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"expected a number, found {text!r}") from None
    if not 0 <= value <= most:
        raise ValueError(f"expected a number up to {most:#x}, found {text}")
    return value


def masked(text: str, bits: int) -> Masked:
    """Read a number and perhaps the mask under which it is meant."""
    value, slash, mask = text.partition("/")
    full = (1 << bits) - 1
    read = Masked(number(value, full), number(mask, full) if slash else full)
    if read.value & ~read.mask:
        raise ValueError(f"{text}: {read.value & ~read.mask:#x} is outside of the mask")
    return read


def shown(wanted: Masked, bits: int, spell: Callable[[int], str] = hex) -> str:
    """Write a number, and its mask where that is not full."""
    full = (1 << bits) - 1
    return spell(wanted.value) + ("" if wanted.mask == full else f"/{wanted.mask:#x}")


def span(text: str) -> Wanted:
    """Read a port, a range of ports, or a port under a mask."""
    low, dash, high = text.partition("-")
    if not dash:
        return masked(text, 16)
    read = Span(number(low, 0xFFFF), number(high, 0xFFFF))
    if read.low > read.high:
        raise ValueError(f"{text}: a range goes from the lower port to the higher one")
    return read


def address(text: str, version: int) -> Masked:
    """Read an address, with a prefix or mask or without."""
    plain, slash, mask = text.partition("/")
    bits = 32 if version == 4 else 128
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    try:
        value = int(kind(plain))
        if not slash:
            length = (1 << bits) - 1
        elif mask.isdecimal():
            if int(mask) > bits:
                raise ValueError(f"a prefix has up to {bits} bits")
            length = ((1 << int(mask)) - 1) << (bits - int(mask))
        else:
            length = int(kind(mask))
    except ValueError as error:
        raise ValueError(f"expected an IPv{version} address, perhaps with a prefix, found {text!r}: {error}") from None
    return Masked(value & length, length)


def show_address(wanted: Masked, version: int) -> str:
    """Write an address as `address` reads it."""
    bits = 32 if version == 4 else 128
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    mask = wanted.mask & ((1 << bits) - 1)
    ones = mask.bit_count()
    if ones == bits:
        return str(kind(wanted.value))
    if mask == ((1 << ones) - 1) << (bits - ones):
        return f"{kind(wanted.value)}/{ones}"
    return f"{kind(wanted.value)}/{kind(mask)}"


def flags(text: str, known: Mapping[str, int], bits: int) -> Masked:
    """Read flags: ``+new-est``, ``new|est`` for these and no others, or a number under a mask."""
    if text[:1] not in ("+", "-"):
        if text[:1].isdecimal():
            return masked(text, bits)
        return Masked(sum(_flag(word, known) for word in set(text.split("|"))), (1 << bits) - 1)
    value = mask = 0
    for word in text.replace("+", " +").replace("-", " -").split():
        bit = _flag(word[1:], known)
        if mask & bit:
            raise ValueError(f"{text}: {word[1:]} is said twice")
        mask |= bit
        value |= bit if word[0] == "+" else 0
    return Masked(value, mask)


def _flag(word: str, known: Mapping[str, int]) -> int:
    if word not in known:
        raise ValueError(f"there is no flag {word!r}: {', '.join(known)}")
    return known[word]


def show_flags(wanted: Masked, known: Mapping[str, int]) -> str:
    """Write flags as ``+new-est``."""
    return "".join(("+" if wanted.value & bit else "-") + word for word, bit in known.items() if wanted.mask & bit)


def vlan(text: str) -> Masked:
    """Read the number of a tag; 0xffff is a packet without one."""
    read = masked(text, 16)
    if read == (NO_VLAN, NO_VLAN):
        return Masked(0, VLAN_PRESENT)
    if read.value > 0xFFF:
        raise ValueError(f"expected a VLAN up to 4095, or 0xffff for none, found {text}")
    return Masked(VLAN_PRESENT | read.value, VLAN_PRESENT | (read.mask & 0xFFF))


def tci(text: str) -> Masked:
    """Read a tag as it is on the wire, with the bit that says that there is one in place of the CFI."""
    read = masked(text, 16)
    if "/" not in text:  # all 16 bits; the priority is not looked at
        if read.value & 0xE000:
            raise ValueError(f"{text}: the priority in a tag is not looked at")
        return Masked(read.value, 0x1FFF)
    if read.mask & 0xE000:
        raise ValueError(f"{text}: the priority in a tag is not looked at")
    return read


# ------------------------------------------------------------------------------------------------ words
class Word(NamedTuple):
    """A row: the word, the field, how the value is read, and what must be said beside it."""

    field: str
    read: Callable[[str, Names], Wanted]
    eth_types: tuple[int, ...] = ()
    protocols: tuple[int, ...] = ()


def _number(field: str) -> Callable[[str, Names], Wanted]:
    return lambda text, names: masked(text, BITS[field])


def _address(version: int) -> Callable[[str, Names], Wanted]:
    return lambda text, names: address(text, version)


def _exact(field: str) -> Callable[[str, Names], Wanted]:
    full = (1 << BITS[field]) - 1
    return lambda text, names: Masked(number(text, full), full)


def _fragments(text: str, names: Names) -> Wanted:
    if text not in FRAGMENTS:
        raise ValueError(f"expected one of {', '.join(FRAGMENTS)}, found {text!r}")
    return FRAGMENTS[text]


_PORT = lambda text, names: span(text)  # noqa: E731 - a cell of the table below
_IP = (IPV4, IPV6)
# fmt: off
KNOWN = {
    #                   field        value                     beside: EtherType, protocol
    "in_port":     Word("in_port",   lambda text, names: Masked(names.port(text), 0xFFFF)),
    "dl_type":     Word("eth_type",  _exact("eth_type")),
    "eth_type":    Word("eth_type",  _exact("eth_type")),
    "dl_vlan":     Word("vlan",      lambda text, names: vlan(text)),
    "vlan_vid":    Word("vlan",      lambda text, names: vlan(text)),
    "vlan_tci":    Word("vlan",      lambda text, names: tci(text)),
    "nw_proto":    Word("protocol",  _exact("protocol"),       _IP),
    "ip_proto":    Word("protocol",  _exact("protocol"),       _IP),
    "nw_src":      Word("src",       _address(4),              (IPV4,)),
    "ip_src":      Word("src",       _address(4),              (IPV4,)),
    "nw_dst":      Word("dst",       _address(4),              (IPV4,)),
    "ip_dst":      Word("dst",       _address(4),              (IPV4,)),
    "ipv6_src":    Word("src",       _address(6),              (IPV6,)),
    "ipv6_dst":    Word("dst",       _address(6),              (IPV6,)),
    "ip_frag":     Word("frag",      _fragments,               _IP),
    "nw_frag":     Word("frag",      _fragments,               _IP),
    "tp_src":      Word("sport",     _PORT,                    _IP,      WITH_PORTS),
    "tp_dst":      Word("dport",     _PORT,                    _IP,      WITH_PORTS),
    "tcp_src":     Word("sport",     _PORT,                    _IP,      (TCP,)),
    "tcp_dst":     Word("dport",     _PORT,                    _IP,      (TCP,)),
    "udp_src":     Word("sport",     _PORT,                    _IP,      (UDP,)),
    "udp_dst":     Word("dport",     _PORT,                    _IP,      (UDP,)),
    "sctp_src":    Word("sport",     _PORT,                    _IP,      (SCTP,)),
    "sctp_dst":    Word("dport",     _PORT,                    _IP,      (SCTP,)),
    "tcp_flags":   Word("tcp_flags", lambda text, names: flags(text, TCP_FLAGS, BITS["tcp_flags"]), _IP, (TCP,)),
    "icmp_type":   Word("sport",     lambda text, names: Masked(number(text, 0xFF), 0xFFFF), (IPV4,), (ICMP,)),
    "icmp_code":   Word("dport",     lambda text, names: Masked(number(text, 0xFF), 0xFFFF), (IPV4,), (ICMP,)),
    "icmpv6_type": Word("sport",     lambda text, names: Masked(number(text, 0xFF), 0xFFFF), (IPV6,), (ICMPV6,)),
    "icmpv6_code": Word("dport",     lambda text, names: Masked(number(text, 0xFF), 0xFFFF), (IPV6,), (ICMPV6,)),
    "ct_state":    Word("ct_state",  lambda text, names: flags(text, CT_FLAGS, BITS["ct_state"])),
    "ct_zone":     Word("zone",      _number("zone")),
    "ct_mark":     Word("mark",      _number("mark")),
    "ct_label":    Word("label",     _number("label")),
}
# fmt: on


def read(pairs: Iterable[tuple[str, str | None]], names: Names) -> dict[str, Wanted]:
    """Return what is asked for, by field.

    Args:
        pairs: words, each with its value where it has one.
        names: what stands for ports.

    Raises:
        ValueError: a word or a value is none, or something is said twice, or something else must be said beside it.
    """
    found: dict[str, Wanted] = {}
    said: dict[str, str] = {}
    needs: list[tuple[str, Word]] = []
    for word, value in pairs:
        if word in WORDS and value is None:
            eth_type, protocol = WORDS[word]
            _put(found, said, "eth_type", Masked(eth_type, 0xFFFF), word)
            if protocol is not None:
                _put(found, said, "protocol", Masked(protocol, 0xFF), word)
            continue
        if word not in KNOWN:
            near = difflib.get_close_matches(word, [*KNOWN, *WORDS, "priority", "table", "cookie", "actions"], 1)
            raise ValueError(f"unknown field {word!r}" + (f": nearest is {near[0]!r}" if near else ""))
        if value is None:
            raise ValueError(f"{word} needs a value")
        row = KNOWN[word]
        try:
            wanted = row.read(value, names)
        except ValueError as error:
            raise ValueError(f"{word}: {error}") from None
        needs.append((word, row))
        _put(found, said, row.field, wanted, word)
    for word, row in needs:
        for name, allowed in (("eth_type", row.eth_types), ("protocol", row.protocols)):
            value = found.get(name)
            if allowed and (not isinstance(value, Masked) or value.value not in allowed):
                raise ValueError(f"{word} needs {_beside(row)} beside it")
    return {name: wanted for name, wanted in found.items() if isinstance(wanted, Span) or wanted.mask}


def _put(found: dict[str, Wanted], said: dict[str, str], field: str, wanted: Wanted, word: str) -> None:
    if field in found and found[field] != wanted:
        raise ValueError(
            f"{word} and {said[field]} cannot both hold" if said[field] != word else f"{word} is said twice"
        )
    found[field], said[field] = wanted, word


def _beside(row: Word) -> str:
    """Return the words that would do beside a word of this row."""
    fits = [
        word
        for word, (eth_type, protocol) in WORDS.items()
        if eth_type in row.eth_types and (not row.protocols or protocol in row.protocols)
    ]
    return " or ".join(fits)


# ------------------------------------------------------------------------------------------------ and back
def words(match: Mapping[str, Wanted], names: Names) -> list[tuple[str, str | None]]:
    """Return what is asked for as words with their values: what `read` takes, in Open vSwitch's order."""
    told: list[tuple[str, str | None]] = []
    eth_type, protocol = (_value(match.get(field)) for field in ("eth_type", "protocol"))
    version = 6 if eth_type == IPV6 else 4
    alone = next((word for word, pair in WORDS.items() if pair == (eth_type, protocol)), None)
    if alone is None and protocol is not None:
        alone = next((word for word, pair in WORDS.items() if pair == (eth_type, None)), None)
    elif alone is not None:
        protocol = None
    if alone is not None:
        told.append((alone, None))
    elif eth_type is not None:
        told.append(("dl_type", f"{eth_type:#06x}"))
    if protocol is not None:
        told.append(("nw_proto", str(protocol)))
    icmp = {"icmp": "icmp", "icmp6": "icmpv6"}.get(alone or "")
    for field, wanted in match.items():
        if field == "in_port":
            told.append(("in_port", names.port_name(wanted[0])))
        elif isinstance(wanted, Span):
            told.append(("tp_src" if field == "sport" else "tp_dst", f"{wanted.low}-{wanted.high}"))
        elif field in ("src", "dst"):
            prefix = "ipv6" if version == 6 else "nw"
            told.append((f"{prefix}_{field}", show_address(wanted, version)))
        elif field in ("sport", "dport"):
            if icmp:
                told.append((f"{icmp}_{'type' if field == 'sport' else 'code'}", str(wanted.value)))
            else:
                told.append(("tp_src" if field == "sport" else "tp_dst", shown(wanted, 16, str)))
        elif field == "vlan":
            told.append(_vlan(wanted))
        elif field == "frag":
            told.append(("ip_frag", next(word for word, one in FRAGMENTS.items() if one == wanted)))
        elif field == "tcp_flags":
            known = wanted.mask & ~sum(TCP_FLAGS.values()) == 0
            told.append(("tcp_flags", show_flags(wanted, TCP_FLAGS) if known else shown(wanted, BITS[field])))
        elif field == "ct_state":
            told.append(("ct_state", show_flags(wanted, CT_FLAGS)))
        elif field == "zone":
            told.append(("ct_zone", shown(wanted, BITS[field], str)))
        elif field in ("mark", "label"):
            told.append((f"ct_{field}", shown(wanted, BITS[field])))
    return told


def _value(wanted: Wanted | None) -> int | None:
    return wanted.value if isinstance(wanted, Masked) else None


def _vlan(wanted: Masked) -> tuple[str, str]:
    if wanted == (0, VLAN_PRESENT):
        return "dl_vlan", hex(NO_VLAN)
    if wanted.mask == 0x1FFF and wanted.value & VLAN_PRESENT:
        return "dl_vlan", str(wanted.value & 0xFFF)
    return "vlan_tci", f"{wanted.value:#06x}/{wanted.mask:#06x}"
