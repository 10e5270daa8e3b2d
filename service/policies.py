"""Timeout policies: rows of lengths in seconds, and which row the connections of a zone get, as operators read and set them.

A policy is known by its row, and by a name if it was given one.  A length that is changed holds from a connection's next
packet on; a zone's policy, for connections that begin after it.
"""

from __future__ import annotations

import re
import reprlib
from typing import Any

import numpy as np

from ..clients.errors import BadParameterError, FailedError, NothingMatchedError, UnknownParameterError
from ..kernels.timeouts import DEFAULTS_MS, DEFAULTS_OVS_S, DEFAULTS_S, OVS, Timeout
from ..shm.layout import POLICIES_MAX, POLICY, POLICY_NAME_BYTES, TIMEOUTS_MAX, ZONE, Region, Setting
from ..shm.views import Table
from . import labels
from .parameters import bad, hint, nearest

MS_MAX = (1 << 32) - 1
ALIASES = {"tcp_retransmit": "tcp_max_retrans", "tcp_unack": "tcp_unacknowledged"}
"""Open vSwitch's names where they are others than Linux's for the same (lib/netlink-conntrack.c)."""
NAMES = {timeout.name.lower(): timeout for timeout in Timeout}
NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{POLICY_NAME_BYTES - 1}}}")
"""Of a policy: never a number."""
DEFAULT = "default"
"""The name of policy 0, always."""
DEFAULTS = {
    labels.NETFILTER: (0, frozenset(DEFAULTS_S)),
    labels.OVS: (OVS, frozenset(DEFAULTS_OVS_S)),
}
"""By profile: the bit of it in DEFAULTS_MS, and the timeouts that it has."""


class Policies:
    """The timeout policies of one table."""

    def __init__(self, table: Table) -> None:
        rows = table.array(Region.CONTROL, "policies", POLICY)
        self._rows, self._names = rows["timeout_ms"], rows["name"]
        self._zones = table.array(Region.CONTROL, "zones", ZONE)

    # -------------------------------------------------------------------------------------------- which
    def name(self, policy: int) -> str | None:
        """Return the name of a policy; None where it has none."""
        return DEFAULT if policy == 0 else self._names[policy].tobytes().rstrip(b"\0").decode("ascii") or None

    def find(self, policy: int | str) -> int:
        """Return the row of a policy.

        Raises:
            NothingMatchedError: none has that name.
        """
        if isinstance(policy, int):
            return policy
        names = {self.name(row): row for row in range(POLICIES_MAX)}
        if policy not in names:
            near = nearest(policy, [name for name in names if name])
            raise NothingMatchedError(
                f"there is no timeout policy {reprlib.repr(policy)}{hint(near)}", {"policy": policy[:100]} | near
            )
        return names[policy]

    def make(self, policy: int | str) -> int:
        """Return the row of a policy; one with a new name gets a row that says nothing yet.

        Raises:
            FailedError: all rows are taken.
        """
        try:
            return self.find(policy)
        except NothingMatchedError:
            taken = self._rows.any(axis=1) | self._names.any(axis=1)
            taken |= np.isin(np.arange(POLICIES_MAX), [0, *self._zones["policy"]])
            free = np.flatnonzero(~taken)
            if not len(free):
                raise FailedError(f"all {POLICIES_MAX} timeout policies are taken") from None
            self._names[free[0]] = np.frombuffer(str(policy).encode().ljust(POLICY_NAME_BYTES, b"\0"), "u1")
            return int(free[0])

    # -------------------------------------------------------------------------------------------- what
    def get(self, policy: int | None = None) -> dict[str, Any]:
        """Return the lengths of policies in seconds, and the zones that have another policy than 0.

        What a policy leaves to the default depends on the profile: a policy is shown once for each profile that its zones
        have, and as `netfilter` where it has none.

        Args:
            policy: which; None: 0, all that change something or have a name, and all that zones have.
        """
        of_zones = self._zones["policy"]
        zones = {int(zone): int(of_zones[zone]) for zone in np.flatnonzero(of_zones)}
        if policy is None:
            known = np.flatnonzero(self._rows.any(axis=1) | self._names.any(axis=1)).tolist()
            shown = sorted({0, *known, *zones.values()})
        else:
            shown = [policy]
            zones = {zone: row for zone, row in zones.items() if row == policy}
        return {
            "policies": [
                {"policy": row, "name": self.name(row), "profile": profile, "timeouts": self._lengths(row, profile)}
                for row in shown
                for profile in self._profiles(row)
            ],
            "zones": [{"zone": zone, "policy": row, "name": self.name(row)} for zone, row in zones.items()],
        }

    def _profiles(self, policy: int) -> list[str]:
        """Return the profiles of the zones that have a policy."""
        is_ovs = self._zones["settings"][self._zones["policy"] == policy] & Setting.OVS != 0
        found = [labels.NETFILTER] if not is_ovs.all() or not len(is_ovs) else []
        return [*found, labels.OVS] if is_ovs.any() else found

    def _lengths(self, policy: int, profile: str) -> dict[str, float]:
        """Return the timeouts of a profile, and whatever else the policy changes."""
        bit, names = DEFAULTS[profile]
        row = self._rows[policy]
        found = np.where(row == 0, DEFAULTS_MS[bit : bit + TIMEOUTS_MAX], row)
        return {
            name: int(found[timeout]) / 1000 for name, timeout in NAMES.items() if timeout in names or row[timeout] != 0
        }

    def set(self, policy: int, lengths: dict[Timeout, int]) -> None:
        """Change lengths of a policy, in milliseconds; 0 is the default again."""
        for timeout, length_ms in lengths.items():
            self._rows[policy][timeout] = length_ms

    def unset(self, policy: int) -> bool:
        """Take all lengths of a policy back, its name, and it from its zones; return whether there was anything of it."""
        had = bool(self._rows[policy].any() or self._names[policy].any() or (self._zones["policy"] == policy).any())
        self._zones["policy"][self._zones["policy"] == policy] = 0
        self._names[policy] = 0
        self._rows[policy] = 0
        return had

    def set_zone(self, zone: int, policy: int) -> None:
        """Choose the policy of a zone."""
        self._zones["policy"][zone] = policy


