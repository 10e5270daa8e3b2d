"""Lines of packets: JSON with every digit of the time, text with the same words."""

import json

import numpy as np
import pytest
from zonetrack.service import packets
from zonetrack.shm.layout import NO_RECORD, VERDICT, CtState, VerdictFlag, Way
from zonetrack.shm.reasons import Reason

TIMES = np.array([1_500_000_000, 1_767_225_600_123_456_789, 2_000_000_000, 0], "u8")


def verdicts():
    made = np.zeros(4, VERDICT)
    made["zone"] = 7
    made["record"] = NO_RECORD
    made[0]["ct_state"], made[0]["flags"] = CtState.TRK | CtState.NEW, VerdictFlag.COMMITTED
    made[0]["record"], made[0]["incarnation"] = 17, 2
    made[1]["ct_state"], made[1]["direction"] = CtState.TRK | CtState.EST | CtState.RPL, Way.REPLY
    made[1]["flags"], made[1]["record"], made[1]["incarnation"] = VerdictFlag.ASSURED, 17, 2
    made[2]["ct_state"], made[2]["reason"] = CtState.TRK | CtState.INV, Reason.L4CSUM_ERR
    made[3]["record"] = 0  # nobody wrote it
    return made


def test_json_lines():
    lines = list(packets.json_lines('a "b".pcap', TIMES, verdicts(), 5))
    assert [json.loads(line) for line in lines] == [
        {"file": 'a "b".pcap', "n": 5, "time": 1.5, "zone": 7, "ct_state": ["trk", "new"], "direction": "orig"}
        | {"assured": False, "reason": None, "label": "N>", "id": 2 << 32 | 17},
        {"file": 'a "b".pcap', "n": 6, "time": 1767225600.123456789, "zone": 7, "ct_state": ["trk", "est", "rpl"]}
        | {"direction": "reply", "assured": True, "reason": None, "label": "E<a", "id": 2 << 32 | 17},
        {"file": 'a "b".pcap', "n": 7, "time": 2.0, "zone": 7, "ct_state": ["trk", "inv"], "direction": None}
        | {"assured": False, "reason": "l4csum_err", "label": "I", "id": None},
        {"file": 'a "b".pcap', "n": 8, "time": 0.0, "zone": 7, "ct_state": [], "direction": None}
        | {"assured": False, "reason": None, "label": None, "id": None},
    ]
    assert '"time": 1767225600.123456789,' in lines[1]


def test_text_lines_stand_below_their_heading():
    lines = list(packets.text_lines(TIMES, verdicts(), 1))
    assert [line.split() for line in lines] == [
        ["1", "1.5", "7", "N>", "trk|new", "-", str(2 << 32 | 17)],
        ["2", "1767225600.123456789", "7", "E<a", "trk|est|rpl", "-", str(2 << 32 | 17)],
        ["3", "2.0", "7", "I", "trk|inv", "l4csum_err", "-"],
        ["4", "0.0", "7", "-", "-", "-", "-"],
    ]
    for column in ("label", "ct_state", "reason", "id"):
        at = packets.HEADING.index(column)
        assert all(line[at] != " " and line[at - 1] == " " for line in lines)


def test_labels_are_those_of_the_profile():
    lines = packets.json_lines("x", TIMES, verdicts(), 1, "ovs")
    assert [json.loads(line)["label"] for line in lines] == ["new", "est|rpl", "inv", None]
    lines = packets.text_lines(TIMES, verdicts(), 1, "ovs")
    assert [line.split()[3] for line in lines] == ["new", "est|rpl", "inv", "-"]


@pytest.mark.parametrize(
    ("time_ns", "text"), [(0, "0.0"), (1, "0.000000001"), (10**9, "1.0"), (10**9 + 10**8, "1.1"), (2**64 - 1, None)]
)
def test_seconds(time_ns, text):
    assert packets.seconds(time_ns) == (text or "18446744073.709551615")
