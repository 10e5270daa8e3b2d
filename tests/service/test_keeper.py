"""The keeper as a real process with real children."""

import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from eventually import until
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.service import privileges
from zonetrack.shm import roster
from zonetrack.shm.layout import GLOBAL, PARTICIPANT, QUOTA, Kind, Region, SegmentState, Step
from zonetrack.shm.port import names
from zonetrack.shm.segment import attach


@pytest.fixture
def serve(tmp_path):
    """Return a function that starts a service, which is taken away after the test."""
    started = []

    def start(*flags, **more):
        started.append(Service(tmp_path, "--max-connections", 2000, *flags, **more))
        return started[-1]

    yield start
    for service in started:
        service.close()


def test_a_service_from_start_to_end(serve):
    service = serve("--workers", 2, "--port", "shm:lab,queues=3").until_ready()
    assert service.about["pid"] == service.pid
    assert service.about["socket"] == service.socket and os.path.exists(service.socket)
    assert (service.about["workers"], service.about["ports"], service.about["connections"]) == (2, {"lab": 3}, 2000)
    kinds = [place.kind for place in roster.present(service.table)]
    assert kinds.count(Kind.WORKER) == 2 and Kind.CONTROL in kinds
    assert service.stop() == Exit.OK
    assert [line for line in service.log if line["level"] in ("warning", "error")] == []
    assert not os.path.exists(service.socket)
    assert names(service.instance) == []
    assert roster.present(service.table) == []
    assert attach(service.instance, sealed=True).state == SegmentState.SEALED


def test_as_many_workers_and_queues_as_there_may_be(serve):
    service = serve("--workers", 128, "--port", "shm:lab,queues=1024,slots=4").until_ready()
    assert len(service.workers()) == 128
    assert service.stop() == Exit.OK


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_whoever_hears_strangers_has_no_more_rights_than_it_needs(serve):
    service = serve("--port", "shm:lab").until_ready()
    held = {}
    for place in roster.present(service.table):
        status = Path(f"/proc/{place.pid}/status").read_text()
        effective, no_new = (status.partition(f"\n{name}:\t")[2].splitlines()[0] for name in ("CapEff", "NoNewPrivs"))
        held[place.kind] = (int(effective, 16) & ~sum(1 << one for one in privileges.OF_WORKERS), no_new)
        assert place.kind is Kind.WORKER or int(effective, 16) == 0
    assert held[Kind.WORKER] == held[Kind.CONTROL] == (0, "1")
    assert service.stop() == Exit.OK


