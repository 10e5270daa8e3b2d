"""What a load test shows: medians and spread, a comparison, and refusals that name the file."""

import json

import pytest
from zonetrack.clients import report
from zonetrack.clients.errors import ZonetrackError


def test_a_summary_has_the_median_and_the_extremes_of_each_figure():
    medians, spread = report.summary([{"ns": 3.0, "n": 5}, {"ns": 1.0, "n": 5}, {"ns": 2.5, "n": 7}])
    assert medians == {"ns": 2.5, "n": 5}
    assert spread == {"ns": [1.0, 3.0], "n": [5, 7]}


def test_counts_stay_whole_numbers():
    medians, _ = report.summary([{"n": 1}, {"n": 2}])
    assert isinstance(medians["n"], int)


def test_a_comparison_has_the_ratio_of_what_both_have():
    before = {"scenario": "hit", "ns_per_packet": 80.0, "waits": 0, "limit": None, "old": 1}
    after = {"scenario": "hit", "ns_per_packet": 60.0, "waits": 2, "limit": 5, "new": 1}
    assert report.compare(before, after) == {
        "ns_per_packet": {"before": 80.0, "after": 60.0, "ratio": 0.75},
        "waits": {"before": 0, "after": 2},
    }


def test_results_of_different_scenarios_are_not_compared():
    with pytest.raises(ZonetrackError, match="a result of hit says nothing about one of miss"):
        report.compare({"scenario": "hit"}, {"scenario": "miss"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"threads": 1}'])
def test_what_is_no_result_is_refused_by_name(text, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(ZonetrackError, match=r"result\.json: not a result of load --json"):
        report.read(str(path))


def test_a_result_is_read_as_it_was_printed(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"scenario": "scan", "waits": 1}))
    assert report.read(str(path)) == {"scenario": "scan", "waits": 1}


def test_the_table_shows_a_spread_only_where_there_is_one(capsys):
    report.show(
        "hit", {"threads": 2, "limit": None}, {"ns": 1.5, "packets": 1000}, {"ns": [1.0, 2.0], "packets": [1000, 1000]}
    )
    shown = capsys.readouterr().out
    assert shown.startswith("hit: threads 2\n")
    assert "lowest" in shown and "1.000" in shown and "1,000" in shown
    report.show("hit", {}, {"ns": 1.5}, {"ns": [1.5, 1.5]})
    assert "lowest" not in capsys.readouterr().out


def test_progress_shows_nothing_where_nobody_looks(capsys):
    with report.progress("hit", 100, wanted=True) as tick:
        tick(50)
    with report.progress("hit", 100, wanted=False) as tick:
        tick(50)
    assert capsys.readouterr() == ("", "")
