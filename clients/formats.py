"""Connections as lines of text: as Linux's ``conntrack`` prints them, as Open vSwitch's dump-conntrack does, as JSON.

Scripts read those two; so their lines are kept to the byte.  What we know and they have no word for is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from .connections import COALESCED, GRE, ICMP, ICMPV6, SCTP, Connection

# ---------------------------------------------------------------------------------------------------- conntrack -L
CONNTRACK_PROTOCOLS = frozenset({"tcp", "udp", "udplite", "icmp", "icmpv6", "sctp", "gre", "dccp"})
"""Those that libnetfilter_conntrack has names for; the others are ``unknown``."""


def conntrack(connection: Connection) -> str:
    """Return the line of ``conntrack -L``, on a machine where the kernel counts packets (nf_conntrack_acct).

    Source:
        libnetfilter_conntrack 1.0.9, src/conntrack/snprintf_default.c.
    """
    proto = connection["proto"] if connection["proto"] in CONNTRACK_PROTOCOLS else "unknown"
    words = [f"{proto:<8} {connection['proto_num']} {connection['timeout']}"]
    if "state" in connection:
        words.append(connection["state"])
    words.append(_conntrack_tuple(connection["orig"], connection["proto_num"]))
    if "seen_reply" not in connection["status"]:
        words.append("[UNREPLIED]")
    words.append(_conntrack_tuple(connection["reply"], connection["proto_num"]))
    if "assured" in connection["status"]:
        words.append("[ASSURED]")
    words.append(f"mark={connection.get('mark', 0)}")
    if connection["zone"]:
        words.append(f"zone={connection['zone']}")
    if "helper" in connection:
        words.append(f"helper={connection['helper']}")
    words.append("use=1")
    return " ".join(words)


REFUSED = "closed"
"""The end of a connection that a reset has refused, before there was another answer."""
EVENT_HEADS = {"new": "[NEW]", "update": "[UPDATE]", "destroy": "[DESTROY]"}


def conntrack_event(event: dict[str, Any]) -> str:
    """Return the line of ``conntrack -E``; of a gap, which it does not know, ``GAP`` and how many events were lost.

    What the kernel does not send with an event is not there: counters but at the end, the state but where it changed, a mark
    of 0, a timeout that is over.  One that a reset has refused is UNREPLIED, although that was an answer: the kernel
    destroys it before it notes that there was one.

    Source:
        Linux 6.18, net/netfilter/nf_conntrack_netlink.c, ctnetlink_conntrack_event; libnetfilter_conntrack 1.0.9 as above.
    """
    kind = event["event"]
    if kind == "gap":
        return f"GAP {event['lost']}"
    is_over = kind == "destroy"
    proto = event["proto"] if event["proto"] in CONNTRACK_PROTOCOLS else "unknown"
    words = [f"{EVENT_HEADS[kind]:>9} {proto:<8} {event['proto_num']}"]
    if event["timeout"] or not is_over:
        words.append(str(event["timeout"]))
    if "state" in event and (kind != "update" or "state" in event.get("changes", ())):
        words.append(event["state"])
    words.append(_conntrack_tuple(event["orig"], event["proto_num"], is_over))
    if "seen_reply" not in event["status"] or event.get("end") == REFUSED:
        words.append("[UNREPLIED]")
    words.append(_conntrack_tuple(event["reply"], event["proto_num"], is_over))
    if "assured" in event["status"]:
        words.append("[ASSURED]")
    if "mark" in event or "mark" in event.get("changes", ()):
        words.append(f"mark={event.get('mark', 0)}")
    if event["zone"]:
        words.append(f"zone={event['zone']}")
    if "helper" in event and not is_over:
        words.append(f"helper={event['helper']}")
    return " ".join(words)


def _conntrack_tuple(flow: dict[str, Any], protocol: int, counted: bool = True) -> str:
    text = "src={src} dst={dst}".format(**flow)
    if "sport" in flow:
        text += " sport={sport} dport={dport}".format(**flow)
    elif "type" in flow:
        text += " type={type} code={code} id={id}".format(**flow)
    elif protocol == GRE:
        text += f" srckey=0x{flow.get('srckey', 0):x} dstkey=0x{flow.get('dstkey', 0):x}"
    if not counted:
        return text
    return text + " packets={packets} bytes={bytes}".format(**flow)


# ---------------------------------------------------------------------------------------------------- dump-conntrack
OVS_PROTOCOLS = frozenset({"icmp", "icmpv6", "tcp", "udp", "sctp", "udplite", "dccp", "igmp"})
"""Those that Open vSwitch has names for; of the others it prints the number."""
OVS_STATES = {
    "NONE": "CLOSED",
    "SYN_SENT": "SYN_SENT",
    "SYN_SENT2": "SYN_SENT",
    "SYN_RECV": "SYN_RECV",
    "ESTABLISHED": "ESTABLISHED",
    "FIN_WAIT": "FIN_WAIT_1",
    "CLOSE_WAIT": "CLOSE_WAIT",
    "LAST_ACK": "LAST_ACK",
    "TIME_WAIT": "TIME_WAIT",
    "CLOSE": "CLOSING",
}
"""What Open vSwitch calls Linux's states (lib/netlink-conntrack.c, nl_ct_tcp_state_to_dpif)."""
OVS_STATUS = {
    "related": "EXPECTED",
    "seen_reply": "SEEN_REPLY",
    "assured": "ASSURED",
    "confirmed": "CONFIRMED",
    "source_nat": "SRC_NAT",
    "destination_nat": "DST_NAT",
    "sequence_offsets": "SEQ_ADJUST",
    "fixed_timeout": "FIXED_TIMEOUT",
    "helper": "HELPER",
}
"""In the order of their bits."""