def test_a_service_manager_hears_that_it_is_ready_and_at_it(serve, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(300)
        service = serve(environment={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"})
        heard = set()
        while not {"READY=1", "WATCHDOG=1"} <= heard:
            heard |= set(manager.recv(4096).decode().splitlines())
        assert f"MAINPID={service.pid}" in heard
        service.send(signal.SIGTERM)
        while "STOPPING=1" not in heard:
            heard |= set(manager.recv(4096).decode().splitlines())
    assert service.wait() == Exit.OK


def test_metrics_are_where_they_were_when_control_is_started_again(serve):
    service = serve(environment={"ZONETRACK_METRICS_LISTEN": "127.0.0.1:0"}).until_ready()
    url = f"http://{service.about['metrics']}/metrics"
    for _ in range(2):
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert f'name="{service.instance}"' in answer.read().decode()
        control = next(place.pid for place in roster.present(service.table) if place.kind is Kind.CONTROL)
        os.kill(control, signal.SIGKILL)  # whoever asks meanwhile waits until it is back
    assert service.stop() == Exit.OK


def test_an_address_that_is_taken_is_told_at_the_start(serve):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        service = serve(environment={"ZONETRACK_METRICS_LISTEN": address})
        assert service.wait() == Exit.FAILED
    assert f"metrics.listen: {address} cannot be listened on: Address already in use" in service.log[-1]["text"]


def test_a_second_service_is_refused_with_the_pid_of_the_first(serve):
    first = serve("--port", "shm:lab").until_ready()
    second = serve("--fresh", "--port", "shm:lab", instance=first.instance)
    assert second.process.wait() == Exit.FAILED
    assert f"process {first.pid}" in second.process.stderr.read().decode()
    assert names(first.instance) == ["lab"]
    assert first.stop() == Exit.OK


def test_the_table_is_kept_unless_it_shall_be_fresh(serve):
    first = serve().until_ready()
    first.table.array(Region.CONTROL, "globals", GLOBAL)["zone_limit_default"] = 77
    first.stop()
    second = serve(instance=first.instance).until_ready()
    assert second.table.array(Region.CONTROL, "globals", GLOBAL)["zone_limit_default"][0] == 77
    second.stop()
    third = serve("--fresh", instance=first.instance).until_ready()
    assert third.table.array(Region.CONTROL, "globals", GLOBAL)["zone_limit_default"][0] != 77


@pytest.mark.parametrize("kind", [Kind.WORKER, Kind.CONTROL])
def test_who_is_killed_is_started_again(serve, kind):
    service = serve("--workers", 2).until_ready()
    before = {place.pid: place.kind for place in roster.present(service.table)}
    (victim, *_) = [pid for pid, what in before.items() if what is kind]
    os.kill(victim, signal.SIGKILL)
    name = kind.name.lower()
    line = service.hear("was killed by SIGKILL")
    assert line["text"].startswith(name) and line["restarts"] == 1
    service.hear("is ready")
    after = {place.pid: place.kind for place in roster.present(service.table)}
    assert victim not in after
    assert sorted(after.values()) == sorted(before.values())
    assert service.stop() == Exit.OK


def test_who_dies_again_and_again_is_started_after_pauses_and_that_is_said(serve):
    service = serve("--workers", 1).until_ready()
    text = ""
    while "it is started again in 0.1 s" not in text:
        (pid,) = until(service.workers)  # as soon as there is one: the longer it lives, the more is it trusted
        os.kill(pid, signal.SIGKILL)
        text = service.hear("was killed by SIGKILL")["text"]
        until(lambda pid=pid: pid not in service.workers())
    service.hear("worker 0 is ready")
    assert service.stop() == Exit.OK


def test_a_worker_that_hangs_is_killed_and_followed(serve, tmp_path):
    file = tmp_path / "x.toml"
    file.write_text("hang_ms = 1000\n")
    service = serve("--config", file).until_ready()
    (victim,) = service.workers()
    os.kill(victim, signal.SIGSTOP)
    assert service.hear("hangs, and is killed")["level"] == "error"
    service.hear("was killed by SIGKILL")
    service.hear("worker 0 is ready")
    assert victim not in service.workers()
    assert service.stop() == Exit.OK


def test_who_dies_within_an_operation_is_repaired_and_followed_in_its_place(serve):
    service = serve("--workers", 1).until_ready()
    (place,) = [place for place in roster.present(service.table) if place.kind is Kind.WORKER]
    os.kill(place.pid, signal.SIGSTOP)
    row = service.table.array(Region.CONTROL, "participants", PARTICIPANT)[place.owner - 1]
    row["intent"]["step"] = Step.CREATE
    service.table.array(Region.CONTROL, "quotas", QUOTA)["count_lock"][5] = place.owner
    os.kill(place.pid, signal.SIGKILL)
    assert service.hear("was killed by SIGKILL")["repaired"] == {str(place.owner): "CREATE"}
    service.hear("worker 0 is ready")
    (after,) = [place for place in roster.present(service.table) if place.kind is Kind.WORKER]
    assert after.owner == place.owner and after.step is not Step.CREATE
    assert service.table.array(Region.CONTROL, "quotas", QUOTA)["count_lock"][5] == 0
    assert service.stop() == Exit.OK
    assert any("put away" in line["text"] for line in service.log)


def test_a_repair_that_waits_for_the_living_is_tried_again(serve):
    service = serve("--workers", 1).until_ready()
    (place,) = [place for place in roster.present(service.table) if place.kind is Kind.WORKER]
    locks = service.table.array(Region.CONTROL, "quotas", QUOTA)["count_lock"]
    os.kill(place.pid, signal.SIGSTOP)
    row = service.table.array(Region.CONTROL, "participants", PARTICIPANT)[place.owner - 1]
    row["intent"]["credit"], locks[0] = 1, place.owner + 1
    service.table.array(Region.CONTROL, "quotas", QUOTA)["count"][0] += 1
    service.table.array(Region.CONTROL, "globals", GLOBAL)["count"] += 1
    os.kill(place.pid, signal.SIGKILL)
    assert service.hear("waits for locks of the living")["owners"] == [place.owner]
    service.hear("worker 0 is ready")
    locks[0] = 0
    assert service.stop() == Exit.OK
    assert roster.present(service.table) == [] and row["intent"]["credit"] == 0


def test_a_reload_takes_over_what_is_live(serve, tmp_path):
    file = tmp_path / "zonetrack.toml"
    file.write_text("workers = 2\n[limits]\nzones = {5 = 10}\n")
    service = serve("--config", file).until_ready()
    quotas = service.table.array(Region.CONTROL, "quotas", QUOTA)
    assert (quotas["has_limit"][5], quotas["limit"][5]) == (1, 10)
    file.write_text("workers = 3\n[limits]\nzones = {5 = 20}\n")
    service.send(signal.SIGHUP)
    assert service.hear("was read again")["changed"] == ["limits.zones"]
    assert "workers" in service.hear("takes effect at the next start")["text"]
    assert quotas["limit"][5] == 20
    file.write_text("worker = 3")
    service.send(signal.SIGHUP)
    assert "nearest is 'workers'" in service.hear("the configuration stays as it is")["text"]
    file.write_text("workers = 2\n[limits]\nglobal = 2001")
    service.send(signal.SIGHUP)
    assert "made for 2000 connections" in service.hear("the configuration stays as it is")["text"]
    assert len(service.workers()) == 2
    assert service.stop() == Exit.OK


def test_what_fails_at_the_start_ends_it_with_a_word(serve, tmp_path):
    service = serve("--port", "shm:lab", "--socket", tmp_path / ("x" * 120))
    assert service.process.wait() == Exit.FAILED
    told = service.process.stderr.read().decode()
    assert "107" in told and "Traceback" not in told
    assert names(service.instance) == []


def test_a_group_that_there_is_not(serve):
    service = serve("--port", "shm:lab", environment={"ZONETRACK_PORTS_GROUP": "no-such-group"})
    assert service.process.wait() == Exit.USAGE
    assert "there is no group 'no-such-group'" in service.process.stderr.read().decode()


def test_a_terminal_stops_it_too(serve):
    service = serve("--workers", 2).until_ready()
    for pid in (service.pid, *service.workers()):
        os.kill(pid, signal.SIGINT)
    assert service.wait() == Exit.OK


def test_a_worker_that_hangs_is_killed_in_the_end(serve):
    service = serve(environment={"ZONETRACK_DRAIN_MS": "0"}).until_ready()
    (pid,) = service.workers()
    os.kill(pid, signal.SIGSTOP)
    assert service.stop() == Exit.OK
    assert any("does not end, and is killed" in line["text"] for line in service.log)
