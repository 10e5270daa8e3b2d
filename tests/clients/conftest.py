"""A desk for the tests of commands: one real service for all of them, since each keeps to zones of its own."""

import pytest
from desk import Desk


@pytest.fixture(scope="session")
def desk(tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("desk"))
    with desk.service:
        yield desk