def ovs(connection: Connection, more: bool = False, statistics: bool = False) -> str:
    """Return the line of ``dpctl/dump-conntrack``.

    Args:
        connection: as JSON has it.
        more: with id, status and both sides' states, as with -m.
        statistics: with counters, start and timeout, as with -s.

    Source:
        Open vSwitch 3.1 to 4.0, lib/ct-dpif.c, ct_dpif_format_entry.
    """
    proto = connection["proto"] if connection["proto"] in OVS_PROTOCOLS else str(connection["proto_num"])
    parts = [proto]
    for way in ("orig", "reply"):
        parts.append(f"{way}=({_ovs_tuple(connection[way], connection['proto_num'], statistics)})")
    if statistics and connection["start"]:
        seconds, milliseconds = divmod(round(connection["start"] * 1000), 1000)
        parts.append(f"start={time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(seconds))}.{milliseconds:03}")
    if more:
        parts.append(f"id={connection['id']}")
    if connection["zone"]:
        parts.append(f"zone={connection['zone']}")
    if more:
        status = {*connection["status"], "confirmed"}
        parts.append("status=" + "|".join(name for ours, name in OVS_STATUS.items() if ours in status))
    if statistics:
        parts.append(f"timeout={connection['timeout']}")
    parts += [f"{name}={connection[name]}" for name in ("mark", "labels") if name in connection]
    if "state" in connection:
        parts.append(f"protoinfo=({_ovs_state(connection, more)})")
    if "helper" in connection:
        parts.append(f"helper={connection['helper']}")
    if more and "src" in connection.get("parent", ()):
        parts.append(f"parent=({_ovs_tuple(connection['parent'], connection['proto_num'], False)})")
    return ",".join(parts)


def _ovs_tuple(flow: dict[str, Any], protocol: int, statistics: bool) -> str:
    text = "src={src},dst={dst}".format(**flow)
    if protocol in (ICMP, ICMPV6):
        text += ",id={id},type={type},code={code}".format(**flow)
    else:
        text += f",sport={flow.get('sport', 0)},dport={flow.get('dport', 0)}"
    if statistics and (flow["packets"] or flow["bytes"]):
        text += ",packets={packets},bytes={bytes}".format(**flow)
    return text


