"""What happens to a packet, in Open vSwitch's words: ``ct(commit,zone=5,exec(set_field:1->ct_mark),table=1)``, ``output:2``.

Differences, each refused with words that say so: what follows a ``ct`` with a table, ``goto_table`` or ``resubmit`` would
meet a copy of the packet in Open vSwitch, and cannot stand here.  Beyond it, ``mark``, ``label``, ``helper`` and ``timeout``
may be said in a ct without ``exec``, and the zone may be ``vlan``, ``in_port`` or ``port``, which is the zone that the
configuration gives to the port where the packet came in.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import cast

from ..shm.layout import NO_TABLE, RULE_TABLES_MAX, ZONES_MAX, ZoneFrom
from .rule_matches import masked, number, shown
from .rules import Action, Answer, Ct, CtClear, Goto, InPort, Masked, Names, Nat, Normal, Output, Route, name_of

ZONES = {
    "vlan": ZoneFrom.VLAN,
    "in_port": ZoneFrom.IN_PORT,
    "port": ZoneFrom.PORT,
    "NXM_OF_VLAN_TCI[0..11]": ZoneFrom.VLAN,
    "OXM_OF_VLAN_VID[0..11]": ZoneFrom.VLAN,
    "NXM_OF_IN_PORT[]": ZoneFrom.IN_PORT,
}
NAT_FLAGS = ("hash", "random", "persistent")
ACTIONS = ("drop", "output", "in_port", "normal", "ct", "ct_clear", "goto_table", "resubmit", "route", "answer")
_RESUBMIT = re.compile(r"resubmit\(,([0-9]+)\)")


def pieces(text: str) -> list[str]:
    """Return what commas and spaces separate, but for those in parentheses and brackets.

    Raises:
        ValueError: parentheses are not closed.
    """
    found, depth, piece = [], 0, ""
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if depth == 0 and (letter == "," or letter.isspace()):
            found.append(piece)
            piece = ""
        else:
            piece += letter
    if depth:
        raise ValueError(f"parentheses do not match in {text!r}")
    return [piece for piece in (*found, piece) if piece]


def read(texts: Iterable[str], names: Names) -> tuple[Action, ...]:
    """Return what actions mean, each given as text.

    Raises:
        ValueError: one is none, or stands where it cannot.
    """
    found: list[Action] = []
    words = list(texts)
    if not words:
        raise ValueError("no actions: write drop for none")
    for word in words:
        if word.lower() == "drop":
            if len(words) > 1:
                raise ValueError("drop goes with no other action")
            return ()
        if found and (isinstance(found[-1], Goto) or (isinstance(found[-1], Ct) and found[-1].next_table != NO_TABLE)):
            raise ValueError(
                f"{word}: what stands behind a jump to a table would meet a copy of the packet; put it before"
            )
        found.append(_action(word, names))
    return tuple(found)


def _action(word: str, names: Names) -> Action:
    lower = word.lower()
    name, colon, rest = word.partition(":")
    if lower == "normal" or lower == "output:normal":
        return Normal()
    if lower == "in_port" or lower == "output:in_port":
        return InPort()
    if lower == "ct_clear":
        return CtClear()
    if name == "output" and colon:
        return Output(names.port(rest))
    if word.isdecimal():
        return Output(names.port(word))
    if name == "goto_table" and colon:
        return Goto(table(rest))
    if found := _RESUBMIT.fullmatch(word.replace(" ", "")):
        return Goto(table(found[1]))
    if name == "ct" and not colon:
        return Ct()
    if word.startswith("ct(") and word.endswith(")"):
        return _ct(word[3:-1], names)
    if word.startswith("route(") and word.endswith(")"):
        return _route(word[6:-1])
    if word.startswith("answer(") and word.endswith(")"):
        return _answer(word[7:-1])
    near = difflib.get_close_matches(re.split(r"\W", word)[0], ACTIONS, 1)
    raise ValueError(f"unknown action {word!r}" + (f": nearest is {near[0]!r}" if near else ""))


def table(text: str) -> int:
    """Read the number of a table."""
    if not text.isdecimal() or int(text) >= RULE_TABLES_MAX:
        raise ValueError(f"expected a table up to {RULE_TABLES_MAX - 1}, found {text!r}")
    return int(text)


# ------------------------------------------------------------------------------------------------ a router
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
MTU_MIN = 68
"""Of IPv4 (RFC 791); a link that carries IPv6 has 1,280 at least."""


def mac(text: str) -> int:
    """Read an Ethernet address."""
    if not _MAC.fullmatch(text):
        raise ValueError(f"expected an Ethernet address, found {text!r}")
    return int(text.replace(":", ""), 16)


def mac_word(number_: int) -> str:
    """Return an Ethernet address as text."""
    return number_.to_bytes(6, "big").hex(":")


def _host(text: str) -> tuple[int, int]:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"expected an address, found {text!r}") from None
    return int(found), found.version


def _route(text: str) -> Route:
    said = {name: value for name, _, value in (piece.partition("=") for piece in pieces(text))}
    if not {"from", "to", "address"} <= said.keys() <= {"from", "to", "address", "mtu"}:
        raise ValueError(f"route takes from=MAC,to=MAC,address=ADDRESS[,mtu=BYTES], found {text!r}")
    mtu = number(said["mtu"], 0xFFFF) if "mtu" in said else 0
    if "mtu" in said and mtu < MTU_MIN:
        raise ValueError(f"route: an mtu is {MTU_MIN} at least, found {mtu}")
    return Route(mac(said["from"]), mac(said["to"]), *_host(said["address"]), mtu)


def _answer(text: str) -> Answer:
    said = pieces(text)
    if len(said) != 2:
        raise ValueError(f"answer takes MAC,ADDRESS, found {text!r}")
    return Answer(mac(said[0]), *_host(said[1]))


# ------------------------------------------------------------------------------------------------ ct
def _ct(text: str, names: Names) -> Ct:
    found: dict[str, object] = {}

    def put(name: str, value: object) -> None:
        if name in found:
            raise ValueError(f"ct: {name} is said twice")
        found[name] = value

    readers: dict[str, Callable[[str], None]] = {
        "table": lambda value: put("next_table", table(value)),
        "zone": lambda value: _zone(value, put),
        "mark": lambda value: put("mark", masked(value, 32)),
        "label": lambda value: put("label", masked(value, 128)),
        "helper": lambda value: put("helper", names.helper(value)),
        "alg": lambda value: put("helper", names.helper(value)),
        "timeout": lambda value: put("policy", names.policy(value)),
    }
    for piece in pieces(text):
        name, equals, value = piece.partition("=")
        if piece in ("commit", "force"):
            put(piece, True)
        elif piece == "nat":
            put("nat", Nat())
        elif piece.startswith("nat(") and piece.endswith(")"):
            put("nat", _nat(piece[4:-1]))
        elif piece.startswith("exec(") and piece.endswith(")"):
            for inner in pieces(piece[5:-1]):
                _exec(inner, put)
        elif equals and name in readers:
            readers[name](value)
        else:
            near = difflib.get_close_matches(name, ["commit", "force", "nat", "exec", *readers], 1)
            raise ValueError(f"ct: unknown argument {piece!r}" + (f": nearest is {near[0]!r}" if near else ""))
    if not found.get("commit"):
        for name in ("force", "mark", "label", "helper", "policy"):
            if name in found:
                raise ValueError(f"ct: {'timeout' if name == 'policy' else name} goes with commit only")
        nat = found.get("nat")
        if isinstance(nat, Nat) and nat.way:
            raise ValueError(f"ct: nat({nat.way}=...) goes with commit only")
    if "zone" in found:
        found["zone"], found["zone_from"] = cast(tuple[int, ZoneFrom], found["zone"])
    return Ct(**found)  # pyright: ignore[reportArgumentType] - the readers above


def _zone(text: str, put: Callable[[str, object], None]) -> None:
    if text in ZONES:
        put("zone", (0, ZONES[text]))
    else:
        put("zone", (number(text, ZONES_MAX - 1), ZoneFrom.NUMBER))


_SET = re.compile(r"(?:set_field:(?P<value>[^-]+)->|load:(?P<loaded>[^-]+)->)(?P<field>\w+)(?:\[\])?")
_SETTABLE = {"ct_mark": ("mark", 32), "ct_label": ("label", 128), "NXM_NX_CT_MARK": ("mark", 32)}


def _exec(text: str, put: Callable[[str, object], None]) -> None:
    found = _SET.fullmatch(text)
    if not found or found["field"] not in _SETTABLE:
        raise ValueError(f"ct: exec takes set_field:VALUE[/MASK]->ct_mark or ->ct_label, found {text!r}")
    name, bits = _SETTABLE[found["field"]]
    put(name, masked(found["value"] or found["loaded"], bits))


def _nat(text: str) -> Nat:
    found = Nat()
    flags: list[str] = []
    for piece in pieces(text):
        name, equals, value = piece.partition("=")
        if piece in NAT_FLAGS:
            flags.append(piece)
        elif name in ("src", "dst") and not found.way:
            found = _range(name, value) if equals else Nat(name)
        else:
            raise ValueError(f"nat takes src or dst with a range, and {', '.join(NAT_FLAGS)}, found {piece!r}")
    if flags and not found.way:
        raise ValueError(f"nat: {flags[0]} needs src or dst")
    if "hash" in flags and "random" in flags:
        raise ValueError("nat: hash and random cannot both hold")
    return found._replace(flags=tuple(flags))


def _range(way: str, text: str) -> Nat:
    """Read ADDRESS[-ADDRESS][:PORT[-PORT]]; an IPv6 address with ports stands in brackets."""
    plain, ports = text, ""
    if text.startswith("["):
        found = re.fullmatch(r"\[(?P<low>[^\]]+)\](?:-\[(?P<high>[^\]]+)\])?(?::(?P<ports>[0-9-]+))?", text)
        if not found:
            raise ValueError(f"nat: no range of addresses: {text!r}")
        plain, ports = found["low"] + (f"-{found['high']}" if found["high"] else ""), found["ports"] or ""
    elif text.count(":") <= 1:
        plain, _, ports = text.partition(":")
    low, _, high = plain.partition("-")
    try:
        first, last = ipaddress.ip_address(low), ipaddress.ip_address(high or low)
    except ValueError:
        raise ValueError(f"nat: no range of addresses: {text!r}") from None
    port_low, _, port_high = ports.partition("-")
    spanned = (number(port_low, 0xFFFF), number(port_high or port_low, 0xFFFF)) if ports else (0, 0)
    if first.version != last.version or int(first) > int(last) or spanned[0] > spanned[1]:
        raise ValueError(f"nat: a range goes from the lower to the higher: {text!r}")
    return Nat(way, int(first), int(last), first.version, *spanned)


# ------------------------------------------------------------------------------------------------ and back
def words(actions: Iterable[Action], names: Names) -> list[str]:
    """Return actions as text, each as `read` takes it."""
    return [_word(action, names) for action in actions] or ["drop"]


def _word(action: Action, names: Names) -> str:
    match action:
        case Output(port):
            return f"output:{names.port_name(port)}"
        case InPort():
            return "IN_PORT"
        case Normal():
            return "NORMAL"
        case Goto(table):
            return f"goto_table:{table}"
        case CtClear():
            return "ct_clear"
        case Route(source, destination, address, family, mtu):
            own = f"from={mac_word(source)},to={mac_word(destination)},address={_address(address, family)}"
            return f"route({own}{f',mtu={mtu}' if mtu else ''})"
        case Answer(source, address, family):
            return f"answer({mac_word(source)},{_address(address, family)})"
        case Ct():
            return _ct_word(action, names)


def _ct_word(ct: Ct, names: Names) -> str:
    said = [word for word in ("commit", "force") if getattr(ct, word)]
    if ct.next_table != NO_TABLE:
        said.append(f"table={ct.next_table}")
    if ct.zone_from is not ZoneFrom.NUMBER:
        said.append(f"zone={next(word for word, one in ZONES.items() if one is ct.zone_from)}")
    elif ct.zone:
        said.append(f"zone={ct.zone}")
    if ct.nat is not None:
        said.append(_nat_word(ct.nat))
    if ct.helper:
        said.append(f"alg={name_of(ct.helper, names.helpers)}")
    if ct.policy is not None:
        said.append(f"timeout={name_of(ct.policy, names.policies)}")
    sets: list[tuple[str, Masked, int]] = []
    if ct.mark is not None:
        sets.append(("ct_mark", ct.mark, 32))
    if ct.label is not None:
        sets.append(("ct_label", ct.label, 128))
    if sets:
        said.append(f"exec({','.join(f'set_field:{shown(value, bits)}->{name}' for name, value, bits in sets)})")
    return f"ct({','.join(said)})" if said else "ct"


def _nat_word(nat: Nat) -> str:
    if not nat.way:
        return "nat"
    range_ = ""
    if nat.family:
        low, high = (str(_address(one, nat.family)) for one in (nat.low, nat.high))
        bracket = nat.family == 6 and nat.port_high
        low, high = (f"[{one}]" if bracket else one for one in (low, high))
        range_ = f"={low}" + (f"-{high}" if nat.high != nat.low else "")
        if nat.port_high:
            range_ += f":{nat.port_low}" + (f"-{nat.port_high}" if nat.port_high != nat.port_low else "")
    return f"nat({','.join((nat.way + range_, *nat.flags))})"


def _address(value: int, family: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.IPv4Address(value) if family == 4 else ipaddress.IPv6Address(value)
