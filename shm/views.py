"""What a kernel gets: the addresses of every array of an instance, and on whose behalf it runs."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .layout import (
    ACTION_BYTES,
    BLOCK_RECORDS,
    BURST_PACKETS_MAX,
    DELETE_BYTES,
    DELETE_LIST_MAX,
    EVENT_RING_BYTES,
    EXPECTATION_BYTES,
    FORETOLD_MAX,
    HEADER,
    LINE_BYTES,
    LOOK_BYTES,
    LOOKS_MAX,
    MESSAGE,
    PARSED,
    PARTICIPANT,
    PARTICIPANT_BYTES,
    PORT_MAPS_BYTES,
    REASSEMBLY,
    SAMPLE_BYTES,
    SAMPLES_MAX,
    VIEWS,
    ZONE_REASON_BYTES,
    ZONE_REASONS_MAX,
    Region,
    Slab,
    offset,
)
from .sizing import Geometry

if TYPE_CHECKING:
    from .events import Events
    from .seats import Seats
    from .sources import Sources


def address_of(buffer: mmap.mmap | np.ndarray) -> int:
    """Return the address of the first byte of a buffer; whoever asks keeps the buffer alive."""
    if isinstance(buffer, np.ndarray):
        return buffer.ctypes.data
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Table:
    """The mapped regions of one instance, as numpy sees them and as kernels do."""

    def __init__(
        self,
        geometry: Geometry,
        regions: Mapping[Region, mmap.mmap | np.ndarray],
        control_file: int | None = None,
    ) -> None:
        """Describe mapped regions.

        Args:
            geometry: sizes of the instance.
            regions: the mapping of each region; kept alive as long as this object and every ``views`` of it.
            control_file: descriptor of the CONTROL region's file, which carries the locks of what is done hardly ever;
                None where the table is this process's alone.
        """
        self.control_file = control_file
        self.geometry = geometry
        self.regions = dict(regions)
        self.events: Events | None = None
        """Where participants write what happens to connections; None where nobody ever reads it."""
        self.quarantine = 0
        """Address of what a service keeps from new connections (shm/rulebook), 0: nothing."""
        self.seats: Seats | None = None
        """Of zones with a budget of half-open connections; None where no zone can have one."""
        self.sources: Sources | None = None
        """Connections by source, of zones with a budget for each; None where no zone can have one."""
        self.base = {region: address_of(buffer) for region, buffer in regions.items()}

    def address(self, region: Region, array: str) -> int:
        """Return the address of an array of a region."""
        return self.base[region] + self.geometry.offsets(region)[array]

    def array(self, region: Region, name: str, dtype: np.dtype | str) -> np.ndarray:
        """Return an array of a region as numpy sees it; writes go to the table."""
        count, size = self.geometry.arrays(region)[name]
        return np.frombuffer(
            self.regions[region], dtype, count * size // np.dtype(dtype).itemsize, self.geometry.offsets(region)[name]
        )

    @property
    def header(self) -> np.ndarray:
        """The header of the CONTROL region, HEADER[1]."""
        return np.frombuffer(self.regions[Region.CONTROL], HEADER, 1)

    def views(self, me: int) -> np.record:
        """Return the views of participant ``me`` (roster index + 1; 0 may only look, never lock).

        Private scratch memory comes with it, so each thread that runs kernels needs views of its own.
        """
        geometry = self.geometry
        # One block of private memory: the views, then their scratch; the record that is returned keeps all of it alive.
        parsed = -(-VIEWS.itemsize // LINE_BYTES) * LINE_BYTES
        order = parsed + BURST_PACKETS_MAX * PARSED.itemsize
        candidates = order + 8 * DELETE_LIST_MAX
        expected = candidates + 8 * BLOCK_RECORDS
        followed = expected + EXPECTATION_BYTES
        foretold = followed + ACTION_BYTES
        looks = foretold + FORETOLD_MAX * EXPECTATION_BYTES
        message = looks + LOOKS_MAX * LOOK_BYTES
        scratch = message + MESSAGE.itemsize
        unmeasured = scratch + REASSEMBLY.itemsize
        no_events = unmeasured + 8
        no_events += -no_events % LINE_BYTES
        port_maps = no_events + EVENT_RING_BYTES
        block = np.zeros(port_maps + PORT_MAPS_BYTES + LINE_BYTES, "u1")
        block = block[-block.ctypes.data % LINE_BYTES :]
        views = block[: VIEWS.itemsize].view(VIEWS).view(np.recarray)[0]
        views["parsed"] = block.ctypes.data + parsed
        views["order"] = block.ctypes.data + order
        views["candidates"] = block.ctypes.data + candidates
        views["expected"] = block.ctypes.data + expected
        views["followed"] = block.ctypes.data + followed
        views["foretold"] = block.ctypes.data + foretold
        views["looks"] = block.ctypes.data + looks
        views["message"] = block.ctypes.data + message
        views["scratch"] = block.ctypes.data + scratch
        views["perf"] = block.ctypes.data + unmeasured
        views["events"] = block.ctypes.data + no_events
        views["port_maps"] = block.ctypes.data + port_maps
        for region in Region:
            for name in geometry.arrays(region):
                stem, _, slab = name.partition("_")
                if stem == "pool":
                    views[stem][Slab[slab.upper()]] = self.address(region, name)
                else:
                    views[name] = self.address(region, name)
        for slab in Slab:
            views["records"][slab] = geometry.records(slab)
            views["pool_words"][slab] = geometry.pool_words(slab)
        views["segment_count"] = geometry.segments
        views["directory_words"] = geometry.directory_offset[-1]
        views["directory_first"] = geometry.directory_first
        views["directory_offset"] = geometry.directory_offset
        views["seats"] = 0 if self.seats is None else self.seats.base
        views["sources"] = 0 if self.sources is None else self.sources.base
        views["source_cells"] = 0 if self.sources is None else len(self.sources.cells)
        views["me"] = me
        if me:
            own = int(views["participants"]) + (me - 1) * PARTICIPANT_BYTES
            views["intent"] = own
            views["counters"] = own + int(offset(PARTICIPANT, "counters"))
            views["own_samples"] = int(views["samples"]) + (me - 1) * SAMPLES_MAX * SAMPLE_BYTES
            views["own_zone_reasons"] = int(views["zone_reasons"]) + (me - 1) * ZONE_REASONS_MAX * ZONE_REASON_BYTES
            views["delete_list"] = int(views["delete_lists"]) + (me - 1) * DELETE_LIST_MAX * DELETE_BYTES
            if self.events is not None:
                self.events.enter(me, views)
        views["quarantine"] = self.quarantine
        views["secret"] = self.header[0]["secret"]
        return views