def _ovs_state(connection: Connection, more: bool) -> str:
    """Return the states of both sides; Linux has one for the connection, which stands for either."""
    one: str = connection["state"]
    if connection["proto_num"] == SCTP:
        return f"state={one}"
    if "state_orig" in connection:
        orig, reply = connection["state_orig"], connection["state_reply"]
    else:
        orig = reply = OVS_STATES.get(one, one)
        one = COALESCED.get(orig, orig)
    if not more:
        return f"state={one}"
    parts = [f"state_orig={orig}", f"state_reply={reply}"]
    if "wscale_orig" in connection or "wscale_reply" in connection:
        parts += [f"{name}={connection.get(name, 0)}" for name in ("wscale_orig", "wscale_reply")]
    for name in ("flags_orig", "flags_reply"):
        parts.append(f"{name}=" + ("|".join(connection.get(name, ())).upper() or "0"))
    return ",".join(parts)


# ---------------------------------------------------------------------------------------------------- expectations
ANY_IPV4, ANY_IPV6 = "0.0.0.0", "::"
ALL_IPV4, ALL_IPV6 = "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"


def conntrack_expectation(expectation: dict[str, Any]) -> str:
    """Return the line of ``conntrack -L expect``; one that does not expire has 0 seconds, and the word PERMANENT.

    Source:
        libnetfilter_conntrack 1.0.9, src/expect/snprintf_default.c.
    """
    is_ipv6 = ":" in expectation["dst"]
    none, all_ = (ANY_IPV6, ALL_IPV6) if is_ipv6 else (ANY_IPV4, ALL_IPV4)
    source = expectation["src"]
    master = {"sport": 0, "dport": 0} | expectation["parent"]
    words = [
        f"{expectation['timeout'] or 0} proto={expectation['proto_num']}",
        f"src={source or none} dst={expectation['dst']} sport={expectation['sport']} dport={expectation['dport']}",
        f"mask-src={all_ if source else none} mask-dst={all_}",
        f"sport={65535 if expectation['sport'] else 0} dport=65535",
        "master-src={src} master-dst={dst} sport={sport} dport={dport}".format(**master),
    ]
    if expectation["zone"]:
        words.append(f"zone={expectation['zone']}")
    if expectation.get("permanent"):
        words.append("PERMANENT")
    words.append(f"class={CLASSES.get(expectation['class'], 0)} helper={expectation['helper']}")
    return " ".join(words)


CLASSES = {"data": 0, "audio": 1, "video": 2, "image": 3}
"""Numbers of the classes of Linux's helpers."""


def ovs_expectation(expectation: dict[str, Any]) -> str:
    """Return the line of ``dpctl/dump-conntrack-exp``.

    Source:
        Open vSwitch 4.0, lib/ct-dpif.c, ct_dpif_format_exp_entry.
    """
    proto = expectation["proto"] if expectation["proto"] in OVS_PROTOCOLS else str(expectation["proto_num"])
    none = ANY_IPV6 if ":" in expectation["dst"] else ANY_IPV4
    orig = {**expectation, "src": expectation["src"] or none}
    parts = [proto, f"orig=({_ovs_tuple(orig, expectation['proto_num'], False)})"]
    if expectation["zone"]:
        parts.append(f"zone={expectation['zone']}")
    parts += [f"{name}={expectation[name]}" for name in ("mark", "labels") if name in expectation]
    parts.append(f"parent=({_ovs_tuple(expectation['parent'], expectation['proto_num'], False)})")
    return ",".join(parts)


EXPECTATION_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "conntrack": conntrack_expectation,
    "ovs": ovs_expectation,
}


# ---------------------------------------------------------------------------------------------------- lines
def jsonl(connection: Connection) -> str:
    """Return a connection as a line of JSON."""
    return json.dumps(connection)


LINES: dict[str, Callable[[Connection], str]] = {"conntrack": conntrack, "ovs": ovs, "jsonl": jsonl}
"""Formats that are one line a connection, which can be written as they come."""
