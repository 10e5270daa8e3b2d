"""``zonetrack replay`` as people and scripts use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import conversations
import pytest
from click.testing import CliRunner
from zonetrack.clients.errors import Exit
from zonetrack.service import replay_command
from zonetrack.service.replay import Replay
from zonetrack.service.replay_command import command


@pytest.fixture
def path(tmp_path):
    """A capture of one TCP connection and one ping."""
    packets = [
        *conversations.tcp("192.0.2.1", "198.51.100.1", 40000, 80),
        *conversations.ping("192.0.2.1", "198.51.100.1", 7),
    ]
    return conversations.write(tmp_path / "x.pcap", packets)


def invoke(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_connections_as_a_table(path):
    result = invoke(path)
    assert result.exit_code == Exit.OK
    heading, tcp, icmp = result.stdout.splitlines()
    assert heading.split()[:4] == ["proto", "zone", "source", "destination"]
    assert tcp.split()[:5] == ["tcp", "0", "192.0.2.1:40000", "198.51.100.1:80", "TIME_WAIT"]
    assert icmp.split()[:3] == ["icmp", "0", "192.0.2.1"]
    assert f"{path}: 10 packets, 2 connections;" in result.stderr


def test_connections_as_json(path):
    result = invoke("--json", "--zone", 5, path)
    tcp, icmp = json.loads(result.stdout)
    assert (tcp["proto"], tcp["zone"], tcp["orig"]["packets"], tcp["reply"]["packets"]) == ("tcp", 5, 5, 3)
    assert icmp["orig"]["type"] == 8 and "file" not in icmp


def test_packets_as_json_lines(path):
    result = invoke("--packets", "--json", "--workers", 2, path)
    packets = [json.loads(line) for line in result.stdout.splitlines()]
    assert [packet["label"] for packet in packets] == [*conversations.TCP_LABELS, "N>", "E<"]
    assert [packet["n"] for packet in packets] == list(range(1, 11))
    assert {packet["file"] for packet in packets} == {path}
    assert packets[0] | {"id": 0} == {
        "file": path,
        "n": 1,
        "time": 1767225600.0,
        "zone": 0,
        "ct_state": ["trk", "new"],
        "direction": "orig",
        "assured": False,
        "reason": None,
        "label": "N>",
        "id": 0,
    }
    assert len({packet["id"] for packet in packets[:8]}) == 1


def test_packets_as_text(path):
    lines = invoke("--packets", path).stdout.splitlines()
    assert lines[0] == path
    assert lines[2].split()[:5] == ["1", "1767225600.0", "0", "N>", "trk|new"]
    assert len(lines) == 12


def test_each_file_has_a_table_of_its_own(path):
    shared, each = invoke("--json", path, path), invoke("--json", "--each", path, path)
    assert len(json.loads(shared.stdout)) == 2  # the second SYN replaces the connection that is over
    assert [connection["file"] for connection in json.loads(each.stdout)] == [path] * 4
    assert invoke("--each", path, path).stdout.splitlines().count(path) == 2
    numbers = [json.loads(line)["n"] for line in invoke("--packets", "--json", path, path).stdout.splitlines()]
    assert numbers == [*range(1, 11)] * 2


def test_bad_files_are_told_and_the_rest_still_runs(path, tmp_path):
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(Path(path).read_bytes()[:-1])
    result = invoke("--packets", "--json", "--each", tmp_path / "none.pcap", cut, path)
    assert result.exit_code == Exit.FAILED
    assert f"Error: {tmp_path}/none.pcap: byte 0: No such file or directory" in result.stderr
    assert f"Error: {cut}: byte " in result.stderr and "the file ends inside a record" in result.stderr
    assert len(result.stdout.splitlines()) == 9 + 10
    assert json.loads(invoke("--json", tmp_path / "none.pcap").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument"),
        (("--profile", "pf", "x"), "'pf' is not one of 'netfilter', 'ovs'"),
        (("--helper", "gopher=70", "x"), "there is no helper 'gopher'"),
        (("--helper", "ftp", "x"), "is not NAME=PORT"),
        (("--zone", "65536", "x"), "--zone"),
        (("--workers", "0", "x"), "--workers"),
        (("--checksum", "guess", "x"), "--checksum"),
        (("--max-connections", "0", "x"), "--max-connections"),
    ],
)
def test_usage(arguments, words):
    result = invoke(*arguments)
    assert result.exit_code == Exit.USAGE
    assert words in result.stderr


def test_the_footer_says_why_packets_are_invalid(tmp_path):
    packets = list(conversations.dns("192.0.2.1", "198.51.100.53", 5000))
    packets[1].getlayer("UDP").chksum = 0xBEEF
    path = conversations.write(tmp_path / "x.pcap", packets)
    error = invoke(path).stderr
    assert "2 packets, 1 connections, 1 invalid (l4csum_err 1)" in error and "--checksum ignore" in error
    assert "invalid" not in invoke("--checksum", "ignore", path).stderr


def test_the_footer_says_when_the_table_was_full(tmp_path):
    packets = [next(conversations.dns("192.0.2.1", "198.51.100.53", port)) for port in range(1, 9)]
    path = conversations.write(tmp_path / "x.pcap", packets)
    assert "3 connections found the table full" in invoke("--max-connections", 5, path).stderr


@pytest.mark.parametrize(
    ("option", "label"), [((), "I"), (("--liberal",), "E>a"), (("--no-seq-check",), "E>a")], ids=str
)
def test_window_options(tmp_path, option, label):
    packets = list(conversations.tcp("192.0.2.1", "198.51.100.1", 40000, 80))
    packets[3].getlayer("TCP").seq += 1_000_000
    path = conversations.write(tmp_path / "x.pcap", packets)
    lines = invoke("--packets", "--json", *option, path).stdout.splitlines()
    assert json.loads(lines[3])["label"] == label


def test_no_expiry(tmp_path):
    packets = conversations.ping("192.0.2.1", "198.51.100.1", 7)
    path = conversations.write(tmp_path / "x.pcap", packets, step_ns=40 * 10**9)
    assert json.loads(invoke("--json", path).stdout) == []
    (connection,) = json.loads(invoke("--json", "--no-expiry", path).stdout)
    assert connection["status"] == ["seen_reply"]


def test_a_dead_worker_is_an_error(path, monkeypatch):
    class Mortal(Replay):
        def work(self, shard):
            if shard == 1:
                os._exit(9)
            super().work(shard)

    monkeypatch.setattr(replay_command, "Replay", Mortal)
    result = invoke("--workers", 2, path)
    assert result.exit_code == Exit.FAILED
    assert "Error: worker 1 (pid " in result.stderr and "failed with exit code 9" in result.stderr


def test_the_installed_command(path):
    zonetrack = Path(sys.executable).parent / "zonetrack"
    result = subprocess.run(
        [zonetrack, "replay", "--packets", "--json", "--workers", "3", path], capture_output=True, text=True, check=True
    )
    labels = [json.loads(line)["label"] for line in result.stdout.splitlines()]
    assert labels == [*conversations.TCP_LABELS, "N>", "E<"]
    assert "\x1b" not in result.stdout + result.stderr
