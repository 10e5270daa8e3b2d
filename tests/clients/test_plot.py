"""Pictures of trials: what is drawn, in which formats, and what is said before anything was measured in vain."""

import sys

import click
import pytest
from zonetrack.clients import plot
from zonetrack.clients.errors import ZonetrackError
from zonetrack.clients.series import Row

ROWS = [Row(0.1, 5e6, 1000, 0.0, 80.0), Row(0.2, 4e6, 2000, 10.0, None), Row(0.3, 5e6, 1500, 20.0, 90.0)]
BEGINS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.mark.parametrize("ending", plot.ENDINGS)
def test_a_picture_of_each_format(tmp_path, ending):
    path = tmp_path / f"trial{ending}"
    plot.ready(str(path))
    plot.draw(str(path), "load scan", [ROWS, ROWS])
    assert path.read_bytes().startswith(BEGINS[ending])


def test_every_panel_is_named(tmp_path):
    path = tmp_path / "trial.svg"
    plot.draw(str(path), "load scan", [ROWS])
    text = path.read_text()
    assert [text.count(f"<!-- {label} -->") for label, _ in plot.PANELS] == [1] * len(plot.PANELS)
    assert "<!-- load scan -->" in text and "<!-- seconds -->" in text


def test_a_trial_without_moments_has_an_empty_picture(tmp_path):
    plot.draw(str(tmp_path / "trial.png"), "load scan", [[]])
    assert (tmp_path / "trial.png").stat().st_size > 0


def test_a_format_that_there_is_not():
    with pytest.raises(click.UsageError, match=r"must end in \.png"):
        plot.ready("trial.gif")


def test_a_directory_that_there_is_not(tmp_path):
    with pytest.raises(ZonetrackError, match="there is no directory"):
        plot.ready(str(tmp_path / "nowhere" / "trial.png"))


def test_matplotlib_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ZonetrackError, match=r"pip install 'zonetrack\[plot\]'"):
        plot.ready(str(tmp_path / "trial.png"))


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "trial.png").mkdir()
    with pytest.raises(ZonetrackError, match=r"trial\.png: "):
        plot.draw(str(tmp_path / "trial.png"), "load scan", [ROWS])
