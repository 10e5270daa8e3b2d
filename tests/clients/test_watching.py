"""A view is of one moment, with rates against the one before; what was not there before has none."""

import json

import pytest
import watched
from zonetrack.clients.watching import HISTORY, RATES, Watch


def test_the_first_look_has_no_rates():
    view = Watch().take(*watched.answers(), at_s=5.0)
    assert set(view["rates"].values()) == {None} and set(map(len, view["history"].values())) == {0}
    assert view["workers"][0]["load"] is None and view["zones"][0]["change"] is None
    assert (view["connections"], view["limit"], view["sweep"]) == (900, 1000, {"due": 7, "overdue_s": 1.5})


def test_rates_are_of_the_time_between_two_looks():
    watch = Watch()
    watch.take(*watched.answers(), at_s=5.0)
    view = watch.take(*watched.answers(later=1), at_s=7.0)
    assert view["rates"] == {
        "packets": 500.0, "bytes": 50_000.0, "new": 5.0, "ended": 0.5, "invalid": 1.0, "swept": 0.0, "refused": 2.0,
    }  # fmt: skip
    assert view["workers"][0] | {"load": 0.75, "packets": 500.0, "new": 5.0, "invalid": 1.0} == view["workers"][0]
    assert {one["zone"]: one["change"] for one in view["zones"]} == {5: -5.0, 7: 0.0, 9: 2.5}
    assert view["queues"][0] | {"rx_packets": 500.0, "tx_full": 1.5, "bad": 0.5} == view["queues"][0]
    assert {one["reason"]: one["rate"] for one in view["reasons"]}["zone_full"] == 2.0
    assert view["history"]["packets"] == [500.0]


def test_what_began_anew_has_no_rate():
    """A worker that was replaced counts on; its processor time begins at 0, and its pid says so."""
    watch = Watch()
    watch.take(*watched.answers(later=1), at_s=5.0)
    stats, summary = watched.answers()
    stats["workers"][0]["pid"] += 1
    view = watch.take(stats, summary, at_s=6.0)
    assert view["workers"][0]["load"] is None and view["rates"]["packets"] is None
    assert view["zones"][0]["change"] is not None, "a zone may shrink"


def test_shares():
    view = Watch().take(*watched.answers())
    assert [(one["zone"], one["fill"]) for one in view["zones"]] == [(5, 0.95), (7, None), (9, 0.0)]
    assert view["sources"][0]["share"] == 0.5
    assert [one["kind"] for one in view["kinds"] if one["group"] == "protocol"] == ["tcp", "udp"]
    assert {one["kind"]: one["share"] for one in view["kinds"]}["unreplied"] == 0.1


def test_history_has_an_end():
    watch = Watch()
    for moment in range(HISTORY + 10):
        view = watch.take(*watched.answers(later=moment), at_s=float(moment))
    assert set(map(len, view["history"].values())) == {HISTORY} and set(RATES) < set(view["history"])


def test_a_view_is_plain_values():
    assert json.loads(json.dumps(Watch().take(*watched.answers())))["instance"] == "lab"


@pytest.mark.parametrize("at_s", [5.0, 4.0])
def test_two_looks_at_one_moment_have_no_rates(at_s):
    watch = Watch()
    watch.take(*watched.answers(), at_s=5.0)
    assert set(watch.take(*watched.answers(later=1), at_s=at_s)["rates"].values()) == {None}
