"""What control inherits, and the orders it may pass on."""

import os

import tables
from zonetrack.service.config import Control
from zonetrack.service.context import Context, Order
from zonetrack.service.door import open_door


def test_what_is_not_said_is_as_the_configuration_has_it(tmp_path):
    door, told = open_door(str(tmp_path / "x.sock")), []
    context = Context("x", tables.small(), door, told.append, dict, list, list)
    assert (context.bounds, context.keeper()) == (Control(), os.getppid())
    context.order(Order.RELOAD)
    assert told == [Order.RELOAD]
    door.close()


def test_an_order_fits_the_byte_that_carries_it():
    assert all(0 < order < 256 for order in Order)
