"""What people run through a firewall: FTP both ways, DNS, HTTP that keeps its connection, pings in fragments, a scan."""

import ftplib
import http.client
import http.server
import io
import os
import socket
import struct
import threading
import warnings

import checkout
import pytest
from hosts import TIMEOUT_S, at
from services import Service
from town import INSIDE, OUTSIDE, Town
from zonetrack.clients.sync import connect

RULES = checkout.ROOT / "docs" / "examples" / "stateful-firewall.rules"
FILE = bytes(range(256)) * 400


@pytest.fixture
def town():
    made = Town()
    yield made
    made.close()


@pytest.fixture
def service(tmp_path, town):
    if not RULES.exists():
        pytest.skip("no docs beside the tests")
    ports = ("--port", "afpacket:lan0,name=lan,ring_mb=4", "--port", "afpacket:wan0,name=wan,ring_mb=4")
    with town.gateway.entered():
        made = Service(
            tmp_path, "--max-connections", 4000, "--workers", 2, *ports, environment={"ZONETRACK_RULES": str(RULES)}
        )
    with made:
        yield made.until_ready()
        assert made.stop() == 0


# ------------------------------------------------------------------------------------------------ FTP
def serve_files(child, directory):
    """Be an FTP server until the test says that it is over."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it is built on goes with Python 3.12
        from pyftpdlib.authorizers import DummyAuthorizer
        from pyftpdlib.handlers import FTPHandler
        from pyftpdlib.servers import FTPServer
    FTPHandler.authorizer = DummyAuthorizer()
    FTPHandler.authorizer.add_anonymous(directory)
    with FTPServer((OUTSIDE, 21), FTPHandler) as server:
        child.say("listens")
        over = threading.Thread(target=child.hear, daemon=True)
        over.start()
        while over.is_alive():
            server.serve_forever(timeout=0.1, blocking=False)
    return "over"


def fetch(child, passive):
    """Fetch a file, list a directory, over data connections that the server opens, or else the client."""
    with ftplib.FTP(timeout=TIMEOUT_S) as ftp:
        ftp.connect(OUTSIDE)
        ftp.login()
        ftp.set_pasv(passive)
        got, listed = io.BytesIO(), []
        ftp.retrbinary("RETR file", got.write)
        ftp.retrlines("NLST", listed.append)
    return got.getvalue() == FILE, listed


@pytest.mark.parametrize("passive", [True, False], ids=["passive", "active"])
def test_files_are_fetched(tmp_path, town, service, passive):
    """The server's own connections come in from outside, where nothing may that was not foretold."""
    pytest.importorskip("pyftpdlib")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "file").write_bytes(FILE)
    with connect(socket=service.socket) as ct:
        ct.zones.set(1, ftp=21)
        with at(town.outside, serve_files, str(tmp_path / "files")) as server:
            assert server.hear() == "listens"
            with at(town.inside, fetch, passive) as client:
                assert list(client.hear()) == [True, ["file"]]
            server.say("over")
            assert server.hear() == "over"
        connections = ct.dump(zone=1)
        control = [one for one in connections if one["helper"]]
        assert len(control) == 1
        assert len([one for one in connections if one["parent"] == control[0]["id"]]) == 2


# ------------------------------------------------------------------------------------------------ DNS
def serve_names(child):
    """Be a name server until the test says that it is over: each name has an address, and as much text as it says."""
    from dnslib import QTYPE, RR
    from dnslib.server import BaseResolver, DNSLogger, DNSServer

    class Resolver(BaseResolver):
        def resolve(self, request, handler):
            reply, name = request.reply(), str(request.q.qname)
            if request.q.qtype == QTYPE.A:
                reply.add_answer(*RR.fromZone(f"{name} 60 A 198.51.100.{name.split('.')[0][1:]}"))
            for _ in range(int(name.split(".")[0][1:]) if request.q.qtype == QTYPE.TXT else 0):
                reply.add_answer(*RR.fromZone(f'{name} 60 TXT "{"x" * 200}"'))
            return reply

    silent = DNSLogger(logf=lambda text: None)
    servers = [DNSServer(Resolver(), OUTSIDE, 53, tcp, silent) for tcp in (False, True)]
    for one in servers:
        one.start_thread()
    child.say("listens")
    child.hear()
    for one in servers:
        one.stop()
    return "over"