def policy(name: str, value: Any) -> int | str:
    """Read which policy is meant: its row, or its name."""
    if type(value) is int and 0 <= value < POLICIES_MAX:
        return value
    if type(value) is str and NAME.fullmatch(value):
        return value
    most = POLICIES_MAX - 1
    raise bad(name, f"a number from 0 to {most}, or a name of at most {POLICY_NAME_BYTES} of A-Z a-z 0-9 _ . -", value)


def name_of(text: str) -> str:
    """Return the name of a timeout: ours, Open vSwitch's, or that of Linux's sysctl."""
    name = text.lower().removeprefix("nf_conntrack_").replace("_timeout", "")
    return ALIASES.get(name, name)


def lengths(name: str, value: Any) -> dict[Timeout, int]:
    """Read a map of timeouts, by the names of both worlds, to seconds, nil for the default, into milliseconds.

    Raises:
        UnknownParameterError: there is no such timeout.
        BadParameterError: a length cannot be.
    """
    if type(value) is not dict:
        raise bad(name, "a map of timeouts to seconds", value)
    found = {}
    for key, seconds in value.items():
        timeout = name_of(str(key))
        if timeout not in NAMES:
            near = nearest(timeout, NAMES)
            raise UnknownParameterError(
                f"there is no timeout {reprlib.repr(key)}{hint(near)}", {"parameter": f"{name}.{key!s:.100}"} | near
            )
        found[NAMES[timeout]] = 0 if seconds is None else _milliseconds(f"{name}.{key}", seconds)
    if not found:
        raise BadParameterError(f"{name}: names no timeout", {"parameter": name})
    return found


def _milliseconds(name: str, seconds: Any) -> int:
    # written so that NaN fails
    if type(seconds) not in (int, float) or not 0.001 <= seconds <= MS_MAX / 1000:
        raise bad(name, f"seconds from 0.001 to {MS_MAX // 1000}, or nil for the default", seconds)
    return round(seconds * 1000)
