"""Replay: several files, several workers, one clock, and everything that can be wrong with a file or a worker."""

import os
import signal

import conversations
import helping
import pytest
from capture_files import pcap
from scapy.layers.inet import IP, UDP
from zonetrack.kernels.jit import JIT
from zonetrack.service import audit, connections, labels
from zonetrack.service.replay import Options, Replay, survey
from zonetrack.shm import roster
from zonetrack.shm.layout import SETTINGS_DEFAULT, Setting
from zonetrack.shm.reasons import Reason

SECOND_NS = 10**9


def replayed(paths, **options):
    """Return a replay that has run to its end, and left a table where all is in its place."""
    run = Replay(survey(paths), Options(verdicts=True, **options))
    run.run()
    assert run.deaths == []
    if JIT:  # the interpreter takes seconds to look at every zone
        assert audit.at_rest(run.table) is None
    return run


def labels_of(run):
    return [labels.label(int(v["ct_state"]), int(v["direction"]), int(v["flags"])) for v in run.verdicts]


def datagrams(count, first=1):
    return [IP(src="192.0.2.1", dst="198.51.100.1") / UDP(sport=first + i, dport=9) / b"datagram" for i in range(count)]


@pytest.fixture
def capture(tmp_path):
    """Write packets as a capture; returns its path."""

    def write(name, packets, step_ns=conversations.MS // 3):
        return conversations.write(tmp_path / name, packets, step_ns)

    return write


def test_labels_of_a_tcp_connection(capture):
    path = capture("x.pcap", conversations.tcp("192.0.2.1", "198.51.100.1", 40000, 80))
    run = replayed([path])
    assert labels_of(run) == conversations.TCP_LABELS
    (connection,) = connections.listed(run.table, run.now_ms)
    assert connection["state"] == "TIME_WAIT"
    assert connection["orig"]["packets"] + connection["reply"]["packets"] == 8
    assert connection["start"] == conversations.START_NS / SECOND_NS


def test_labels_and_connections_do_not_depend_on_the_workers(capture):
    path = capture("x.pcap", conversations.mixed(hosts=8))
    runs = [replayed([path], workers=workers) for workers in (1, 2, 3)]
    assert labels_of(runs[0]) == labels_of(runs[1]) == labels_of(runs[2])
    assert {"N>", "E>a", "E<a", "R<"} <= set(labels_of(runs[0]))
    listings = [
        [{k: v for k, v in c.items() if k != "id"} for c in connections.listed(r.table, r.now_ms)] for r in runs
    ]
    assert listings[0] == listings[1] == listings[2] != []
    for run, workers in zip(runs, (1, 2, 3), strict=True):
        assert run.counters[Reason.PACKETS] == run.survey.packets
        assert run.progress["packets"].tolist() == [run.survey.packets] * workers
        assert roster.present(run.table) == []


def test_many_workers_leave_each_other_room(capture):
    """Each keeps free records to itself; a table as small as its connections must have enough beside them."""
    path = capture("x.pcap", conversations.mixed(hosts=20))
    connections_made = int(replayed([path]).counters[Reason.INSERT])
    run = replayed([path], workers=24, max_connections=connections_made)
    assert run.counters[Reason.INSERT] == connections_made
    assert not {Reason.FULL, Reason.SLAB_FULL} & set(run.verdicts["reason"].tolist())


def test_files_share_a_table_and_a_clock_in_their_order(capture):
    first, second = conversations.dns("192.0.2.1", "198.51.100.53", 5000)
    asked, answered = capture("asked.pcap", [first]), capture("answered.pcap", [second])
    assert labels_of(replayed([asked, answered], workers=2)) == ["N>", "E<"]
    assert labels_of(replayed([answered, asked])) == ["N>", "E<"]
    assert labels_of(replayed([answered])) == ["N>"]


def test_time_goes_on_from_file_to_file_but_not_back(capture, tmp_path):
    packets = conversations.captured(datagrams(1) * 3, step_ns=31 * SECOND_NS)
    paths = []
    for name, packet in zip(("b", "a", "c"), packets, strict=True):
        (tmp_path / name).write_bytes(pcap([packet])[0])
        paths.append(str(tmp_path / name))
    early, later, last = paths
    run = replayed([later, early, last])
    assert run.now_ms == 1000 + 31_000
    assert run.counters[Reason.INSERT] == 2  # the third came 31 s after the first, whose time was over


def test_what_is_silent_for_too_long_expires(capture):
    path = capture("x.pcap", conversations.ping("192.0.2.1", "198.51.100.1", 7), step_ns=31 * SECOND_NS)
    assert labels_of(replayed([path])) == ["N>", "I"]
    assert labels_of(replayed([path], expiry=False)) == ["N>", "E<"]


def test_what_has_expired_is_not_listed(capture):
    path = capture("x.pcap", datagrams(3), step_ns=20 * SECOND_NS)
    run = replayed([path], workers=2)
    assert [c["orig"]["sport"] for c in connections.listed(run.table, run.now_ms)] == [2, 3]
    run = replayed([path], expiry=False)
    assert len(list(connections.listed(run.table, run.now_ms, expired=True))) == 3


def test_expired_connections_make_room(capture):
    path = capture("x.pcap", datagrams(400), step_ns=5 * SECOND_NS)
    for workers in (1, 2):
        run = replayed([path], workers=workers, max_connections=64)
        assert set(labels_of(run)) == {"N>"}
        assert run.counters[Reason.INSERT] == 400


def test_a_full_table_is_a_reason(capture):
    run = replayed([capture("x.pcap", datagrams(20))], max_connections=10)
    assert run.verdicts["reason"].tolist() == [Reason.NONE] * 10 + [Reason.FULL] * 10
    assert set(labels_of(run)) == {"N>"}
    assert len(list(connections.listed(run.table, run.now_ms))) == 10


JUDGED = SETTINGS_DEFAULT & ~Setting.EARLY_DROP


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, JUDGED),
        ({"verify": False}, JUDGED & ~Setting.CHECKSUM),
        ({"liberal": True}, JUDGED | Setting.BE_LIBERAL),
        ({"seq_check": False}, JUDGED & ~Setting.SEQ_CHECK),
        ({"expiry": False}, JUDGED | Setting.NO_EXPIRY),
        ({"profile": "ovs"}, JUDGED | Setting.OVS),
    ],
)
def test_options_become_settings(options, settings):
    assert Options(**options).settings == settings


