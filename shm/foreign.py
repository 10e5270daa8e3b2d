"""A table of another layout, read as it describes itself (shm/descriptions); nothing of it is ever written.

Who may    while
    hold   nobody owns the instance; it is owned as long as the table is held, and ends when it is let go
    read   likewise; what its processes were in the middle of when they died is read as it stands
"""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import Any, Self

import numpy as np

from . import descriptions, header, segment
from .claim import Claim
from .errors import Missing, Undescribed, WrongBoot, WrongGeneration, WrongMagic, WrongSize, WrongState
from .layout import HEADER_BYTES, MAGIC, Region, SegmentState

_WHOLE = {SegmentState.READY, SegmentState.SEALED}


class Foreign:
    """It, and the claim on its instance."""

    def __init__(self, instance: str) -> None:
        """Hold it.

        Args:
            instance: its name.

        Raises:
            Missing: there is none, or not all of it.
            InUse: another process owns it.
            Undescribed: it does not say how it is laid out, or cannot be what it says.
            SegmentError: another child: it is not this user's, was never finished, or is of another boot.
        """
        self.instance = instance
        with contextlib.ExitStack() as stack:
            name = segment.segment_name(instance, Region.CONTROL)
            control = segment.open_segment(name)
            stack.callback(os.close, control)
            segment.demand_own(name, control)
            self._claim = stack.enter_context(Claim(instance, control))
            if not segment.is_linked(control):
                raise Missing(name, "a segment", "one that was unlinked just now")
            head = header.read(control)
            if head["magic"] != MAGIC:
                raise WrongMagic(name, f"{MAGIC:#018x}", f"{head['magic']:#018x}")
            if head["boot_id"].tobytes() != header.boot_id():
                raise WrongBoot(name, header.boot_id().hex(), head["boot_id"].tobytes().hex())
            if head["state"] not in _WHOLE:
                raise WrongState(name, header.names(_WHOLE), header.name_of(SegmentState, head["state"]))
            self.digest = int(head["digest"])
            """Of its layout."""
            told = descriptions.read(os.pread(control, HEADER_BYTES, 0))
            if told is None:
                raise Undescribed(name, "a description of its layout", "none")
            self.description: dict[str, Any] = told
            self._generation = head["generation"]
            self._memory: dict[str, mmap.mmap] = {}
            for region in sorted({region for region, _, _ in told["places"].values()}):
                self._memory[region] = self._map(region)
            self._arrays = {name: self._array(name) for name in told["places"]}
            stack.pop_all()
            os.close(control)

    def _map(self, region: str) -> mmap.mmap:
        name = segment.named(self.instance, region)
        descriptor = segment.open_segment(name)
        try:
            segment.demand_own(name, descriptor)
            head, size = header.read(descriptor), os.fstat(descriptor).st_size
            if head["generation"] != self._generation:
                raise WrongGeneration(name, f"{self._generation:#x}", f"{head['generation']:#x}")
            if not size or head["size"] != size:
                raise WrongSize(name, int(head["size"]), size)
            return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def _array(self, name: str) -> np.ndarray:
        region, first, count = self.description["places"][name]
        try:
            return np.frombuffer(
                self._memory[region], descriptions.laid_out(self.description["rows"][name]), count, first
            )
        except (KeyError, ValueError) as error:
            raise Undescribed(segment.named(self.instance, region), f"the array {name}", str(error)) from None

    def array(self, name: str) -> np.ndarray:
        """Return an array as it is laid out there; it cannot be written.

        Raises:
            Undescribed: it has none of that name.
        """
        if name not in self._arrays:
            raise Undescribed(self.instance, f"the array {name}", "none")
        return self._arrays[name]

    def __enter__(self) -> Self:
        """Let it go at the end of the block."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Let it go."""
        self._claim.drop()