def ask_for_names(child, names, kind, tcp):
    """Ask for names, each from a port of its own; return the answers to each, as text."""
    from dnslib import DNSRecord

    answers = []
    for name in names:
        said = DNSRecord.parse(DNSRecord.question(name, kind).send(OUTSIDE, 53, tcp=tcp, timeout=TIMEOUT_S))
        answers.append([str(one.rdata) for one in said.rr])
    return answers


def test_names_are_resolved(town, service):
    """By datagrams, of which some are so long that they come in fragments, and by TCP."""
    pytest.importorskip("dnslib")
    names, long = [f"n{number}.example." for number in range(1, 60)], ["n5.example.", "n9.example.", "n30.example."]
    with at(town.outside, serve_names) as server:
        assert server.hear() == "listens"
        with at(town.inside, ask_for_names, names, "A", False) as client:
            assert client.hear() == [[f"198.51.100.{number}"] for number in range(1, 60)]
        for tcp in (False, True):
            with at(town.inside, ask_for_names, long, "TXT", tcp) as client:
                assert [len(answers) for answers in client.hear()] == [5, 9, 30]
        server.say("over")
        assert server.hear() == "over"
    with connect(socket=service.socket) as ct:
        connections = ct.dump(zone=1)
    assert {int(one["protocol"]) for one in connections} == {6, 17}
    assert len(connections) == len(names) + 2 * len(long)
    assert connections["packets"].all()  # both ways


# ------------------------------------------------------------------------------------------------ HTTP
class Page(http.server.BaseHTTPRequestHandler):
    """As many bytes as the path says, over a connection that stays."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer."""
        body = bytes(int(self.path[1:]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


def serve_pages(child):
    """Be a server of one connection."""
    with http.server.HTTPServer((OUTSIDE, 80), Page) as server:
        child.say("listens")
        server.handle_request()
    return "over"


def browse(child, sizes):
    """Ask for pages over one connection; return how long they were."""
    connection = http.client.HTTPConnection(OUTSIDE, 80, timeout=TIMEOUT_S)
    came = []
    for size in sizes:
        connection.request("GET", f"/{size}")
        came.append(len(connection.getresponse().read()))
    connection.close()
    return came


def test_pages_come_over_one_connection(town, service):
    sizes = [10, 0, 100_000, 1460, 7] * 4
    with at(town.outside, serve_pages) as server:
        assert server.hear() == "listens"
        with at(town.inside, browse, sizes) as client:
            assert client.hear() == sizes
        assert server.hear() == "over"
    with connect(socket=service.socket) as ct:
        assert len(ct.dump(zone=1)) == 1


# ------------------------------------------------------------------------------------------------ pings, scans
def ping(child, sizes):
    """Ping with so many bytes; return how many came back."""
    came = []
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.settimeout(TIMEOUT_S)
        for number, size in enumerate(sizes):
            asked = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xFFFF, number) + bytes(size)
            total = sum(struct.unpack(f"!{len(asked) // 2}H", asked))
            total = (total & 0xFFFF) + (total >> 16)
            raw.sendto(asked[:2] + struct.pack("!H", ~total & 0xFFFF) + asked[4:], (OUTSIDE, 0))
            while (said := raw.recv(1 << 16))[20] != 0:
                pass
            came.append(len(said) - 28)
    return came


def test_pings_come_back_whole(town, service):
    sizes = [56, 1472, 1474, 4000, 20_000]
    with at(town.inside, ping, sizes) as asker:
        assert asker.hear() == sizes
    with connect(socket=service.socket) as ct:
        (connection,) = ct.dump(zone=1)
        assert connection["protocol"] == 1


def scan(child, ip, ports):
    """Try ports; return how many refuse, and how many say nothing."""
    refused = silent = 0
    for port in ports:
        with socket.socket() as one:
            one.settimeout(TIMEOUT_S if ip == OUTSIDE else 0.05)
            try:
                one.connect((ip, port))
            except ConnectionRefusedError:
                refused += 1
            except TimeoutError:
                silent += 1
    return [refused, silent]


def test_a_scan_from_inside_is_answered_and_leaves_nothing_and_one_from_outside_hears_nothing(town, service):
    with at(town.inside, scan, OUTSIDE, range(1000, 1300)) as scanner:
        assert scanner.hear() == [300, 0]
    with connect(socket=service.socket) as ct:
        before = ct.count(zone=1)
        with at(town.outside, scan, INSIDE, range(1000, 1020)) as scanner:
            assert scanner.hear() == [0, 20]
        assert ct.count(zone=1) <= before <= 300
