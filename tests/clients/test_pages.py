"""A dump goes on until it is done or has enough, whatever size the pages have, and never in a circle."""

import pytest
from connection_rows import FIELDS, pack
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.connections import STATUS, TCP_STATES
from zonetrack.clients.errors import RemoteProtocolError
from zonetrack.clients.pages import PAGE_CONNECTIONS, Walk, joined


def answer(count, next_cursor, **fields):
    """Return a page of so many connections, as the service answers."""
    page = {"records": b"".join(pack(id=n) for n in range(count)), "dtype": FIELDS, "next": next_cursor}
    return page | {"states": list(TCP_STATES), "status": STATUS} | fields


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.none() | st.integers(0, 9))
def test_pages_until_the_end_or_enough(sizes, limit):
    """Pages may be empty; each begins where the one before said."""
    walk, cursor, got = Walk({"zone": 5}, limit), 0, 0
    for i, size in enumerate(sizes):
        params = walk.ask()
        if limit is not None and got == limit:
            assert params is None
            return
        wanted = PAGE_CONNECTIONS if limit is None else limit - got
        assert params == {"cursor": cursor, "limit": wanted, "filter": {"zone": 5}}
        cursor = (i + 1) * 1000 if i + 1 < len(sizes) else None
        page = walk.take(answer(min(size, wanted), cursor))
        got += len(list(page.connections()))
    assert walk.ask() is None


def test_a_page_names_states_and_status_itself():
    walk = Walk({})
    states = ["NIL", "OPENING", "OPENED", "GOING"]
    page = walk.take(answer(1, None, states=states, status={"answered": 2}))
    connection = next(page.connections())
    assert (connection["state"], connection["status"]) == ("GOING", ["answered"])


@pytest.mark.parametrize(
    "result",
    [
        *(None, [], {}, {"records": b""}, answer(1, "5"), answer(1, 1.5), answer(1, None, dtype=5)),
        *(answer(1, None, dtype=[]), answer(1, None, dtype=[["id", "<u8", []]] * 7), answer(1, None, records="x")),
        *(answer(1, None, states=None), answer(1, None, status=[])),
    ],
)
def test_what_is_no_page_is_refused(result):
    with pytest.raises(RemoteProtocolError):
        Walk({}).take(result)


@pytest.mark.parametrize(
    "changed",
    [
        [["x" if name == "mark" else name, kind, shape] for name, kind, shape in FIELDS],
        [[name, "|u1", [4]] if name == "timeout_ms" else [name, kind, shape] for name, kind, shape in FIELDS],
        [["family" if name == "state" else name, kind, shape] for name, kind, shape in FIELDS],
    ],
    ids=["a field is missing", "a number is bytes", "a field is twice"],
)
def test_rows_that_make_no_connection_are_refused(changed):
    with pytest.raises(RemoteProtocolError):
        list(Walk({}).take(answer(1, None, dtype=changed)).connections())


@pytest.mark.parametrize("status", [{"seen_reply": "yes"}, {"seen_reply": None}, {5: 1.5}])
def test_a_status_that_is_no_bit_is_refused(status):
    with pytest.raises(RemoteProtocolError, match="a row that is no connection"):
        list(Walk({}).take(answer(1, None, status=status)).connections())


def test_a_dump_that_goes_in_a_circle_is_left():
    walk = Walk({})
    walk.ask()
    with pytest.raises(RemoteProtocolError, match="does not come further"):
        walk.take(answer(0, 0))


def test_nothing_is_an_empty_array_with_the_right_fields():
    page = Walk({}).take(answer(0, None))
    table = joined([page])
    assert len(table) == 0 and table.dtype.names == tuple(name for name, *_ in FIELDS)
    assert len(joined([])) == 0


def test_pages_are_one_array_that_may_be_written_to():
    walk = Walk({})
    pages = [walk.take(answer(2, 2)), walk.take(answer(3, None))]
    table = joined(pages)
    assert table.tobytes() == pages[0].records + pages[1].records and len(table) == 5
    table["id"] = 7
    assert table["id"].tolist() == [7] * 5 and pages[0].array()["id"].tolist() == [0, 1]


def test_pages_of_unlike_rows_are_no_dump():
    one = Walk({}).take(answer(1, None))
    with pytest.raises(RemoteProtocolError, match="not alike"):
        joined([one, one._replace(fields=one.fields[:-1])])
