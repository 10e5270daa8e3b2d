"""Every method of the service, said once for both libraries: its name, its parameters, and what is made of its result.

Each is one request, sent by ``call``, which a runtime brings along: in ``sync`` it returns the result, in ``aio`` a
coroutine of it, and so do the methods.  Results are maps as the service sends them, except where a method says otherwise.

    with connect() as ct:                            async with connect() as ct:
        ct.limits.set(zone=5, limit=1000)                await ct.limits.set(zone=5, limit=1000)
        ct.count(zone=5, proto="tcp")                    await ct.count(zone=5, proto="tcp")

What a filter's keywords are stands in ``filters``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, Unpack

from .errors import RemoteProtocolError
from .filters import Filter, wire_filter


class Call(Protocol):
    """Sends a request, and returns what ``pick`` makes of its result: at once, or as a coroutine."""

    def __call__(self, method: str, params: dict[str, Any], pick: Callable[[Any], Any] = ..., /) -> Any:
        """Ask."""
        ...


def whole(result: Any) -> Any:
    """Return the result as it is."""
    return result


def entry(name: str) -> Callable[[Any], Any]:
    """Return what picks one entry out of a result."""

    def pick(result: Any) -> Any:
        if not isinstance(result, dict) or name not in result:
            raise RemoteProtocolError(f"a result without {name}")
        return result[name]

    return pick


class Unsaid(Enum):
    """What a parameter is that nobody gave, where None means something."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


def given(**params: Any) -> dict[str, Any]:
    """Return those parameters that were given: not None."""
    return {name: value for name, value in params.items() if value is not None}


class Limits:
    """Most connections of a zone, of zones without an own limit, and of the whole table; beside them their counts."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(self, zone: int | None = None) -> Any:
        """Return limits beside counts: of the table, and of one zone or all that have a limit of their own."""
        return self._call("limits.get", given(zone=zone))

    def set(
        self,
        *,
        zone: int | None = None,
        limit: int | Unsaid | None = UNSAID,
        default: int | Unsaid | None = UNSAID,
        total: int | Unsaid | None = UNSAID,
    ) -> Any:
        """Set limits; 0 refuses every connection, None is no limit.

        Args:
            zone: of which ``limit`` is.
            limit: of that zone.
            default: of all zones that have none of their own.
            total: of the whole table; None: as many as it was made for.
        """
        wanted = {"zone": UNSAID if zone is None else zone, "limit": limit, "default": default, "global": total}
        return self._call("limits.set", {name: value for name, value in wanted.items() if value is not UNSAID})

    def unset(self, *, zone: int | None = None, default: bool = False) -> Any:
        """Let a zone follow the default again, or let the default be none."""
        return self._call("limits.unset", given(zone=zone, default=default or None))


class Timeouts:
    """Timeout policies: how long a connection may be silent, by the names of Linux or of Open vSwitch.

    A policy is known by its number, or by a name.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(self, policy: int | str | None = None) -> Any:
        """Return the policies, or one of them: seconds by name."""
        return self._call("timeouts.get", given(policy=policy))

    def set(self, policy: int | str, timeouts: dict[str, float | None]) -> Any:
        """Change some timeouts of a policy, in seconds; None is the default again.  A new name makes a policy."""
        return self._call("timeouts.set", {"policy": policy, "timeouts": timeouts})

    def set_zone(self, zone: int, policy: int | str) -> Any:
        """Let new connections of a zone follow a policy."""
        return self._call("timeouts.set", {"zone": zone, "policy": policy})

    def unset(self, policy: int | str) -> Any:
        """Take a policy back: its timeouts are the defaults, its zones have policy 0, its name is free."""
        return self._call("timeouts.unset", {"policy": policy})


class Fragments:
    """How fragments are put together, how many wait, and what became of those before."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(self) -> Any:
        """Return settings, ``waiting`` and ``counters``."""
        return self._call("fragments.get", {})

    def set(
        self,
        *,
        v4: bool | None = None,
        v6: bool | None = None,
        min_v4: int | None = None,
        min_v6: int | None = None,
        max: int | None = None,
    ) -> Any:
        """Change what is given.

        Args:
            v4: whether fragments of IPv4 are put together, or refused.
            v6: likewise of IPv6.
            min_v4: bytes that an IPv4 packet of all fragments but the last has at least; only of the ``ovs`` profile.
            min_v6: likewise of IPv6.
            max: fragments that may wait.
        """
        return self._call("fragments.set", given(v4=v4, v6=v6, min_v4=min_v4, min_v6=min_v6, max=max))


class Zones:
    """Zones: what is in them, and how their packets are judged.

    Calling it is ``get``.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self, zone: int | None = None) -> Any:
        """Return a list of the zones in use, or of the one: with counts, limits and settings."""
        return self.get(zone)

    def get(self, zone: int | None = None) -> Any:
        """Return a list of the zones in use, or of the one: with counts, limits and settings."""
        return self._call("zones", given(zone=zone))

    def set(self, zone: int, **settings: Any) -> Any:
        """Change how packets of a zone are judged: ``profile="ovs"``, ``loose=False`` and so on; it is set on its own then.

        ``profile`` is of connections that begin from now on.
        """
        return self._call("zones.set", {"zone": zone, "settings": settings})

    def unset(self, zone: int) -> Any:
        """Judge packets of a zone as those of all zones that are not set on their own."""
        return self._call("zones.unset", {"zone": zone})


