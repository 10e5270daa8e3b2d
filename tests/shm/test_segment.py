"""The memory of an instance: made, found again, refused, and taken away."""

import gc
import os
import signal

import numpy as np
import posix_ipc
import private_shm
import pytest
from forked import Child
from zonetrack.shm import errors, header, roster, segment, space
from zonetrack.shm.layout import (
    ENTRY,
    HEADER,
    HEADER_BYTES,
    PAGE_BYTES,
    Kind,
    Region,
    SegmentState,
    offset,
)
from zonetrack.shm.sizing import Geometry

SMALL = Geometry(1000, zones_in_use=4)


def path(instance, region=Region.CONTROL):
    return space.SHARED_MEMORY / segment.segment_name(instance, region)[1:]


def entries(table):
    return table.array(Region.ENTRIES, "entries", ENTRY)


def header_of(instance, region=Region.CONTROL):
    return np.memmap(path(instance, region), HEADER, "r+", shape=1)


def page_of(head):
    return head.tobytes().ljust(HEADER_BYTES, b"\0")


def segments_of(instance):
    return sorted(found.name for found in space.SHARED_MEMORY.glob(f"zonetrack.{instance}.*"))


def owner_of(instance):
    """A child that has made the instance, and owns it until it is killed or told to go on."""

    def work(child):
        made = segment.create(instance, SMALL)
        child.say(made.state)
        child.hear()

    child = Child(work)
    assert child.hear() is SegmentState.READY
    return child


# ------------------------------------------------------------------------------------------------ anonymous
def test_an_anonymous_table_is_shared_with_forked_children():
    table = segment.anonymous(Geometry(1000))
    child = os.fork()
    if child == 0:
        entries(table)["mark"][7] = 42
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert entries(table)["mark"][7] == 42


def test_an_anonymous_table_gives_kernels_their_views():
    table = segment.anonymous(Geometry(1000))
    views = table.views(0)
    word = np.uint64(views["entries"]) + offset(ENTRY, "mark")
    assert int(word) == entries(table)["mark"].ctypes.data


def test_an_anonymous_table_leaves_no_descriptor_behind():
    before = len(os.listdir("/proc/self/fd"))
    table = segment.anonymous(Geometry(1))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del table
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_anonymous_table_larger_than_the_machine_is_refused():
    with pytest.raises(errors.NoSpace, match=r"anonymous table: too little memory: \d+ bytes needed, \d+ bytes free"):
        segment.anonymous(Geometry(1 << 28, extension_share=1000))


# ------------------------------------------------------------------------------------------------ create, attach
def test_what_is_made_is_ready_private_and_as_large_as_said(instance):
    with segment.create(instance, SMALL) as made:
        assert made.state is SegmentState.READY
        for region in Region:
            status = path(instance, region).stat()
            assert status.st_mode & 0o777 == 0o600
            assert status.st_size == status.st_blocks * 512 == SMALL.region_bytes(region)
        assert sum(path(instance, region).stat().st_blocks * 512 for region in Region) == SMALL.total_bytes


def test_a_service_does_not_go_on_with_what_others_can_write(instance):
    with segment.create(instance, SMALL) as made:
        made.seal()
    path(instance).chmod(0o620)
    with pytest.raises(
        errors.NotOurs, match=r"not this user's alone: expected user \d+, mode 600, found user \d+, mode 620"
    ):
        segment.attach(instance, claim=True)
    segment.attach(instance, sealed=True).close()  # whoever only looks may
    path(instance).chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path(instance), 65534, 65534)
        with pytest.raises(errors.NotOurs, match="found user 65534"):
            segment.attach(instance, claim=True)
        os.chown(path(instance), 0, 0)
    segment.attach(instance, claim=True).close()


def test_the_umask_does_not_matter(instance):
    before = os.umask(0o777)
    try:
        segment.create(instance, SMALL).close()
    finally:
        os.umask(before)
    assert path(instance).stat().st_mode & 0o777 == 0o600


