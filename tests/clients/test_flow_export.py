"""Which flows are told, when, and how much of them: no octet twice, none left out."""

import numpy as np
import pytest
from zonetrack.clients.connections import TCP_STATES
from zonetrack.clients.flow_export import REASONS, Told
from zonetrack.clients.ipfix import EndReason
from zonetrack.shm.layout import CONNECTION, EVENT_ROW, End

ENDS = [end.name.lower() for end in End]
ACTIVE_MS, IDLE_MS = 60_000, 15_000
BEGAN_MS = 1_000_000


def table(**packets):
    """Return a dump in which connection ``c3`` has sent so many packets of 100 octets."""
    rows = np.zeros(len(packets), CONNECTION)
    for row, (name, count) in zip(rows, packets.items(), strict=True):
        row["id"], row["start_ms"] = int(name[1:]), BEGAN_MS
        row["packets"], row["bytes"] = (count, 1), (100 * count, 50)
    return rows


def destroyed(number, count, end=End.EXPIRED, protocol=17, state=0):
    rows = np.zeros(1, EVENT_ROW)
    rows["id"], rows["packets"], rows["bytes"], rows["end"] = number, (count, 1), (100 * count, 50), end
    rows["protocol"], rows["state"], rows["time_ms"] = protocol, state, BEGAN_MS + 99_000
    return rows


def told_of(flows):
    return [
        (int(row["id"]), packets, octets, EndReason(int(reason)).name)
        for row, packets, octets, reason in zip(
            flows.rows, flows.packets.tolist(), flows.octets.tolist(), flows.reasons, strict=True
        )
    ]


@pytest.fixture
def told():
    return Told(ACTIVE_MS, IDLE_MS)


def look(told, rows, now_ms, sequence=1, heard=1):
    """Take in a dump, all of which has been heard of."""
    return told.look(rows, now_ms, sequence, heard)


def test_a_short_connection_is_told_at_its_end(told):
    flows = told.end(destroyed(1, 5), ENDS)
    assert told_of(flows) == [(1, [5, 1], [500, 50], "IDLE")] and flows.ends_ms.tolist() == [BEGAN_MS + 99_000]
    assert len(told) == 0


def test_a_long_one_is_told_in_between_and_the_rest_at_its_end(told):
    assert told_of(look(told, table(c1=5), BEGAN_MS + 10_000)) == []
    assert told_of(look(told, table(c1=7), BEGAN_MS + 61_000)) == [(1, [7, 1], [700, 50], "ACTIVE")]
    assert told_of(look(told, table(c1=9), BEGAN_MS + 70_000)) == []
    assert told_of(told.end(destroyed(1, 12), ENDS)) == [(1, [5, 0], [500, 0], "IDLE")]


def test_a_silent_one_is_told_once_until_it_goes_on(told):
    assert told_of(look(told, table(c1=5, c2=5), BEGAN_MS + 1000)) == []
    assert told_of(look(told, table(c1=5, c2=6), BEGAN_MS + 17_000)) == [(1, [5, 1], [500, 50], "IDLE")]
    assert told_of(look(told, table(c1=5, c2=7), BEGAN_MS + 33_000)) == []
    assert told_of(look(told, table(c1=8, c2=8), BEGAN_MS + 61_500)) == [(2, [8, 1], [800, 50], "ACTIVE")]
    assert told_of(look(told, table(c1=8, c2=8), BEGAN_MS + 90_000)) == [(1, [3, 0], [300, 0], "IDLE")]


def test_what_is_gone_is_forgotten(told):
    look(told, table(c1=5, c2=5), BEGAN_MS)
    look(told, table(c2=5), BEGAN_MS + 1)
    assert len(told) == 1


@pytest.mark.parametrize("end", End)
def test_each_end_has_its_reason(told, end):
    (flow,) = told_of(told.end(destroyed(1, 1, end), ENDS))
    assert flow[3] == REASONS[end.name.lower()].name


@pytest.mark.parametrize(("state", "reason"), [("TIME_WAIT", "ENDED"), ("CLOSE", "ENDED"), ("ESTABLISHED", "IDLE")])
def test_tcp_that_its_hosts_have_ended_did_not_just_go_silent(told, state, reason):
    (flow,) = told_of(told.end(destroyed(1, 1, protocol=6, state=TCP_STATES.index(state)), ENDS))
    assert flow[3] == reason


def test_a_beginning_is_told_with_nothing_gone(told):
    flows = told.begin(destroyed(1, 1))
    assert (flows.packets.tolist(), flows.reasons.tolist()) == ([[0, 0]], [0])


def test_of_one_that_a_dump_has_not_any_more_the_rest_is_told_when_its_end_is_heard_of(told):
    look(told, table(c1=7), BEGAN_MS + 61_000, 5, 5)
    look(told, table(), BEGAN_MS + 76_000, 9, 5)  # its end has the number 8, and waits
    look(told, table(), BEGAN_MS + 91_000, 9, 7)
    assert told_of(told.end(destroyed(1, 12), ENDS)) == [(1, [5, 0], [500, 0], "IDLE")]
    look(told, table(), BEGAN_MS + 106_000, 9, 9)
    assert len(told) == 0


def test_a_successor_tells_the_rest(told):
    look(told, table(c1=7, c2=3), BEGAN_MS + 61_000)
    look(told, table(c1=9, c2=3, c3=1), BEGAN_MS + 62_000)
    successor = Told(ACTIVE_MS, IDLE_MS)
    successor.take_up(told.rows())
    assert told_of(successor.end(destroyed(2, 4), ENDS)) == [(2, [1, 0], [100, 0], "IDLE")]
    assert told_of(look(successor, table(c1=9, c3=1), BEGAN_MS + 63_000)) == []
    assert told_of(look(successor, table(c1=10, c3=1), BEGAN_MS + 122_000)) == [(1, [3, 0], [300, 0], "ACTIVE")]
