"""Values are cut where they end, whatever the pieces they come in; what is too large is refused before it is there."""

import tracemalloc

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import Code, RemoteProtocolError
from zonetrack.clients.framing import Framer, Limits

LIMITS = Limits(message_bytes=4096, depth=6, items=500)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=5), inner, max_size=20),
    max_leaves=25,
)
ROOMY = Limits(message_bytes=1 << 24, depth=64, items=1 << 20)


def taken(framer):
    """Return all values that are complete."""
    return [msgpack.unpackb(frame) for frame in iter(framer.take, None)]


@given(st.lists(values, max_size=4), st.data())
def test_values_come_out_as_they_went_in_whatever_the_pieces(sent, data):
    stream = b"".join(map(msgpack.packb, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    framer, got = Framer(ROOMY), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        framer.feed(stream[begin:end])
        got += taken(framer)
    assert got == sent and not framer.waits


@given(values)
def test_a_value_is_taken_with_its_last_byte_and_not_before(value):
    framer = Framer(ROOMY)
    packed = msgpack.packb(value)
    for byte in packed[:-1]:
        framer.feed(bytes([byte]))
        assert framer.take() is None and framer.waits
    framer.feed(packed[-1:])
    assert framer.take() == packed


@pytest.mark.parametrize("value", [0, 127, -32, -33, 128, 1 << 16, 1 << 40, -(1 << 40), 1.5, "x" * 40, "x" * 70_000])
@pytest.mark.parametrize("many", [1, 20, 70_000])
def test_every_width_of_length_and_number(value, many):
    value = [value] * many if many > 1 or isinstance(value, str) else {"k": value}
    framer = Framer(Limits(1 << 33, 4, 1 << 20))
    framer.feed(msgpack.packb(value if many < 70_000 or not isinstance(value[0], str) else {"b": b"x" * 70_000}))
    frame = framer.take()
    assert frame is not None and not framer.waits


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_waited_for_and_never_worse(noise):
    framer = Framer(LIMITS)
    framer.feed(noise)
    try:
        for frame in iter(framer.take, None):
            msgpack.unpackb(frame, strict_map_key=False, unicode_errors="replace")
    except RemoteProtocolError as error:
        assert error.code in (Code.MALFORMED, Code.TOO_LARGE)
    except (ValueError, TypeError):
        pass  # a key that is a list: whole as a frame, and the decoder's to refuse


@pytest.mark.parametrize("tag", [0xC1, 0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8])
def test_extension_types_and_the_unused_byte_are_refused(tag):
    framer = Framer(LIMITS)
    framer.feed(bytes([0x91, tag]))
    with pytest.raises(RemoteProtocolError, match=f"byte {tag:#04x} begins nothing"):
        framer.take()


@pytest.mark.parametrize(
    ("begun", "what"),
    [
        (b"\xc6\xff\xff\xff\xff", "4,096 bytes"),
        (b"\xdb\x00\x00\x10\x00", "4,096 bytes"),
        (b"\xdd\xff\xff\xff\xff", "500 items"),
        (b"\xdf\x00\x00\x00\xfb", "500 items"),
        (b"\x92\xdc\x01\x00" + 256 * b"\x01" + b"\xdc\x01\x00", "500 items"),
        (b"\x91" * 7, "6 levels"),
        (b"\x81\xa1k" * 7, "6 levels"),
        (b"\x91" * 100_000, "6 levels"),
    ],
)
def test_what_is_too_large_is_refused_at_its_header_and_costs_nothing(begun, what):
    framer = Framer(LIMITS)
    framer.feed(begun)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match=f"a message has more than {what}") as refused:
        framer.take()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.code is Code.TOO_LARGE
    assert peak_bytes < 64 * 1024


def test_what_just_fits_is_taken():
    exact = [msgpack.packb(b"x" * (4096 - 3)), msgpack.packb([1] * 500), b"\x91" * 6 + b"\x01", b"\x90" * 3]
    framer = Framer(LIMITS)
    framer.feed(b"".join(exact))
    assert b"".join(iter(framer.take, None)) == b"".join(exact)
