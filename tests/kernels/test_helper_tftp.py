"""TFTP: the server's answer is related, whatever port it comes from."""

import pytest
from bursts import CLIENT, SERVER
from helping import REQUEST, Bench, answer, datagram, request


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


@pytest.mark.parametrize("opcode", [1, 2])
def test_the_answer_is_related_until_it_is_answered(bench, opcode):
    acknowledged = datagram(CLIENT, 2000, SERVER, 3000)
    got = bench.labels(request(bytes([0, opcode]) + REQUEST[2:]), answer(), answer(), acknowledged, answer())
    assert got == ["N>", "R>", "R>", "E<", "E>"]


@pytest.mark.parametrize(
    "payload", [b"\x00\x03\x00\x01", b"\x00", b"\x01\x00abc", b"\x00\x05\x00\x00oops\x00", bytes(600)]
)
def test_what_is_no_request_foretells_nothing(bench, payload):
    assert bench.labels(request(payload), answer()) == ["N>", "N>"] and len(bench.foretold) == 0


def test_only_whom_was_asked_and_only_once(bench):
    got = bench.labels(request(), answer(source="198.51.100.9"), answer(3000), answer(3001))
    assert got == ["N>", "N>", "R>", "N>"]


def test_a_request_sent_again_foretells_again(bench):
    assert bench.labels(request(), answer(3000), request(), answer(3001)) == ["N>", "R>", "N>", "R>"]


def test_a_request_that_was_not_captured_whole(bench):
    for captured, foretold in ((42, 0), (43, 0), (44, 1)):  # the opcode ends with byte 44
        assert bench.labels(request(), captured_bytes=captured) == ["N>"] and len(bench.foretold) == foretold
