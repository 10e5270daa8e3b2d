"""Examples of every command, as its ``--help`` and its man page show them.

A line is what somebody types, and what it is for.  ``capture.pcap`` is any capture, ``lab`` a port of the service,
``firewall.rules`` a file of rules.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "serve": (
        ("serve --workers 2 --port shm:lab,queues=2", "Two workers, one port in shared memory."),
        ("serve --config zonetrack.toml --check-config", "Show what a file would set, and end."),
    ),
    "send": (("send lab capture.pcap", "Push a capture through a port, and report verdicts."),),
    "list": (
        ("list --proto tcp --state ESTABLISHED --limit 20", "Twenty established TCP connections."),
        ("list --zone 0 --format csv", "A column for each thing; also parquet."),
        ("list --src 192.0.2.0/24 --format conntrack", "Those that a network has opened, as conntrack -L prints them."),
    ),
    "count": (("count --zone 0 --unreplied", "How many of zone 0 nobody has answered."),),
    "delete": (("delete --src 192.0.2.1 --proto udp", "Be rid of what one host has opened over UDP."),),
    "flush": (("flush --zone 0", "Empty a zone, whatever its size."),),
    "events": (
        ("events --type new,destroy --zone 5", "What begins and ends in a zone, in the lines of conntrack -E."),
        ("events --count 10 --json", "The next ten events, for programs."),
    ),
    "export": (("export ipfix --collector 192.0.2.9", "Flows to a collector."),),
    "export ipfix": (
        ("export ipfix --collector 192.0.2.9:4739 --transport tcp", "IPFIX over TCP: each connection at its end."),
        (
            "export ipfix --collector 192.0.2.9 --zone 5 --active-timeout 300",
            "Of a zone, long ones every five minutes.",
        ),
    ),
    "export syslog": (("export syslog --collector logs.example:514", "A message for each that begins or ends."),),
    "expectations": (("expectations --zone 0", "Connections that helpers of zone 0 have foretold."),),
    "nat": (("nat", "How many ports translations have left, by address."),),
    "limits": (("limits show", "Limits beside counts."),),
    "limits show": (("limits show --zone 0", "The limit of a zone."),),
    "limits set": (
        ("limits set --zone 0 1000", "At most 1,000 connections in zone 0."),
        ("limits set --default none", "No limit in zones that have none of their own."),
    ),
    "limits unset": (("limits unset --zone 0", "The zone follows the default again."),),
    "timeouts": (("timeouts show", "Every policy."),),
    "timeouts show": (("timeouts show --policy default", "The timeouts of one policy."),),
    "timeouts set": (("timeouts set web tcp_established=3600 udp=10", "Make a policy, or change it."),),
    "timeouts zone": (("timeouts zone 0 web", "Give it to the new connections of a zone."),),
    "timeouts unset": (("timeouts unset web", "Take it back."),),
    "fragments": (("fragments show", "How fragments are put together, and what became of them."),),
    "fragments show": (("fragments show --json", "The same for programs."),),
    "fragments set": (("fragments set --max 500", "At most 500 fragments wait."),),
    "rules": (("rules check firewall.rules", "Would it load?"),),
    "rules show": (("rules show", "The rules that hold, with what has met them."),),
    "rules check": (("rules check firewall.rules", "What is wrong with a file, a line each."),),
    "rules load": (("rules load firewall.rules", "Let these rules hold from now on."),),
    "rules clear": (("rules clear", "Let no rules hold."),),
    "trace": (
        ("trace in_port=lab,tcp,nw_src=192.0.2.1,nw_dst=192.0.2.2,tp_dst=80", "The way of one packet, in thought."),
        (
            "trace in_port=lab,udp,nw_src=192.0.2.1,tp_dst=69,payload=0x0001 in_port=lab,arp",
            "What a packet carries, and the next packet.",
        ),
    ),
    "stats": (
        ("stats", "Totals, workers, queues, zones."),
        ("stats --json", "The same for programs."),
        ("stats --perf", "Where the time of workers goes."),
    ),
    "coverage": (("coverage", "Every counter by name."),),
    "zones": (("zones --zone 0", "How full a zone is, and how its packets are judged."),),
    "zones show": (("zones show", "All zones in use."),),
    "zones set": (("zones set 0 profile=ovs loose=off ftp=21", "Judge as Open vSwitch does, and follow FTP."),),
    "zones unset": (("zones unset 0", "Judge its packets as those of other zones."),),
    "workers": (("workers", "Processes, and what each has done."),),
    "ports": (("ports", "Ports and their queues."),),
    "ports queues": (("ports queues", "Which worker polls which queue, and how much of its time that takes."),),
    "ports assign": (("ports assign lab.0 0", "Have worker 0 poll the first queue of port lab."),),
    "rebalance": (("rebalance --dry-run", "How would queues be dealt out better?"),),
    "top": (
        ("top", "Watch live; ? shows the keys, q ends it."),
        ("top --once --rows 5", "Look once, for a mail or a ticket."),
    ),
    "metrics": (("metrics", "What Prometheus reads."),),
    "save": (("save /var/lib/zonetrack.saved", "Keep a table across a reboot, or a copy of a running one."),),
    "restore": (("restore /var/lib/zonetrack.saved", "Put it back: into a running service, or for the next start."),),
    "restart": (("restart", "Go on with the program that is installed now; connections stay."),),
    "stop": (("stop", "Stop the service; the table is kept for the next start."),),
    "replay": (
        ("replay capture.pcap", "The connections of a capture."),
        ("replay --packets --json capture.pcap", "The verdict on each packet."),
    ),
    "explain": (
        ("explain capture.pcap --packet 2", "Why the second packet got its verdict."),
        ("explain --recent", "Why packets of a service were invalid lately."),
    ),
    "load": (("load hit --connections 1000", "The cost of a packet of an established connection."),),
    "load floor": (("load floor --megabytes 1", "What random reads of memory cost here."),),
    "load hit": (("load hit --connections 1000", "Packets of established connections."),),
    "load miss": (("load miss --connections 1000", "Packets without one."),),
    "load handshake": (("load handshake --connections 100 --iterations 2", "Whole conversations."),),
    "load scan": (("load scan --connections 2000 --zones 4", "New connections, and their end, in four zones."),),
    "load events": (("load events --connections 20000", "Events a second that one client is told, with none lost."),),
    "load clients": (("load clients --connections 20000 --pairs 2", "Clients that ask all at once."),),
    "load dump": (("load dump --connections 100000 --rounds 3", "Dumps, and what others notice of them."),),
    "load views": (("load views --connections 100000 --seconds 5", "What top, the page and a scrape cost."),),
    "load compare": (("load compare before.json after.json", "Two results side by side."),),
    "audit": (("audit", "Check every invariant of the table."),),
    "doctor": (("doctor --max-connections 3000000", "Would a table for 3 M connections fit here?"),),
    "warmup": (("warmup", "Compile all kernels now, not at the first start."),),
}
"""By the words of the command."""


def of(path: str) -> tuple[tuple[str, str], ...]:
    """Return the examples of a command, each with what it is for."""
    return EXAMPLES.get(path, ())


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield a command and all below it, each with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, f"{path} {name}".strip())


def show(command: click.Command, path: str) -> click.Command:
    """Have the ``--help`` of a command, and of those below it, end with its examples; return it."""
    for words, one in commands(command, path):
        lines = [line for typed, says in of(words) for line in (f"  zonetrack {typed}", f"      {says}")]
        if lines:
            one.epilog = "\n".join(("\b", "Examples:" if len(lines) > 2 else "Example:", *lines))
    return command
