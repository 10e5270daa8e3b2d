"""Every room has its test: ``<layer>/<room>.py`` is proved by ``tests/<layer>/test_<room>.py``."""

import checkout

EXEMPT = {
    "service/__main__": "three lines, run by tests/clients/test_cli.py",
}


def mirror(room):
    """Return the path of the test file of a room."""
    layer, _, name = room.rpartition("/")
    return checkout.ROOT / "tests" / layer / f"test_{name}.py"


def test_every_room_has_its_test():
    missing = [room for room in checkout.rooms() if room not in EXEMPT and not mirror(room).exists()]
    assert missing == []


def test_no_room_is_exempt_in_vain():
    assert [room for room in EXEMPT if room not in checkout.rooms() or mirror(room).exists()] == []
