"""Segments: the memory of an instance."""

from __future__ import annotations

import errno
import os
import weakref

import numpy as np

from . import fresh, mapping
from .errors import NoSpace
from .layout import Region
from .sizing import Geometry
from .views import Table


def anonymous(geometry: Geometry, *, policies: np.ndarray | None = None, secret: bytes | None = None) -> Table:
    """Make a table without a name: for this process and those that it forks.

    Args:
        geometry: sizes of the table.
        policies: see ``fresh.initialise``.
        secret: see ``fresh.initialise``.

    Raises:
        NoSpace: the machine has too little memory.
    """
    regions, files = {}, {}
    try:
        for region in Region:
            size = geometry.region_bytes(region)
            files[region] = os.memfd_create(f"zonetrack.{region.name.lower()}")
            os.ftruncate(files[region], size)
            regions[region] = mapping.shared(files[region], size, reserve=True)
        control = os.dup(files[Region.CONTROL])
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise NoSpace("anonymous table", geometry.total_bytes, mapping.memory_free()) from error
    finally:
        for descriptor in files.values():
            os.close(descriptor)
    table = Table(geometry, regions, control)
    weakref.finalize(table, os.close, control)
    fresh.initialise(table, policies=policies, secret=secret)
    fresh.publish(table)
    return table
