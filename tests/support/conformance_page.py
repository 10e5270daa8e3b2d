"""docs/conformance.md: the tables of tests/support/conformance, printed; ``make conformance`` writes it.

Every packet that differs stands there with the rule that makes it differ.  Rules are told by what they are about: the
verdicts, our reason, what was done to the packet before the other tracker saw it.  No rule knows a capture.
"""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import le
from pathlib import Path
from typing import NamedTuple

import conformance
import corpus
from conformance import ASPECTS, RUNS, Difference, Result, TableDifference
from zonetrack.shm.reasons import Reason

INTRODUCTION = """\
# Conformance

Printed by `make conformance` (tests/support/conformance_page.py); change it there.

Others have tracked every packet of a corpus of public captures: Linux 6.18 (`kernel-*`) and Open vSwitch 4.0.90
(`ovs-*`). Here the same captures went through `zonetrack replay`, each alone on a fresh table and on a clock that stands
still, as it did for the others. Addresses were mapped as they were for them, helpers had the same ports.

Packets of which the other tracker has no verdict (not IP, not forwarded, still held as a fragment) are left out; where
checksums were verified, so are captures in which a packet had been mended before it was sent. Of a file with a fault, what
stands before it is compared. Captures are named by the beginnings of their SHA-256.
"""


class Rule(NamedTuple):
    """Why some packets or connections differ."""

    text: str
    packets: Callable[[Difference], bool]
    connections: Callable[[TableDifference], bool]


def _outgrown(one: TableDifference) -> bool:
    """Whether a connection has the same packets, but more bytes to us."""
    if one.aspect != "packets and bytes":
        return False
    return one.theirs[::2] == one.ours[::2] and all(map(le, one.theirs, one.ours))


RULES = (
    Rule(
        "The capture holds less of a packet than its IP header says, and says itself that there was no more. The other "
        "tracker was sent zeros for the rest; to `zonetrack`, as to a host, the packet is broken.",
        lambda one: "p" in one.mended and one.reason in (Reason.TRUNCATED, Reason.L3_HEADER),
        lambda one: "p" in one.mended,
    ),
    Rule(
        "The capture says that there was more of an IPv6 packet on the wire than it holds, and the packet has no length of "
        "its own. `zonetrack` counts the bytes that were on the wire; the other tracker was sent what the capture holds.",
        lambda _: False,
        _outgrown,
    ),
)
"""The first that holds is the one."""


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """Yield a table."""
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
    yield ""


def page(results: dict[str, Result]) -> str:
    """Return the page."""
    return "\n".join(_lines(results)).rstrip("\n") + "\n"


def _lines(results: dict[str, Result]) -> Iterator[str]:
    yield INTRODUCTION
    yield "## Packets"
    yield ""
    yield "State and direction of each packet; and, of `netfilter`, whether its connection is assured."
    yield ""
    yield from table(
        ("run", "profile", "packets", "agree", "share", "captures", "without a difference", "share", "assured agree"),
        (
            (name, RUNS[name].profile, *_share(one.packets), *_share(one.captures), _percent(one.assured))
            for name, one in results.items()
        ),
    )
    yield "## By label"
    yield ""
    for profile in ASPECTS:
        kinds = {name: one.classes for name, one in results.items() if RUNS[name].profile == profile}
        every = sorted({label for classes in kinds.values() for label in classes})
        if kinds:
            yield from table(
                ("label", *kinds),
                (
                    (f"`{label}`".replace("|", "\\|"), *(_of(classes.get(label)) for classes in kinds.values()))
                    for label in every
                ),
            )
    yield "## Connections at the end of each capture"
    yield ""
    yield "Connections that only had packets of which the other tracker has no verdict are left out."
    yield ""
    for profile, aspects in ASPECTS.items():
        names = [name for name in results if RUNS[name].profile == profile]
        if names:
            yield from table(
                ("aspect", *names),
                (
                    (aspect, *(_of(results[name].aspects[aspect]) for name in names))
                    for aspect in aspects
                    if any(results[name].aspects[aspect].count for name in names)
                ),
            )
    yield "## What differs"
    yield ""
    yield from _differences(results)


def _name(capture: str) -> str:
    return f"`{corpus.digests()[capture][:12]}`"


def _share(share: conformance.Share) -> tuple[str, str, str]:
    return f"{share.count:,}", f"{share.right:,}", _percent(share)


def _percent(share: conformance.Share) -> str:
    return f"{share.percent:.2f} %" if share.count else ""


def _of(share: conformance.Share | None) -> str:
    return f"{share.right:,} of {share.count:,}" if share and share.count else ""


def packet_rule(one: Difference) -> Rule | None:
    """Return why a packet differs, None if no rule says."""
    return next((rule for rule in RULES if rule.packets(one)), None)


def connection_rule(one: TableDifference) -> Rule | None:
    """Return why a connection differs, None if no rule says."""
    return next((rule for rule in RULES if rule.connections(one)), None)


def _code(text: object) -> str:
    return f"`{text}`".replace("|", "\\|")


def _differences(results: dict[str, Result]) -> Iterator[str]:
    packets, connections = Counter(), []
    for run, result in results.items():
        for one in result.differences:
            labels = (_code(label.rstrip("a")) for label in (one.theirs, one.ours))
            packets[packet_rule(one), (run, _name(one.capture), *labels, one.reason.name)] += 1
        for one in result.table_differences:
            row = (run, _name(one.capture), one.connection, one.aspect, one.theirs, one.ours)
            connections.append((connection_rule(one), row))
    for rule in (*RULES, None):
        those = [(*row, n) for (why, row), n in packets.items() if why is rule]
        others = [row for why, row in connections if why is rule]
        if those or others:
            yield textwrap.fill(rule.text, 120) if rule else "Without a rule:"
            yield ""
        if those:
            yield from table(("run", "capture", "theirs", "ours", "reason", "packets"), those)
        if others:
            yield from table(("run", "capture", "connection", "aspect", "theirs", "ours"), others)


def main(path: Path) -> None:
    """Do all runs again, and write the page; its tables are printed too."""
    text = page({name: conformance.compare(name) for name in RUNS})
    path.write_text(text)
    sys.stdout.write(text.partition("## What differs")[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
