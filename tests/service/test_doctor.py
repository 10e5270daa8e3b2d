"""The doctor: its arithmetic against a real instance, its facts against the machine, its words for people and programs."""

import contextlib
import json
import os
import subprocess
import sys

import private_shm
import pytest
from forked import Child
from zonetrack.clients.errors import Exit, NoServiceError, ZonetrackError
from zonetrack.service import doctor
from zonetrack.shm import roster, segment, space
from zonetrack.shm.errors import Missing
from zonetrack.shm.layout import Kind, Region
from zonetrack.shm.sizing import Geometry

SMALL = Geometry(2000, zones_in_use=5, extension_share=1000)


@pytest.fixture
def instance():
    name = f"test-doctor-{os.getpid()}"
    yield name
    with contextlib.suppress(Missing):
        segment.discard(name)


def run(*arguments, **environment):
    """Run ``zonetrack doctor`` as its users do."""
    return subprocess.run(
        [sys.executable, "-m", "zonetrack.service", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def blocks_of(instance):
    paths = (space.SHARED_MEMORY / segment.segment_name(instance, region)[1:] for region in Region)
    return sum(path.stat().st_blocks * 512 for path in paths)


def test_total_bytes_is_what_a_running_instance_takes(instance):
    with segment.create(instance, SMALL):
        done = run("--max-connections", "2000", "--zones", "5", "--extension-share", "1000", "--json")
        assert done.returncode == Exit.OK
        report = json.loads(done.stdout)
        assert report["total_bytes"] == blocks_of(instance)
        of_instance = json.loads(run("--instance", instance, "--json").stdout)
        assert of_instance["total_bytes"] == blocks_of(instance)
        assert of_instance["table"] == report["table"]
        found = next(one for one in of_instance["instances"] if one["instance"] == instance)
        assert (found["owner"], found["total_bytes"]) == (os.getpid(), blocks_of(instance))


def test_the_arithmetic_adds_up():
    table = doctor.table(SMALL)
    for region in table["regions"].values():
        for array in region["arrays"].values():
            assert array["bytes"] == array["records"] * array["record_bytes"]
        used = sum(array["bytes"] for array in region["arrays"].values())
        assert 0 < region["bytes"] - used < 3 * 4096
    assert sum(region["bytes"] for region in table["regions"].values()) == table["total_bytes"] == SMALL.total_bytes
    assert table["bytes_per_connection"] == round(table["total_bytes"] / 2000, 1)


def test_a_person_sees_every_region_and_the_total():
    done = run("--max-connections", "2000")
    assert done.returncode == Exit.OK
    assert "A table of 2,000 connections, 4,096 zones in use" in done.stdout
    for region in Region:
        for name in SMALL.arrays(region):
            assert name in done.stdout
    assert f"{Geometry(2000).total_bytes:,}" in done.stdout
    assert "\x1b" not in done.stdout


def test_what_is_left_over_is_named_with_its_user_and_its_dead(instance):
    def work(child):
        made = segment.create(instance, SMALL)
        roster.join(made.table, Kind.KEEPER)
        child.say("made")
        child.hear()

    with Child(work) as child:
        child.hear()
        assert instance in [one["instance"] for one in json.loads(run("--json").stdout)["instances"]]
        child.kill()
    report = json.loads(run("--json").stdout)
    left = next(one for one in report["leftovers"] if one["instance"] == instance)
    assert left["dead"] == [f"keeper {child.pid}"]
    assert left["state"] == "READY"
    done = run()
    assert f"keeper {child.pid}" in done.stdout
    assert f"warning: instance {instance} of {left['user']} is left over, {blocks_of(instance):,} bytes" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-connections", "0"),
        ("--max-connections", str((1 << 28) + 1)),
        ("--max-connections", "many"),
        ("--zones", "65537"),
        ("--extension-share", "1001"),
        ("--no-such-option",),
    ],
)
def test_what_is_out_of_range_is_a_usage_error(arguments):
    done = run(*arguments)
    assert done.returncode == Exit.USAGE
    assert arguments[0] in done.stderr
    assert done.stdout == ""


def test_an_instance_that_is_not_there():
    done = run("--instance", "nowhere")
    assert done.returncode == Exit.NO_SERVICE
    assert done.stderr == "Error: there is no instance nowhere\n"
    with pytest.raises(NoServiceError):
        doctor._geometry_of("a.b")


def test_an_instance_whose_sizes_cannot_be_read(instance):
    path = space.SHARED_MEMORY / segment.segment_name(instance, Region.CONTROL)[1:]
    path.write_bytes(b"something else")
    with pytest.raises(ZonetrackError, match=f"sizes of instance {instance} cannot be read: not zonetrack's"):
        doctor._geometry_of(instance)
    assert run("--instance", instance).returncode == Exit.FAILED


def test_a_table_that_does_not_fit_is_a_warning():
    def work(child):
        problem = private_shm.mount("size=8m,huge=always")
        child.say(problem)
        if problem is None:
            child.say(doctor.examine(Geometry(100_000)))

    with Child(work) as child:
        problem = child.hear()
        if problem:
            pytest.skip(problem)
        report = child.hear()
    shared = report["spaces"][0]
    assert shared == {"where": "in /dev/shm", "total_bytes": 8 << 20, "free_bytes": 8 << 20}
    needed = Geometry(100_000).total_bytes
    assert f"the table needs {needed:,} bytes, 8,388,608 are free in /dev/shm" in report["warnings"]
    assert any("huge=always" in line for line in report["warnings"])


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    done = run("--json", NUMBA_CACHE_DIR=str(file / "below"))
    assert done.returncode == Exit.OK
    assert json.loads(done.stdout)["kernel_cache"]["writable"] is False
    assert "cannot be written: kernels are compiled at every start" in done.stderr


def test_facts_are_the_machine_s():
    report = doctor.examine(SMALL)
    assert report["processors"]["usable"] == len(os.sched_getaffinity(0))
    assert set(report["capabilities"]) == set(doctor.CAPABILITIES)
    assert report["huge_pages"]["dev_shm_huge"] == space.huge_option()
    assert isinstance(report["huge_pages"]["given"], bool)
    json.dumps(report)


def test_capabilities_given_up_are_not_reported():
    if os.geteuid() != 0:
        assert not doctor.capabilities()["cap_sys_admin"]
        return

    def work(child):
        os.setresuid(65534, 65534, 65534)
        child.say(doctor.capabilities())

    with Child(work) as child:
        assert not any(child.hear().values())


def test_no_color_and_a_pipe_give_plain_text():
    assert "\x1b" not in run(NO_COLOR="1").stdout
