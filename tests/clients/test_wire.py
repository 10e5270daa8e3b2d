"""Messages survive the wire in both directions; what is none is refused, by whoever gets it, with one error."""

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients import wire
from zonetrack.clients.errors import Code, LocalProtocolError, RemoteProtocolError
from zonetrack.clients.framing import Limits
from zonetrack.clients.wire import Failure, Notification, Request, Response

scalars = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=20) | st.binary()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
params = st.dictionaries(st.text(max_size=8), values, max_size=4)
ids = st.integers(0, wire.ID_MAX)


def read_all(reader, data):
    reader.feed(data)
    return list(reader)


@given(ids, st.text(max_size=20), params)
def test_a_request_arrives_as_it_was_sent(id, method, params):
    packed = wire.request(id, method, params)
    assert read_all(wire.requests(Limits(1 << 20, 64, 1 << 16)), packed) == [Request(id, method, params)]


@given(ids, values)
def test_a_response_arrives_as_it_was_sent(id, result):
    assert read_all(wire.answers(), wire.response(id, result)) == [Response(id, None, result)]


@given(st.none() | ids, st.sampled_from(Code), st.text(max_size=20), params)
def test_a_failure_arrives_as_it_was_sent(id, code, message, detail):
    packed = wire.failure(id, code, message, detail)
    assert read_all(wire.answers(), packed) == [Response(id, Failure(code, message, detail), None)]


def test_a_notification_arrives_as_it_was_sent():
    packed = wire.notification("gap", {"lost": 3})
    assert read_all(wire.answers(), packed) == [Notification("gap", {"lost": 3})]


def test_many_messages_in_one_piece_and_one_message_in_many_pieces():
    packed = b"".join(wire.request(id, "count", {}) for id in range(5))
    reader = wire.requests()
    assert [message.id for message in read_all(reader, packed)] == [0, 1, 2, 3, 4]
    for byte in packed[:-1]:
        reader.feed(bytes([byte]))
    assert len(list(reader)) == 4
    with pytest.raises(RemoteProtocolError, match="ended in the middle of a message"):
        reader.end()
    reader.feed(packed[-1:])
    assert [message.id for message in reader] == [4]
    reader.end()


@given(st.binary(max_size=120), st.integers(0, 120))
def test_a_damaged_request_is_refused_or_read_and_never_worse(noise, place):
    packed = bytearray(wire.request(7, "dump", {"filter": {"zone": 5, "mark": [1, 255]}, "limit": 10}))
    packed[place : place + len(noise)] = noise
    try:
        for message in read_all(wire.requests(), bytes(packed)):
            assert isinstance(message, Request) and all(isinstance(name, str) for name in message.params)
    except RemoteProtocolError as error:
        assert error.code in (Code.MALFORMED, Code.TOO_LARGE)


@given(st.binary(max_size=300))
def test_noise_is_refused_or_waited_for_and_never_worse(noise):
    for reader in (wire.requests(), wire.answers()):
        try:
            read_all(reader, noise)
        except RemoteProtocolError as error:
            assert error.code in (Code.MALFORMED, Code.TOO_LARGE)


@given(values)
def test_a_value_that_is_no_message_is_refused(value):
    reader = wire.requests()
    with pytest.raises(RemoteProtocolError):
        read_all(reader, msgpack.packb([3, value]))


@pytest.mark.parametrize(
    "value",
    [
        *(None, 0, "count", b"", {}, [], [0], [0, 1, "count"], [0, 1, "count", {}, 5]),
        *([0, "1", "count", {}], [0, True, "count", {}], [0, -1, "count", {}], [0, 1 << 32, "count", {}]),
        *([0, None, "count", {}], [0, 1.5, "count", {}], [0, 1, b"count", {}], [0, 1, "count", []]),
        *([0, 1, "count", None], [0, 1, "count", {b"zone": 5}], [0, 1, "count", {5: 5}], [False, 1, "count", []]),
        *([1, 1, None], [1, None, None, 5], [1, 1, "no", None], [1, 1, {"code": 5, "message": "no"}, None]),
        *([1, 1, {"code": "failed"}, None], [1, 1, {"code": "failed", "message": "no", "detail": 5}, None]),
        *([1, 1, {"code": "failed", "message": "no"}, 7], [2, "gap"], [2, 5, {}], [2, "gap", []]),
        *([2, "gap", {1: 1}], [3, 1, "count", {}], ["0", 1, "count", {}]),
    ],
    ids=repr,
)
def test_what_is_no_message_is_refused(value):
    with pytest.raises(RemoteProtocolError) as refused:
        wire.read(msgpack.packb(value))
    assert refused.value.code is Code.MALFORMED


@pytest.mark.parametrize(
    "body", [b"\xa2\xff\xfe", b"\x81\x90\x01", b"\x81\x80\x01"], ids=["utf-8", "list key", "map key"]
)
def test_what_cannot_be_decoded_is_refused(body):
    with pytest.raises(RemoteProtocolError):
        wire.read(b"\x94\x01\x01\xc0" + body)


def test_a_failure_without_detail_has_an_empty_one():
    packed = msgpack.packb([1, 4, {"code": "failed", "message": "no", "since": "tomorrow"}, None])
    assert wire.read(packed) == Response(4, Failure("failed", "no", {}), None)


@pytest.mark.parametrize(
    ("reader", "packed"),
    [
        (wire.requests, wire.response(1, 5)),
        (wire.requests, wire.notification("gap", {})),
        (wire.answers, wire.request(1, "count", {})),
    ],
)
def test_each_side_takes_only_what_is_for_it(reader, packed):
    with pytest.raises(RemoteProtocolError, match="is not for this side"):
        read_all(reader(), packed)


@pytest.mark.parametrize(
    "value",
    [np.uint64(5), 1 << 64, -(1 << 63) - 1, object(), {1, 2}, np.zeros(2)],
    ids=lambda value: type(value).__name__,
)
def test_what_the_wire_has_no_form_for_is_not_sent(value):
    with pytest.raises(LocalProtocolError, match="cannot be packed"):
        wire.response(1, {"count": value})


def test_what_goes_round_in_a_circle_is_not_sent():
    circle = []
    circle.append(circle)
    with pytest.raises(LocalProtocolError, match="cannot be packed"):
        wire.response(1, circle)


def test_a_request_larger_than_services_take_is_not_sent():
    with pytest.raises(LocalProtocolError, match=r"a message of 70,0\d\d bytes; the most is 65,536"):
        wire.request(1, "count", {"filter": "x" * 70_000})


def test_a_code_that_is_not_on_the_list_is_not_sent():
    with pytest.raises(ValueError, match="moon_phase"):
        wire.failure(1, "moon_phase", "not tonight")
