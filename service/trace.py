"""One described packet through the rules, step by step, as Open vSwitch's ofproto/trace shows it.

It meets the rules as workers have them, in the same compiled form, and a ct is answered by the table as it is; but nothing
becomes of it: no connection is made or changed, no counter moves.  So a packet that would be committed is new in each zone
once; what the next one would find can be assumed, a state for each ct (``ct_next``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import string_at
from ipaddress import ip_address
from typing import Any, NamedTuple

import numpy as np

from ..kernels import classify, preview
from ..kernels.words import u64
from ..shm.layout import (
    ACTION,
    DIMENSIONS_MAX,
    ENTRY,
    ENTRY_BYTES,
    EXTENSION,
    FIELDS,
    FRAME,
    NO_RECORD,
    NO_TABLE,
    VERDICT,
    CtState,
    Helper,
    Link,
    Nat,
    Status,
    ZoneFrom,
)
from ..shm.reasons import Reason, word
from . import described, rule_actions, rule_matches, rules_compile, rules_text
from .rule_matches import TCP
from .rules import Action, Answer, Ct, CtClear, Goto, InPort, Masked, Names, Normal, Output, Route, Rule

TABLES_MAX = 64
"""As kernels/pipeline has it."""
MONITOR = "priority=0,actions=ct(commit,zone=port),IN_PORT"
"""What happens where no rules hold."""
CT_FIELDS = ("ct_state", "zone", "mark", "label")
TRK, INV, NEW = int(CtState.TRK), int(CtState.INV), int(CtState.NEW)


class Judged(NamedTuple):
    """What the tracker would say of a packet, and how the packet would go on."""

    verdict: np.void
    label: int
    """Of its connection."""
    data: bytes
    fields: dict[str, int]
    """What there is of it that can be translated."""
    shifts: tuple[int, int] = (0, 0)
    """What its sequence number and its acknowledgment change by."""
    helper: Helper = Helper.NONE
    """Who reads, and where it is translated writes, the messages of its connection."""


Judge = Callable[[bytes, int, bool], Judged]
"""Judges a frame in a zone, and whether it is translated there as its connection is."""
ENDS = ("src", "dst", "sport", "dport")


def judged_by(views: np.record) -> Judge:
    """Return what asks the table, on behalf of a participant."""
    translated = np.zeros(1, ACTION)
    translated["nat"] = Nat.APPLY

    def judge(data: bytes, zone: int, translate: bool) -> Judged:
        held = np.frombuffer(bytearray(data), "u1")
        frame, verdict, copy = np.zeros(1, FRAME), np.zeros(1, VERDICT), np.zeros(preview.COPY_BYTES // 8, "u8")
        fields = np.zeros(1, FIELDS)
        frame["address"], frame["captured_bytes"] = held.ctypes.data, len(data)
        frame["wire_bytes"], frame["link"], frame["zone"] = len(data), Link.ETHERNET, zone
        frame["action"] = translated.ctypes.data if translate else 0
        now_ms = u64(time.monotonic_ns() // 1_000_000)
        at = (u64(array.ctypes.data) for array in (frame, copy, fields, verdict))
        preview.judge(views, next(at), now_ms, next(at), next(at), next(at))
        high, low = copy[ENTRY_BYTES // 8 :].tolist()
        if not int(verdict["ct_state"][0]) & (CtState.SNAT | CtState.DNAT):
            return Judged(verdict[0], high << 64 | low, data, {})
        ends = {name: fields[name][0] for name in ENDS}
        new = {name: int(one) if one.ndim == 0 else int(one[0]) << 64 | int(one[1]) for name, one in ends.items()}
        copied = copy[: ENTRY_BYTES // 8].view(ENTRY)[0]
        shifts, helper = (0, 0), Helper.NONE
        if int(copied["extension"]) and int(copied["status"]) & (Status.SEQUENCE_OFFSETS | Status.HELPER):
            behind = _extension(views, int(copied["extension"]) - 1)
            helper = Helper(int(behind["helper"])) if copied["status"] & Status.HELPER else helper
            if copied["status"] & Status.SEQUENCE_OFFSETS and fields["protocol"][0] == TCP:
                sent, back = behind["sequence_offset"][[way := int(verdict["direction"][0]), 1 - way]]
                shifts = int(sent[2]), -int(back[2])
        return Judged(verdict[0], high << 64 | low, held.tobytes(), new, shifts, helper)

    return judge


def _extension(views: np.record, number: int) -> np.void:
    """Return a copy of an EXTENSION, as it is at this moment: nobody is asked to stand still for what is only shown."""
    at = int(views["extensions"]) + number * EXTENSION.itemsize
    return np.frombuffer(string_at(at, EXTENSION.itemsize), EXTENSION)[0]


class Trace:
    """One packet on its way."""

    def __init__(
        self,
        packet: described.Described,
        names: Names,
        zones: dict[int, int],
        judge: Judge,
        assumed: Sequence[int] = (),
    ) -> None:
        """Begin before table 0.

        Args:
            packet: as it was described.
            names: what stands for ports and the like.
            zones: of ports, by number.
            judge: says what the tracker would say.
            assumed: ct_state bits that ct are assumed to find, in their order; those beyond are judged.
        """
        self.packet, self.names, self.zones, self._judge = packet, names, zones, judge
        self._assumed = list(assumed)
        self.fields, self._data = dict(packet.fields), packet.data
        self._record = NO_RECORD
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
        told = rule_matches.words({name: _exact(name, value) for name, value in self.packet.fields.items()}, self.names)
        return {
            "packet": ",".join(one if value is None else f"{one}={value}" for one, value in told),
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
            state = self._ask(zone, ct.nat is not None, said)
        if ct.commit and not state & INV:
            said.append(self._commit(ct, state))
        if ct.next_table == NO_TABLE:
            return None
        return ct.next_table

    def _ask(self, zone: int, translate: bool, said: list[str]) -> int:
        """Ask the table; returns the ct_state."""
        before = dict(self.fields)
        verdict, label, self._data, ends, shifts, helper = self._judge(self._data, zone, translate)
        self.fields |= ends
        state, self._record = int(verdict["ct_state"]), int(verdict["record"])
        self.fields |= {"ct_state": state, "zone": zone, "mark": int(verdict["mark"]), "label": label}
        why = word(Reason(int(verdict["reason"])))
        text = f"zone {zone}: {_state(state)}"
        if self._record != NO_RECORD:
            text += f", of connection {int(verdict['incarnation']) << 32 | self._record}"
            text += f", mark {self.fields['mark']:#x}" if self.fields["mark"] else ""
            text += f", label {label:#x}" if label else ""
        said.append(text + (f", {why}" if why else ""))
        if ends:
            told = rule_matches.words({name: _exact(name, self.fields[name]) for name in self._shown()}, self.names)
            said.append("goes on as " + ",".join(one if value is None else f"{one}={value}" for one, value in told))
            said += self._rewritten(before, shifts, helper)
        return state

    def _rewritten(self, before: dict[str, int], shifts: tuple[int, int], helper: Helper) -> list[str]:
        """Say what else is another in a packet that goes on translated: its numbers, and what it says of addresses."""
        said = []
        if any(shifts):
            said.append(
                "its numbers change, for payloads were rewritten: sequence {:+d}, acknowledgment {:+d}".format(*shifts)
            )
        if helper:
            size = 4 if before["eth_type"] == rule_matches.IPV4 else 16
            ends = [
                f"{ip_address(before[end].to_bytes(size, 'big'))} as {ip_address(self.fields[end].to_bytes(size, 'big'))}"
                for end in ("src", "dst")
                if before[end] != self.fields[end]
            ]
            said.append(f"its helper {helper.name.lower()} rewrites what its messages say of {' and '.join(ends)}")
        return said

    def _shown(self) -> list[str]:
        """Return the fields that say who a packet is from and for."""
        return [name for name in ("eth_type", "protocol", *ENDS) if name in self.fields]

    def _commit(self, ct: Ct, state: int) -> str:
        """Say what a commit would do, and let later tables see it."""
        for name, change in (("mark", ct.mark), ("label", ct.label)):
            if change is not None:
                self.fields[name] = self.fields.get(name, 0) & ~change.mask | change.value
        is_new = state & NEW and self._record == NO_RECORD
        text = "a connection would be made" if is_new else "its connection is there"
        if is_new and ct.nat is not None and ct.nat.way:
            text += f", with another {'source' if ct.nat.way == 'src' else 'destination'}, which is not chosen here"
        changes = [f"{name} {self.fields[name]:#x}" for name in ("mark", "label") if getattr(ct, name) is not None]
        return text + (f", with {' and '.join(changes)}" if changes else "")


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
