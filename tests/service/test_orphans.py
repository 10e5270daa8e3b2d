"""Workers outlive their keeper: they go on with their packets, and the next keeper adopts them, or ends them."""

import contextlib
import os
import signal

import ports
import pytest
from desk import run
from manager import Manager
from outliving import FLOWS, Traffic, all_ended, ends, processes
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.service import audit, orphans
from zonetrack.service.config import Config
from zonetrack.shm import estate, roster
from zonetrack.shm.layout import CtState, Kind

SHAPE = ("--workers", 2, "--port", "shm:lab,queues=2")


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as started:

        def start(*flags, **more):
            return started.enter_context(Service(tmp_path, "--max-connections", 2000, *flags, **more))

        yield start


def test_packets_are_answered_without_a_keeper_and_the_next_adopts(serve):
    first = serve(*SHAPE).until_ready()
    traffic = Traffic(first)
    assert (traffic.asked() & CtState.NEW).all()
    before = processes(first)
    first.kill_keeper()
    # nobody keeps: workers track, control answers
    assert (traffic.answered() & CtState.EST).all()
    with first.ask() as ct:
        assert ct.count() == 2 * FLOWS
        assert ct.hello()["keeper"] in before[Kind.CONTROL]
    second = serve(*SHAPE, after=first).until_ready()
    assert second.hear("adopted")["children"] == sorted(before[Kind.WORKER] | before[Kind.CONTROL])
    assert processes(second) == before
    assert (traffic.asked() & CtState.EST).all()
    with second.ask() as ct:
        assert (ct.count(), ct.hello()["keeper"]) == (2 * FLOWS, second.pid)
        lines = ct.workers()
    assert {line["pid"] for line in lines} == before[Kind.WORKER]
    # who is killed now is followed, on the same queues
    os.kill(lines[0]["pid"], signal.SIGKILL)
    assert second.hear(f"(pid {lines[0]['pid']})")["text"].startswith("worker 0")
    second.hear("worker 0 is ready")
    assert (traffic.asked() & CtState.EST).all()
    (control,) = before[Kind.CONTROL]
    os.kill(control, signal.SIGKILL)
    second.hear("control is ready")
    with second.ask() as ct:
        assert ct.count() == 2 * FLOWS
        assert ct.audit()["broken"] is None
    traffic.close()
    left = ends([pid for pids in processes(second).values() for pid in pids])
    assert second.stop() == Exit.OK
    assert all_ended(left) and estate.members(second.instance) == []
    assert audit.at_rest(second.table) is None
    assert not os.path.exists(second.socket)


def test_who_was_killed_in_the_gap_is_followed(serve):
    first = serve(*SHAPE).until_ready()
    traffic = Traffic(first)
    traffic.asked()
    traffic.answered()
    with first.ask() as ct:
        lines = ct.workers()
    first.kill_keeper()
    gone = ends([lines[1]["pid"]])
    os.kill(lines[1]["pid"], signal.SIGKILL)
    all_ended(gone)
    assert (traffic.through(0, ports.datagrams(FLOWS)) & CtState.EST).all()
    second = serve(*SHAPE, after=first).until_ready()
    assert (traffic.answered() & CtState.EST).all()
    with second.ask() as ct:
        assert ct.workers()[0]["pid"] == lines[0]["pid"]
        assert ct.count() == 2 * FLOWS
    traffic.close()
    assert second.stop() == Exit.OK


def test_zonetrack_stop_ends_those_whose_keeper_is_dead(serve):
    first = serve(*SHAPE, "--fresh").until_ready()
    Traffic(first).asked()
    left = ends([pid for pids in processes(first).values() for pid in pids])
    first.kill_keeper()
    assert run("stop", "--socket", first.socket) == (Exit.OK, "stopped\n", "")
    assert all_ended(left)
    assert estate.members(first.instance) == [] and roster.present(first.table) == []
    assert audit.at_rest(first.table) is None  # and kept, with all that was in it
    assert not os.path.exists(first.socket)


@pytest.mark.parametrize("flags", [("--fresh", *SHAPE), ("--workers", 1, "--port", "shm:lab,queues=2")], ids=str)
def test_who_cannot_be_adopted_is_ended(serve, flags):
    first = serve(*SHAPE).until_ready()
    left = ends([pid for pids in processes(first).values() for pid in pids])
    first.kill_keeper()
    second = serve(*flags, after=first).until_ready()
    assert all_ended(left)
    traffic = Traffic(second)
    assert (traffic.asked() & CtState.NEW).all()
    traffic.close()
    assert second.stop() == Exit.OK
    assert estate.members(first.instance) == []


