"""A pipeline of rules as a plain reading of them has it: one packet after the other, each through all its tables.

Only the tracker is the real one, in a table of its own, asked one packet at a time.
"""

from __future__ import annotations

import numpy as np
import reference_rules
import tables
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from zonetrack.service import rules_compile
from zonetrack.service.rules import Ct, CtClear, Goto, InPort, Normal, Output
from zonetrack.shm.layout import NO_RECORD, NO_TABLE, VERDICT, CtState, ZoneFrom
from zonetrack.shm.reasons import Reason

TABLES_MAX = 64
CT_FIELDS = ("ct_state", "zone", "mark", "label")


def fields_of(data):
    """Return what rules can ask of an IPv4 frame, as reference_rules has it."""
    packet = Ether(data)
    ip = packet[IP]
    src, dst = (int.from_bytes(bytes(map(int, end.split("."))), "big") for end in (ip.src, ip.dst))
    fields = {"eth_type": 0x800, "src": src, "dst": dst, "protocol": ip.proto}
    if Dot1Q in packet:
        fields["vlan"] = 0x1000 | packet[Dot1Q].vlan
    if ICMP in ip:
        return fields | {"sport": ip[ICMP].type, "dport": ip[ICMP].code}
    l4 = ip[TCP] if TCP in ip else ip[UDP]
    fields |= {"sport": l4.sport, "dport": l4.dport}
    return fields | ({"tcp_flags": int(l4.flags)} if TCP in ip else {})


class Pipeline:
    """Rules, ports and what was learned."""

    def __init__(self, rules, tracker, zones):
        self.rules, self.tracker = rules, tracker
        self.zones = dict(enumerate(zones, 1))
        self.ports = list(self.zones)
        self.learned = {}
        self.hits = dict.fromkeys(map(id, rules), 0)
        self._kept = []

    def go(self, data, packet, now_ms):
        """Send a packet through.

        Args:
            data: its bytes.
            packet: its fields, as reference_rules has them; `in_port` is where it comes from.
            now_ms: when.

        Returns:
            Its verdict, the ports that it went out of in order with what it was then, and the rules that it met.
        """
        packet = packet | dict.fromkeys(CT_FIELDS, 0)
        self._translates = False
        verdict = np.zeros((), VERDICT)
        verdict["record"] = NO_RECORD
        outputs, met, table, reason = [], [], 0, 0
        while table is not None:
            rule = None if len(met) == TABLES_MAX else reference_rules.met(self.rules, table, packet)
            if rule is None:
                reason = Reason.RULE_TABLES if len(met) == TABLES_MAX else Reason.RULE_MISSED
                break
            met.append(rule)
            self.hits[id(rule)] += 1
            table = None
            for action in rule.actions:
                if isinstance(action, Output):
                    outputs += [(action.port, data)] if action.port != packet["in_port"] else []
                elif isinstance(action, InPort):
                    outputs.append((packet["in_port"], data))
                elif isinstance(action, Normal):
                    outputs += [(port, data) for port in self._as_a_switch(data, packet)]
                elif isinstance(action, Goto):
                    table = action.table
                elif isinstance(action, CtClear):
                    packet |= dict.fromkeys(CT_FIELDS, 0)
                else:
                    verdict, data = self._track(data, packet, verdict, action, now_ms)
                    table = action.next_table if action.next_table != NO_TABLE else None
        verdict = verdict.copy()
        if verdict["reason"] == 0 and (reason or not outputs):
            verdict["reason"] = reason or Reason.RULE_DROPPED
        return verdict, outputs, met

    def _track(self, data, packet, verdict, ct: Ct, now_ms):
        vlan, port = packet.get("vlan", 0) & 0xFFF, packet["in_port"]
        zone = {ZoneFrom.NUMBER: ct.zone, ZoneFrom.VLAN: vlan, ZoneFrom.IN_PORT: port, ZoneFrom.PORT: self.zones[port]}
        zone = zone[ct.zone_from]
        known = packet["ct_state"] & CtState.TRK and packet["zone"] == zone
        if ct.nat is not None and not self._translates and not packet["ct_state"] & CtState.INV:
            known = False
        if known and (packet["ct_state"] & CtState.INV or verdict["record"] != NO_RECORD):
            if ct.commit and ct.mark is not None and not packet["ct_state"] & CtState.INV:
                verdict = verdict.copy()
                verdict["mark"] = packet["mark"] = int(verdict["mark"]) & ~ct.mark.mask | ct.mark.value
                tables.entries(self.tracker.table)["mark"][verdict["record"]] = verdict["mark"]
            return verdict, data  # tracked there already
        asked = rules_compile.asked(ct)
        self._kept = [asked]
        action = 0 if asked is None else asked.ctypes.data
        self._translates = ct.nat is not None
        verdict, data = self.tracker.track(data, zone, ct.commit, now_ms, action)
        if verdict["ct_state"] & (CtState.SNAT | CtState.DNAT):
            packet |= fields_of(data)
        packet |= {"ct_state": int(verdict["ct_state"]), "zone": int(verdict["zone"]), "mark": int(verdict["mark"])}
        return verdict, data

    def _as_a_switch(self, data, packet):
        vlan, port = packet.get("vlan", 0) & 0xFFF, packet["in_port"]
        dst, src = data[:6], data[6:12]
        if not src[0] & 1 and any(src):
            self.learned[src, vlan] = port
        out = None if dst[0] & 1 else self.learned.get((dst, vlan))
        if out is not None:
            return [out] if out != port else []
        return [one for one in self.ports if one != port]
