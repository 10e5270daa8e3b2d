"""Conversations told packet by packet (tests/scripts), over both families, through parser, table and protocols."""

from pathlib import Path

import pytest
import scripts

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script, family):
    assert scripts.run(script, family) == []


@pytest.mark.parametrize(
    "line",
    [
        "> S seq 1 SYN_SENT",
        "> S seq 1 SYN_SENT new est 5",
        "> tcp seq 1 SYN_SENT new",
        "= S seq 1 SYN_SENT new",
        "+5 gone swept",
    ],
)
def test_a_line_that_is_none_is_refused(line, tmp_path):
    script = tmp_path / "script.txt"
    script.write_text(line)
    with pytest.raises(ValueError, match="not a line"):
        scripts.run(script, 4)


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("> S seq 1  SYN_SENT new", ("SYN_SENT", "new", "unreplied")),
        ("> S seq 1  SYN_SENT inv unreplied", ("SYN_SENT", "new", "unreplied")),
        ("> S seq 1  SYN_SENT new 121s unreplied", ("SYN_SENT", "new", "unreplied", 120)),
        ("+5s  SYN_SENT live", ("gone", "swept")),
    ],
)
def test_what_goes_otherwise_is_told(line, seen, tmp_path):
    script = tmp_path / "script.txt"
    script.write_text(line)
    assert [difference.seen for difference in scripts.run(script, 4)] == [seen]