def test_who_attaches_sees_the_same_table(instance):
    with segment.create(instance, SMALL, secret=bytes(32)) as made, segment.attach(instance) as other:
        assert other.geometry == SMALL
        assert other.claim is None
        entries(other.table)["mark"][3] = 9
        assert entries(made.table)["mark"][3] == 9
        assert other.table.header["secret"].tobytes() == bytes(32)
        me = roster.join(other.table, Kind.TOOL)
        assert [place.owner for place in roster.present(made.table)] == [me]


def test_the_table_outlives_its_owner_and_the_next_goes_on(instance):
    with segment.create(instance, SMALL) as made:
        entries(made.table)["mark"][3] = 9
    with segment.attach(instance, claim=True) as again:
        assert again.state is SegmentState.READY
        assert entries(again.table)["mark"][3] == 9


def test_a_table_put_away_is_only_for_its_next_owner_and_those_who_look(instance):
    with segment.create(instance, SMALL) as made:
        made.seal()
        assert made.state is SegmentState.SEALED
        with pytest.raises(errors.WrongState, match="expected READY, found SEALED"):
            segment.attach(instance)
        assert segment.attach(instance, sealed=True).state is SegmentState.SEALED
    with segment.attach(instance, claim=True) as again:
        assert again.state is SegmentState.READY
    segment.attach(instance).close()


def test_a_table_with_somebody_in_it_is_not_put_away(instance):
    with segment.create(instance, SMALL) as made:
        me = roster.join(made.table, Kind.WORKER)
        with pytest.raises(errors.WrongState, match=f"expected an empty roster, found worker {os.getpid()}"):
            made.seal()
        roster.leave(made.table, me)
        made.seal()
        with pytest.raises(errors.WrongState, match="expected READY, found SEALED"):
            made.seal()


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "..", "ä", "a b", "x" * 49, "a\n"])
def test_a_name_that_no_instance_can_have(name):
    for use in (segment.attach, segment.discard, lambda name: segment.create(name, SMALL)):
        with pytest.raises(errors.InstanceName, match="expected 1 to 48 of A-Z"):
            use(name)


def test_attach_to_nothing(instance):
    with pytest.raises(errors.Missing, match=rf"/zonetrack\.{instance}\.control: missing: expected a segment"):
        segment.attach(instance)
    with pytest.raises(errors.Missing):
        segment.attach(instance, claim=True)


def test_closing_leaves_no_descriptor_behind(instance):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with segment.create(instance, SMALL) as made, segment.attach(instance) as other:
            made.unlink()
        del made, other
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_stays_mapped_as_long_as_it_is_used(instance):
    with segment.create(instance, SMALL) as made:
        seen = entries(made.table)
        made.unlink()
    del made
    gc.collect()
    seen["mark"] = 5
    assert (seen["mark"] == 5).all()


# ------------------------------------------------------------------------------------------------ what does not fit
@pytest.mark.parametrize(
    ("field", "value", "kind", "says"),
    [
        ("magic", 0x1234, errors.WrongMagic, "expected 0x4b43415254454e5a, found 0x0000000000001234"),
        ("version", 7, errors.WrongVersion, "expected 2, found 7"),
        ("digest", 0x77, errors.WrongDigest, "found 0x0000000000000077"),
        ("region", Region.DUE, errors.WrongRegion, "found DUE"),
        ("region", 99, errors.WrongRegion, "found 99"),
        ("boot_id", 0, errors.WrongBoot, f"expected {header.boot_id().hex()}, found {'0' * 32}"),
        ("state", SegmentState.NEW, errors.WrongState, "expected READY, found NEW"),
        ("state", 9, errors.WrongState, "expected READY, found 9"),
        ("generation", 1, errors.WrongGeneration, "0x"),
        ("size", PAGE_BYTES, errors.WrongSize, f"expected {PAGE_BYTES}, found"),
    ],
)
@pytest.mark.parametrize("region", [Region.CONTROL, Region.INDEX])
def test_a_segment_that_does_not_fit(instance, region, field, value, kind, says):
    segment.create(instance, SMALL).close()
    header_of(instance, region)[field] = value
    with pytest.raises(kind) as caught:
        segment.attach(instance)
    assert says in str(caught.value)
    if field != "generation":
        assert caught.value.name == segment.segment_name(instance, region)


