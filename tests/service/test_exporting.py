"""Exports that a service keeps: what they tell, that they come back, change and end; collectors are others' code here."""

import collections
import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import ports
import pytest
from eventually import until
from export_marks import noted
from netflow.ipfix import IPFIXExportPacket
from services import Service
from zonetrack.clients.errors import Exit
from zonetrack.clients.port import Queue
from zonetrack.service import exporting
from zonetrack.service.config import load
from zonetrack.service.exporting import Exporter, Exporters
from zonetrack.service.lives import Life
from zonetrack.shm.events import EVERYTHING

WAITS = [sys.executable, "-c", "import sys, time; print('telling', file=sys.stderr, flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('telling', file=sys.stderr, flush=True); time.sleep(600)",
]
FAILS = [sys.executable, "-c", "import sys; sys.exit('no such host')"]


def configured(tmp_path, text):
    path = tmp_path / "zonetrack.toml"
    path.write_text(text)
    return load({}, {}, path).config


def turn(exporters):
    """Wait for something to see to, and see to it."""
    poller = select.poll()
    for descriptor in exporters.descriptors:
        poller.register(descriptor, select.POLLIN)
    heard = {descriptor for descriptor, _ in poller.poll(60_000)}
    assert heard
    exporters.see_to(heard, time.monotonic())


@pytest.fixture
def exporters():
    made = Exporters()
    yield made
    made.close()
    assert not list(made)


def started(exporters, words):
    exporters.want({"one": words}, 0.0)
    exporters.start_due(time.monotonic())
    (one,) = exporters
    return one


def test_commands_say_what_the_configuration_says(tmp_path):
    config = configured(
        tmp_path,
        '[export.ipfix]\ncollector = "192.0.2.9"\ntransport = "tcp"\nzone = 5\nidle_timeout_ms = 2500\nbegins = true\n'
        '[export.syslog]\ncollector = "[2001:db8::1]:5140"\nfacility = "daemon"\nupdates = true\n',
    )
    found = exporting.commands(config, "/run/x.sock")
    assert found["ipfix"][3:] == [
        *("export", "ipfix", "--socket", "/run/x.sock", "--collector", "192.0.2.9:4739", "--transport", "tcp"),
        *("--resume", "/run/x.ipfix"),
        *("--zone", "5", "--active-timeout", "60.0", "--idle-timeout", "2.5", "--domain", "0", "--begins"),
    ]
    assert found["syslog"][3:] == [
        *("export", "syslog", "--socket", "/run/x.sock", "--collector", "[2001:db8::1]:5140", "--transport", "udp"),
        *("--resume", "/run/x.syslog"),
        *("--facility", "daemon", "--updates"),
    ]
    assert exporting.kinds(config) == EVERYTHING
    nothing = configured(tmp_path, "")
    assert exporting.commands(nothing, "/run/x.sock") == {} and exporting.kinds(nothing) == 0


def test_one_that_ends_is_started_again_and_what_it_said_is_in_the_log(exporters, caplog):
    caplog.set_level("INFO")
    one = started(exporters, FAILS)
    first = one.pid
    while one.course.life is not Life.WAITING:
        turn(exporters)
    assert "one: no such host" in caplog.text and f"one (pid {first}) failed with exit code 1" in caplog.text
    exporters.start_due(time.monotonic())
    assert one.pid not in (0, first) and one.course.starts == 2


def test_what_is_wanted_no_more_ends_and_what_is_another_is_replaced(exporters):
    one = started(exporters, WAITS)
    turn(exporters)
    exporters.want({"one": [*WAITS, "--other"]}, time.monotonic())
    exporters.start_due(time.monotonic())
    other = next(iter(exporters))
    assert other is not one and one.course.life is Life.STOPPING and other.course.life is Life.RUNNING
    while one in list(exporters):
        turn(exporters)
    exporters.want({"one": [*WAITS, "--other"]}, time.monotonic())
    assert list(exporters) == [other]
    exporters.want({}, time.monotonic())
    while list(exporters):
        turn(exporters)


def test_one_that_does_not_end_is_killed(exporters, monkeypatch, caplog):
    one = started(exporters, STUBBORN)
    turn(exporters)  # it has said that it takes no heed
    monkeypatch.setattr(exporting, "GRACE_S", 0.1)
    exporters.close()
    assert one.course.life is Life.GONE and "does not end, and is killed" in caplog.text


def test_it_has_no_rights_and_goes_with_its_parent():
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        one = Exporter("one", WAITS)
        one.start(time.monotonic())
        select.select([one.said], [], [])
        os.write(writer, str(one.pid).encode())
        signal.pause()
    exporter = int(os.read(reader, 16))
    with open(f"/proc/{exporter}/status") as file:
        status = file.read()
    assert "\nCapEff:\t0000000000000000\n" in status and "\nNoNewPrivs:\t1\n" in status
    pidfd = os.pidfd_open(exporter)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert select.select([pidfd], [], [], 60)[0]
    for descriptor in (reader, writer, pidfd):
        os.close(descriptor)


# ------------------------------------------------------------------------------------------------ a whole service
def udp():
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    listener.settimeout(120)
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"


def until_told(service, count):
    """Wait until so many exporters read events."""
    with service.ask() as ct:
        until_s = time.monotonic() + 120
        while ct.stats()["events"]["subscribers"] != count:
            assert time.monotonic() < until_s


def records_of(listener, event, count):
    """Return so many records of IPFIX that tell of an event, as another's library reads them, and leave out others."""
    known, records = {}, []
    while len(records) < count:
        packet = IPFIXExportPacket(listener.recv(65535), known)
        known |= packet.templates
        records += [flow.data for flow in packet.flows if flow.data["firewallEvent"] == event]
    return records


