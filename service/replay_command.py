"""``zonetrack replay``: the options, and the printing of what a replay found."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import click
import numpy as np

from ..clients import tables
from ..clients.connections import HEADINGS, row
from ..clients.errors import BadParameterError, Exit
from ..shm.layout import CONNECTIONS_MAX, ZONES_MAX
from ..shm.reasons import Reason, word
from . import connections, helper_rules, packets, warmup
from .captures import Capture
from .labels import NETFILTER, PROFILES
from .replay import Options, Replay, Source, survey

WORKERS_MAX = 128
LIMITS = (Reason.FULL, Reason.INDEX_FULL, Reason.SLAB_FULL)
"""Reasons that a larger table would take away."""


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--each", is_flag=True, help="Give every file a fresh table; else they share one, in order.")
@click.option("--zone", type=click.IntRange(0, ZONES_MAX - 1), default=0, help="Zone of all packets.")
@click.option("--profile", type=click.Choice(PROFILES), default=NETFILTER, help="Whose rules decide.")
@click.option(
    "--checksum", type=click.Choice(["verify", "ignore"]), default="verify", help="What to do about checksums."
)
@click.option("--liberal", is_flag=True, help="Outside of the TCP window, only resets are invalid.")
@click.option("--no-seq-check", is_flag=True, help="Do not look at TCP windows at all.")
@click.option("--no-expiry", is_flag=True, help="Nothing ever expires.")
@click.option("--helper", metavar="NAME=PORT", multiple=True, help="Follow the control channel of a protocol.")
@click.option("--workers", type=click.IntRange(1, WORKERS_MAX), default=1, help="Processes that share the packets.")
@click.option("--max-connections", type=click.IntRange(1, CONNECTIONS_MAX), help="Size of the table.")
@click.option("--packets", "each_packet", is_flag=True, help="Print each packet's verdict instead of connections.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one list of connections, or one packet per line.")
def command(
    files: tuple[str, ...],
    each: bool,
    zone: int,
    profile: str,
    checksum: str,
    liberal: bool,
    no_seq_check: bool,
    no_expiry: bool,
    helper: tuple[str, ...],
    workers: int,
    max_connections: int | None,
    each_packet: bool,
    as_json: bool,
) -> None:
    """Track the packets of captures (pcap, pcapng), on their own time, and print their connections."""
    try:
        helpers = tuple(helper_rules.named_port(text) for text in helper)
    except BadParameterError as error:
        raise click.UsageError(str(error)) from None
    options = Options(
        zone=zone,
        profile=profile,
        verify=checksum == "verify",
        liberal=liberal,
        seq_check=not no_seq_check,
        expiry=not no_expiry,
        workers=workers,
        max_connections=max_connections,
        verdicts=each_packet,
        helpers=helpers,
    )
    warmup.ensure()
    printer = Printer(options, as_json, each and len(files) > 1)
    with printer:
        for paths in [[path] for path in files] if each else [list(files)]:
            printer.replay(paths)
    if printer.failed:
        sys.exit(Exit.FAILED)


class Printer:
    """Replays some captures after others, prints what was found on stdout, and what went wrong on stderr."""

    def __init__(self, options: Options, as_json: bool, named: bool) -> None:
        self.options = options
        self.as_json = as_json
        self.named = named
        self.failed = False
        self._listed = 0

    def __enter__(self) -> Printer:
        if self.as_json and not self.options.verdicts:
            sys.stdout.write("[")
        return self

    def __exit__(self, *_: object) -> None:
        if self.as_json and not self.options.verdicts:
            sys.stdout.write("\n]\n" if self._listed else "]\n")
        sys.stdout.flush()

    def replay(self, paths: list[str]) -> None:
        """Replay captures through one table, and print them."""
        began = time.perf_counter()
        found = survey(paths)
        run = Replay(found, self.options)
        run.run(lambda passed: self._progress(passed, found.packets))
        elapsed_s = time.perf_counter() - began
        self._progress(None, 0)
        if self.options.verdicts:
            self._packets(run)
        else:
            self._connections(run, paths)
        for source in found.sources:
            if source.fault:
                self._complain(f"Error: {source.fault}")
        for death in run.deaths:
            self._complain(f"Error: {death}; its packets are missing, those of others are not")
        self._footer(run, paths, elapsed_s)

    def _complain(self, text: str) -> None:
        self.failed = True
        click.echo(text, err=True)

    def _progress(self, passed: int | None, packets: int) -> None:
        """Show a person how far it is, or take that away again (None)."""
        if sys.stderr.isatty():
            text = "" if passed is None else f"{passed:,} of {packets:,} packets"
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    # ------------------------------------------------------------------------------------------------ connections
    def _connections(self, run: Replay, paths: list[str]) -> None:
        found = connections.listed(run.table, run.now_ms, expired=not self.options.expiry)
        if self.as_json:
            for connection in found:
                if self.named:
                    connection = {"file": paths[0]} | connection
                sys.stdout.write(f"{',' if self._listed else ''}\n{json.dumps(connection)}")
                self._listed += 1
            return
        tables.show(HEADINGS, map(row, found), paths[0] if self.named else None)

    # ------------------------------------------------------------------------------------------------ packets
    def _packets(self, run: Replay) -> None:
        for source, place in run.survey.placed():
            if not self.as_json:
                sys.stdout.write(f"{source.path}\n{packets.HEADING}\n")
            for line in self._lines(source, run.verdicts[place : place + source.packets]):
                sys.stdout.write(line + "\n")

    def _lines(self, source: Source, verdicts: np.ndarray) -> Iterator[str]:
        """Yield a line for each packet of a capture; one more walk tells their times."""
        done = 0
        with Capture(source.path) as capture:
            for _, times in capture.slices():
                these = verdicts[done : done + len(times)]
                if self.as_json:
                    yield from packets.json_lines(source.path, times, these, done + 1, self.options.profile)
                else:
                    yield from packets.text_lines(times, these, done + 1, self.options.profile)
                done += len(times)

    # ------------------------------------------------------------------------------------------------ footer
    def _footer(self, run: Replay, paths: list[str], elapsed_s: float) -> None:
        counts = {reason: int(run.counters[reason]) for reason in Reason if run.counters[reason]}
        name = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        parts = [f"{run.survey.packets:,} packets", f"{counts.get(Reason.INSERT, 0):,} connections"]
        if counts.get(Reason.INVALID):
            why = ", ".join(f"{word(r)} {n:,}" for r, n in counts.items() if is_invalid(r))
            parts.append(f"{counts[Reason.INVALID]:,} invalid ({why})")
        click.echo(f"{name}: {', '.join(parts)}; {elapsed_s:.2f} s", err=True)
        if counts.get(Reason.L4CSUM_ERR):
            click.echo("Captures taken where packets are sent hold wrong checksums: --checksum ignore", err=True)
        refused = sum(counts.get(reason, 0) for reason in LIMITS)
        if refused:
            click.echo(f"{refused:,} connections found the table full: --max-connections", err=True)


def is_invalid(reason: Reason) -> bool:
    """Whether a reason is one for which packets are invalid."""
    return Reason.TRUNCATED <= reason < Reason.FULL and reason is not Reason.NOT_TRACKED
