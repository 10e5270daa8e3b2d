"""Forwarding beside Linux's own: the same wires and packets, once through a gateway that tracks, once routed by the system.

    source -- wire -- gateway -- wire -- an interface that nobody listens to

The system's gateway has addresses, a route and connection tracking (a rule that asks for the state of connections); ours has
two packet sockets and a rule.  What is compared is packets a second of processor time of the whole machine, without what the
generator takes by itself: that is measured with a wire at whose other end the system drops at once what comes, for it is for
somebody else.  What arrives is counted by the interface at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..service import crew
from . import forward_ends, namespaces
from .driver import CheckFailed
from .forward_trial import Row, Stage
from .namespaces import Interfaces, Namespace, NamespaceError

MAC = "02:00:00:00:00:02"
"""Where frames of forward_traffic are sent to."""
SOURCE_NET, SINK_NET, SERVER = "10.1.255.254/16", "10.2.255.254/16", "10.2.0.1"
SETTLE_S, PATIENCE_S = 0.3, 30.0
"""When nothing has arrived for so long, nothing is on its way any more; but for the first one waits with patience."""
TICKS = os.sysconf("SC_CLK_TCK")
NOBODY, KERNEL, OURS = GATEWAYS = ("nobody", "kernel", "zonetrack")


def busy_s() -> float:
    """Return the seconds that all processors have been busy with anything."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICKS


def set_up(space: Namespace) -> None:
    """Give a gateway's interfaces addresses, and have the system track what it forwards.

    Raises:
        NamespaceError: that cannot be had here.
    """
    with space.entered():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for name, net in (("in", SOURCE_NET), ("out", SINK_NET)):
            namespaces.run("addr", "add", net, "dev", name)
            for of in ("all", name):
                Path(f"/proc/sys/net/ipv4/conf/{of}/rp_filter").write_text("0")
        namespaces.run("link", "set", "in", "address", MAC)
        namespaces.run("neigh", "replace", SERVER, "lladdr", "02:00:00:00:00:03", "dev", "out", "nud", "permanent")
        asks = ["iptables", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "NEW,ESTABLISHED", "-j", "ACCEPT"]
        if shutil.which(asks[0]) is None:
            raise NamespaceError("iptables is not here: without a rule that asks for states Linux tracks nothing")
        done = subprocess.run(asks, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NamespaceError(f"{' '.join(asks)}: {done.stderr.strip()}")


def tracked(space: Namespace) -> int:
    """Return how many connections the system tracks in a namespace."""
    with space.entered():
        return int(Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())


class Trial:
    """The wires of one gateway, with a source, and what goes through in some seconds."""

    def __init__(self, size: int, house: contextlib.ExitStack, by: str) -> None:
        """Lay them; of GATEWAYS one is there."""
        self.stage = Stage("pp", size, house, has_gateway=by == OURS, has_sink=False)
        self.by = by
        _, self.gateway, beyond = self.stage.spaces
        self.beyond = house.enter_context(Interfaces(beyond))
        if by == KERNEL:
            set_up(self.gateway)

    def run(self, flows: int, seconds: float, rate: float = 0.0) -> dict[str, float]:
        """Send for some seconds; return packets sent and received, and the seconds of processors.

        Args:
            flows: of the packets.
            seconds: that they are sent.
            rate: in packets/s, 0: as fast as may be.

        Raises:
            CheckFailed: a process failed.
        """
        control = self.stage.control
        for name in control.dtype.names or ():
            control[name] = 0
        jobs: list[Callable[[], None]] = [partial(self._send, flows, seconds, rate)]
        if self.by == OURS:
            jobs.append(partial(self.stage.gateway, Row(flows, True)))
        made = crew.Crew(len(jobs), lambda number: jobs[number]())
        before, busy = self.beyond.received("sink"), busy_s()
        made.run()
        if made.deaths:
            raise CheckFailed("; ".join(map(str, made.deaths)))
        return {
            "sent": float(control["sent"]),
            "received": float(self.beyond.received("sink") - before),
            "cpu_s": busy_s() - busy,
            "elapsed_s": float(control["elapsed_ns"]) / 1e9,
        }

    def _send(self, flows: int, seconds: float, rate: float) -> None:
        """Send, and let it be over when all that was sent has arrived, or nothing more does."""
        control, before = self.stage.control, self.beyond.received("sink")
        forward_ends.stay(alone=False)
        forward_ends.Ends(self.stage, flows).send(seconds, rate)
        end_s, came = time.monotonic() + PATIENCE_S, 0
        while came < control["sent"] and time.monotonic() < end_s and not control["over"]:
            time.sleep(SETTLE_S)
            seen, came = came, self.beyond.received("sink") - before
            if came == seen and (came or self.by == NOBODY):
                break
        control["over"] = 1


def figures(by: str, run: dict[str, float], alone_s: float) -> dict[str, Any]:
    """Return a row.

    Args:
        by: who forwarded.
        run: of a Trial.
        alone_s: what the generator takes for a packet by itself.
    """
    own_s = max(1.0 / TICKS, run["cpu_s"] - alone_s * run["sent"])
    return {
        "by": by,
        "packets_per_second": run["received"] / run["elapsed_s"],
        "packets_per_cpu_second": run["received"] / own_s,
        "cpu_s": run["cpu_s"],
        "sent": int(run["sent"]),
        "received": int(run["received"]),
    }


def conduct(flows: int, size: int, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Return rows of both gateways, and their ratio.

    Raises:
        CheckFailed: nothing arrives, or the system tracks nothing.
    """
    with contextlib.ExitStack() as house:
        nobody, linux, ours = (Trial(size, house, by) for by in GATEWAYS)
        say("the generator alone")
        alone = nobody.run(flows, seconds)
        say("Linux routes and tracks")
        by_linux = linux.run(flows, seconds)
        if not by_linux["received"] or tracked(linux.gateway) < flows:
            raise CheckFailed(
                f"Linux forwarded {by_linux['received']:.0f} packets, and tracks {tracked(linux.gateway)}"
            )
        say("zonetrack forwards and tracks")
        by_us = ours.run(flows, seconds)
        if not by_us["received"]:
            raise CheckFailed("nothing arrived")
    alone_s = alone["cpu_s"] / alone["sent"]
    rows = [figures(OURS, by_us, alone_s), figures(KERNEL, by_linux, alone_s)]
    ratio = rows[0]["packets_per_cpu_second"] / rows[1]["packets_per_cpu_second"]
    return {"rows": rows, "generator_ns": alone_s * 1e9, "ratio_per_cpu_second": ratio}
