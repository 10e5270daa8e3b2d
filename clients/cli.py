"""The ``zonetrack`` command: a table of subcommands, each imported only when it is used.

``zonetrack --help`` must answer at once, and numba alone takes longer than that to import.  So a command is named here
by a string and a line of help; its room is imported when the command runs, or when its own ``--help`` is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

from .errors import Exit
from .nearest import hint

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Command(NamedTuple):
    """Where a command lives, and what the list of commands says of it."""

    target: str
    help: str


COMMANDS = {
    "serve": Command("zonetrack.service.serve_command:command", "Run the service: workers, ports, the control socket."),
    "send": Command("zonetrack.clients.send_command:command", "Push a capture through a port, and report verdicts."),
    "list": Command("zonetrack.clients.connection_commands:list_command", "List connections, in several formats."),
    "count": Command("zonetrack.clients.connection_commands:count_command", "Count connections."),
    "delete": Command("zonetrack.clients.connection_commands:delete_command", "Delete connections."),
    "flush": Command("zonetrack.clients.connection_commands:flush_command", "Be rid of all connections, or a zone's."),
    "events": Command("zonetrack.clients.events_command:command", "Show what happens to connections, as it happens."),
    "export": Command("zonetrack.clients.export_command:command", "Tell collectors of flows and logs: IPFIX, syslog."),
    "expectations": Command(
        "zonetrack.clients.expectations_command:command", "List the connections that helpers have foretold."
    ),
    "limits": Command("zonetrack.clients.limits_command:command", "Show and set limits of connections."),
    "timeouts": Command("zonetrack.clients.timeouts_command:command", "Show and set timeouts, by policy and zone."),
    "fragments": Command("zonetrack.clients.fragments_command:command", "Show and set how fragments are put together."),
    "rules": Command("zonetrack.clients.rules_command:command", "Show, load and check the rules that packets meet."),
    "trace": Command(
        "zonetrack.clients.trace_command:command", "Send a described packet through the rules, in thought."
    ),
    "nat": Command("zonetrack.clients.nat_command:command", "Show how many ports translations have left."),
    "stats": Command("zonetrack.clients.stats_commands:stats_command", "Show totals, workers, queues, zones."),
    "coverage": Command("zonetrack.clients.stats_commands:coverage_command", "Show every counter by name."),
    "zones": Command("zonetrack.clients.zones_command:command", "Show and set zones: how their packets are judged."),
    "workers": Command("zonetrack.clients.stats_commands:workers_command", "Show the workers."),
    "ports": Command("zonetrack.clients.queue_commands:ports_command", "Show ports and queues; say who polls them."),
    "rebalance": Command(
        "zonetrack.clients.queue_commands:rebalance_command", "Deal queues out to workers anew, by what they cost."
    ),
    "top": Command("zonetrack.clients.top_command:command", "Watch who and what fills the table, live."),
    "metrics": Command("zonetrack.clients.stats_commands:metrics_command", "Print what Prometheus reads of a service."),
    "save": Command("zonetrack.service.saved_commands:save_command", "Save a table in a file, running or stopped."),
    "restore": Command(
        "zonetrack.service.saved_commands:restore_command",
        "Put what was saved into a table, running or stopped.",
    ),
    "restart": Command(
        "zonetrack.clients.restart_command:command", "Replace the processes of a service while it runs."
    ),
    "stop": Command("zonetrack.clients.stop_command:command", "Stop the service."),
    "replay": Command("zonetrack.service.replay_command:command", "Track captures, and show their connections."),
    "explain": Command("zonetrack.clients.explain_command:command", "Say why packets got their verdicts."),
    "load": Command("zonetrack.clients.load:command", "Load the table with generated traffic, and measure it."),
    "audit": Command(
        "zonetrack.service.audit_command:command", "Check every invariant of a table, live or left behind."
    ),
    "doctor": Command("zonetrack.service.doctor:command", "Say what this machine offers, and what a table would take."),
    "warmup": Command("zonetrack.service.warmup:command", "Compile all kernels, and show the seconds each one took."),
}
"""In the order in which a newcomer meets them."""


class LazyGroup(click.Group):
    """A group that knows its commands by name, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the room of a command and return its command; None for a name that is not in the table."""
        if cmd_name not in COMMANDS:
            return None
        from . import examples, options

        room, _, attribute = COMMANDS[cmd_name].target.partition(":")
        return options.suggest(examples.show(getattr(import_module(room), attribute), cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; of one that is not there say which is the nearest."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = hint(args[0], COMMANDS)
            ctx.fail(f"No such command {args[0]!r}{near or '.'} `zonetrack --help` lists all.")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands from the table, without importing any of them."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=command.help) for name, command in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="zonetrack", prog_name="zonetrack")
def group() -> None:
    """Track connections in one shared-memory table, partitioned by zone."""


def main() -> None:
    """Run the command line, and end the process with one of the exit codes of ``Exit``."""
    try:
        group(prog_name="zonetrack")
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None:
            raise
        click.echo(f"Error: {error}", err=True)
        sys.exit(Exit(code))