class Rules:
    """The pipeline of rules that packets meet."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def get(self) -> Any:
        """Return the rules that hold, each with the packets and bytes that have met it."""
        return self._call("rules.get", {})

    def check(self, text: str, form: str = "text") -> Any:
        """Check rules as the service would read them: a file's content, ``text``, ``toml`` or ``json``."""
        return self._call("rules.check", {"text": text, "format": form})

    def load(self, text: str, form: str = "text") -> Any:
        """Let rules hold from now on; where anything is wrong with them nothing is changed."""
        return self._call("rules.load", {"text": text, "format": form})

    def trace(self, packet: str, ct_next: list[str] | None = None, then: list[str] | None = None) -> Any:
        """Return the way of a described packet through the rules, and of those that follow it; nothing becomes of them.

        Args:
            packet: in the words of rules, as ``in_port=lan,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80``; it may carry
                something, ``payload="USER me\\r\\n"``.
            ct_next: what each ct is to find, as ``trk,new``; beyond those a packet is tracked in thought.
            then: more packets, each of which finds what those before it have left.
        """
        return self._call(
            "rules.trace", {"packet": packet, "ct_next": ct_next or []} | ({"then": then} if then else {})
        )

    def clear(self) -> Any:
        """Let no rules hold: each packet is tracked and committed in the zone of its port, and answered."""
        return self._call("rules.clear", {})


class Queues:
    """The queues of ports, and which workers poll them."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self) -> Any:
        """Return ``queues`` and ``workers``: who polls what, and how much of whose time that took in the last minute."""
        return self._call("queues", {})

    def assign(self, port: str, queue: int, worker: int) -> Any:
        """Have a worker poll a queue; ``settled`` says whether it does already."""
        return self._call("queues.assign", {"port": port, "queue": queue, "worker": worker})

    def rebalance(self, dry_run: bool = False) -> Any:
        """Deal queues out anew, by what they cost; return the ``moves`` and what they are good for."""
        return self._call("queues.rebalance", {"dry_run": dry_run})


class Methods:
    """What a client can ask, but for dumps, which the runtimes bring along.

    Args:
        call: sends a request.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.limits = Limits(call)
        self.timeouts = Timeouts(call)
        self.rules = Rules(call)
        self.fragments = Fragments(call)
        self.zones = Zones(call)
        self.queues = Queues(call)

    def hello(self) -> Any:
        """Return versions, the name of the instance, and what we may do."""
        return self.call("hello", {})

    def stats(self) -> Any:
        """Return the totals, and the counters of each worker and queue."""
        return self.call("stats", {})

    def coverage(self, zone: int | None = None) -> Any:
        """Return every counter by its name; of a zone, how often its packets got which reason."""
        return self.call("coverage", given(zone=zone))

    def count(self, **filter: Unpack[Filter]) -> Any:
        """Return the number of connections that are meant."""
        return self.call("count", {"filter": wire_filter(**filter)}, entry("count"))

    def delete(self, **filter: Unpack[Filter]) -> Any:
        """Delete the connections that are meant; return how many there were.

        Raises:
            NothingMatchedError: there were none.
            BadParameterError: the filter means all; that is what ``flush`` is for.
        """
        return self.call("delete", {"filter": wire_filter(**filter)}, entry("deleted"))

    def flush(self, zone: int | None = None, *, wait: bool = True) -> Any:
        """Let go of all connections, of a zone or of all; return how many there were, in how many zones.

        Nobody finds them as soon as it has begun.  With ``wait`` the answer comes when they are no longer counted.
        """
        return self.call("flush", given(zone=zone, wait=None if wait else False))

    def explain(self, *, limit: int | None = None, zone: int | None = None) -> Any:
        """Return the latest packets that got a reason, the latest first, each explained."""
        return self.call("explain.recent", given(limit=limit, zone=zone))

    def nat(self) -> Any:
        """Return how many ports are left of those that connections may get: a list, by zone, address and protocol."""
        return self.call("nat", {})

    def expectations(self, zone: int | None = None) -> Any:
        """Return a list of the expectations, of a zone or of all: connections that helpers have foretold."""
        return self.call("expectations", given(zone=zone))

    def summary(self) -> Any:
        """Return who and what fills the table: by protocol and state, by zone, and who has the most connections."""
        return self.call("summary", {})

    def metrics(self, form: str = "text") -> Any:
        """Return what Prometheus is told: ``text`` as it reads it, or with ``plain`` the ``families`` with their samples."""
        return self.call("metrics", {"format": form})

    def workers(self) -> Any:
        """Return a list of the workers, with their processes and counters."""
        return self.call("workers", {})

    def ports(self) -> Any:
        """Return a list of the ports, with their queues."""
        return self.call("ports", {})

    def perf(self) -> Any:
        """Return where the time of workers goes, as far as it is measured."""
        return self.call("perf", {})

    def set_perf(self, on: bool) -> Any:
        """Count and measure what comes and goes, or only count what is lost."""
        return self.call("perf.set", {"on": on})

    def audit(self) -> Any:
        """Check the invariants of the table, as far as they can be while others work on it."""
        return self.call("audit", {})

    def reload(self) -> Any:
        """Let the service read its configuration again."""
        return self.call("config.reload", {})

    def restart(self) -> Any:
        """Let the keeper begin anew, and replace workers and control one at a time."""
        return self.call("restart", {})

    def stop(self, unlink: bool = False) -> Any:
        """Let the service end; with ``unlink``, its table too."""
        return self.call("stop", {"unlink": unlink})
