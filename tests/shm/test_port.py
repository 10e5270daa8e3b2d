"""Ports: made, found, refused, left behind; their sizes; one client to a queue."""

import itertools
import os
import stat

import forked
import pytest
from zonetrack.shm import header, port
from zonetrack.shm.errors import Forbidden, InstanceName, InUse, Missing, PortName, WrongRegion, WrongSize, WrongState
from zonetrack.shm.layout import (
    FRAME_SLOT_BYTES,
    HEADER_BYTES,
    LINE_BYTES,
    PAGE_BYTES,
    PORT,
    QUEUES_MAX,
    RING_BYTES,
    SegmentState,
)
from zonetrack.shm.port import Extent


@pytest.fixture
def lab(instance):
    """A port of two queues."""
    with port.create(instance, "lab", queues=2, zone=7, slots=8) as made:
        yield made


def about(made):
    """Return the page of a port's segment that clients read; writes go to the segment."""
    return made.memory[HEADER_BYTES : HEADER_BYTES + PORT.itemsize].view(PORT)[0]


# ------------------------------------------------------------------------------------------------ sizes
@pytest.mark.parametrize("extent", [Extent(1, 4), Extent(2, 8), Extent(3, 512)])
def test_no_two_parts_of_a_port_overlap(extent):
    spans = [(0, HEADER_BYTES + PAGE_BYTES)]
    for queue in range(extent.queues):
        for side in (0, 1):
            ring, descriptors, frames = extent.ring(queue, side)
            spans.append((ring, ring + RING_BYTES))
            spans.append((descriptors, descriptors + extent.slots * 48))
            spans.append((frames, frames + extent.slots * FRAME_SLOT_BYTES))
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= extent.total_bytes


def test_rings_and_frames_begin_on_lines():
    extent = Extent(3, 4)
    assert all(place % LINE_BYTES == 0 for queue in range(3) for side in (0, 1) for place in extent.ring(queue, side))


@pytest.mark.parametrize(("queues", "slots"), [(0, 8), (QUEUES_MAX + 1, 8), (1, 0), (1, 2), (1, 12), (1, 1 << 17)])
def test_impossible_sizes_are_refused(instance, queues, slots):
    with pytest.raises(ValueError, match=r"a (port|ring) has"):
        port.create(instance, "lab", queues=queues, slots=slots)
    assert port.names(instance) == []


def test_impossible_zone_is_refused(instance):
    with pytest.raises(ValueError, match="a zone is 0 to 65535, not 65536"):
        port.create(instance, "lab", zone=65536)


@pytest.mark.parametrize("name", ["", "a b", "a.b", "../x", "x" * 33])
def test_impossible_name_is_refused(instance, name):
    with pytest.raises(PortName):
        port.create(instance, name)


def test_impossible_instance_is_refused():
    with pytest.raises(InstanceName):
        port.attach("a.b", "lab")


# ------------------------------------------------------------------------------------------------ made and found
def test_client_sees_what_was_made(lab):
    client = port.attach(lab.instance, "lab")
    assert (client.queues, client.slots, client.zone) == (2, 8, 7)
    assert client.is_open
    assert port.names(lab.instance) == ["lab"]
    assert about(client)["name"].tobytes().rstrip(b"\0") == b"lab"


def test_what_one_writes_the_other_reads(lab):
    client = port.attach(lab.instance, "lab")
    place = lab.extent.ring(1, 1)[2]
    client.memory[place] = 77
    assert lab.memory[place] == 77


def test_ends_point_into_the_mapping(lab):
    end = lab.end(1, 1)[0]
    assert [int(end[name]) - lab.memory.ctypes.data for name in ("ring", "descriptors", "frames")] == list(
        lab.extent.ring(1, 1)
    )
    assert (end["slots"], end["cursor"], end["peer"]) == (8, 0, 0)


def test_nobody_else_may_use_a_port_unless_a_group_is_named(instance):
    with port.create(instance, "lab", slots=4) as made:
        assert stat.S_IMODE(os.fstat(made.descriptor).st_mode) == 0o600
    with port.create(instance, "lab", slots=4, group=os.getgid()) as made:
        assert stat.S_IMODE(os.fstat(made.descriptor).st_mode) == 0o660
        assert os.fstat(made.descriptor).st_gid == os.getgid()


def test_missing_port_names_those_that_there_are(lab):
    with pytest.raises(Missing, match=r"expected a port lob of instance test-\S+, found lab"):
        port.attach(lab.instance, "lob")


