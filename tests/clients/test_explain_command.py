"""explain: of captures, and of what a real service has sampled, for people and as JSON."""

import json

import pytest
from bursts import CLIENT, SERVER, Bench, tcp
from desk import run
from scapy.all import Raw, wrpcap
from zonetrack.clients.errors import Exit
from zonetrack.clients.explain_command import lines

ZONE = 150


@pytest.fixture
def path(tmp_path):
    packets = [tcp("S", 1000), tcp("SA", 5000, 1001, reply=True), tcp("A", 1001, 5001)]
    packets += [tcp("PA", 20000, 5001) / Raw(bytes(500)), tcp("S", 70000)]
    for n, packet in enumerate(packets):
        packet.time = 1767225600 + n
    wrpcap(str(tmp_path / "x.pcap"), packets)
    return str(tmp_path / "x.pcap")


def test_a_capture(path):
    code, out, _ = run("explain", path)
    assert code == Exit.OK
    assert out.splitlines() == [
        f"packet 4: invalid, tcp_seq_above: seq 20000..20500 beyond what {SERVER} granted "
        f"(highest acceptable 9193 = highest ack + window of {SERVER})",
        f"    {CLIENT}:40000 > {SERVER}:80 tcp PA seq 20000..20500 ack 5001 win 8192; zone 0, ESTABLISHED, 431999 s to live",
        "    rule: the windows of both sides (kernels/tcp_window: van Rooij, Real Stateful TCP Packet Filtering, "
        "bounds I-IV)",
        "    accepted with be_liberal=on or seq_check=off",
        "packet 5: let by, tcp_syn_challenge: it may belong to another connection of the same ports: its receiver will tell",
        f"    {CLIENT}:40000 > {SERVER}:80 tcp S seq 70000..70001 win 8192; zone 0, ESTABLISHED, 431998 s to live",
        "    rule: RFC 5961 4: a SYN is answered by a challenge ACK",
    ]


def test_one_packet(path):
    code, out, _ = run("explain", path, "--packet", 2)
    assert (code, out.splitlines()[0]) == (Exit.OK, "packet 2: accepted, est|rpl reply")
    code, out, err = run("explain", path, "--packet", 9)
    assert (code, out) == (Exit.NOTHING_MATCHED, "") and "no packet 9" in err


def test_as_json(path):
    told = [json.loads(line) for line in run("explain", path, "--json").out.splitlines()]
    assert [(one["n"], one["reason"]) for one in told] == [(4, "tcp_seq_above"), (5, "tcp_syn_challenge")]
    assert told[0]["bounds"][0]["highest"] == 9193 and not told[0]["bounds"][0]["holds"]
    assert run("explain", path, "--liberal", "--json").out.count("tcp_seq_above") == 0


@pytest.mark.parametrize("words", [(), ("x.pcap", "--recent"), ("--recent", "--packet", "3")])
def test_files_or_the_recent(words):
    code, _, err = run("explain", *words)
    assert code == Exit.USAGE and "--recent" in err


def test_helpers_are_named(path):
    assert run("explain", path, "--helper", "ftp=21", "--packet", 1).out.startswith("packet 1: accepted, new orig")
    code, _, err = run("explain", path, "--helper", "gopher=70")
    assert code == Exit.USAGE and "gopher" in err


def test_a_file_that_is_not_there():
    code, _, err = run("explain", "/nowhere.pcap")
    assert code == Exit.FAILED and "/nowhere.pcap" in err


def test_the_latest_of_a_service(desk):
    maker = Bench(desk.service.table)
    for n in range(3):
        maker.track(tcp("FA", n, 1, sport=n + 1), zone=ZONE, now_ms=5000 + n)
    told = [json.loads(line) for line in desk.run("explain", "--recent", "--zone", ZONE, "--json").out.splitlines()]
    assert [one["packet"]["seq"] for one in told] == [2, 1, 0]
    assert {one["by"] for one in told} == {f"participant {maker.me}"}
    out = desk.run("explain", "--recent", "--limit", 1, "--zone", ZONE).out.splitlines()
    assert len(out) == 4 and "tcp_new_refused: FIN of no connection" in out[0]
    assert out[-1] == "    no setting accepts it"
    assert desk.run("explain", "--recent", "--zone", ZONE + 1) == (Exit.OK, "", "")


def test_what_is_not_said_has_no_line():
    one = {
        "n": 1,
        "fate": "held",
        "reason": None,
        "ct_state": [],
        "direction": None,
        "arrived": "a fragment",
        "zone": 0,
    }
    assert list(lines(one | {"rule": None, "accepted_with": [], "id": None})) == [
        "packet 1: held",
        "    a fragment; zone 0, no connection",
    ]
