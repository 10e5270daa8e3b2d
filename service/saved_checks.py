"""What a saved file may say: its checksum says that it is whole, not that whoever wrote it meant well, or was well.

A description that cannot be refuses the file, before anything is touched.  Of rows, what cannot be is left out, or set to
what it is where nobody has set it; so kernels meet nothing in a table that they could not have put there.

    a row of                left out where                                      set
    connections             no family of addresses; a bit wants an extension    policy, moments, bits that there are not
                            that it has not; the reply is of another zone
    expectations            a helper, kind or family that there is not          bits that there are not, moments
    zones, in all                                                               bits and policies that there are not
    policies                                                                    a name that none can have
    quotas                                                                      marks of which one is not below the other
    rules of helpers        a helper that there is not
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from ..shm import descriptions
from ..shm.layout import (
    FTP_STATE,
    KEY_WORDS,
    MAX_RETRANS_SHIFT,
    POLICIES_MAX,
    POLICY_SHIFT,
    PPTP_STATE,
    RULE_HELPER_SHIFT,
    ExpectationFlag,
    Foretold,
    Helper,
    Life,
    Setting,
    Status,
)
from ..shm.sizing import Geometry
from .policies import NAME

LIFETIME_MS_MAX = 1 << 32
"""Longer than any timeout can be."""
SAVED_S_MAX = 1 << 36
"""Until the year 4147."""
FAMILIES = (4, 6)
_LAST = KEY_WORDS - 1
_WANTS_EXTENSION = Status.SOURCE_NAT | Status.DESTINATION_NAT | Status.SEQUENCE_OFFSETS | Status.HELPER
_SESSIONS_MAX = 63
"""Numbers of sessions and calls that can be bits of a word."""


class ImpossibleError(ValueError):
    """A description says what cannot be; the text says what."""


def every_bit(kind: Iterable[IntEnum]) -> int:
    """Return all bits of an enum."""
    made = 0
    for bit in kind:
        made |= int(bit)
    return made


# ------------------------------------------------------------------------------------------------ the description
def demand(told: Any, names: Iterable[str]) -> None:
    """See that a description is one.

    Args:
        told: as it was read.
        names: of the kinds of rows whose layout it may tell.

    Raises:
        ImpossibleError: it is none.
    """
    if not isinstance(told, dict):
        raise ImpossibleError("it is no map")
    for name, kind in (
        ("version", int),
        ("format", int),
        ("now_ms", int),
        ("geometry", list),
        ("rows", dict),
        ("bits", dict),
    ):
        if type(told.get(name)) is not kind:
            raise ImpossibleError(f"{name} is no {kind.__name__}")
    if not 0 <= told["now_ms"] < 1 << 62:
        raise ImpossibleError("now_ms is no moment")
    saved_s = told.get("saved_s")
    if not isinstance(saved_s, int | float) or not 0 <= saved_s < SAVED_S_MAX:
        raise ImpossibleError("saved_s is no moment")
    if len(told["geometry"]) != 3 or any(type(one) is not int for one in told["geometry"]):
        raise ImpossibleError("geometry is not three numbers")
    try:
        Geometry(*told["geometry"])
        for name in set(names) & set(told["rows"]):
            descriptions.laid_out(told["rows"][name])
    except ValueError as error:
        raise ImpossibleError(str(error)) from None
    for enum, numbers in told["bits"].items():
        if type(numbers) is not dict or any(type(one) is not int or not 0 <= one < 1 << 32 for one in numbers.values()):
            raise ImpossibleError(f"the numbers of {enum} are none")
    if type(told.get("protocols", {})) is not dict:
        raise ImpossibleError("protocols is no map")


# ------------------------------------------------------------------------------------------------ rows
def connections(entries: np.ndarray, more: np.ndarray, now_ms: int) -> np.ndarray:
    """Return which of some connections can be, and set what of them cannot.

    Args:
        entries: ENTRY[n], moments by this clock; written.
        more: EXTENSION[n], the i-th means something where the i-th entry has one; written.
        now_ms: the moment.
    """
    last, reply, has_more = entries["key"][:, _LAST], more["reply_key"][:, _LAST], entries["extension"] != 0
    same = (last ^ reply) & np.uint64(0xFFFFFFFF) == 0  # zone, protocol and family
    can_be = np.isin(last & np.uint64(0xFF), FAMILIES) & (~has_more | (reply == 0) | same)
    entries["status"] &= np.uint16(every_bit(Status))
    can_be &= has_more | (entries["status"] & np.uint16(_WANTS_EXTENSION) == 0)
    has_helper = has_more & np.isin(more["helper"], [int(one) for one in Helper])
    entries["status"][~has_helper] &= ~np.uint16(Status.HELPER)
    more["helper"][~has_helper] = Helper.NONE
    _forget_lines(more)
    entries["policy"][entries["policy"] >= POLICIES_MAX] = 0
    entries["life"] = entries["life"] & ~np.uint64(0xFF) | np.uint64(Life.LIVE)
    entries["expiry_ms"] = np.minimum(entries["expiry_ms"], np.uint64(now_ms + LIFETIME_MS_MAX))
    entries["created_ms"] = np.minimum(entries["created_ms"], np.uint64(now_ms))
    return can_be


def _forget_lines(more: np.ndarray) -> None:
    """Forget in the middle of which line a control channel is, for it has gone on; and calls in no state that there is."""
    states = np.ascontiguousarray(_helper_states(more))
    calls = states.view(PPTP_STATE)[:, 0]
    torn = (more["helper"] == Helper.PPTP) & ((calls["session"] > _SESSIONS_MAX) | (calls["call"] > _SESSIONS_MAX))
    more["helper_state"][torn | (more["helper"] == Helper.FTP)] = 0


def _helper_states(more: np.ndarray) -> np.ndarray:
    """Return the bytes of what helpers remember, each with the number of its helper: u1[n, HELPER_STATE_BYTES]."""
    made = np.zeros((len(more), FTP_STATE.itemsize), "u1")
    made[:, :-1], made[:, -1] = more["helper_state"], more["helper"]
    return made


def expectations(rows: np.ndarray, now_ms: int) -> np.ndarray:
    """Return those of some expectations that can be, with what of them cannot set.

    Args:
        rows: EXPECTATION[n], moments by this clock.
        now_ms: the moment.
    """
    can_be = np.isin(rows["last"] & np.uint64(0xFF), FAMILIES) & np.isin(rows["kind"], [int(one) for one in Foretold])
    helpers = [int(one) for one in Helper]
    can_be &= np.isin(rows["helper"], helpers) & np.isin(rows["child_helper"], helpers)
    made = rows[can_be].copy()
    made["flags"] &= np.uint32(every_bit(ExpectationFlag))
    made["expiry_ms"] = np.minimum(made["expiry_ms"], np.uint64(now_ms + LIFETIME_MS_MAX))
    return made


def settings(arrays: Mapping[str, np.ndarray]) -> None:
    """Set what cannot be in the arrays of a new table that say how it is set; by name, written."""
    known = every_bit(Setting)
    zones, globals_, quotas = arrays["zones"], arrays["globals"], arrays["quotas"]
    zones["settings"] &= np.uint16(known & 0xFFFF)
    zones["policy"][zones["policy"] >= POLICIES_MAX] = 0
    globals_["settings"] &= np.uint32(known | 0xFF << MAX_RETRANS_SHIFT)
    assert POLICY_SHIFT == MAX_RETRANS_SHIFT + 8
    unlike = quotas["adaptive_start"] >= quotas["adaptive_end"]
    quotas["adaptive_start"][unlike] = quotas["adaptive_end"][unlike] = 0
    for row in arrays["policies"]:
        name = row["name"].tobytes().rstrip(b"\0")
        if name and not NAME.fullmatch(name.decode("ascii", "replace")):
            row["name"] = 0
    rules = arrays["helper_rules"]
    helpers = rules >> np.uint64(RULE_HELPER_SHIFT) & np.uint64(0xFF)
    rules[~np.isin(helpers, [int(one) for one in Helper if one is not Helper.NONE])] = 0