def test_port_is_no_region_of_the_table(lab):
    with pytest.raises(WrongRegion, match="expected CONTROL, found 16"):
        header.check("x", lab.descriptor, 0, {SegmentState.READY})


# ------------------------------------------------------------------------------------------------ closed, left behind
def test_client_sees_that_the_port_is_closed(lab):
    client = port.attach(lab.instance, "lab")
    lab.unlink()
    assert not client.is_open
    with pytest.raises(Missing):
        port.attach(lab.instance, "lab")


def test_closed_port_takes_no_client(lab):
    lab.close()
    with pytest.raises(WrongState, match="expected READY, found SEALED"):
        port.attach(lab.instance, "lab")


def test_leftover_is_replaced_and_its_clients_see_it(lab):
    old = port.attach(lab.instance, "lab")
    with port.create(lab.instance, "lab", queues=1, slots=4) as new:
        assert not old.is_open
        assert port.attach(lab.instance, "lab").slots == 4
        assert new.is_open


def test_the_next_keeper_goes_on_with_a_port(lab):
    lab.close()
    again = port.resume(lab.instance, lab.name, lab.queues, lab.zone, lab.slots, os.dup(lab.descriptor))
    assert again.is_open and lab.is_open
    again.memory[-1] = 77
    assert lab.memory[-1] == 77


def test_a_port_that_was_made_shorter_is_not_gone_on_with(lab):
    os.ftruncate(lab.descriptor, PAGE_BYTES)
    with pytest.raises(WrongSize):
        port.resume(lab.instance, lab.name, lab.queues, lab.zone, lab.slots, os.dup(lab.descriptor))


def test_remove_of_nothing_is_no_error(instance):
    port.remove(instance, "lab")


def test_what_is_no_port_at_all_is_replaced_too(instance):
    path = f"/dev/shm{port.port_name(instance, 'lab')}"
    with open(path, "wb") as file:
        file.write(b"nonsense")
    with port.create(instance, "lab", slots=4):
        assert port.attach(instance, "lab").slots == 4


@pytest.mark.parametrize(("field", "value"), [("queues", 0), ("slots", 7), ("queues", 1), ("slots", 16)])
def test_nonsense_on_the_page_about_it_is_an_error_for_who_attaches(lab, field, value):
    about(lab)[field] = value
    with pytest.raises(WrongSize):
        port.attach(lab.instance, "lab")


def test_truncated_segment_is_an_error_for_who_attaches(lab):
    os.ftruncate(lab.descriptor, HEADER_BYTES)
    with pytest.raises(WrongSize):
        port.attach(lab.instance, "lab")
    os.ftruncate(lab.descriptor, lab.extent.total_bytes)  # or reading it would end this process


def test_port_that_was_made_shorter_is_closed_without_touching_it(lab):
    assert lab.is_whole
    os.ftruncate(lab.descriptor, 0)
    assert not lab.is_whole
    lab.unlink()


def test_service_does_not_read_sizes_from_the_segment(lab):
    about(lab)["slots"] = 1 << 16
    assert lab.slots == 8
    assert lab.end(0, 0)["slots"][0] == 8


def test_nothing_is_left_when_it_cannot_be_made(instance, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(port.mapping, "shared", refuse)
    with pytest.raises(port.NoSpace):
        port.create(instance, "lab")
    assert port.names(instance) == []


@pytest.mark.skipif(os.getuid() == 0, reason="root may open everything")
def test_rights_are_refused(lab):
    os.fchmod(lab.descriptor, 0)
    with pytest.raises(Forbidden):
        port.attach(lab.instance, "lab")


# ------------------------------------------------------------------------------------------------ one client to a queue
def test_queue_has_one_client(lab):
    first, second = (port.attach(lab.instance, "lab") for _ in range(2))
    first.take(0)
    with pytest.raises(InUse, match="lab, queue 0"):
        second.take(0)
    second.take(1)
    first.give_back(0)
    second.take(0)


@pytest.mark.parametrize("queue", [-1, 2])
def test_queue_that_there_is_not_is_refused(lab, queue):
    with pytest.raises(ValueError, match="port lab has queues 0 to 1"):
        lab.take(queue)


def test_queue_of_a_dead_client_is_free(lab):
    def take_and_wait(child):
        port.attach(lab.instance, "lab").take(0)
        child.say("taken")
        child.hear()

    client = port.attach(lab.instance, "lab")
    with forked.Child(take_and_wait) as child:
        assert child.hear() == "taken"
        with pytest.raises(InUse):
            client.take(0)
    client.take(0)
