"""Instance names that nothing else uses, and whose segments do not outlive the test."""

import instances
import pytest
from zonetrack.shm import port


@pytest.fixture
def instance():
    with instances.named() as name:
        yield name


@pytest.fixture
def ports(instance):
    """Two ports, of two queues and of one."""
    with port.create(instance, "a", 2, zone=3, slots=4) as one, port.create(instance, "b", 1, zone=5, slots=8) as other:
        yield [one, other]
