"""Parameters are of their type and within their bounds, or the error names them and what they should have been."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.errors import BadParameterError, UnknownParameterError
from zonetrack.service import parameters
from zonetrack.service.parameters import ABSENT, Parameter, flag, nothing_or, text, whole

KNOWN = {
    "zone": Parameter(parameters.zone),
    "limit": Parameter(parameters.limit, ABSENT),
    "wait": Parameter(flag, True),
}


def test_what_is_not_given_is_the_default():
    assert parameters.read("m", KNOWN, {"zone": 5}) == {"zone": 5, "limit": ABSENT, "wait": True}
    assert parameters.read("m", KNOWN, {"zone": 0, "limit": None, "wait": False}) == {
        "zone": 0,
        "limit": None,
        "wait": False,
    }


def test_what_must_be_given_is_missed():
    with pytest.raises(BadParameterError, match="m needs the parameter zone") as refused:
        parameters.read("m", KNOWN, {"wait": True})
    assert refused.value.detail == {"parameter": "zone"}


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("zones", {"parameter": "zones", "nearest": "zone"}),
        ("limmit", {"parameter": "limmit", "nearest": "limit"}),
        ("", {"parameter": ""}),
        ("x" * 5000, {"parameter": "x" * 100}),
    ],
)
def test_what_is_unknown_is_named_with_the_nearest(name, detail):
    with pytest.raises(UnknownParameterError) as refused:
        parameters.read("m", KNOWN, {"zone": 1, name: 1})
    assert refused.value.detail == detail
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (parameters.zone, [0, 65535], [-1, 65536, True, "5", 5.0, None, [5], b"5"]),
        (parameters.limit, [None, 0, 2**32 - 2], [-1, 2**32 - 1, 2**64 - 1, False, "none"]),
        (parameters.one_of(("a", "b")), ["a", "b"], ["c", "", b"a", 0, None, ["a"]]),
        (parameters.list_of(text, 2), [[], ["a", "b"]], ["a", ["a", "b", "c"], [1], None]),
        (flag, [True, False], [0, 1, None, "yes"]),
        (text, ["", "x"], [b"x", 5, None]),
        (nothing_or(whole(1, 2)), [None, 1, 2], [0, 3, ""]),
    ],
)
def test_a_reader_takes_what_it_says_and_nothing_else(read, good, bad):
    assert [read("p", value) for value in good] == good
    for value in bad:
        with pytest.raises(BadParameterError) as refused:
            read("p", value)
        assert refused.value.detail == {"parameter": "p"} and str(refused.value).startswith("p: ")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["zone", "limit", "wait", "other"]), values))
def test_any_values_are_read_or_refused(given):
    try:
        read = parameters.read("m", KNOWN, given)
    except (BadParameterError, UnknownParameterError) as error:
        assert len(str(error)) < 300
    else:
        assert type(read["zone"]) is int and type(read["wait"]) is bool
