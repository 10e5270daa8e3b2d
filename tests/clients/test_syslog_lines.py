"""Messages of syslog, read by the grammar of RFC 5424."""

import re

import pytest
from connection_rows import FIELDS, pack
from zonetrack.clients.connections import Rows, describe
from zonetrack.clients.syslog_lines import FACILITIES, escaped, framed, host_name, line

GRAMMAR = re.compile(
    r"<(?P<priority>\d{1,3})>1 (?P<time>-|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (?P<host>[!-~]{1,255}) "
    r"(?P<app>[!-~]{1,48}) "
    r'(?P<pid>[!-~]{1,128}) (?P<id>[!-~]{1,32}) \[(?P<sd>[!-~]{1,32}(?: [!-~]+?="(?:[^"\\\]]|\\["\\\]])*")*)\] (?P<text>.*)'
)
WHEN = {"sequence": 3, "time": 1767225601.5}


def read(message):
    """Return the fields of a message, and its structured data."""
    found = GRAMMAR.fullmatch(message.decode())
    assert found, message
    identifier, _, data = found["sd"].partition(" ")
    assert identifier == "connection@32473"
    return found, dict(re.findall(r'(\S+?)="((?:[^"\\\]]|\\.)*)"', data))


def event(kind, more=None, **fields):
    return {"event": kind, **WHEN, **(more or {}), **describe(*Rows(FIELDS).read(pack(**fields)))}


def test_the_end_of_a_connection():
    told = event("destroy", {"end": "expired"}, zone=5, packets=[3, 2], bytes=[164, 112], start_ms=1_767_225_600_000)
    found, data = read(line(told, FACILITIES["local0"], "gate", 77))
    assert (found["priority"], found["time"], found["host"]) == ("134", "2026-01-01T00:00:01.500Z", "gate")
    assert (found["app"], found["pid"], found["id"]) == ("zonetrack", "77", "DESTROY")
    assert found["text"] == "tcp 192.0.2.1:40000 -> 198.51.100.1:80 zone 5"
    assert (data["end"], data["orig_packets"], data["reply_bytes"], data["duration"]) == (
        "expired",
        "3",
        "112",
        "1.500",
    )
    assert (data["src"], data["dport"], data["zone"], data["state"], data["id"]) == (
        *("192.0.2.1", "80", "5", "ESTABLISHED", "17"),
    )


def test_the_beginning_of_one_has_no_counters():
    _, data = read(line(event("new", protocol=1, sport=7, dport=8 << 8), 3, "", 1))
    assert "orig_packets" not in data and (data["proto"], data["type"], data["code"]) == ("icmp", "8", "0")


def test_what_is_behind_a_translation():
    _, data = read(line(event("new", status=1 << 8, reply_dst="203.0.113.7", reply_dport=50000), 3, "gate", 1))
    assert (data["reply_dst"], data["reply_dport"]) == ("203.0.113.7", "50000")


def test_a_gap_is_a_warning():
    found, data = read(line({"event": "gap", "lost": 12, "sequence": 40}, 16, "gate", 1))
    assert (found["priority"], found["time"], found["id"]) == ("132", "-", "GAP")
    assert data == {"lost": "12", "sequence": "40"} and found["text"] == "12 events are missing"


@pytest.mark.parametrize(("text", "told"), [('a"b', 'a\\"b'), ("a]b", "a\\]b"), ("a\\b", "a\\\\b")])
def test_what_would_end_a_value_is_escaped(text, told):
    assert escaped(text) == told


def test_messages_on_a_stream_have_their_length_before_them():
    assert framed(b"<13>1 x") == b"7 <13>1 x" and host_name()
