"""Explain a capture: it is replayed in small steps, and after each the samples are read before they are written over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import string_at
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..kernels import replay
from ..shm.layout import FRAME_BYTES, PARSED, SAMPLES_MAX, FrameFlag
from ..shm.reasons import Reason
from . import arrivals, explanations, warmup
from .captures import Capture
from .helper_rules import named_port
from .packets import seconds
from .replay import Options, Replay, Source, record, survey
from .samples import Samples

__all__ = ["Options", "explained", "named_port", "survey"]


NOT_TOLD = (Reason.NONE, Reason.NOIP, Reason.NOT_TRACKED)


@dataclass
class Explaining(Replay):
    """A replay by one worker, in this process, that keeps every sample."""

    samples: dict[int, np.void] = field(init=False, default_factory=dict)
    """By the place of the packet."""

    @property
    def records_at_once(self) -> int:
        """As many records as there is room for samples."""
        return SAMPLES_MAX

    def run(self, look: Any = None) -> None:
        """Track all packets."""
        warmup.load("replay.run", "sweep.sweep", "replay.read")
        self._read, self._known = Samples(self.table), 0
        self.work(0)

    def _pass(self, shard: int, packets: int, now_ms: int) -> None:
        super()._pass(shard, packets, now_ms)
        for sample in self._read.of(1, self._known):  # whoever joins an empty table first has the first place
            self.samples[int(sample["packet"]) - 1] = sample
            self._known = int(sample["number"])


def explained(paths: Iterable[str], options: Options, n: int | None = None) -> Iterator[dict[str, Any]]:
    """Replay captures, in order, and explain the packets that got a reason, or packet ``n`` of each, from 1.

    Raises:
        CaptureError: one of them cannot be read, when all before its fault is told.
    """
    found = survey(paths)
    run = Explaining(found, options)
    run.run()
    for source, place in found.placed():
        yield from _of_source(run, source, place, n)
    for source in found.sources:
        if source.fault:
            raise source.fault


def _of_source(run: Explaining, source: Source, place: int, n: int | None) -> Iterator[dict[str, Any]]:
    number, parsed = 0, record(PARSED)
    with Capture(source.path, run.options.zone, FrameFlag.COMMIT) as capture:
        for frames, times in capture.slices():
            for i, time_ns in enumerate(times.tolist()):
                number += 1
                sample = run.samples.get(place + number - 1)
                if number > source.packets:
                    break
                verdict = run.verdicts[place + number - 1]
                # a reason that came late, of a fragment that waited in vain, has no sample
                if n != number if n is not None else verdict["reason"] in NOT_TOLD:
                    continue
                if sample is not None:
                    arrival = arrivals.of_sample(sample)
                    if not arrival.found:
                        behind = frames["address"][i] + frames["captured_bytes"][i]
                        whole = string_at(int(behind) - arrival.captured_bytes, arrival.captured_bytes)
                        arrival = replace(arrival, packet=whole)
                else:
                    frame = frames.ctypes.data + i * FRAME_BYTES
                    replay.read(*map(np.uint64, (frame, run.options.zone, run.options.settings, parsed.ctypes.data)))
                    arrival = arrivals.of_packet(parsed[0], verdict, run.options.settings)
                told = explanations.explain(arrival, int(verdict["flags"]))
                yield {"file": source.path, "n": number, "time": float(seconds(time_ns))} | told
