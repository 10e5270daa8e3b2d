"""What lies in /dev/shm: whose, in which state, and whether anybody is alive in it."""

import json
import os
import pwd
import time

import pytest
from forked import Child
from zonetrack.shm import errors, roster, segment, space, survey
from zonetrack.shm.layout import HEADER_BYTES, Kind, Region
from zonetrack.shm.sizing import Geometry

SMALL = Geometry(1000, zones_in_use=4)


def path(instance, region=Region.CONTROL):
    return space.SHARED_MEMORY / segment.segment_name(instance, region)[1:]


def of(instance):
    return next((found for found in survey.instances() if found.instance == instance), None)


def test_a_running_instance_has_an_owner_and_people(instance):
    with segment.create(instance, SMALL) as made:
        roster.join(made.table, Kind.WORKER)
        found = of(instance)
        assert found.owner == os.getpid()
        assert found.alive == [f"worker {os.getpid()}"]
        assert not found.leftover
        assert found.user == pwd.getpwuid(os.getuid()).pw_name
        assert (found.state, found.connections) == ("READY", 1000)
        assert (found.zones_in_use, found.extension_share) == (SMALL.zones_in_use, SMALL.extension_share)
        assert found.total_bytes == SMALL.total_bytes
        assert found.segments == {region.name.lower(): SMALL.region_bytes(region) for region in Region}
        assert abs(found.created_s - time.time()) < 3600


def test_what_a_killed_owner_leaves_is_a_leftover_and_says_whose(instance):
    def work(child):
        made = segment.create(instance, SMALL)
        roster.join(made.table, Kind.KEEPER)
        child.say(made.name)
        child.hear()

    with Child(work) as child:
        child.hear()
        assert not of(instance).leftover
        child.kill()
    found = of(instance)
    assert found.leftover
    assert (found.owner, found.alive, found.dead) == (0, [], [f"keeper {child.pid}"])
    assert json.loads(json.dumps(found.summary()))["leftover"] is True


def test_workers_without_an_owner_are_no_leftover(instance):
    with segment.create(instance, SMALL) as made:
        roster.join(made.table, Kind.WORKER)
    found = of(instance)
    assert found.owner == 0
    assert not found.leftover


def test_looking_changes_nothing_and_keeps_no_descriptor(instance):
    segment.create(instance, SMALL).close()
    before, content = len(os.listdir("/proc/self/fd")), path(instance).read_bytes()
    survey.instances()
    assert len(os.listdir("/proc/self/fd")) == before
    assert path(instance).read_bytes() == content


@pytest.mark.parametrize(
    ("content", "state"),
    [
        (b"", "NEW"),
        (b"x" * HEADER_BYTES, "NOT ZONETRACK'S"),
        (b"x", "NOT ZONETRACK'S"),
    ],
)
def test_what_cannot_be_read_is_listed_too(instance, content, state):
    path(instance).write_bytes(content)
    assert of(instance).state == state
    assert of(instance).leftover


@pytest.mark.parametrize(
    ("offset", "value", "state"), [(8, 99, "ANOTHER VERSION"), (16, 1, "ANOTHER VERSION"), (56, 99, "CORRUPT")]
)
def test_a_header_that_this_program_cannot_read(instance, offset, value, state):
    segment.create(instance, SMALL).close()
    with path(instance).open("r+b") as file:
        file.seek(offset)
        file.write(bytes([value]))
    assert of(instance).state == state


def test_a_table_of_another_layout_tells_its_size(instance):
    with segment.create(instance, SMALL) as made:
        assert not of(instance).convertible
        made.table.header["digest"] += 1
    found = of(instance)
    assert (found.state, found.convertible) == ("ANOTHER VERSION", True)
    assert (found.connections, found.zones_in_use) == (SMALL.connections, SMALL.zones_in_use)


def test_a_truncated_control_segment_is_listed(instance):
    segment.create(instance, SMALL).close()
    os.truncate(path(instance), HEADER_BYTES)
    assert of(instance).alive == []


def test_a_garbled_roster_is_corrupt(instance):
    with segment.create(instance, SMALL) as made:
        roster.participants(made.table)["attendance"][3] = 77
    assert of(instance).state == "CORRUPT"


def test_segments_without_control(instance):
    path(instance, Region.DUE).write_bytes(b"x" * 5000)
    found = of(instance)
    assert found.state == "NO CONTROL SEGMENT"
    assert found.segments == {"due": 8192}
    assert found.leftover


def test_an_instance_whose_name_could_not_be_is_listed(instance):
    strange = space.SHARED_MEMORY / f"zonetrack.{instance}.x.control"
    strange.write_bytes(b"")
    try:
        assert of(f"{instance}.x").leftover
    finally:
        strange.unlink()


def test_another_user_s_instance_is_listed(instance):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    segment.create(instance, SMALL).close()

    def work(child):
        os.setresuid(65534, 65534, 65534)
        found = of(instance)
        child.say((found.user, found.state, found.total_bytes))

    with Child(work) as child:
        assert child.hear() == ("root", "PERMISSION DENIED", SMALL.total_bytes)


def test_nothing_is_found_of_what_was_discarded(instance):
    segment.create(instance, SMALL).close()
    segment.discard(instance)
    assert of(instance) is None
    with pytest.raises(errors.Missing):
        segment.discard(instance)