@pytest.mark.parametrize("region", Region)
@pytest.mark.parametrize("size", [1, HEADER_BYTES, -PAGE_BYTES, PAGE_BYTES])
def test_a_truncated_or_grown_segment(instance, region, size):
    segment.create(instance, SMALL).close()
    found = SMALL.region_bytes(region) + size if abs(size) == PAGE_BYTES else size
    os.truncate(path(instance, region), found)
    with pytest.raises(errors.WrongSize) as caught:
        segment.attach(instance)
    assert caught.value.found == found
    assert caught.value.name == segment.segment_name(instance, region)


def test_a_capacity_that_is_impossible_and_one_that_is_another(instance):
    segment.create(instance, SMALL).close()
    header_of(instance)["capacity"] = 0
    with pytest.raises(errors.SegmentError, match="connections must be 1 to"):
        segment.attach(instance)
    header_of(instance)["capacity"] = 2_000_000
    with pytest.raises(errors.WrongSize):
        segment.attach(instance)


def test_a_region_of_another_instance_under_this_name(instance):
    segment.create(instance, SMALL).close()
    other = f"{instance}-b"
    segment.create(other, SMALL).close()
    path(other, Region.DUE).replace(path(instance, Region.DUE))
    segment.discard(other)
    with pytest.raises(errors.WrongGeneration, match=r"\.due: of another creation"):
        segment.attach(instance)


def test_a_missing_region(instance):
    segment.create(instance, SMALL).close()
    path(instance, Region.ENTRIES).unlink()
    with pytest.raises(errors.Missing, match=r"\.entries: missing"):
        segment.attach(instance)


def test_attach_while_it_is_being_made(instance):
    """Stop a creation after each of its steps that others can see, and look at what they get."""
    posix_ipc.SharedMemory(segment.segment_name(instance, Region.CONTROL), posix_ipc.O_CREX).close_fd()
    for use_claim in (False, True):
        with pytest.raises(errors.WrongState, match=r"expected READY.*, found NEW"):
            segment.attach(instance, claim=use_claim)
    path(instance).write_bytes(page_of(header.new(SMALL, Region.CONTROL, 5)))
    for use_claim in (False, True):
        with pytest.raises(errors.WrongState, match=r"expected READY.*, found NEW"):
            segment.attach(instance, claim=use_claim)


# ------------------------------------------------------------------------------------------------ one owner
def test_a_second_process_is_told_the_pid_of_the_first(instance):
    with owner_of(instance) as child:
        for use in (
            lambda: segment.create(instance, SMALL),
            lambda: segment.create(instance, SMALL, replace=True),
            lambda: segment.attach(instance, claim=True),
            lambda: segment.discard(instance),
        ):
            with pytest.raises(errors.InUse, match=f"expected no other process, found process {child.pid}") as caught:
                use()
            assert caught.value.pid == child.pid
        segment.attach(instance).close()
        child.say("go on")
        child.wait()
    with segment.attach(instance, claim=True):
        pass


def test_the_same_process_cannot_own_it_twice(instance):
    with segment.create(instance, SMALL), pytest.raises(errors.InUse, match=f"process {os.getpid()}"):
        segment.attach(instance, claim=True)


def test_a_killed_owner_leaves_a_table_and_no_claim(instance):
    with owner_of(instance) as child:
        child.kill()
    with pytest.raises(errors.Exists, match="expected no table of that name, found one that nobody owns, READY"):
        segment.create(instance, SMALL)
    with segment.attach(instance, claim=True) as again:
        assert again.state is SegmentState.READY


