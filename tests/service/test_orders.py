"""Orders reach the keeper that there is; where there is none, one is started that finds them."""

import os
import sys

import pytest
from houses import close, configured
from zonetrack.service import house, orphans
from zonetrack.service.context import Order
from zonetrack.service.orders import Orders


@pytest.fixture
def made(tmp_path):
    """A house whose keeper is this process."""
    with configured(tmp_path) as config, house.ends(lambda: False) as undo:
        made = house.make(config, undo)
        yield made
        close(made)


def test_orders_are_heard_in_order(made):
    way = Orders(made)
    assert [way.give(order) for order in (Order.RELOAD, Order.STOP)] == [os.getpid()] * 2
    assert os.read(made.orders, 64) == bytes([Order.RELOAD, Order.STOP])
    assert "again" not in made.estate.told


def test_where_nobody_keeps_a_keeper_is_started_once(made, monkeypatch, tmp_path):
    gate, page = tmp_path / "gate", tmp_path / "page"
    os.mkfifo(gate)
    program = "import sys; words = open(sys.argv[1]).read(); open(sys.argv[2], 'w').write(words)"
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", program, str(gate), str(page)])
    made.estate.leave()
    way = Orders(made)
    pid = way.give(Order.RESTART)
    assert way.give(Order.STOP) == pid
    assert os.read(made.orders, 64) == bytes([Order.RESTART, Order.STOP])
    assert made.estate.told["again"] == orphans.ORDERED
    gate.write_text("begun as this program was")  # the keeper waits for it
    assert os.waitpid(pid, 0) == (pid, 0)
    assert page.read_text() == "begun as this program was"