def until_noted(path, count):
    """Wait until an exporter has noted that it told so many events: whoever kills it then leaves nothing to tell again."""
    until(lambda: noted(path).sequence >= count, lambda: f"{noted(path)} of {count} events noted in {path}")


def test_a_service_tells_collectors_until_it_is_told_otherwise(tmp_path):
    (flows, flows_at), (logs, logs_at), path = udp(), udp(), tmp_path / "zonetrack.toml"
    ipfix = f'[export.ipfix]\ncollector = "{flows_at}"\nbegins = true\ndomain = 7\n'
    path.write_text(f'{ipfix}[export.syslog]\ncollector = "{logs_at}"\nfacility = "daemon"\n')
    with contextlib.ExitStack() as house:
        house.enter_context(flows)
        house.enter_context(logs)
        flags = ("--max-connections", 2000, "--port", "shm:lab", "--config", path)
        service = house.enter_context(Service(tmp_path, *flags)).until_ready()
        until_told(service, 2)
        queue = house.enter_context(Queue("lab", 0, service.instance))
        ports.send(queue, ports.datagrams(3, 0))
        begun = records_of(flows, 1, 3)
        assert [one["protocolIdentifier"] for one in begun] == [17, 17, 17]
        assert {logs.recv(9999).decode().partition(" ")[0] for _ in range(3)} == {"<30>1"}
        # one that dies comes back, and tells what the one before has not
        until_noted(Path(service.socket).with_suffix(".ipfix"), 3)
        said = service.hear("ipfix: telling")
        os.kill(said["child"], signal.SIGKILL)
        service.hear(f"ipfix (pid {said['child']}) was killed by SIGKILL")
        assert service.hear("ipfix: telling")["child"] != said["child"]
        until_told(service, 2)
        with service.ask() as ct:
            ct.flush()
        # it may have died before it wrote down that it had told of their beginnings: then they are told of again
        ended = records_of(flows, 2, 3)
        assert [one["flowEndReason"] for one in ended] == [4, 4, 4]
        assert {one["flowId"] for one in ended} == {one["flowId"] for one in begun}
        assert {logs.recv(9999).decode().split()[5] for _ in range(3)} == {"DESTROY"}
        # told otherwise
        path.write_text(ipfix)
        service.send(signal.SIGHUP)
        service.hear("the configuration was read again")
        assert "6 messages sent, 0 given up" in service.hear("syslog: 6 messages")["text"]
        until_told(service, 1)
        assert service.stop() == Exit.OK
        assert [line["text"] for line in service.log if "messages sent" in line["text"] and "ipfix" in line["text"]]


PACKETS = 2
"""IANA's number of packetDeltaCount; that of the other direction has it too."""


class Collector:
    """What was told of each flow, added up: packets of the opener, and how often it has ended."""

    def __init__(self, listener):
        self.listener, self.known = listener, {}
        self.packets, self.ends = collections.Counter(), collections.Counter()

    def until(self, holds):
        """Take what comes until something holds."""
        while not holds():
            packet = IPFIXExportPacket(self.listener.recv(65535), self.known)
            self.known |= packet.templates
            for flow in packet.flows:
                name = flow.data["flowId"]
                self.packets[name] += sum(
                    value for number, value in flow.fields if number == PACKETS
                )  # nothing came back
                self.ends[name] += flow.data["flowEndReason"] == 4


def test_each_packet_is_told_once_whoever_dies(tmp_path):
    (flows, flows_at), path = udp(), tmp_path / "zonetrack.toml"
    path.write_text(f'[export.ipfix]\ncollector = "{flows_at}"\nidle_timeout_ms = 200\nactive_timeout_ms = 200\n')
    told = Collector(flows)
    flags = ("--max-connections", 2000, "--port", "shm:lab", "--config", path)
    with flows, contextlib.ExitStack() as house:
        service = house.enter_context(Service(tmp_path, *flags)).until_ready()
        control = service.hear("control is ready")["child"]
        with Queue("lab", 0, service.instance) as queue:
            ports.send(queue, ports.datagrams(3))
            told.until(lambda: told.packets.total() == 3)  # silent, so told of while they go on
            os.kill(control, signal.SIGKILL)
            ports.send(queue, ports.datagrams(5))
            service.hear("control is ready")
            with service.ask() as ct:
                ct.flush()
            told.until(lambda: told.ends.total() == 5)
            assert sorted(told.packets.values()) == [1, 1, 2, 2, 2]
            ports.send(queue, ports.datagrams(2))
            told.until(lambda: told.packets.total() == 10)
            ports.send(queue, ports.datagrams(4))
        assert service.stop() == Exit.OK
        # the table was put away; whoever goes on with it knows what was told of it
        again = house.enter_context(Service(tmp_path, *flags, instance=service.instance)).until_ready()
        with again.ask() as ct:
            ct.flush()
        told.until(lambda: told.ends.total() == 9)
        assert again.stop() == Exit.OK
        assert sorted(told.packets.values()) == [1, 1, 1, 1, 2, 2, 2, 2, 2] and set(told.ends.values()) == {1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[export]\nipfix = "192.0.2.9"', "export.ipfix: expected a table [export.ipfix], found '192.0.2.9'"),
        ('[export.ipfix]\ncollector = "192.0.2.9:0"', "host:port"),
        ('[export.syslog]\ncolector = "192.0.2.9"', "nearest is 'export.syslog.collector'"),
        ('[export.syslog]\nfacility = "mine"', "expected one of kern, "),
    ],
)
def test_slips_are_named(tmp_path, text, complaint):
    with pytest.raises(Exception, match="export") as raised:
        configured(tmp_path, text)
    assert complaint in str(raised.value)
