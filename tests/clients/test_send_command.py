"""``zonetrack send``: what it prints, as a summary and packet by packet, and how it ends."""

import json
from pathlib import Path

import conversations
import pytest
from capture_files import pcap
from click.testing import CliRunner
from ports import Lab, working
from zonetrack.clients.errors import Exit, NothingMatchedError
from zonetrack.clients.send_command import command
from zonetrack.service.captures import CaptureError
from zonetrack.service.replay import Options, Replay, survey


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture of some conversations, with its number of packets."""
    path = tmp_path_factory.mktemp("send") / "some.pcap"
    packets = conversations.captured(conversations.mixed(hosts=4))
    path.write_bytes(pcap(packets)[0])
    return str(path), len(packets)


@pytest.fixture
def lab():
    with Lab(queues=2, slots=16) as made, working(made):
        yield made


def send(lab, *arguments):
    """Run the command, which must not fail unexpectedly."""
    result = CliRunner().invoke(command, ["--instance", lab.instance, *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_summary_in_json(lab, capture):
    file, count = capture
    report = json.loads(send(lab, "lab", file, "--json").stdout)
    assert (report["sent"], report["returned"], report["lost"]) == (count, count, 0)
    assert sum(report["labels"].values()) == count
    assert report["packets_per_second"] > 0


def test_summary_for_people(lab, capture):
    file, count = capture
    result = send(lab, "lab", file)
    assert result.stdout.splitlines()[0].split() == ["verdict", "packets"]
    assert f"{count:,} packets sent, {count:,} returned, 0 lost" in result.stderr


def test_packets_get_the_labels_of_a_replay(lab, capture):
    file, count = capture
    result = send(lab, "lab", file, "--packets", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["n"] for line in lines] == list(range(1, count + 1))
    run = Replay(survey([file]), Options(verdicts=True))
    run.run()
    ct_states = [
        sum({"new": 1, "est": 2, "rel": 4, "rpl": 8, "inv": 16, "trk": 32}[name] for name in line["ct_state"])
        for line in lines
    ]
    assert ct_states == run.verdicts["ct_state"].tolist()


def test_packets_for_people(lab, capture):
    file, count = capture
    lines = send(lab, "lab", file, "--packets").stdout.splitlines()
    assert lines[0] == file
    assert len(lines) == count + 2


def test_file_is_sent_again_and_again(lab, capture):
    file, count = capture
    report = json.loads(send(lab, "lab", file, "--loop", 3, "--queue", 1, "--json").stdout)
    assert report["sent"] == 3 * count
    assert report["queue"] == 1


def test_port_that_there_is_not(lab, capture):
    with pytest.raises(NothingMatchedError):
        send(lab, "lob", capture[0])


def test_bad_file_is_named_after_its_good_packets_were_sent(lab, capture, tmp_path):
    path = tmp_path / "cut.pcap"
    path.write_bytes(Path(capture[0]).read_bytes()[:-3])
    with pytest.raises(CaptureError, match=r"cut\.pcap"):
        send(lab, "lab", path)
    assert lab.queues.records[0]["rx_packets"] == capture[1] - 1


@pytest.mark.parametrize("option", [("--rate", "0"), ("--loop", "0"), ("--queue", "1024")])
def test_nonsense_is_a_usage_error(lab, capture, option):
    assert send(lab, "lab", capture[0], *option).exit_code == Exit.USAGE
