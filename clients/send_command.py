"""``zonetrack send``: push a capture through a port of a running service, and say what became of its packets."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator

import click
import numpy as np

from ..service import labels, packets, warmup
from ..service.captures import Capture, CaptureError
from ..shm.layout import QUEUES_MAX, VERDICT_BYTES, FrameFlag
from ..shm.reasons import word
from . import address, tables
from .errors import Exit
from .port import Queue
from .sending import Sending

KINDS = ["ct_state", "direction", "flags", "reason"]
"""What verdicts are told apart by: the first four bytes of each."""
LOST = "lost"
"""The label of a packet that did not come back."""


@click.command()
@click.argument("port")
@click.argument("file")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="PPS", help="Packets a second at most.")
@click.option("--loop", type=click.IntRange(1), default=1, metavar="N", help="Send the whole file so many times.")
@click.option("--queue", type=click.IntRange(0, QUEUES_MAX - 1), default=0, metavar="N", help="Queue of the port.")
@click.option("--instance", metavar="NAME", help="Name of the instance.")
@click.option("--packets", "each_packet", is_flag=True, help="Print each packet's verdict.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object, or one packet per line.")
def command(
    port: str,
    file: str,
    rate: float | None,
    loop: int,
    queue: int,
    instance: str | None,
    each_packet: bool,
    as_json: bool,
) -> None:
    """Push the packets of a capture (pcap, pcapng) through PORT of a running service, and report their verdicts."""
    warmup.ensure()
    with Queue(port, queue, address.instance(instance)) as to, Capture(file, flags=FrameFlag.COMMIT) as capture:
        sending, verdicts = Sending(to, rate), Verdicts()
        if each_packet and not as_json:
            sys.stdout.write(f"{file}\n{packets.HEADING}\n")
        began, fault = time.perf_counter(), None
        try:
            for _ in range(loop):
                for line in _pass(sending, capture, verdicts, each_packet, as_json):
                    sys.stdout.write(line + "\n")
                capture.check()
                capture.rewind()
        except CaptureError as error:
            fault = error
        elapsed_s = time.perf_counter() - began
    tally = sending.tally
    report = {
        "port": port,
        "queue": queue,
        "file": file,
        "sent": tally.sent,
        "returned": tally.returned,
        "lost": tally.lost,
        "elapsed_s": round(elapsed_s, 6),
        "packets_per_second": round(tally.sent / elapsed_s) if elapsed_s else 0,
        **verdicts.summary(),
    }
    if as_json and not each_packet:
        click.echo(json.dumps(report))
    else:
        _show(report, with_verdicts=not each_packet)
    if fault:
        raise fault
    if tally.lost:
        sys.exit(Exit.FAILED)


def _pass(sending: Sending, capture: Capture, verdicts: Verdicts, each_packet: bool, as_json: bool) -> Iterator[str]:
    """Send a capture once; yields a line for each packet where they are wanted."""
    done = 0
    for frames, times in capture.slices():
        if not len(frames):
            continue
        got = sending.send(frames)
        verdicts.add(got)
        if each_packet and as_json:
            yield from packets.json_lines(capture.path, times, got, done + 1)
        elif each_packet:
            yield from packets.text_lines(times, got, done + 1)
        done += len(frames)


class Verdicts:
    """How many packets got which verdict."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, ...]] = Counter()

    def add(self, verdicts: np.ndarray) -> None:
        """Count VERDICT[n]."""
        words = verdicts.view("u1").reshape(-1, VERDICT_BYTES)[:, :4].copy().view("u4")
        _, firsts, counts = np.unique(words, return_index=True, return_counts=True)
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
            self._counts[tuple(verdicts[KINDS][first].tolist())] += count

    def summary(self) -> dict[str, dict[str, int]]:
        """Return packets by label and by reason, most first."""
        by_label: Counter[str] = Counter()
        by_reason: Counter[str] = Counter()
        for (ct_state, way, flags, reason), count in self._counts.items():
            lost = packets.is_lost(ct_state, flags)
            by_label[LOST if lost else labels.label(ct_state, way, flags)] += count
            if name := word(reason):
                by_reason[name] += count
        return {"labels": dict(by_label.most_common()), "reasons": dict(by_reason.most_common())}


def _show(report: dict, with_verdicts: bool) -> None:
    """Print what became of the packets, for people; the line about all of them goes to stderr."""
    if with_verdicts:
        rows = [(what, f"{count:,}") for kind in ("labels", "reasons") for what, count in report[kind].items()]
        tables.show(("verdict", "packets"), rows)
    sys.stdout.flush()
    click.echo(
        f"{report['file']}: {report['sent']:,} packets sent, {report['returned']:,} returned, {report['lost']:,} lost; "
        f"{report['elapsed_s']:.2f} s, {report['packets_per_second']:,} packets/s",
        err=True,
    )