def test_a_killed_owner_s_forked_children_do_not_keep_the_claim(instance):
    def work(child):
        made = segment.create(instance, SMALL)
        worker = os.fork()
        if worker == 0:
            child.say((made.claim.held, os.getpid()))
            signal.pause()
        os.waitpid(worker, 0)

    with Child(work) as child:
        held, worker = child.hear()
        child.kill()
        assert not held
        with segment.attach(instance, claim=True):
            assert roster.start_ticks(worker)  # it goes on beside the new owner
        os.kill(worker, signal.SIGKILL)


def test_what_an_interrupted_creation_left_is_no_obstacle(instance):
    for leftover in (b"", page_of(header.new(SMALL, Region.CONTROL, 5))):
        path(instance).write_bytes(leftover)
        path(instance, Region.ENTRIES).write_bytes(b"something")
        with segment.create(instance, SMALL) as made:
            assert made.state is SegmentState.READY
            made.unlink()


@pytest.mark.parametrize("state", [SegmentState.READY, SegmentState.SEALED])
def test_a_table_is_replaced_only_when_asked(instance, state):
    segment.create(instance, SMALL).close()
    header_of(instance)["state"] = state
    with pytest.raises(errors.Exists, match=state.name):
        segment.create(instance, Geometry(5))
    with segment.create(instance, Geometry(5), replace=True) as made:
        assert made.geometry.connections == 5


def test_a_table_of_another_version_is_never_replaced_unasked(instance):
    segment.create(instance, SMALL).close()
    header_of(instance)["version"] = 7
    header_of(instance)["state"] = SegmentState.NEW
    with pytest.raises(errors.Exists, match="unreadable"):
        segment.create(instance, SMALL)
    segment.create(instance, SMALL, replace=True).close()


def test_of_many_that_start_at_once_one_gets_it(instance):
    def work(child):
        child.hear()
        try:
            made = segment.create(instance, SMALL, replace=True)
        except errors.InUse as error:
            child.say(error.pid)
        else:
            child.say((made.state, os.getpid()))
        child.hear()

    children = [Child(work) for _ in range(5)]
    for child in children:
        child.say("go")
    answers = [child.hear() for child in children]
    winners = [answer[1] for answer in answers if isinstance(answer, tuple)]
    assert len(winners) == 1
    segment.attach(instance).close()
    for child in children:
        child.kill()


# ------------------------------------------------------------------------------------------------ taken away
def test_unlink_removes_every_segment_and_only_once(instance):
    with segment.create(instance, SMALL) as made:
        with segment.attach(instance) as other:
            with pytest.raises(errors.InUse, match="attached without it"):
                other.unlink()
            made.unlink()
            assert segments_of(instance) == []
            assert other.state is SegmentState.NEW
        with segment.create(instance, SMALL):
            made.unlink()  # it is not there any more: the new one stays
            assert len(segments_of(instance)) == len(Region)


def test_discard_takes_what_nobody_owns_whatever_it_is(instance):
    segment.create(instance, SMALL).close()
    header_of(instance)["version"] = 99
    segment.discard(instance)
    assert segments_of(instance) == []
    path(instance, Region.DUE).write_bytes(b"x")
    segment.discard(instance)
    assert segments_of(instance) == []
    with pytest.raises(errors.Missing):
        segment.discard(instance)


def test_an_unlink_killed_half_way_is_no_obstacle(instance):
    segment.create(instance, SMALL).close()
    header_of(instance)["state"] = SegmentState.NEW
    path(instance, Region.EXTENSIONS).unlink()
    segment.create(instance, SMALL).close()


# ------------------------------------------------------------------------------------------------ too little space
def in_private(options, function):
    """Run ``function`` in a child whose /dev/shm is its own; returns what it says."""

    def work(child):
        problem = private_shm.mount(options)
        child.say(problem)
        if problem is None:
            child.say(function())

    with Child(work) as child:
        problem = child.hear()
        if problem is not None:
            pytest.skip(problem)
        return child.hear()


