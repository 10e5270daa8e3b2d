import json
from pathlib import Path

import pytest
import segments
import tracker
from zonetrack.shm.layout import Status
from zonetrack.shm.reasons import Reason

OTHER = json.loads((Path(__file__).parents[1] / "data" / "netfilter-other-matrix.json").read_text())
PAIRS = [(4, *pair) for pair in OTHER["icmp4_pairs"]]


@pytest.mark.parametrize("family", [4, 6])
def test_only_requests_open_as_in_the_live_kernel(family):
    for kind, verdict, _ in OTHER[f"icmp{family}_first"]:
        if verdict == "UNTRACKED":
            continue  # the parser's
        seen = tracker.Tracker().track(segments.query("c", kind, family))
        assert seen.label == ("N>" if verdict.startswith("NEW") else "I"), kind
        if seen.label == "N>":
            assert (seen.state, seen.timeout_s, seen.unreplied) == ("UNREPLIED", 30, True)
        else:
            assert seen.reason is Reason.ICMP_UNMATCHED


@pytest.mark.parametrize(("family", "request_type", "answer_type"), [pair[:3] for pair in PAIRS] + [(6, 128, 129)])
def test_request_and_answer(family, request_type, answer_type):
    world = tracker.Tracker()
    assert world.track(segments.query("c", request_type, family)).label == "N>"
    assert world.track(segments.query("c", request_type, family)).label == "N>"
    assert world.track(segments.query("s", answer_type, family))[:4] == ("E<", "REPLIED", 30, False)
    assert world.track(segments.query("s", answer_type, family)).label == "E<"  # answers come twice at times
    world.now_ms += 10_000
    assert world.track(segments.query("c", request_type, family))[:4] == ("E>", "REPLIED", 30, False)


@pytest.mark.parametrize(("quoted", "label"), [("c", "R<"), ("s", "R>")])
def test_an_error_travels_against_what_it_quotes(quoted, label):
    world = tracker.Tracker()
    packets = {side: segments.flow(side) for side in "cs"}
    world.track(packets["c"])
    world.track(packets["s"])
    assert world.track(segments.error("s" if quoted == "c" else "c", packets[quoted])).label == label


def test_an_error_changes_nothing():
    world = tracker.Tracker()
    syn = segments.tcp("c", "S", 1000)
    world.track(syn)
    (connection,) = world.table.values()
    before = connection.record.tobytes()
    world.now_ms += 5000
    seen = world.track(segments.error("s", syn))
    assert seen == ("R<", "SYN_SENT", 115, False, True, Reason.NONE)
    assert connection.record.tobytes() == before


def test_an_error_tells_of_an_assured_connection():
    world = tracker.Tracker()
    packet = segments.flow("c")
    world.track(packet)
    (connection,) = world.table.values()
    connection.entry["status"] |= Status.ASSURED
    assert world.track(segments.error("s", packet)).label == "R<a"


def test_an_error_about_nothing_known():
    assert tracker.Tracker().track(segments.error("s", segments.flow("c"))).reason is Reason.ICMP_UNMATCHED
