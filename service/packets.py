"""Packets' verdicts as people and programs read them: one line each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import count

import numpy as np

from ..shm.layout import NO_RECORD, VerdictFlag
from ..shm.reasons import word
from . import labels

HEADING = f"{'n':>6}  {'time':20}  {'zone':>5} {'label':7} {'ct_state':16} {'reason':18} id"


def json_lines(
    file: str, times: np.ndarray, verdicts: np.ndarray, first: int, profile: str = labels.NETFILTER
) -> Iterator[str]:
    """Yield a JSON object for each packet.

    Args:
        file: name of the capture.
        times: u64[n], nanoseconds since 1970.
        verdicts: VERDICT[n]; zero where the worker died that had to give one.
        first: number of the first of these packets, from 1.
        profile: whose labels.
    """
    name = json.dumps(file)
    for n, time_ns, verdict in zip(count(first), times.tolist(), verdicts.tolist(), strict=False):
        ct_state, reason, way, flags, zone, _, _, record, incarnation, *_ = verdict
        yield (
            f'{{"file": {name}, "n": {n}, "time": {seconds(time_ns)}, "zone": {zone}, '
            f'{_json_words(ct_state, reason, way, flags, profile)}, "id": {_id(record, incarnation) or "null"}}}'
        )


def text_lines(times: np.ndarray, verdicts: np.ndarray, first: int, profile: str = labels.NETFILTER) -> Iterator[str]:
    """Yield a line for each packet, to stand below ``HEADING``; arguments as of ``json_lines``."""
    for n, time_ns, verdict in zip(count(first), times.tolist(), verdicts.tolist(), strict=False):
        ct_state, reason, way, flags, zone, _, _, record, incarnation, *_ = verdict
        yield (
            f"{n:6}  {seconds(time_ns):20}  {zone:5} {_text_words(ct_state, reason, way, flags, profile)} "
            f"{_id(record, incarnation) or '-'}"
        )


def seconds(time_ns: int) -> str:
    """Return a time in seconds, with all the digits that it has."""
    whole, rest = divmod(time_ns, 1_000_000_000)
    return f"{whole}.{rest:09}".rstrip("0") if rest else f"{whole}.0"


def is_lost(ct_state: int, flags: int) -> bool:
    """Whether nobody gave this verdict: a tracked packet has a bit of ct_state, any other a flag."""
    return not ct_state and not flags


@cache
def _json_words(ct_state: int, reason: int, way: int, flags: int, profile: str) -> str:
    words = {
        "ct_state": labels.names(ct_state),
        "direction": labels.direction(ct_state, way),
        "assured": bool(flags & VerdictFlag.ASSURED),
        "reason": word(reason),
        "label": None if is_lost(ct_state, flags) else labels.label(ct_state, way, flags, profile),
    }
    return json.dumps(words)[1:-1]


@cache
def _text_words(ct_state: int, reason: int, way: int, flags: int, profile: str) -> str:
    label = "-" if is_lost(ct_state, flags) else labels.label(ct_state, way, flags, profile)
    return f"{label:7} {'|'.join(labels.names(ct_state)) or '-':16} {word(reason) or '-':18}"


def _id(record: int, incarnation: int) -> int | None:
    """Return the public id of the packet's connection."""
    return None if record == NO_RECORD or not incarnation else incarnation << 32 | record