def test_too_small_a_dev_shm_is_one_clear_error_and_leaves_nothing():
    def work():
        try:
            segment.create("small", SMALL)
        except errors.NoSpace as error:
            return error, str(error), segments_of("small")

    error, says, left = in_private("size=4m", work)
    assert error.expected == SMALL.total_bytes
    assert error.found == 4 << 20
    assert says == (f"small: too little memory: {SMALL.total_bytes} bytes needed, {4 << 20} bytes free in /dev/shm")
    assert left == []


def test_space_that_somebody_takes_meanwhile_is_the_same_error(instance):
    """The file system fills between the look and the reservation: the reservation itself says so."""

    def work():
        control, own = segment._take_name("small", replace=False)
        try:
            for region in Region:
                os.ftruncate(files.setdefault(region, os.memfd_create("x")), SMALL.region_bytes(region))
            os.ftruncate(control, SMALL.region_bytes(Region.CONTROL))
            files[Region.CONTROL] = control
            segment._map_all("small", SMALL, files, reserve=True)
        except errors.NoSpace as error:
            own.drop()
            return error

    files = {}
    error = in_private("size=4m", work)
    assert error.expected == SMALL.total_bytes
    assert error.where == "in /dev/shm"


def test_a_dev_shm_just_large_enough_will_do():
    def work():
        with segment.create("fits", SMALL) as made:
            return made.state, sum(file.stat().st_blocks * 512 for file in space.SHARED_MEMORY.iterdir())

    assert in_private(f"size={SMALL.total_bytes}", work) == (SegmentState.READY, SMALL.total_bytes)


def test_a_dev_shm_without_a_limit_will_do():
    def work():
        with segment.create("fits", SMALL) as made:
            return made.state

    assert in_private("size=0", work) is SegmentState.READY


def test_no_page_is_missing_later():
    """Reserved means reserved: a table that fills /dev/shm can be written to its last byte."""

    def work():
        with segment.create("fits", SMALL) as made:
            for region in made.table.regions.values():
                region[HEADER_BYTES:] = 1
            return True

    assert in_private(f"size={SMALL.total_bytes}", work)


# ------------------------------------------------------------------------------------------------ no access
def test_a_runtime_directory_that_cannot_be_written_does_not_matter(instance, monkeypatch, tmp_path):
    tmp_path.chmod(0o500)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    with segment.create(instance, SMALL) as made:
        assert made.state is SegmentState.READY


def test_another_user_s_instance_is_not_touched(instance):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    def work(child):
        os.setresuid(65534, 65534, 65534)
        answers = []
        for use in (
            lambda: segment.attach(instance),
            lambda: segment.create(instance, SMALL, replace=True),
            lambda: segment.discard(instance),
        ):
            try:
                use()
            except errors.Forbidden as error:
                answers.append(str(error))
        child.say(answers)

    segment.create(instance, SMALL).close()
    with Child(work) as child:
        answers = child.hear()
    assert len(answers) == 3
    assert all("control: no access: expected to " in answer for answer in answers)
    segment.attach(instance).close()


def test_another_user_s_remains_are_in_the_way_but_nothing_else_is_left(instance):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    def work(child):
        os.setresuid(65534, 65534, 65534)
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(errors.Forbidden, match=r"\.entries: no access: expected to unlink it"):
            segment.create(instance, SMALL)
        child.say((segments_of(instance), len(os.listdir("/proc/self/fd")) - before))

    path(instance, Region.ENTRIES).write_bytes(b"")
    with Child(work) as child:
        assert child.hear() == ([path(instance, Region.ENTRIES).name], 0)


@pytest.mark.parametrize("before", SegmentState)
@pytest.mark.parametrize("act", segment.Act)
def test_what_is_not_in_the_table_is_illegal(before, act):
    rows = [row for row in segment.TRANSITIONS if (row.before, row.event) == (before, act)]
    assert len(rows) == ((before, act) in segment.AFTER)
    control = np.zeros(1, HEADER)
    control["state"] = before
    if rows:
        segment._move("x", control, act)
        assert control["state"] == rows[0].after
    else:
        with pytest.raises(errors.WrongState):
            segment._move("x", control, act)
        assert control["state"] == before
