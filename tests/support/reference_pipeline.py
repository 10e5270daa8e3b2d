"""A pipeline of rules as a plain reading of them has it: one packet after the other, each through all its tables.

Only the tracker is the real one, in a table of its own, asked one packet at a time.
"""

from __future__ import annotations

import numpy as np
import reference_rules
import tables
from zonetrack.service import rules_compile
from zonetrack.service.rules import Ct, CtClear, Goto, InPort, Normal, Output
from zonetrack.shm.layout import NO_RECORD, NO_TABLE, VERDICT, CtState, ZoneFrom
from zonetrack.shm.reasons import Reason

TABLES_MAX = 64
CT_FIELDS = ("ct_state", "zone", "mark", "label")


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
            Its verdict, the ports that it went out of in order, and the rules that it met.
        """
        packet = packet | dict.fromkeys(CT_FIELDS, 0)
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
                    outputs += [action.port] if action.port != packet["in_port"] else []
                elif isinstance(action, InPort):
                    outputs.append(packet["in_port"])
                elif isinstance(action, Normal):
                    outputs += self._as_a_switch(data, packet)
                elif isinstance(action, Goto):
                    table = action.table
                elif isinstance(action, CtClear):
                    packet |= dict.fromkeys(CT_FIELDS, 0)
                else:
                    verdict = self._track(data, packet, verdict, action, now_ms)
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
        if known and (packet["ct_state"] & CtState.INV or verdict["record"] != NO_RECORD):
            if ct.commit and ct.mark is not None and not packet["ct_state"] & CtState.INV:
                verdict = verdict.copy()
                verdict["mark"] = packet["mark"] = int(verdict["mark"]) & ~ct.mark.mask | ct.mark.value
                tables.entries(self.tracker.table)["mark"][verdict["record"]] = verdict["mark"]
            return verdict  # tracked there already
        asked = rules_compile.asked(ct)
        self._kept = [asked]
        action = 0 if asked is None else asked.ctypes.data
        verdict = self.tracker.track(data, zone, ct.commit, now_ms, action)
        packet |= {"ct_state": int(verdict["ct_state"]), "zone": int(verdict["zone"]), "mark": int(verdict["mark"])}
        return verdict

    def _as_a_switch(self, data, packet):
        vlan, port = packet.get("vlan", 0) & 0xFFF, packet["in_port"]
        dst, src = data[:6], data[6:12]
        if not src[0] & 1 and any(src):
            self.learned[src, vlan] = port
        out = None if dst[0] & 1 else self.learned.get((dst, vlan))
        if out is not None:
            return [out] if out != port else []
        return [one for one in self.ports if one != port]
