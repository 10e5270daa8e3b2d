"""One described packet through the rules, step by step, as Open vSwitch's ofproto/trace shows it.

It meets the rules as workers have them, in the same compiled form, and a ct tracks it in rehearsal (service/rehearsal): with
copies of the connections that are there, and those that it would make, but nothing becomes of it: no connection of the table
is made or changed, no counter moves.  What it carries is read as a helper reads it, and goes on as a helper writes it.  What
a ct finds can be assumed, a state for each (``ct_next``); then it is not tracked there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np

from ..kernels import classify
from ..kernels.words import u64
from ..shm.layout import DIMENSIONS_MAX, NO_RECORD, NO_TABLE, CtState, ZoneFrom
from ..shm.reasons import Reason, word
from . import described, rule_actions, rule_matches, rules_compile, rules_text
from .rehearsal import ENDS, Tracked
from .rules import Action, Answer, Ct, CtClear, Goto, InPort, Masked, Names, Normal, Output, Route, Rule

TABLES_MAX = 64
"""As kernels/pipeline has it."""
MONITOR = "priority=0,actions=ct(commit,zone=port),IN_PORT"
"""What happens where no rules hold."""
CT_FIELDS = ("ct_state", "zone", "mark", "label")
TRK, INV, NEW = int(CtState.TRK), int(CtState.INV), int(CtState.NEW)


Tracker = Callable[[bytes, int, np.ndarray | None, bool, bool], Tracked]
"""Tracks a frame in thought: in a zone, with an ACTION, committing or not, with numbers of its own or not."""


class Trace:
    """One packet on its way."""

    def __init__(
        self,
        packet: described.Described,
        names: Names,
        zones: dict[int, int],
        track: Tracker,
        assumed: Sequence[int] = (),
    ) -> None:
        """Begin before table 0.

        Args:
            packet: as it was described.
            names: what stands for ports and the like.
            zones: of ports, by number.
            track: tracks it in thought.
            assumed: ct_state bits that ct are assumed to find, in their order; beyond those it is tracked.
        """
        self.packet, self.names, self.zones, self._tracker = packet, names, zones, track
        self._assumed = list(assumed)
        self.fields, self._data = dict(packet.fields), packet.data
        self._record, self._is_numbered = NO_RECORD, False
        self.outputs: list[str] = []
        self.reason = Reason.NONE
        self.steps: list[dict[str, Any]] = []

    def run(self, generation: np.ndarray, rules: Sequence[Rule]) -> dict[str, Any]:
        """Go through all tables; returns each step, and what becomes of the packet at last.

        Args:
            generation: u1[bytes], compiled from the rules.
            rules: as they are numbered there.
        """
        rows = np.zeros(DIMENSIONS_MAX, "u8")
        table: int | None = 0
        while table is not None:
            if len(self.steps) == TABLES_MAX:
                self.reason = Reason.RULE_TABLES
                break
            fields = rules_compile.fields(**self.fields)
            at = (u64(array.ctypes.data) for array in (generation, fields, rows))
            number = int(classify.classify(next(at), u64(table), next(at), next(at)))
            rule = None if number == int(classify.NO_RULE) else rules[number]
            table = self._step(table, rule)
        if not self.outputs and not self.reason:
            self.reason = Reason.RULE_DROPPED
        told = self._words(self.packet.fields, self.packet.fields)
        if self.packet.payload:
            told += f",payload={described.told(self.packet.payload)}"
        return {
            "packet": told,
            "steps": self.steps,
            "outputs": self.outputs,
            "reason": word(self.reason),
        }

    def _step(self, table: int, rule: Rule | None) -> int | None:
        """Meet a rule; returns the table to go on with."""
        step: dict[str, Any] = {"table": table, "rule": None, "actions": []}
        self.steps.append(step)
        if rule is None:
            self.reason = Reason.RULE_MISSED
            return None
        step["rule"] = rules_text.line(rule, self.names).partition(" actions=")[0]
        following = None
        for action, text in zip(rule.actions, rule_actions.words(rule.actions, self.names), strict=False):
            said: list[str] = []
            following = self._act(action, said)
            step["actions"].append({"action": text, "said": said})
        if not rule.actions:
            step["actions"].append({"action": "drop", "said": []})
        return following

    def _act(self, action: Action, said: list[str]) -> int | None:
        """Do what an action says, and say what became of it; returns the table to go on with."""
        match action:
            case Output(port):
                if port == self.packet.in_port:
                    said.append("not sent: a packet goes back to its port only by IN_PORT")
                else:
                    self.outputs.append(self.names.port_name(port))
            case InPort():
                self.outputs.append(self.names.port_name(self.packet.in_port))
            case Normal():
                others = [name for name, number in self.names.ports.items() if number != self.packet.in_port]
                said.append(f"where its Ethernet address was seen last, else to all of {', '.join(others) or 'nobody'}")
                self.outputs.append("NORMAL")
            case Goto(table):
                return table
            case Route(_, destination, _, _, _):
                said.append(
                    f"its TTL is one less, and it is for {rule_actions.mac_word(destination)}; else ICMP says why"
                )
            case Answer():
                said.append("what asks for that address, or pings it, is answered, and goes no further")
            case CtClear():
                self.fields |= dict.fromkeys(CT_FIELDS, 0)
                self._record = NO_RECORD
            case Ct():
                return self._track(action, said)
        return None

    # -------------------------------------------------------------------------------------------- ct
    def _zone(self, ct: Ct) -> int:
        vlan = self.fields.get("vlan", 0) & 0xFFF
        in_port = self.packet.in_port
        zones = {ZoneFrom.VLAN: vlan, ZoneFrom.IN_PORT: in_port, ZoneFrom.PORT: self.zones.get(in_port, 0)}
        return zones.get(ct.zone_from, ct.zone)

    def _track(self, ct: Ct, said: list[str]) -> int | None:
        """Track the packet in thought."""
        zone = self._zone(ct)
        state = self.fields.get("ct_state", 0)
        known = state & TRK and self.fields.get("zone") == zone and (state & INV or self._record != NO_RECORD)
        if self._assumed:
            state = self._assumed.pop(0)
            self._record = NO_RECORD
            self.fields |= {"ct_state": state, "zone": zone}
            said.append(f"zone {zone}: assumed {_state(state)}")
        elif known and not ct.force:
            said.append(f"zone {zone}: as before, {_state(state)}")
        else:
            state = self._play(zone, ct, said)
            return None if ct.next_table == NO_TABLE else ct.next_table
        if ct.commit and not state & INV:
            said.append(self._commit(ct, state))
        return None if ct.next_table == NO_TABLE else ct.next_table

    def _play(self, zone: int, ct: Ct, said: list[str]) -> int:
        """Have it tracked, and say what became of it; returns its ct_state."""
        before, carried = dict(self.fields), self._carried()
        done = self._tracker(self._data, zone, rules_compile.asked(ct), ct.commit, self._is_numbered)
        self._data = done.data
        verdict, state = done.verdict, int(done.verdict["ct_state"])
        self._record = int(verdict["record"])
        self._is_numbered |= self._record != NO_RECORD and not done.is_made
        self.fields |= done.fields
        self.fields |= {"ct_state": state, "zone": zone, "mark": int(verdict["mark"]), "label": done.label}
        text = f"zone {zone}: {_state(state)}"
        if self._record != NO_RECORD and not done.is_made:
            text += f", of connection {done.known}" if done.known else ", of a connection made before"
            text += f", mark {self.fields['mark']:#x}" if self.fields["mark"] else ""
            text += f", label {done.label:#x}" if done.label else ""
        why = word(Reason(int(verdict["reason"])))
        said.append(text + (f", {why}" if why else ""))
        if ct.commit and not state & INV and (self._record != NO_RECORD or state & NEW):
            said.append(self._committed(ct, done))
        if done.fields:
            free = ", while nobody has that" if done.is_made else ""
            said.append(f"goes on as {self._words(self._shown(), self.fields)}{free}")
        said += self._rewritten(before, done)
        if (carries := self._carried()) != carried:
            said.append(f"carries {described.told(carries)}")
        return state

    def _carried(self) -> bytes:
        """Return what it carries by now."""
        return described.payload_of(self._data, self.fields["protocol"]) if self.packet.payload else b""

    def _committed(self, ct: Ct, done: Tracked) -> str:
        """Say what a commit has done."""
        if self._record == NO_RECORD:
            return "no connection would be made"
        text = "its connection is there"
        if done.is_made:
            text = "a connection would be made"
            if ct.nat is not None and ct.nat.way:
                text += f", with another {'source' if ct.nat.way == 'src' else 'destination'}"
        return text + self._changed(ct)

    def _changed(self, ct: Ct) -> str:
        changes = [f"{name} {self.fields[name]:#x}" for name in ("mark", "label") if getattr(ct, name) is not None]
        return f", with {' and '.join(changes)}" if changes else ""

    def _rewritten(self, before: dict[str, int], done: Tracked) -> list[str]:
        """Say what else is another in a packet that goes on: its numbers, and what it says; and what it has foretold."""
        said = []
        if any(done.shifts):
            said.append(
                "its numbers change, for payloads were rewritten: sequence {:+d}, acknowledgment {:+d}".format(
                    *done.shifts
                )
            )
        if done.helper and done.fields:
            size = 4 if before["eth_type"] == rule_matches.IPV4 else 16
            ends = [
                f"{ip_address(before[end].to_bytes(size, 'big'))} as {ip_address(self.fields[end].to_bytes(size, 'big'))}"
                for end in ("src", "dst")
                if before[end] != self.fields[end]
            ]
            if ends:
                name = done.helper.name.lower()
                said.append(f"its helper {name} rewrites what its messages say of {' and '.join(ends)}")
        for one in done.foretold:
            whose = f"{one['src'] or 'anybody'}{':{}'.format(one['sport']) if one['sport'] else ''}"
            said.append(f"foretells {one['proto']} from {whose} to {one['dst']}:{one['dport']}, {one['class']}")
        return said

    def _words(self, names: Iterable[str], fields: Mapping[str, int]) -> str:
        """Return fields in the words of rules."""
        told = rule_matches.words({name: _exact(name, fields[name]) for name in names}, self.names)
        return ",".join(one if value is None else f"{one}={value}" for one, value in told)

    def _shown(self) -> list[str]:
        """Return the fields that say who a packet is from and for."""
        return [name for name in ("eth_type", "protocol", *ENDS) if name in self.fields]

    def _commit(self, ct: Ct, state: int) -> str:
        """Say what a commit would do to a packet that was not tracked for it, and let later tables see it."""
        for name, change in (("mark", ct.mark), ("label", ct.label)):
            if change is not None:
                self.fields[name] = self.fields.get(name, 0) & ~change.mask | change.value
        is_new = state & NEW and self._record == NO_RECORD
        text = "a connection would be made" if is_new else "its connection is there"
        if is_new and ct.nat is not None and ct.nat.way:
            text += f", with another {'source' if ct.nat.way == 'src' else 'destination'}, which is not chosen here"
        return text + self._changed(ct)


def _exact(name: str, value: int) -> Masked:
    return Masked(value, (1 << rules_compile.BITS[name]) - 1)


def _state(state: int) -> str:
    return "|".join(bit.name.lower() for bit in CtState if state & bit) or "untracked"


def assumptions(texts: Sequence[str]) -> list[int]:
    """Return the ct_states that ct are assumed to find, from text as ``trk,new`` or ``+trk+new``.

    Raises:
        ValueError: one is none.
    """
    known = rule_matches.CT_FLAGS
    return [rule_matches.flags(text.replace(",", "|"), known, 8).value | TRK for text in texts]
