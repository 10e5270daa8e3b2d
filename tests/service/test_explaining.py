"""A capture is explained packet by packet, and every packet gets what a replay says of it."""

import conversations
import pytest
from bursts import CLIENT, SERVER, tcp, udp
from scapy.all import IP, UDP, Ether, Raw, fragment, wrpcap
from zonetrack.service.captures import CaptureError
from zonetrack.service.explaining import Options, explained, survey
from zonetrack.service.replay import Replay


@pytest.fixture
def path(tmp_path):
    """A capture in which every fifth packet of many is beyond the window."""
    packets = [tcp("S", 1000), tcp("SA", 5000, 1001, reply=True), tcp("A", 1001, 5001)]
    for n in range(60):
        late = n % 5 == 0
        packets.append(tcp("PA", 90_000 + n if late else 1001, 5001) / Raw(b"data"))
    packets.append(udp())
    for n, packet in enumerate(packets):
        packet.time = 1767225600 + n / 1_000_000
    wrpcap(str(tmp_path / "x.pcap"), packets)
    return str(tmp_path / "x.pcap")


OPTIONS = Options(verdicts=True, zone=7)


def test_packets_with_a_reason_are_told_in_order(path):
    told = list(explained([path], OPTIONS))
    assert [one["n"] for one in told] == [n + 4 for n in range(0, 60, 5)]
    assert {(one["reason"], one["zone"], one["file"]) for one in told} == {("tcp_seq_above", 7, path)}
    assert [one["packet"]["seq"] for one in told] == [90_000 + n for n in range(0, 60, 5)]
    assert told[0]["accepted_with"] == ["be_liberal=on", "seq_check=off"]
    assert told[0]["time"] == pytest.approx(1767225600.000003)
    assert f"beyond what {SERVER} granted (highest acceptable 9193" in told[0]["expected"]


@pytest.mark.parametrize(
    ("n", "fate", "arrived"),
    [
        (1, "accepted", f"{CLIENT}:40000 > {SERVER}:80 tcp S seq 1000..1001 win 8192"),
        (4, "invalid", "seq 90000..90004"),
    ],
)
def test_one_packet(path, n, fate, arrived):
    (told,) = explained([path], OPTIONS, n)
    assert (told["n"], told["fate"]) == (n, fate) and arrived in told["arrived"]


def test_a_checksum_is_held_against_the_whole_packet(tmp_path):
    packet = Ether(bytes(udp()))
    packet[UDP].chksum = 0x1234
    right = Ether(bytes(udp()))[UDP].chksum
    wrpcap(str(tmp_path / "z.pcap"), packet)
    (told,) = explained([str(tmp_path / "z.pcap")], OPTIONS)
    assert told["expected"] == f"udp checksum 0x1234, 0x{right:04x} expected"
    assert told["accepted_with"] == ["checksum=off"]


def test_fragments_that_wait_in_vain_are_told(tmp_path):
    first, *_ = fragment(IP(src=CLIENT, dst=SERVER, id=7) / UDP(sport=7, dport=9) / Raw(bytes(3000)), 1400)
    packets = [Ether() / first, udp()]
    for packet, seconds in zip(packets, (0, 600), strict=True):
        packet.time = 1767225600 + seconds
    wrpcap(str(tmp_path / "z.pcap"), packets)
    (told,) = explained([str(tmp_path / "z.pcap")], OPTIONS)
    assert (told["n"], told["reason"], told["fate"]) == (1, "fragment_expired", "invalid")


def test_a_packet_that_is_not_there(path):
    assert list(explained([path], OPTIONS, 1000)) == []


def test_files_share_a_table_and_are_numbered_by_themselves(path):
    told = list(explained([path, path], Options(verdicts=True)))
    first = [one["n"] for one in told[:12]]
    assert first == [one["n"] for one in told if one["n"] in first][:12]
    assert told[-1]["n"] <= 64 and any(one["reason"] != "tcp_seq_above" for one in told)  # the second SYN is late


def test_a_file_that_breaks_off_is_told_up_to_there(path, tmp_path):
    with open(path, "rb") as file:
        whole = file.read()
    (tmp_path / "y.pcap").write_bytes(whole[:-5])
    told = []
    with pytest.raises(CaptureError):
        for one in explained([str(tmp_path / "y.pcap")], OPTIONS):
            told.append(one)
    assert len(told) == 12


def test_the_settings_are_those_of_a_replay(path):
    assert list(explained([path], Options(verdicts=True, liberal=True))) == []
    other = list(explained([path], Options(verdicts=True, profile="ovs")))
    assert {one["profile"] for one in other} == {"ovs"} and other


def test_every_packet_gets_what_a_replay_says(path, tmp_path):
    second = conversations.write(tmp_path / "z.pcap", conversations.tcp(CLIENT, SERVER, 40000, 80))
    replay = Replay(survey([path, second]), Options(verdicts=True))
    replay.run()
    reasons = {place for place, verdict in enumerate(replay.verdicts) if verdict["reason"]}
    told = list(explained([path, second], Options(verdicts=True)))
    places = {one["n"] - 1 + (one["file"] == second) * 64 for one in told}
    assert places == reasons
