"""PPTP: the calls that both sides agree on, in either direction, and nothing that comes out of turn."""

import struct

import pytest
from bursts import CLIENT, SERVER
from helping import Bench, Stream, tunnel
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels.helper_pptp import ROWS, TABLE, Message, Row
from zonetrack.shm.layout import ExpectationFlag, Helper

SIZES = {row.message: row.size for row in ROWS}
HERS, HIS = 100, 200
"""Numbers of the call: the client's and the server's."""


def message(kind, *words, size=None):
    """Return a control message whose body begins with some 16-bit numbers; a result is one of them, << 8."""
    body = b"".join(struct.pack(">H", word) for word in words).ljust(SIZES[kind] if size is None else size, b"\0")
    return struct.pack(">HHIHH", 12 + len(body), 1, 0x1A2B3C4D, kind, 0) + body


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


class Control:
    """A control connection."""

    def __init__(self, bench):
        self.bench, self.stream = bench, Stream(dport=1723)
        assert bench.labels(*self.stream.opened()) == ["N>", "E<", "E>"]

    def ask(self, kind, *words, **more):
        self.bench.labels(self.stream.say(message(kind, *words, **more)))
        return self

    def tell(self, kind, *words, **more):
        self.bench.labels(self.stream.say(message(kind, *words, **more), True))
        return self

    def begun(self):
        return self.ask(Message.START_REQUEST).tell(Message.START_REPLY, 0x0100, 1 << 8)

    def called_out(self, hers=HERS, his=HIS):
        return self.ask(Message.OUT_REQUEST, hers).tell(Message.OUT_REPLY, his, hers, 1 << 8)


def from_client(number=HIS):
    return tunnel(CLIENT, SERVER, number)


def from_server(number=HERS):
    return tunnel(SERVER, CLIENT, number)


def test_a_call_out_has_one_tunnel_in_both_directions(bench):
    Control(bench).begun().called_out()
    assert bench.labels(from_client(), from_client(), from_server(), from_client()) == ["R>", "R>", "E<", "E>"]
    assert len(bench.foretold) == 3  # the other direction's, and both numbers


def test_whichever_side_is_first(bench):
    Control(bench).begun().called_out()
    assert bench.labels(from_server(), from_client()) == ["R>", "E<"]


def test_a_call_in(bench):
    control = Control(bench).begun().tell(Message.IN_REQUEST, HIS)
    control.ask(Message.IN_REPLY, HERS, HIS, 1 << 8).tell(Message.IN_CONNECT, HERS)
    assert bench.labels(from_client(), from_server()) == ["R>", "E<"]


def test_other_numbers_are_other_tunnels(bench):
    Control(bench).begun().called_out()
    assert bench.labels(from_client(HIS + 1), from_server(HERS + 1), from_client(0)) == ["N>", "N>", "N>"]
    assert bench.labels(tunnel(CLIENT, "203.0.113.1", HIS)) == ["N>"]


def test_without_its_parent_no_call_is_known(bench):
    Control(bench).begun().called_out()
    bench.one.flush(0)
    assert bench.labels(from_client(), from_server()) == ["N>", "N>"]


def test_a_call_that_is_over_is_forgotten(bench):
    Control(bench).begun().called_out().tell(Message.DISCONNECT, HIS)
    assert len(bench.foretold) == 0 and bench.labels(from_client()) == ["N>"]


def test_the_next_call_takes_the_place_of_the_one_before(bench):
    Control(bench).begun().called_out().called_out(HERS + 1, HIS + 1)
    assert bench.labels(from_client(HIS), from_client(HIS + 1)) == ["N>", "R>"]
    assert (bench.foretold["flags"] & ExpectationFlag.CALL != 0).sum() == 2


OUT_OF_TURN = {
    "not begun": lambda control: control.called_out(),
    "begun by nobody": lambda control: control.tell(Message.START_REPLY, 0x0100, 1 << 8).called_out(),
    "refused": lambda control: control.ask(Message.START_REQUEST).tell(Message.START_REPLY, 0, 2 << 8).called_out(),
    "no request": lambda control: control.begun().tell(Message.OUT_REPLY, HIS, HERS, 1 << 8),
    "another's": lambda control: control.begun().ask(Message.OUT_REQUEST, 9).tell(Message.OUT_REPLY, HIS, HERS, 1 << 8),
    "call refused": lambda control: (
        control.begun().ask(Message.OUT_REQUEST, HERS).tell(Message.OUT_REPLY, HIS, HERS, 2 << 8)
    ),
    "wrong sender": lambda control: (
        control.begun().tell(Message.OUT_REQUEST, HERS).ask(Message.OUT_REPLY, HIS, HERS, 256)
    ),
    "too short": lambda control: (
        control.begun().ask(Message.OUT_REQUEST, HERS, size=100).tell(Message.OUT_REPLY, HIS, HERS, 256)
    ),
    "stopped": lambda control: control.begun().ask(Message.STOP_REQUEST).tell(Message.STOP_REPLY, 1 << 8).called_out(),
    "in, not replied": lambda control: control.begun().tell(Message.IN_REQUEST, HIS).tell(Message.IN_CONNECT, HERS),
    "in, refused": lambda control: (
        control.begun()
        .tell(Message.IN_REQUEST, HIS)
        .ask(Message.IN_REPLY, HERS, HIS, 2 << 8)
        .tell(Message.IN_CONNECT, HERS)
    ),
    "in, another's": lambda control: (
        control.begun()
        .tell(Message.IN_REQUEST, HIS)
        .ask(Message.IN_REPLY, HERS, HIS, 1 << 8)
        .tell(Message.IN_CONNECT, HERS + 1)
    ),
}


@pytest.mark.parametrize("name", OUT_OF_TURN)
def test_what_comes_out_of_turn_foretells_nothing(bench, name):
    OUT_OF_TURN[name](Control(bench))
    assert len(bench.foretold) == 0 and bench.labels(from_client()) == ["N>"]


def test_after_a_stop_it_may_begin_again(bench):
    control = Control(bench).begun().ask(Message.STOP_REQUEST).tell(Message.STOP_REPLY, 1 << 8)
    control.begun().called_out()
    assert bench.labels(from_client()) == ["R>"]


def test_rows_are_compiled_and_each_message_has_one():
    assert sorted(row.message for row in ROWS) == sorted(Message)
    for row in ROWS:
        assert isinstance(row, Row)
        way, size, sessions, calls, check, *_, then = TABLE[row.message].tolist()
        assert (way, size, check, then) == (row.way, row.size, row.check, row.then)
        assert sessions == sum(1 << s for s in row.sessions) and calls == sum(1 << c for c in row.calls)
    assert all(TABLE[kind, 0] == 2 for kind in range(len(TABLE)) if kind not in list(Message))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.binary(max_size=160)), max_size=6))
def test_whatever_is_sent_few_are_foretold(said):
    bench = Bench()
    control = Control(bench).begun()
    for reply, kind, body in said:
        data = struct.pack(">HHIHH", 12 + len(body), 1, 0x1A2B3C4D, kind, 0) + body
        bench.labels(control.stream.say(data, reply))
        assert len(bench.foretold) <= 4 and set(bench.foretold["helper"]) <= {Helper.PPTP}


def test_a_snapped_message_is_not_read(bench):
    control = Control(bench).begun().ask(Message.OUT_REQUEST, HERS)
    reply = control.stream.say(message(Message.OUT_REPLY, HIS, HERS, 1 << 8), True)
    bench.labels(reply, captured_bytes=14 + 20 + 20 + 12 + 19)
    assert len(bench.foretold) == 0
