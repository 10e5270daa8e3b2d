"""zonetrack stop where keeper and control are dead: who is left ends in order, and the table is put away, or discarded."""

import json
import os
import signal

import pytest
from desk import run
from outliving import Traffic, all_ended, ends, processes
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.service import audit
from zonetrack.shm import estate, port, roster, segment
from zonetrack.shm.errors import Missing
from zonetrack.shm.layout import Kind, SegmentState


@pytest.fixture
def left(tmp_path):
    """A service of which only its workers are left, with connections."""
    with Service(tmp_path, "--max-connections", 2000, "--workers", 2, "--port", "shm:lab,queues=2") as service:
        service.until_ready()
        traffic = Traffic(service)
        traffic.asked()
        (control,) = processes(service)[Kind.CONTROL]
        gone = ends([control])
        service.kill_keeper()
        os.kill(control, signal.SIGKILL)
        assert all_ended(gone)
        yield service
        traffic.close()


def test_who_is_left_ends_in_order_and_the_table_is_kept(left, tmp_path):
    workers = processes(left)[Kind.WORKER]
    still = ends(workers)
    code, out, _ = run("stop", "--socket", left.socket)
    assert (code, [int(word) for word in out.replace(",", "").split() if word.isdecimal()]) == (
        Exit.OK,
        sorted(workers),
    )
    assert all_ended(still) and estate.members(left.instance) == []
    assert not os.path.exists(left.socket) and port.names(left.instance) == []
    with segment.attach(left.instance, sealed=True) as found:
        assert found.state is SegmentState.SEALED
        assert roster.present(found.table) == []
        assert audit.at_rest(found.table) is None
    with Service(tmp_path, instance=left.instance) as again:
        again.until_ready()
        with again.ask() as ct:
            assert ct.count() == 400
    # and now nobody is left
    code, _, err = run("stop", "--socket", left.socket)
    assert code == Exit.NO_SERVICE and "no service answers" in err


def test_the_table_is_discarded_if_asked(left):
    workers = processes(left)[Kind.WORKER]
    told = json.loads(run("stop", "--socket", left.socket, "--unlink", "--json").out)
    assert told == {"stopped": True, "unlinked": True, "orphans": sorted(workers)}
    with pytest.raises(Missing):
        segment.attach(left.instance, sealed=True)


def test_those_of_another_socket_are_left_alone(left, tmp_path):
    assert run("stop", "--socket", tmp_path / "other").code == Exit.NO_SERVICE
    assert processes(left).keys() >= {Kind.WORKER}
