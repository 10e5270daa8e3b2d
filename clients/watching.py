"""What somebody sees who watches a service: two answers, and what changed between them, as rates.

A view holds plain values only, so it is what ``zonetrack top --json`` prints, and what its tables are made of.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

View = dict[str, Any]
HISTORY = 60
"""Rates that are kept for the sparklines."""
RATES = {
    "packets": "packets",
    "bytes": "bytes",
    "new": "insert",
    "ended": "remove",
    "invalid": "invalid",
    "swept": "swept",
}
"""Of the service's counters, under the names that are shown."""
QUEUE_RATES = ("rx_packets", "tx_packets", "tx_full")
BAD = ("bad_slots", "bad_lengths", "bad_cursors")


class Watch:
    """Makes views of answers, one after the other."""

    def __init__(self) -> None:
        self._before: dict[str, float] = {}
        self._at_s = 0.0
        self.history: dict[str, deque[float]] = {name: deque(maxlen=HISTORY) for name in (*RATES, "refused")}

    def take(self, stats: Mapping[str, Any], summary: Mapping[str, Any], at_s: float | None = None) -> View:
        """Return the view of a moment.

        Args:
            stats: answer to ``stats``.
            summary: answer to ``summary``.
            at_s: monotonic seconds; now when None.
        """
        at_s = time.monotonic() if at_s is None else at_s
        now: dict[str, float] = {}
        elapsed_s = at_s - self._at_s if self._before else 0.0

        def rate(name: str, value: float | None) -> float | None:
            """Return by how much a value grows a second, None where it was not there before, or began anew."""
            if value is None:
                return None
            now[name] = value
            before = self._before.get(name)
            if before is None or elapsed_s <= 0.0:
                return None
            return round((value - before) / elapsed_s, 3)

        def growth(name: str, value: float | None) -> float | None:
            found = rate(name, value)
            return None if found is None or found < 0.0 else found

        refused = sum(summary["reasons"]["refused"].values())
        rates = {name: growth(name, stats["counters"].get(counter, 0)) for name, counter in RATES.items()}
        rates["refused"] = growth("refused", refused)
        for name, value in rates.items():
            if value is not None:
                self.history[name].append(value)
        view = {
            "instance": stats["instance"],
            "uptime_s": stats["uptime_s"],
            "connections": stats["connections"],
            "limit": stats["limit"],
            "capacity": stats["capacity"],
            "zones_in_use": stats["zones_in_use"],
            "clients": stats["control"]["clients"],
            "rates": rates,
            "history": {name: list(values) for name, values in self.history.items()},
            "sweep": {"due": summary["expired"], "overdue_s": summary["overdue_ms"] / 1_000},
            "summary": {name: summary[name] for name in ("age_s", "took_s", "connections", *KINDS)},
            "zones": [zone(one, rate(f"zone {one['zone']}", one["count"])) for one in summary["zones"]],
            "sources": [talker(one, summary) for one in summary["sources"]],
            "destinations": [talker(one, summary) for one in summary["destinations"]],
            "kinds": kinds(summary),
            "workers": [worker(one, growth) for one in stats["workers"]],
            "queues": [queue(port, one, growth) for port in stats["ports"] for one in port["queues"]],
            "reasons": [
                {"reason": name, "fate": fate, "count": count, "rate": growth(f"reason {name}", count)}
                for fate, counts in summary["reasons"].items()
                for name, count in counts.items()
            ],
        }
        self._before, self._at_s = now, at_s
        return view


KINDS = ("unreplied", "assured", "related", "translated", "ipv6")


def share(part: float, whole: float) -> float:
    """Return which share a part is, 0 of nothing."""
    return round(part / whole, 4) if whole else 0.0


def zone(one: Mapping[str, Any], change: float | None) -> dict[str, Any]:
    """Return a zone with how full it is; None where it has no limit."""
    limit = one["limit"]
    fill = None if limit is None else share(one["count"], limit)
    return {"zone": one["zone"], "connections": one["count"], "limit": limit, "fill": fill, "change": change}


def talker(one: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return an address with its share of all connections."""
    return {**one, "share": share(one["connections"], summary["connections"])}


def kinds(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return protocols, states and other kinds of connections, each group with the most first."""
    groups = {
        "protocol": summary["protocols"],
        **{f"state of {name}": counts for name, counts in summary["states"].items()},
        "of all": {name: summary[name] for name in KINDS},
    }
    return [
        {"group": group, "kind": name, "connections": count, "share": share(count, summary["connections"])}
        for group, counts in groups.items()
        for name, count in sorted(counts.items(), key=lambda one: -one[1])
    ]


def worker(one: Mapping[str, Any], growth: Any) -> dict[str, Any]:
    """Return a worker with its load: the share of a processor that it takes."""
    name, counters = f"worker {one['number']}", one.get("counters", {})
    return {
        "worker": one["number"],
        "pid": one.get("pid"),
        "state": one.get("state"),
        "restarts": one.get("restarts", 0),
        "load": growth(f"{name} of {one.get('pid')}", one.get("cpu_s")),
        "packets": growth(f"{name} packets", one.get("packets")),
        "new": growth(f"{name} insert", counters.get("insert")),
        "invalid": growth(f"{name} invalid", counters.get("invalid")),
        "queues": len(one.get("queues", ())),
    }


def queue(port: Mapping[str, Any], one: Mapping[str, Any], growth: Any) -> dict[str, Any]:
    """Return a queue of a port with its rates."""
    name = f"queue {port['name']} {one['queue']}"
    return {
        "port": port["name"],
        "queue": one["queue"],
        "worker": one.get("worker"),
        **{rate: growth(f"{name} {rate}", one.get(rate)) for rate in QUEUE_RATES},
        "bad": growth(f"{name} bad", sum(one.get(count, 0) for count in BAD)),
    }
