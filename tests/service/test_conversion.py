"""A table that an earlier version left is saved and taken over; what cannot be is said, and is not lost."""

import contextlib
import os
import signal

import numpy as np
import other_layout
import pytest
import tables
from outliving import FLOWS, Traffic, all_ended, ends, processes
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.service import audit, conversion, opening, saved
from zonetrack.service.config import Config
from zonetrack.service.opening import UnfitTableError
from zonetrack.service.saved import SavedError
from zonetrack.shm import descriptions, roster, segment
from zonetrack.shm.errors import Missing
from zonetrack.shm.layout import ENTRY, CtState, Kind, Life, Region

SHAPE = ("--workers", 2, "--port", "shm:lab,queues=2", "--max-connections", 2000)
MOST = 50


@pytest.fixture
def serve(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda *flags, **more: stack.enter_context(Service(tmp_path, *flags, **more))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR2], ids=["stopped", "left at work"])
def test_an_upgrade_with_another_layout_goes_on_with_the_connections(serve, tmp_path, how):
    """Stopped: the table is sealed.  Left at work, as by ``systemctl restart``: workers of the old layout have to end."""
    theirs = other_layout.environment(tmp_path, other_layout.TABLE)
    first = serve(*SHAPE, environment=theirs).until_ready()
    with first.ask() as ct:
        ct.timeouts.set("default", {"udp": 3600, "udp_stream": 3600})
        ct.limits.set(zone=5, limit=77)
    said = other_layout.ask_and_answer(first, theirs)
    assert [bool(one & CtState.EST) for one in said] == [False] * 2 * FLOWS + [True] * 2 * FLOWS
    first.send(how)
    assert first.process.wait() == Exit.OK
    second = serve(*SHAPE, after=first).until_ready()
    facts = second.hear("is of another layout: it was saved in")
    assert facts["connections"] == 2 * FLOWS
    assert second.about["table"] == "converted"
    traffic = Traffic(second)
    assert (traffic.asked() & CtState.EST).all() and (traffic.answered() & CtState.RPL).all()
    traffic.close()
    with second.ask() as ct:
        told = ct.stats()["table"]
        assert (told["from"], told["connections"], told["no_room"]) == ("converted", 2 * FLOWS, 0)
        assert ct.count() == 2 * FLOWS and [(one["zone"], one["limit"]) for one in ct.limits.get()["zones"]] == [
            (5, 77)
        ]
        assert ct.audit()["broken"] is None
        assert ct.hello()["format"] != told["layout"]
    assert os.path.dirname(told["file"]) == str(tmp_path) and os.stat(told["file"]).st_mode & 0o777 == 0o600
    assert second.stop() == Exit.OK
    assert audit.at_rest(second.table) is None
    segment.discard(second.instance)
    assert saved.restore(second.instance, told["file"])["connections"] == 2 * FLOWS


def test_a_restart_into_other_queues_ends_those_who_have_them_and_keeps_the_table(serve, tmp_path):
    first = serve(*SHAPE, environment=other_layout.environment(tmp_path, other_layout.QUEUES)).until_ready()
    with first.ask() as ct:
        ct.timeouts.set("default", {"udp": 3600})
    traffic = Traffic(first)
    assert (traffic.asked() & CtState.NEW).all()
    traffic.close()
    left = ends([pid for pids in processes(first).values() for pid in pids])
    first.send(signal.SIGUSR2)
    assert first.process.wait() == Exit.OK
    second = serve(*SHAPE, after=first).until_ready()
    assert "beside the table" in second.hear("cannot be adopted")["text"]
    assert all_ended(left)
    traffic = Traffic(second)
    with second.ask() as ct:
        assert ct.count() == 2 * FLOWS and ct.stats()["table"] == {"from": "kept"}
    assert (traffic.answered() & CtState.EST).all()
    traffic.close()
    assert second.stop() == Exit.OK


