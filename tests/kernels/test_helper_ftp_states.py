"""The rows by which a line of FTP is read: each does what it says, and what is not listed is wrong."""

import numpy as np
import pytest
from zonetrack.kernels import helper_ftp
from zonetrack.kernels.helper_ftp_states import ACTION, CLASSES, PATTERNS, ROWS, THEN, Action, Class, Phase
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FTP_STATE


def read(text, reply, family=4):
    """Read a line to where it is over; returns the phase, the value and the port."""
    record = np.zeros(1, FTP_STATE)
    state = record.view(np.recarray)[0]
    state.patterns = 3 | reply << 7
    for character in text:
        phase = Phase(int(helper_ftp.step(state, u64(reply), u64(character), u64(family))))
        if phase >= Phase.DONE:
            break
    return phase, bytes(record["value"][0]), int(record["port"][0])


def test_rows_are_literals_that_later_ones_override():
    last = {(row.phase, kind): row for row in ROWS for kind in row.kinds}
    for phase in Phase:
        for kind in Class:
            row = last.get((phase, kind))
            assert THEN[phase, kind] == (row.to if row else Phase.WRONG)
            assert ACTION[phase, kind] == (row.action if row else Action.NOTHING)


def test_every_phase_and_action_is_used():
    ends = {Phase.BEGINNING, Phase.DONE, Phase.WRONG, Phase.OTHER}
    assert {row.phase for row in ROWS} == set(Phase) - ends
    reached = {row.to for row in ROWS} | {pattern.then for pattern in PATTERNS}
    assert reached | {Phase.EPRT_FAMILY6_END} == set(Phase) - {Phase.BEGINNING, Phase.WRONG, Phase.OTHER}
    assert {row.action for row in ROWS} == set(Action)


def test_no_line_goes_on_behind_its_end():
    assert all(
        THEN[phase, Class.NEWLINE]
        in (
            Phase.WRONG,
            Phase.DONE,
            *(
                (Phase.EPRT_FAMILY, Phase.EPSV_DELIMITER2)
                if phase in (Phase.EPRT_DELIMITER, Phase.EPSV_DELIMITER)
                else ()
            ),
        )
        for phase in Phase
    )


def test_characters():
    assert [Class(int(CLASSES[ord(c)])).name for c in "7fF ,.:(\r\n|gG"] == [
        *("DIGIT", "HEX", "HEX", "SPACE", "COMMA", "DOT", "COLON", "PARENTHESIS", "RETURN", "NEWLINE"),
        *("OTHER", "OTHER", "OTHER"),
    ]


@pytest.mark.parametrize(
    ("text", "reply", "family", "value", "port"),
    [
        (b"PORT 1,2,3,4,5,6\r", 0, 4, bytes([1, 2, 3, 4, 5, 6]), 0x0506),
        (b"pOrT ,,,,,\r", 0, 4, bytes(6), 0),
        (b"EPRT |1|1.2.3.4|99|", 0, 4, bytes([1, 2, 3, 4]), 99),
        (b"EPRT |2|1:22:333:4444::8|65535|", 0, 6, bytes.fromhex("0001002203334444") + bytes(6) + b"\0\x08", 65535),
        (b"EPRT |2|::|1|", 0, 6, bytes(16), 1),
        (b"EPRT |2|1:2:3:4:5:6:7:8|1|", 0, 6, bytes.fromhex("00010002000300040005000600070008"), 1),
        (b"227 x1,2,3,4,5,6.", 1, 4, bytes([1, 2, 3, 4, 5, 6]), 0x0506),
        (b"229 (|||77|", 1, 4, b"", 77),
    ],
)
def test_lines_that_are_whole(text, reply, family, value, port):
    phase, got, got_port = read(text, reply, family)
    assert phase is Phase.DONE and got.startswith(value) and got_port == port


@pytest.mark.parametrize(
    ("text", "family"),
    [
        (b"EPRT |2|1:2:3|1|", 6),
        (b"EPRT |2|1::2::3|1|", 6),
        (b"EPRT |2|1:2:3:4:5:6:7:8:9|1|", 6),
        (b"EPRT |2|1:2:3:4:5:6:7::8|1|", 6),
        (b"EPRT |2|12345::|1|", 6),
        (b"EPRT |2|:1|1|", 6),
        (b"EPRT |2|1:|1|", 6),
        (b"EPRT |1|1.2.3.4|1|", 6),
        (b"EPRT |2|::1|1|", 4),
        (b"EPRT 1", 4),
        (b"EPRT \n", 4),
        (b"EPRT |1|1.2.3.256|", 4),
    ],
)
def test_lines_that_are_wrong(text, family):
    assert read(text, 0, family)[0] is Phase.WRONG


def test_a_line_that_begins_otherwise_is_another():
    for reply, texts in enumerate(((b"PORA", b"EPST", b"\r", b"P\n"), (b"227-", b"228", b"3"))):
        assert {read(text, reply)[0] for text in texts} == {Phase.OTHER}
