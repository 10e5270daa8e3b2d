"""Instance names that nothing else uses, and whose segments do not outlive the test."""

import contextlib
import itertools
import os

from zonetrack.shm import segment
from zonetrack.shm.errors import Missing

_numbers = itertools.count(1)


@contextlib.contextmanager
def named():
    """Yield a name."""
    name = f"test-named-{os.getpid()}-{next(_numbers)}"
    yield name
    with contextlib.suppress(Missing):
        segment.discard(name)
