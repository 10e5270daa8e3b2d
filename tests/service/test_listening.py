"""Addresses are written in few ways, and one that cannot be had is told with the key that asked for it."""

import pytest
from zonetrack.service.listening import Address, ListenError, address, listen, loopback


@pytest.mark.parametrize(
    ("value", "found", "written"),
    [
        (9810, Address("127.0.0.1", 9810), "127.0.0.1:9810"),
        ("9810", Address("127.0.0.1", 9810), "127.0.0.1:9810"),
        (" 192.0.2.1:0 ", Address("192.0.2.1", 0), "192.0.2.1:0"),
        ("[::1]:80", Address("::1", 80), "[::1]:80"),
    ],
)
def test_ways_to_write_an_address(value, found, written):
    assert address(value) == found and str(found) == written
    assert address(written) == found


@pytest.mark.parametrize(
    "value", ["", "a", "localhost:80", "1.2.3.4:", ":80", "127.0.0.1:65536", -1, True, None, 1.5, []]
)
def test_what_is_no_address(value):
    with pytest.raises(ValueError, match="expected PORT, ADDRESS:PORT"):
        address(value)


def test_some_must_be_of_this_machine():
    assert loopback("127.7.7.7:1") == Address("127.7.7.7", 1) and loopback("[::1]:1").is_loopback
    for other in ("0.0.0.0:1", "192.0.2.1:1", "[::]:1"):
        with pytest.raises(ValueError, match="loopback"):
            loopback(other)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_that_is_taken(host):
    with listen(Address(host, 0), "web.listen") as first:
        taken = Address(host, first.getsockname()[1])
        with pytest.raises(
            ListenError, match=r"web\.listen: .*cannot be listened on: Address already in use; name another"
        ):
            listen(taken, "web.listen")
    with listen(taken, "web.listen"):
        pass  # as soon as it is free again
