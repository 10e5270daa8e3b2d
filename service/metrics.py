"""Metrics: the figures of a service as families of Prometheus, with a bounded number of series.

Names are in the manner of node_exporter's conntrack: ``zonetrack_entries`` beside ``zonetrack_entries_limit``.  Nothing is
counted for a scrape: it reads what workers have written anyway, so one that nobody asks for costs nothing.

Series are bounded, whatever tenants do: of zones, the fullest have series of their own up to a number, all others together
are ``other``; likewise of ports.  Reasons and workers are few by nature; addresses are no labels at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from ..shm.reasons import Reason
from .stats import COUNTED, Fate

PREFIX = "zonetrack_"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
PORTS_MAX = 64
"""Ports with series of their own; all others together are ``other``."""
OTHER = "other"


class Counted(NamedTuple):
    """A family that is one counter of the table."""

    name: str
    reason: Reason
    says: str


# fmt: off
COUNTERS = (
    Counted("packets",               Reason.PACKETS,             "Packets that were looked at."),
    Counted("bytes",                 Reason.BYTES,               "Bytes of frames that were looked at."),
    Counted("found",                 Reason.HIT,                 "Packets that belonged to a connection."),
    Counted("not_found",             Reason.MISS,                "Packets that belonged to none."),
    Counted("insert",                Reason.INSERT,              "Connections made."),
    Counted("delete",                Reason.REMOVE,              "Connections removed, for whatever reason."),
    Counted("early_drop",            Reason.EVICTED,             "Connections driven out by others at a limit."),
    Counted("flushed",               Reason.FLUSHED,             "Connections removed by flushes."),
    Counted("swept",                 Reason.SWEPT,               "Connections removed since their time was over."),
    Counted("sweep_visited",         Reason.SWEEP_VISITED,       "Records that the sweep has looked at."),
    Counted("sweep_cycles",          Reason.SWEEP_CYCLES,        "Passes of the sweep of a worker through its records."),
    Counted("search_restart",        Reason.MAYBE_NOT_FOUND,     "Misses that had to be looked at again."),
    Counted("insert_lost",           Reason.ADOPTED,             "Races to make a connection that another worker won."),
    Counted("index_split",           Reason.SPLIT,               "Segments of the index that were split."),
    Counted("expectations_created",  Reason.EXPECTED,            "Connections that helpers have foretold."),
    Counted("expectations_matched",  Reason.EXPECTATION_MATCHED, "Connections that came as foretold."),
    Counted("expectations_expired",  Reason.EXPECTATION_EXPIRED, "Connections that were foretold and never came."),
    Counted("fragments_accepted",    Reason.FRAGMENTS_ACCEPTED,  "Fragments taken to wait for the rest."),
    Counted("fragments_completed",   Reason.FRAGMENTS_COMPLETED, "Fragments of datagrams that became whole."),
    Counted("fragments_expired",     Reason.FRAGMENTS_EXPIRED,   "Fragments whose rest did not come in time."),
    Counted("outputs",               Reason.OUTPUTS,             "Frames that rules have output."),
    Counted("outputs_full",          Reason.OUTPUT_FULL,         "Frames dropped since a client left no room for them."),
)
# fmt: on
FATES = {
    Fate.INVALID: ("invalid", "Packets that were invalid, by reason."),
    Fate.REFUSED: ("insert_failed", "Connections that were not made, by reason."),
    Fate.LET_BY: ("ignored", "Packets that were let by, not followed, by reason."),
}
QUEUE_COUNTS = {
    "rx_packets": "Packets taken in, by port.",
    "rx_bytes": "Bytes taken in, by port.",
    "tx_packets": "Packets given back, by port.",
    "tx_bytes": "Bytes given back, by port.",
    "tx_full": "Packets dropped since the client left no room, by port.",
    "bad_slots": "Descriptors that cannot be, by port.",
    "bad_lengths": "Lengths that cannot be, by port.",
    "rx_dropped": "Packets lost on their way in, for which there was no room, by port.",
    "rx_truncated": "Packets of which only the beginning came, by port.",
    "tx_too_long": "Frames that are longer than the other side takes, by port.",
    "tx_failed": "Times that the system would not send, by port.",
}


class Figures(Protocol):
    """What is read: methods of ``stats.Stats``, and what the keeper and control say of themselves."""

    def totals(self) -> dict[str, Any]: ...
    def counters(self) -> dict[str, int]: ...
    def fill(self) -> list[tuple[int, int, int | None]]: ...


class Metrics(Collector):
    """The families of one service."""

    def __init__(
        self,
        figures: Figures,
        workers: Callable[[], list[dict[str, Any]]],
        ports: Callable[[], list[dict[str, Any]]],
        control: Callable[[], dict[str, Any]],
        about: dict[str, str],
        zones_max: int,
    ) -> None:
        """Prepare.

        Args:
            figures: of the table.
            workers: each in plain values.
            ports: likewise, with their queues.
            control: figures of the control process.
            about: labels of ``zonetrack_info``.
            zones_max: zones that have series of their own.
        """
        self._figures = figures
        self._workers, self._ports, self._control = workers, ports, control
        self._about, self._zones_max = about, zones_max

    def text(self) -> bytes:
        """Return all of it as Prometheus reads it."""
        return generate_latest(self)  # type: ignore[arg-type]  # it asks for no more than a collector

    def plain(self) -> list[dict[str, Any]]:
        """Return all of it in plain values: families with their samples."""
        return [
            {
                "name": family.name,
                "type": family.type,
                "help": family.documentation,
                "samples": [
                    {"name": one.name, "labels": dict(one.labels), "value": one.value} for one in family.samples
                ],
            }
            for family in self.collect()
        ]

    def collect(self) -> Iterator[Metric]:
        """Yield the families, as prometheus_client asks for them."""
        about = GaugeMetricFamily(f"{PREFIX}build_info", "Which version answers; always 1.", labels=list(self._about))
        about.add_metric(list(self._about.values()), 1)
        yield about
        yield from self._of_table()
        yield from self._of_zones()
        yield from self._of_counters()
        yield from self._of_workers()
        yield from self._of_ports()
        yield from self._of_control()

    # -------------------------------------------------------------------------------------------- the table
    def _of_table(self) -> Iterator[Metric]:
        totals = self._figures.totals()
        yield gauge("entries", "Connections in the table.", totals["connections"])
        yield gauge("entries_limit", "Connections that may be in the table.", infinite(totals["limit"]))
        yield gauge("entries_capacity", "Connections for which the table has room.", totals["capacity"])
        yield gauge("zones_in_use", "Zones that have connections.", totals["zones_in_use"])
        yield gauge("expectations", "Connections that are foretold.", totals["expectations"])
        yield gauge("table_bytes", "Shared memory of the table.", totals["table_bytes"])
        swept = totals["sweep"]
        yield gauge("sweep_backlog", "Records that are due to be looked at by the sweep.", swept["backlog"])
        buckets = [(str(int(most) / 1e6), count) for most, count in swept["at_most_us"].items()]
        buckets.append(("+Inf", swept["sweeps"]))
        yield HistogramMetricFamily(f"{PREFIX}sweep_seconds", "Lengths of sweeps.", buckets, swept["ns"] / 1e9)

    def _of_zones(self) -> Iterator[Metric]:
        entries = GaugeMetricFamily(f"{PREFIX}zone_entries", "Connections by zone.", labels=["zone"])
        limits = GaugeMetricFamily(
            f"{PREFIX}zone_entries_limit", "Connections that may be in a zone, where it has a limit.", labels=["zone"]
        )
        zones = self._figures.fill()
        for zone, count, limit in zones[: self._zones_max]:
            entries.add_metric([str(zone)], count)
            if limit is not None:
                limits.add_metric([str(zone)], limit)
        entries.add_metric([OTHER], sum(count for _, count, _ in zones[self._zones_max :]))
        yield entries
        yield limits

    def _of_counters(self) -> Iterator[Metric]:
        counts = self._figures.counters()
        for name, reason, says in COUNTERS:
            yield CounterMetricFamily(PREFIX + name, says, value=counts[COUNTED[reason]])
        for fate, (name, says) in FATES.items():
            family = CounterMetricFamily(PREFIX + name, says, labels=["reason"])
            for reason in fate.reasons:
                family.add_metric([COUNTED[reason]], counts[COUNTED[reason]])
            yield family

    # -------------------------------------------------------------------------------------------- processes
    def _of_workers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(f"{PREFIX}worker_up", "Whether a worker runs.", labels=["worker"])
        restarts = CounterMetricFamily(f"{PREFIX}worker_restarts", "Times a worker was replaced.", labels=["worker"])
        packets = CounterMetricFamily(f"{PREFIX}worker_packets", "Packets that a worker took.", labels=["worker"])
        seconds = CounterMetricFamily(f"{PREFIX}worker_cpu_seconds", "Processor time of a worker.", labels=["worker"])
        for worker in self._workers():
            labels = [str(worker["number"])]
            up.add_metric(labels, worker["state"] == "running")
            for family, key in ((restarts, "restarts"), (packets, "packets"), (seconds, "cpu_s")):
                if worker.get(key) is not None:
                    family.add_metric(labels, worker[key])
        yield from (up, restarts, packets, seconds)

    def _of_ports(self) -> Iterator[Metric]:
        ports = self._ports()
        sums: dict[str, dict[str, int]] = {}
        for place, port in enumerate(ports):
            own = sums.setdefault(port["name"] if place < PORTS_MAX else OTHER, {})
            for queue in port["queues"]:
                for name in QUEUE_COUNTS:
                    own[name] = own.get(name, 0) + queue.get(name, 0)
        for name, says in QUEUE_COUNTS.items():
            family = CounterMetricFamily(f"{PREFIX}port_{name}", says, labels=["port"])
            for port, own in sums.items():
                family.add_metric([port], own.get(name, 0))
            yield family

    def _of_control(self) -> Iterator[Metric]:
        control = self._control()
        yield gauge("control_clients", "Clients of the control socket.", control["clients"])
        yield gauge("control_clients_paused", "Clients that do not read their answers.", control["paused"])
        yield CounterMetricFamily(f"{PREFIX}control_requests", "Requests of clients.", value=control["requests"])
        refused = CounterMetricFamily(f"{PREFIX}control_refused", "Requests refused, by code.", labels=["code"])
        for code, count in control["refused"].items():
            refused.add_metric([str(code)], count)
        yield refused
        yield gauge("control_kept_bytes", "Requests and answers that are kept for clients.", control["kept_bytes"])
        says = "Rests of control, so that a crowd of clients has no more than its share of a core."
        yield CounterMetricFamily(f"{PREFIX}control_rests", says, value=control["rests"])
        events = control["events"]
        yield gauge("event_readers", "Clients that read events, exports among them.", events["subscribers"])
        yield CounterMetricFamily(PREFIX + "events", "Events that somebody wanted.", value=events["sequence"])
        lost = CounterMetricFamily(PREFIX + "events_lost", "Events lost, by what was too slow.", labels=["at"])
        lost.add_metric(["ring"], events["lost"])
        lost.add_metric(["reader"], events["lost_by_slow_readers"])
        yield lost
        late = control["loop_latency_us"]["p99"] / 1e6
        yield gauge("control_latency_seconds", "How late control answers, 99th percentile of the last minute.", late)


def gauge(name: str, says: str, value: float) -> Metric:
    """Return a family of one value."""
    return GaugeMetricFamily(PREFIX + name, says, value=value)


def infinite(limit: int | None) -> float:
    """Return a limit as Prometheus has it: no limit is +Inf."""
    return float("inf") if limit is None else limit
