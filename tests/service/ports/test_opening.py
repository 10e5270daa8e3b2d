"""The ports of a configuration are opened by their kinds."""

import contextlib

import instances
import pytest
from wires import Wires
from zonetrack.service.config import Config, ConfigError
from zonetrack.service.ports import opening, specs
from zonetrack.shm.layout import PortKind


@pytest.fixture
def instance():
    with instances.named() as name:
        yield name


def test_ports_are_opened_in_order_and_closed(instance):
    with Wires(), contextlib.ExitStack() as house:
        ports = tuple(map(specs.read, ("shm:lab,queues=2", "afpacket:near0,zone=3,name=wan,ring_mb=1")))
        config = Config(instance=instance, ports=ports, workers=2)
        made = [house.enter_context(one) for one in opening.open_ports(config)]
        assert [(one.name, one.kind, one.queues, one.zone) for one in made] == [
            ("lab", PortKind.SHM, 2, 0),
            ("wan", PortKind.PACKET, 1, 3),
        ]
        assert [one.places(2) for one in made] == [2, 2]
        assert opening.total_bytes(made) == made[0].total_bytes + (1 << 20) + 2 * 2048 * 1024


def test_a_group_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="there is no group 'nobody-has-it'"):
        list(opening.open_ports(Config(ports_group="nobody-has-it")))
