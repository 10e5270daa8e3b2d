"""Helpers: who gets one, what a related connection takes over, and what becomes of expectations with their parent."""

import foretelling
import pytest
import tables
from bursts import CLIENT, SERVER
from foretelling import Wanted
from helping import Bench, Stream, answer, datagram, request, syn
from zonetrack.kernels import helpers
from zonetrack.shm import segment
from zonetrack.shm.layout import Foretold, Helper, Slab, Status
from zonetrack.shm.reasons import Reason
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


def entry(bench, verdict):
    return tables.entries(bench.table)[int(verdict["record"])]


def public_id(verdict):
    return int(verdict["incarnation"]) << 32 | int(verdict["record"])


# ------------------------------------------------------------------------------------------------ who gets one
def test_connections_to_its_port_get_it_and_others_get_no_extension(bench):
    helped, other = bench.verdicts(
        Stream(sport=1, dport=21).segment(flags="S"), Stream(sport=2, dport=22).segment(flags="S")
    )
    assert entry(bench, helped)["status"] & Status.HELPER and bench.extension(helped["record"])["helper"] == Helper.FTP
    assert not entry(bench, other)["status"] & Status.HELPER and entry(bench, other)["extension"] == 0


def test_from_its_port_is_not_to_its_port(bench):
    [verdict] = bench.verdicts(Stream(sport=21, dport=40000).segment(flags="S"))
    assert entry(bench, verdict)["extension"] == 0


def test_in_another_zone_there_are_other_rules(bench):
    bench.zone = 1
    [verdict] = bench.verdicts(Stream().segment(flags="S"))
    assert entry(bench, verdict)["extension"] == 0


def test_without_an_extension_left_there_is_no_helper_but_a_connection(bench):
    bench.table = segment.anonymous(Geometry(300, 4, 0), secret=tables.SECRET)
    bench.one = tables.Participant(bench.table)
    foretelling.set_rules(bench.table, (Helper.TFTP, 17, 0, 69))
    [verdict] = bench.verdicts(request())
    assert bench.label(verdict) == "N>" and entry(bench, verdict)["status"] & Status.HELPER == 0
    assert bench.one.counter(Reason.EXTENSION_FULL) == 1 and bench.table.geometry.records(Slab.EXTENSIONS) == 0


def test_an_extension_comes_without_what_its_last_owner_had(bench):
    [verdict] = bench.verdicts(Stream().segment(flags="S"))
    extension = bench.extension(verdict["record"])
    extension["helper_state"], extension["label"] = 255, 7
    bench.one.flush(0)
    [verdict] = bench.verdicts(request())
    again = bench.extension(verdict["record"])
    assert again["helper"] == Helper.TFTP and not again["helper_state"].any() and not again["label"].any()


def test_rules_that_go_leave_connections_their_helper(bench):
    packet = request()
    bench.labels(packet)
    foretelling.header(bench.table)["rules"] = 0
    assert bench.labels(answer(3000), packet, answer(3001)) == ["R>", "N>", "R>"]


# ------------------------------------------------------------------------------------------------ what is taken over
def test_a_related_connection_knows_its_parent_and_has_its_mark(bench):
    [parent] = bench.verdicts(request())
    entry(bench, parent)["mark"] = 9
    bench.verdicts(request())  # again: the expectation is made anew, with the mark
    [child] = bench.verdicts(answer())
    record = entry(bench, child)
    assert record["status"] & Status.RELATED and record["parent"] == public_id(parent) and record["mark"] == 9
    assert bench.one.counter(Reason.EXPECTED) == 2 and bench.one.counter(Reason.EXPECTATION_MATCHED) == 1


def test_a_lookup_without_commit_takes_nothing(bench):
    bench.labels(request())
    assert bench.labels(answer(), answer(), commit=False) == ["R>", "R>"]
    assert len(bench.foretold) == 1
    assert bench.labels(answer()) == ["R>"] and len(bench.foretold) == 0


def test_a_connection_without_commit_foretells_nothing(bench):
    assert bench.labels(request(), answer(), commit=False) == ["N>", "N>"]


def test_a_related_connection_that_has_a_helper_of_its_own(bench):
    """A transfer to a port that has rules is both: related, and followed."""
    parent = foretelling.parent_of(bench.one, tables.keys(1))
    foretelling.add(bench.one, parent, Wanted(destination=0xC6336401, source=0xC0000201, port=69, protocol=17))
    [verdict] = bench.verdicts(request())
    status = entry(bench, verdict)["status"]
    assert bench.label(verdict) == "R>" and status & Status.RELATED and status & Status.HELPER
    assert bench.labels(answer()) == ["R>"]


def test_who_may_not_open_takes_nothing(bench):
    parent = foretelling.parent_of(bench.one, tables.keys(1))
    foretelling.add(bench.one, parent, Wanted(port=5000))
    stream = Stream(sport=20, dport=5000, client=SERVER, server=CLIENT)
    assert bench.labels(stream.segment(flags="SA")) == ["I"] and len(bench.foretold) == 1
    assert bench.labels(stream.segment(flags="S")) == ["R>"]


def test_the_table_being_full_the_packet_is_related_all_the_same(bench):
    bench.labels(request())
    tables.set_limit(bench.table, 0, 1)
    tables.refuse(bench.table)
    [verdict] = bench.verdicts(answer())
    assert bench.label(verdict) == "R>" and verdict["reason"] == Reason.ZONE_FULL


# ------------------------------------------------------------------------------------------------ parents go
def test_no_connection_is_related_to_one_that_is_gone(bench):
    [parent] = bench.verdicts(request())
    bench.one.delete(int(parent["record"]), incarnation=int(parent["incarnation"]))
    bench.one.run()
    assert bench.labels(answer()) == ["N>"]


def test_what_was_foretold_waits_so_long(bench):
    bench.labels(request())
    bench.now_ms += int(helpers.EXPIRY_MS[Helper.TFTP]) - 1
    bench.verdicts(request())  # keeps the parent alive no longer than its own timeout: made anew
    bench.now_ms += 29_999
    assert bench.labels(answer()) == ["R>"]


def test_limits_are_named_for_each_helper():
    for helper in set(Helper) - {Helper.NONE}:
        if helpers.EXPIRY_MS[helper]:
            assert helpers.MOST[helper].any() and helpers.MOST[helper].max() <= 8
    assert helpers.MOST[Helper.FTP, Foretold.DATA] == 1


def test_packets_of_other_connections_are_not_read(bench):
    assert bench.labels(datagram(CLIENT, 1, SERVER, 70, b"\x00\x01x"), syn(SERVER, 3, CLIENT, 1)) == ["N>", "N>"]
    assert len(bench.foretold) == 0
