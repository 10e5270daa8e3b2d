"""The library that waits: its connection goes on after an error, is over after nonsense, and it imports next to nothing."""

import json
import subprocess
import sys

import peer
import pytest
from zonetrack.clients import errors
from zonetrack.clients.sync import connect

HEAVY = {"numba", "numpy", "rich", "asyncio", "click", "uvloop", "llvmlite"}


@pytest.fixture
def socket(tmp_path):
    path = str(tmp_path / "s")
    with peer.running(path):
        yield path


def test_one_connection_for_many_requests(socket):
    with connect(socket) as ct:
        assert [ct.count(zone=zone) for zone in range(3)] == [20, 20, 20]
        with pytest.raises(errors.ForbiddenError):
            ct.call("fail", {"code": "forbidden"})
        with pytest.raises(errors.LocalProtocolError):
            ct.call("count", {"zone": object()})
        assert ct.hello() == {"method": "hello", "params": {}}


def test_a_dump_may_be_left_in_the_middle(socket):
    with connect(socket) as ct:
        for connection in ct.connections():
            if connection["id"] == 3:
                break
        assert ct.count() == 20


@pytest.mark.parametrize("method", ["nonsense", "stranger", "half", "silence"])
def test_what_cannot_be_believed_any_more_is_closed(socket, method):
    with connect(socket, timeout_s=0.05) as ct:
        with pytest.raises((errors.RemoteProtocolError, errors.TookTooLongError)):
            ct.call(method, {})
        with pytest.raises(errors.NoServiceError, match="the connection is closed"):
            ct.count()


def test_an_answer_after_its_time_belongs_to_nobody(socket):
    with connect(socket, timeout_s=0.05) as ct:
        with pytest.raises(errors.TookTooLongError):
            ct.call("later", {})
        with pytest.raises(errors.NoServiceError):
            ct.count()


def test_closed_is_closed(socket):
    ct = connect(socket)
    ct.close()
    ct.close()
    with pytest.raises(errors.NoServiceError):
        ct.count()


def test_a_service_that_has_died_hung_up(tmp_path):
    path = str(tmp_path / "s")
    with peer.running(path) as process:
        ct = connect(path)
        assert ct.count() == 20
        process.kill()
        process.wait()
    with ct, pytest.raises(errors.RemoteProtocolError, match="the service hung up"):
        ct.count()
    with pytest.raises(errors.NoServiceError, match="Connection refused"):
        connect(path)


def test_the_environment_says_where(socket, monkeypatch):
    monkeypatch.setenv("ZONETRACK_SOCKET", socket)
    with connect() as ct:
        assert ct.count() == 20


def imported_by(statements):
    """Return the modules that a fresh interpreter has after some statements."""
    script = f"{statements}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_it_imports_next_to_nothing(socket):
    """Numpy comes with the first dump, and not before."""
    before = imported_by("")
    after = imported_by("from zonetrack.clients import sync")
    assert not after & HEAVY
    assert {name for name in after - before if name.startswith("zonetrack.")} <= {
        *("zonetrack.clients", "zonetrack.clients.sync", "zonetrack.clients.methods", "zonetrack.clients.pages"),
        *("zonetrack.clients.session", "zonetrack.clients.wire", "zonetrack.clients.framing"),
        *("zonetrack.clients.errors", "zonetrack.clients.address", "zonetrack.clients.filters"),
        *("zonetrack.clients.connections", "zonetrack.clients.events", "zonetrack.clients.nearest"),
    }
    used = imported_by(f"from zonetrack.clients.sync import connect\nct = connect({socket!r})\nlist(ct.connections())")
    assert not used & HEAVY
    assert "numpy" in imported_by(f"from zonetrack.clients.sync import connect\nconnect({socket!r}).dump()")


# ------------------------------------------------------------------------------------------------ events
def test_events_until_one_has_seen_enough(socket):
    with connect(socket) as ct:
        told = []
        for event in ct.events(["new", "destroy"], zone=5):
            told.append((event["event"], event["sequence"]))
            if event["event"] == "destroy":
                break
        assert told == [("new", 5), ("update", 6), ("gap", 9), ("destroy", 9)]
        assert ct.count() == 20


def test_batches_of_events_and_requests_between_them(socket):
    with connect(socket) as ct:
        batches = ct.event_batches()
        first = next(batches)
        assert (first.count, first.lost, first.sequence) == (0, 0, 4)
        assert ct.count() == 20  # what comes meanwhile is kept
        assert [(batch.lost, batch.array()["sequence"].tolist()) for batch in (next(batches), next(batches))] == [
            (0, [5, 6]),
            (2, [9]),
        ]
        batches.close()
        assert ct.count() == 20


def test_events_that_do_not_come(socket):
    with connect(socket) as ct:
        events = ct.events(timeout_s=0.05)
        assert [next(events)["event"] for _ in range(4)] == ["new", "update", "gap", "destroy"]
        with pytest.raises(errors.TookTooLongError, match=r"nothing happened in 0\.05 s"):
            next(events)
        assert ct.count() == 20


def test_a_service_that_goes_away_while_one_waits(tmp_path):
    with peer.running(tmp_path / "s") as process, connect(str(tmp_path / "s")) as ct:
        events = ct.events()
        assert [next(events)["event"] for _ in range(4)][-1] == "destroy"
        process.kill()
        with pytest.raises(errors.NoServiceError):
            next(events)
