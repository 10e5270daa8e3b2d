"""list, count, delete and flush against a real service: what they print, in every format, and how they end."""

import json
import os
import pty
import subprocess
import sys

import pytest
from zonetrack.clients.connection_commands import FORMATS
from zonetrack.clients.errors import Exit

COUNTED, LISTED, DELETED, FLUSHED, EMPTY = 101, 102, 103, 104, 199


def test_count_all_of_a_zone_and_by_filter(desk):
    before = int(desk.run("count").out)
    desk.fill(COUNTED, 5)
    assert desk.run("count") == (Exit.OK, f"{before + 5}\n", "")
    assert desk.run("count", "--zone", COUNTED).out == "5\n"
    assert desk.run("count", "--zone", COUNTED, "--sport", 1003).out == "1\n"
    assert desk.run("count", "--zone", COUNTED, "--src", "192.0.2.0/24", "--proto", "udp").out == "5\n"
    assert desk.run("count", "--zone", COUNTED, "--src", "198.51.100.1").out == "0\n"
    assert desk.run("count", "--zone", COUNTED, "--reply-src", "198.51.100.1", "--unreplied").out == "5\n"
    assert json.loads(desk.run("count", "--zone", COUNTED, "--json").out) == {"count": 5}


@pytest.fixture(scope="module")
def listed(desk):
    desk.fill(LISTED, 3)
    return desk


def test_list_as_a_table(listed):
    code, out, err = listed.run("list", "--zone", LISTED)
    lines = out.splitlines()
    assert code == Exit.OK and err == "3 connections\n"
    assert lines[0].split() == [
        "proto",
        "zone",
        "source",
        "destination",
        "state",
        "status",
        "packets",
        "bytes",
        "timeout",
    ]
    assert sorted(line.split()[2] for line in lines[1:]) == [f"192.0.2.1:{port}" for port in (1000, 1001, 1002)]


def test_list_as_conntrack_and_as_open_vswitch(listed):
    one = ("list", "--zone", LISTED, "--sport", 1001, "--format")
    (line,) = listed.run(*one, "conntrack").out.splitlines()
    before, _, after = line.partition(" src=")
    assert before.startswith("udp      17 ")
    assert after == (
        "192.0.2.1 dst=198.51.100.1 sport=1001 dport=53 packets=0 bytes=0 [UNREPLIED]"
        " src=198.51.100.1 dst=192.0.2.1 sport=53 dport=1001 packets=0 bytes=0 mark=0 zone=102 use=1"
    )
    assert listed.run(*one, "ovs").out == (
        "udp,orig=(src=192.0.2.1,dst=198.51.100.1,sport=1001,dport=53),"
        "reply=(src=198.51.100.1,dst=192.0.2.1,sport=53,dport=1001),zone=102\n"
    )
    assert ",status=CONFIRMED,timeout=" in listed.run(*one, "ovs", "-m", "-s").out


def test_list_as_json(listed):
    code, out, err = listed.run("list", "--zone", LISTED, "--json")
    assert (code, err) == (Exit.OK, "")
    assert sorted(one["orig"]["sport"] for one in json.loads(out)) == [1000, 1001, 1002]
    assert out == listed.run("list", "--zone", LISTED, "--format", "json").out
    lines = listed.run("list", "--zone", LISTED, "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [one["id"] for one in json.loads(out)]
    assert json.loads(listed.run("list", "--zone", EMPTY, "--json").out) == []


@pytest.mark.parametrize("form", FORMATS)
def test_list_of_nothing_is_fine_in_every_format(desk, form):
    assert desk.run("list", "--zone", EMPTY, "--format", form).code == Exit.OK


def test_list_no_more_than(listed):
    assert len(listed.run("list", "--zone", LISTED, "--limit", 2, "--format", "jsonl").out.splitlines()) == 2
    assert listed.run("list", "--limit", 0, "--format", "jsonl").out == ""


def test_options_of_open_vswitch_are_for_its_format(desk):
    assert desk.run("list", "-m").code == Exit.USAGE


def test_delete_what_is_meant_and_no_more(desk):
    desk.fill(DELETED, 4)
    assert desk.run("delete", "--zone", DELETED, "--sport", 1002) == (Exit.OK, "1 deleted\n", "")
    assert desk.run("count", "--zone", DELETED, "--proto", "udp").out == "3\n"
    assert desk.run("delete", "--zone", DELETED, "--json").out == '{"deleted": 3}\n'


def test_delete_of_nothing_says_so(desk):
    code, out, err = desk.run("delete", "--zone", EMPTY)
    assert (code, out) == (Exit.NOTHING_MATCHED, "") and err.startswith("Error: ")


def test_delete_of_everything_is_a_flush(desk):
    code, _, err = desk.run("delete")
    assert code == Exit.USAGE and "zonetrack flush" in err


def test_flush_a_zone(desk):
    desk.fill(FLUSHED, 6)
    desk.fill(FLUSHED + 1, 1)
    assert desk.run("flush", "--zone", FLUSHED) == (Exit.OK, "6 flushed\n", "")
    assert desk.run("count", "--zone", FLUSHED).out == "0\n"
    assert desk.run("count", "--zone", FLUSHED + 1).out == "1\n"
    told = json.loads(desk.run("flush", "--zone", FLUSHED + 1, "--json").out)
    assert told["flushed"] == 1 and told["zones"] == 1


@pytest.mark.parametrize("command", ["list", "count", "delete", "flush"])
@pytest.mark.parametrize("zone", ["65536", "-1", "x"])
def test_a_zone_that_cannot_be(desk, command, zone):
    code, out, err = desk.run(command, f"--zone={zone}")
    assert (code, out) == (Exit.USAGE, "") and "a number from 0 to 65535" in err


def test_list_as_csv(listed):
    code, out, err = listed.run("list", "--zone", LISTED, "--format", "csv")
    names, *rows = out.splitlines()
    assert code == Exit.OK and err == "3 connections\n"
    assert names.startswith("id,zone,proto,src,dst,sport,dport,")
    assert sorted(row.split(",")[5] for row in rows) == ["1000", "1001", "1002"]


def test_list_as_parquet(listed, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with (tmp_path / "x.parquet").open("wb") as file:
        words = ("list", "--socket", listed.socket, "--zone", str(LISTED), "--format", "parquet")
        subprocess.run([sys.executable, "-m", "zonetrack.service", *words], stdout=file, check=True)
    table = parquet.read_table(tmp_path / "x.parquet")
    assert sorted(table["sport"].to_pylist()) == [1000, 1001, 1002] and set(table["zone"].to_pylist()) == {LISTED}


def test_who_waits_for_a_file_sees_how_far_it_is(desk, tmp_path):
    """With the lines in a file and stderr on a terminal, as in `zonetrack list --format conntrack > FILE`."""
    desk.fill(150, 3)
    ours, theirs = pty.openpty()
    words = ("list", "--socket", desk.socket, "--format", "conntrack", "--zone", "150")
    with open(tmp_path / "lines", "w") as file:
        command = [sys.executable, "-m", "zonetrack.service", *words]
        assert subprocess.run(command, stdout=file, stderr=theirs, check=False).returncode == 0
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    assert shown.startswith("\r\x1b[K") and shown.endswith(" connections\r\x1b[K3 connections\r\n")
    os.close(ours)
    assert len((tmp_path / "lines").read_text().splitlines()) == 3
