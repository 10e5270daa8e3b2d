"""Instance names that nothing else uses, and whose segments do not outlive the test."""

import instances
import pytest


@pytest.fixture
def instance():
    with instances.named() as name:
        yield name
