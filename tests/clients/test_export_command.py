"""``zonetrack export`` against a real service and a real collector: flows and messages, as others read them."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from desk import key, run
from eventually import until
from netflow.ipfix import IPFIXExportPacket
from tables import entries
from zonetrack.clients.errors import Exit
from zonetrack.shm.layout import EventKind

ZONE = 140


@contextlib.contextmanager
def exporting(desk, *words):
    """Run the command until the block ends; wait until it is told of events."""
    before = desk.service.ask("stats")["events"]["subscribers"]
    command = [
        sys.executable,
        "-m",
        "zonetrack.service",
        "export",
        words[0],
        "--socket",
        desk.socket,
        *map(str, words[1:]),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while desk.service.ask("stats")["events"]["subscribers"] == before:
            assert process.poll() is None, process.stderr.read()
        yield process
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert process.wait() == 0, said
        assert "given up" in said


def udp():
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    listener.settimeout(60)
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def test_flows_over_udp(desk):
    listener, where = udp()
    with listener, exporting(desk, "ipfix", "--collector", where, "--zone", ZONE, "--begins", "--domain", 3):
        desk.fill(ZONE + 1, 1)
        desk.fill(ZONE, 3)
        desk.run("flush", "--zone", ZONE)
        known, records = {}, []
        while len(records) < 6:
            packet = IPFIXExportPacket(listener.recv(65535), known)
            known |= packet.templates
            records += [flow.data for flow in packet.flows]
    assert [(one["firewallEvent"], one["flowEndReason"]) for one in records] == [(1, 0)] * 3 + [(2, 4)] * 3
    assert {one["ingressVRFID"] for one in records} == {ZONE} and packet.header.obervation_domain_id == 3
    assert sorted(one["sourceTransportPort"] for one in records[:3]) == [1000, 1001, 1002]


def test_flows_over_tcp_and_of_what_goes_silent(desk):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        desk.fill(ZONE + 2, 1)
        (record,) = desk.maker.find(key(ZONE + 2, 1000))
        entries(desk.service.table)["packets"][record] = 3, 0
        flags = ("--transport", "tcp", "--zone", ZONE + 2, "--idle-timeout", 0.1, "--active-timeout", 1e9)
        with exporting(desk, "ipfix", "--collector", where, *flags):
            stream, _ = listener.accept()
            stream.settimeout(60)
            known, records, data = {}, [], b""
            while not records:
                data += stream.recv(65535)
                while len(data) >= 4 and len(data) >= (size := int.from_bytes(data[2:4], "big")):
                    packet = IPFIXExportPacket(data[:size], known)
                    known, data = known | packet.templates, data[size:]
                    records += [flow.data for flow in packet.flows]
            stream.close()
    assert (records[0]["flowEndReason"], records[0]["ingressVRFID"]) == (1, ZONE + 2)


def test_syslog_over_udp(desk):
    listener, where = udp()
    with listener, exporting(desk, "syslog", "--collector", where, "--zone", ZONE + 3, "--facility", "daemon"):
        desk.fill(ZONE + 3, 1)
        desk.run("flush", "--zone", ZONE + 3)
        first, second = listener.recv(9999).decode(), listener.recv(9999).decode()
    assert first.startswith("<30>1 ") and " NEW [connection@32473 " in first
    assert " DESTROY [" in second and 'end="flushed"' in second and second.endswith(f"zone {ZONE + 3}")


RSYSLOG = """
module(load="imtcp")
input(type="imtcp" port="0" address="127.0.0.1" listenPortFileName="{where}/port")
template(name="parts" type="list") {{
    property(name="jsonmesg") constant(value="\\n")
}}
module(load="mmpstrucdata")
action(type="mmpstrucdata")
action(type="omfile" file="{where}/told" template="parts")
"""


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="rsyslogd is not installed")
def test_messages_as_rsyslog_understands_them(desk, tmp_path):
    (tmp_path / "conf").write_text(RSYSLOG.format(where=tmp_path))
    collector = ["rsyslogd", "-n", "-C", "-f", tmp_path / "conf", "-i", tmp_path / "pid"]
    with subprocess.Popen(collector) as process:
        try:
            until((tmp_path / "port").exists)
            until(lambda: (tmp_path / "port").read_text())
            where = f"127.0.0.1:{(tmp_path / 'port').read_text().strip()}"
            with exporting(desk, "syslog", "--collector", where, "--transport", "tcp", "--zone", ZONE + 6):
                desk.fill(ZONE + 6, 1)
                desk.run("flush", "--zone", ZONE + 6)
            until(lambda: (tmp_path / "told").exists() and (tmp_path / "told").read_text().count("\n") == 2)
        finally:
            process.terminate()
    begun, ended = map(json.loads, (tmp_path / "told").read_text().splitlines())
    for one, msgid in ((begun, "NEW"), (ended, "DESTROY")):
        said = (one["msgid"], one["app-name"], one["syslogfacility"], one["syslogseverity"], one["msg"])
        assert said == (msgid, "zonetrack", "16", "6", f"udp 192.0.2.1:1000 -> 198.51.100.1:53 zone {ZONE + 6}")
        parts = one["$!"]["rfc5424-sd"]["connection@32473"]
        assert (parts["zone"], parts["proto"], parts["sport"]) == (str(ZONE + 6), "udp", "1000")
    assert parts["end"] == "flushed"


def test_who_is_asked_to_end_tells_all_before(desk):
    listener, where = udp()
    with listener:
        with exporting(desk, "ipfix", "--collector", where, "--zone", ZONE + 4):
            desk.fill(ZONE + 4, 70)
            desk.run("flush", "--zone", ZONE + 4)
        assert sorted(ports_of(listener, 70)) == list(range(1000, 1070))


def test_a_successor_tells_what_was_missed_and_nothing_twice(desk, tmp_path):
    events = desk.service.table.events
    words = ("--zone", ZONE + 5, "--resume", tmp_path / "state")
    listener, where = udp()
    with listener:
        try:
            events.keep(EventKind.DESTROY)
            with exporting(desk, "ipfix", "--collector", where, *words):
                desk.fill(ZONE + 5, 1)
                desk.run("flush", "--zone", ZONE + 5)
            assert ports_of(listener, 1) == [1000]
            desk.fill(ZONE + 5, 2)
            desk.run("flush", "--zone", ZONE + 5)
        finally:
            events.keep(0)
        with exporting(desk, "ipfix", "--collector", where, *words):
            pass
        assert ports_of(listener, 2) == [1000, 1001]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.recv(65535)


def ports_of(listener, count):
    """Return the source ports of the next so many flows."""
    known, records = {}, []
    while len(records) < count:
        packet = IPFIXExportPacket(listener.recv(65535), known)
        known |= packet.templates
        records += [flow.data["sourceTransportPort"] for flow in packet.flows]
    return records


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ipfix",), "--collector"),
        (("ipfix", "--collector", "127.0.0.1", "--resume", "/none/x"), "/none/x: No such file"),
        (("ipfix", "--collector", "x:0"), "host:port"),
        (("syslog", "--collector", "127.0.0.1", "--facility", "mine"), "one of kern"),
        (("ipfix", "--collector", "no-such-host.invalid"), "no-such-host.invalid"),
    ],
)
def test_what_it_does_not_take(words, says):
    code, _, err = run("export", *words)
    assert code == Exit.USAGE and says in err