# --------------------------------------------------------------------------------- one of our own, altered
@pytest.fixture
def config(tmp_path):
    made = Config(
        instance=f"test-conversion-{os.getpid()}",
        socket=str(tmp_path / "socket"),
        max_connections=500,
        zones_in_use_max=5,
    )
    with segment.create(made.instance, opening.geometry(made)) as held:
        one = tables.Participant(held.table, Kind.TOOL)
        one.made(tables.keys(MOST), expiry_ms=saved.now_ms() + 500_000)
        roster.leave(held.table, one.me)
        held.table.header["digest"] += np.uint64(1)
    yield made
    with contextlib.suppress(Missing):
        segment.discard(made.instance)


def live(held):
    """Return the connections of a table."""
    entries = tables.entries(held.table)
    return entries[entries["life"] & np.uint64(0xFF) == Life.LIVE]


def described(config, change):
    """Let the table say something else of itself."""
    with conversion.Foreign(config.instance) as old:
        told = old.description
    change(told)
    path = f"/dev/shm{segment.segment_name(config.instance, Region.CONTROL)}"
    page = descriptions.packed(told)
    with open(path, "r+b") as file:
        file.seek(descriptions.OFFSET)
        file.write(page)


def test_what_was_there_is_in_the_new_table_and_in_a_file(config, tmp_path):
    held = opening.hold(config)
    with held.instance as instance:
        assert len(live(instance)) == MOST and held.left is None
        assert held.origin["connections"] == MOST and os.path.dirname(held.origin["file"]) == str(tmp_path)
        assert instance.geometry == opening.geometry(config)


def test_the_file_is_where_the_configuration_says(config, tmp_path, monkeypatch):
    monkeypatch.setenv(conversion.STATE_DIRECTORY, f"{tmp_path}/state:/elsewhere")
    (tmp_path / "state").mkdir()
    held = opening.hold(config)
    held.instance.close()
    assert os.path.dirname(held.origin["file"]) == f"{tmp_path}/state"


def test_a_file_that_cannot_be_written_leaves_the_table(config, tmp_path, monkeypatch):
    monkeypatch.setenv(conversion.STATE_DIRECTORY, str(tmp_path / "nowhere"))
    with pytest.raises(SavedError, match="save_directory names a place"):
        opening.hold(config)
    monkeypatch.undo()
    with opening.hold(config).instance as held:
        assert len(live(held)) == MOST


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["places"].update(entries=["entries", 4096, 1 << 40]),
        lambda told: told["rows"]["entries"]["fields"]["expiry_ms"].__setitem__(0, "<M8[s]"),
        lambda told: told["rows"].pop("zones"),
    ],
    ids=["longer than it is", "of moments", "without zones"],
)
def test_what_does_not_say_how_it_is_laid_out_is_left(config, change):
    described(config, change)
    with pytest.raises(UnfitTableError, match=r"cannot be converted.*--fresh"):
        opening.hold(config)


def test_what_cannot_be_taken_over_is_in_the_file(config):
    """The service starts empty, and says so: here what TCP remembers does not fit its place."""
    described(config, lambda told: told["protocols"]["TCP_PEERS"].update(bytes=200))
    held = opening.hold(config)
    with held.instance as instance:
        assert len(live(instance)) == 0
        assert held.origin["from"] == "new" and os.path.exists(held.origin["file"])


def test_what_somebody_died_over_is_taken_over_too(config):
    with conversion.Foreign(config.instance) as old:
        first = old.description["places"]["entries"][1]
    with open(f"/dev/shm{segment.named(config.instance, 'entries')}", "r+b") as file:
        rows = np.memmap(file, ENTRY, "r+", first, (MOST,))
        rows["lock"][3] = 9  # of a participant that has died
        rows["life"][4] = rows["life"][4] & ~np.uint64(0xFF) | np.uint64(Life.DEAD)
    with opening.hold(config).instance as held:
        entries = live(held)
        assert len(entries) == MOST - 1 and not entries["lock"].any()
        assert audit.at_rest(held.table) is None