def test_one_after_another_is_replaced_on_restart(serve):
    service = serve(*SHAPE, "--fresh").until_ready()
    traffic = Traffic(service)
    traffic.asked()
    before = processes(service)
    with service.ask() as ct:
        assert ct.restart() == {"keeper": service.pid}
    service.hear("adopted")
    for name in ("worker 0", "worker 1", "control"):
        assert service.hear("makes way")["text"].startswith(name)
        service.hear(f"{name} is ready")
    after = processes(service)
    assert not (after[Kind.WORKER] | after[Kind.CONTROL]) & (before[Kind.WORKER] | before[Kind.CONTROL])
    assert (traffic.answered() & CtState.EST).all()
    with service.ask() as ct:
        assert ct.count() == 2 * FLOWS
        assert ct.hello()["keeper"] == service.pid
    traffic.close()
    assert service.stop() == Exit.OK


def test_a_keeper_that_is_told_to_leave_leaves_the_others(serve):
    first = serve(*SHAPE).until_ready()
    traffic = Traffic(first)
    before = processes(first)
    first.send(signal.SIGUSR2)
    assert first.process.wait() == Exit.OK
    assert (traffic.asked() & CtState.NEW).all()
    second = serve(*SHAPE, after=first).until_ready()
    assert processes(second) == before
    traffic.close()
    assert second.stop() == Exit.OK


def test_nobody_is_left_of_who_is_kept(serve):
    service = serve(*SHAPE).until_ready()
    assert orphans.of(service.instance) is None
    assert len(estate.members(service.instance)) == 4


def test_what_has_to_be_the_same():
    config = Config(instance="x", workers=2)
    told = orphans.about(config)
    assert told["shape"]["workers"] == 2 and "hang_ms" in told["live"] and "workers" not in told["live"]
    assert told["program"] == orphans.program()


def test_who_does_not_end_in_order_is_killed(serve, monkeypatch):
    monkeypatch.setattr(orphans, "GRACE_S", 1.0)
    service = serve(*SHAPE).until_ready()
    pid = service.workers()[0]
    os.kill(pid, signal.SIGSTOP)
    service.kill_keeper()
    (pidfd,) = ends([pid])
    left = orphans.of(service.instance)
    orphans.end(left, 0.0)
    assert all_ended([pidfd])
    assert orphans.of(service.instance) is None


def test_where_all_have_died_the_next_takes_up_what_the_manager_has_kept(serve, tmp_path):
    """Ports, their rings and cursors, and the socket: a client goes on with the queue that it has, and loses nothing."""
    with Manager(tmp_path) as manager:
        environment = {"NOTIFY_SOCKET": manager.path}
        first = serve(*SHAPE, environment=environment).until_ready()
        manager.until("READY")
        assert {"estate", "queues", "door", "port.lab.0"} <= manager.kept.keys()
        with first.ask() as ct:
            ct.timeouts.set("default", {"udp": 3600, "udp_stream": 3600})
        traffic = Traffic(first)
        assert (traffic.asked() & CtState.NEW).all()
        everybody = [member.pid for member in estate.members(first.instance) if member.pid != os.getpid()]
        left = ends(everybody)
        for pid in everybody:
            os.kill(pid, signal.SIGKILL)
        assert all_ended(left)
        first.process.wait()
        second = serve(
            *SHAPE, environment=environment, instance=first.instance, through=manager.hand_over()
        ).until_ready()
        assert second.hear("took up what was kept")["descriptors"] == len(manager.kept) - 1
        assert (traffic.answered() & CtState.EST).all()
        with second.ask() as ct:
            assert ct.count() == 2 * FLOWS and ct.audit()["broken"] is None
        # a restart hands over what lives: what the manager gives beside that is closed
        manager.until("READY")
        second.kill_keeper()
        third = serve(*SHAPE, environment=environment, after=second, through=manager.hand_over()).until_ready()
        manager.until("READY")
        assert (traffic.asked() & CtState.EST).all()
        traffic.close()
        assert third.stop() == Exit.OK
        manager.until("STOPPING")
        while manager.kept:
            manager.until("FDSTOREREMOVE")


def test_what_the_manager_has_kept_of_another_shape_is_left(serve, tmp_path):
    with Manager(tmp_path) as manager:
        environment = {"NOTIFY_SOCKET": manager.path}
        first = serve(*SHAPE, environment=environment).until_ready()
        manager.until("READY")
        everybody = [member.pid for member in estate.members(first.instance) if member.pid != os.getpid()]
        left = ends(everybody)
        for pid in everybody:
            os.kill(pid, signal.SIGKILL)
        assert all_ended(left)
        first.process.wait()
        flags = ("--workers", 1, "--port", "shm:other")
        second = serve(
            *flags, environment=environment, instance=first.instance, through=manager.hand_over()
        ).until_ready()
        manager.until("READY")
        assert "port.other.0" in manager.kept and "port.lab.0" not in manager.kept
        with second.ask() as ct:
            assert [port["name"] for port in ct.ports()] == ["other"]
        assert second.stop() == Exit.OK