def test_the_ovs_profile(capture):
    run = replayed([capture("x.pcap", conversations.mixed(hosts=1))], profile="ovs", workers=2)
    words = {labels.label(int(v["ct_state"]), int(v["direction"]), int(v["flags"]), "ovs") for v in run.verdicts}
    assert words == {"new", "est", "est|rpl", "rel|rpl"}
    found = list(connections.listed(run.table, run.now_ms))
    assert found and all("ovs" in connection["status"] for connection in found)
    assert {connection["state"] for connection in found if connection["proto"] == "tcp"} == {"TIME_WAIT"}


def test_checksums_are_verified_or_ignored(capture):
    (packet,) = datagrams(1)
    packet[UDP].chksum = 0xBEEF
    path = capture("x.pcap", [packet])
    assert labels_of(replayed([path])) == ["I"]
    assert labels_of(replayed([path], verify=False)) == ["N>"]


def test_the_zone_is_that_of_every_packet(capture):
    run = replayed([capture("x.pcap", conversations.mixed(hosts=1))], zone=65535, workers=2)
    assert set(run.verdicts["zone"].tolist()) == {65535}
    assert {c["zone"] for c in connections.listed(run.table, run.now_ms)} == {65535}


def test_faults_are_noted_and_what_comes_before_them_is_tracked(capture, tmp_path):
    good = capture("good.pcap", datagrams(3))
    cut = capture("cut.pcap", datagrams(3, first=100))
    os.truncate(cut, os.path.getsize(cut) - 1)
    (tmp_path / "empty.pcap").touch()
    found = survey([cut, str(tmp_path / "empty.pcap"), str(tmp_path / "none.pcap"), good])
    assert [source.packets for source in found.sources] == [2, 0, 0, 3]
    assert [str(source.fault or "").rpartition(": ")[2] for source in found.sources] == [
        "the file ends inside a record",
        "the file is empty",
        "No such file or directory",
        "",
    ]
    assert [(source.path, place) for source, place in found.placed()] == [(cut, 0), (good, 2)]
    run = Replay(found, Options(verdicts=True, workers=2))
    run.run()
    assert labels_of(run) == ["N>"] * 5


class Mortal(Replay):
    """A replay whose second worker is killed before its first packet."""

    def work(self, shard):
        if shard == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().work(shard)


def test_a_worker_that_dies_is_named_and_the_others_work_is_kept(capture):
    path = capture("x.pcap", conversations.mixed(hosts=8))
    whole, run = replayed([path], workers=2), Mortal(survey([path]), Options(verdicts=True, workers=2))
    run.run()
    (death,) = run.deaths
    assert "worker 1" in str(death) and "SIGKILL" in str(death)
    given = run.verdicts["ct_state"] != 0
    assert 0 < given.sum() < len(given)
    assert [a for a, is_given in zip(labels_of(run), given, strict=True) if is_given] == [
        b for b, is_given in zip(labels_of(whole), given, strict=True) if is_given
    ]


def test_a_file_that_goes_away_between_the_walks_is_an_error_of_the_worker(capture, capfd):
    path = capture("x.pcap", datagrams(3))
    found = survey([path])
    os.unlink(path)
    run = Replay(found, Options(verdicts=True))
    run.run()
    assert [death.code for death in run.deaths] == [1]
    assert "No such file" in capfd.readouterr().err


def test_a_file_that_grows_between_the_walks_is_told_as_it_was(capture):
    packets = datagrams(5)
    first, second = capture("a.pcap", packets[:2]), capture("b.pcap", datagrams(2, first=50))
    found = survey([first, second])
    capture("a.pcap", packets)
    run = Replay(found, Options(verdicts=True))
    run.run()
    assert labels_of(run) == ["N>"] * 4
    assert run.deaths == []


def test_no_packets_at_all(capture):
    run = replayed([capture("x.pcap", [])], workers=2)
    assert (run.survey.packets, list(connections.listed(run.table, run.now_ms))) == (0, [])


def test_who_may_come_from_anywhere_is_related_whoever_has_his_packets(capture):
    stream = helping.Stream(dport=6667)
    offer = b"PRIVMSG friend :\1DCC SEND file %d 5000 1\1\r\n" % 0xC0000201
    guests = [helping.syn(f"203.0.113.{n}", 1000, "192.0.2.1", 5000) for n in (1, 2)]
    packets = [*stream.opened(), stream.say(offer), guests[0], stream.say(offer), guests[1]]
    path = capture("x.pcap", [packet[IP] for packet in packets])
    run = replayed([path], helpers=(("irc", 6667),), workers=3)
    assert [label for label in labels_of(run) if label.startswith("R")] == ["R>", "R>"]
    assert len(run.progress) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_helpers_are_given_by_port(capture, workers):
    path = capture("x.pcap", [p[IP] for p in (helping.request(), helping.answer(), helping.answer(3001))])
    run = replayed([path], helpers=(("tftp", 69), ("ftp", 2121)), workers=workers)
    assert labels_of(run) == ["N>", "R>", "N>"]
    related = [connection for connection in connections.listed(run.table, run.now_ms) if "parent" in connection]
    assert [connection["parent"]["dport"] for connection in related] == [69]
    assert labels_of(replayed([path], helpers=(("tftp", 70),), workers=workers)) == ["N>", "N>", "N>"]
