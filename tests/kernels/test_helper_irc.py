"""IRC: an offer by DCC foretells whoever comes to where the client waits."""

import pytest
from bursts import CLIENT, SERVER
from helping import CLIENT6, SERVER6, Bench, Stream, syn
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels.helper_irc import OFFERS
from zonetrack.shm.reasons import Reason

HOST = 0xC0000201
ANYBODY = "203.0.113.77"


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


def opened(bench, ends=(CLIENT, SERVER)):
    stream = Stream(dport=6667, client=ends[0], server=ends[1])
    bench.labels(*stream.opened())
    return stream


def offer(name=b"SEND ", host=HOST, port=b"5000", rest=b" 12345\1\r\n", before=b"PRIVMSG friend :\1DCC "):
    return before + name + b"file.txt %d " % host + port + rest


@pytest.mark.parametrize("name", OFFERS)
def test_whoever_comes_is_related(bench, name):
    stream = opened(bench)
    assert bench.reasons(stream.say(offer(name))) == [Reason.NONE]
    assert bench.labels(syn(ANYBODY, 999, CLIENT, 5000)) == ["R>"] and len(bench.foretold) == 0


@pytest.mark.parametrize(
    "line",
    [
        offer(before=b"\r\n  privmsg friend :\1DCC "),
        offer(before=b"PRIVMSG #channel,friend :\1DCC "),
        offer(port=b"   5000"),
        offer(rest=b"\n"),
    ],
)
def test_other_spellings(bench, line):
    bench.labels(opened(bench).say(line))
    assert bench.labels(syn(ANYBODY, 1, CLIENT, 5000)) == ["R>"]


@pytest.mark.parametrize(
    "line",
    [
        offer(host=HOST + 1),
        offer(host=1 << 40),
        offer(port=b"0"),
        offer(port=b"65536"),
        offer(port=b"x"),
        offer(rest=b" 12345\1"),
        offer(name=b"LOOK "),
        offer(name=b"SEN"),
        offer(before=b"NOTICE friend :\1DCC "),
        offer(before=b"PRIVMSG friend :DCC "),
        offer(before=b"PRIVMSG friend \1DCC "),
        b"PRIVMSG friend :\1DCC SEND \n",
        b"PRIVMSG friend :\1DCC SEND filefilefilefilefile\n",
        b"PRIVMSG friend :hello\r\n",
        b"PRIVMSG ",
        b"\n",
        b"PRIVMSG " + b"x" * 1400,
    ],
)
def test_what_is_no_offer_of_the_client_foretells_nothing(bench, line):
    assert bench.reasons(opened(bench).say(line)) == [Reason.NONE] and len(bench.foretold) == 0


def test_servers_are_not_read_nor_ipv6(bench):
    bench.labels(opened(bench).say(offer(), True), opened(bench, (CLIENT6, SERVER6)).say(offer()))
    assert len(bench.foretold) == 0


def test_eight_offers_at_once_and_no_more(bench):
    stream = opened(bench)
    for port in range(5000, 5010):
        bench.labels(stream.say(offer(port=b"%d" % port)))
    assert sorted(int(last) >> 32 & 0xFFFF for last in bench.foretold["last"]) == list(range(5002, 5010))


def test_a_snapped_offer_is_not_one(bench):
    stream = opened(bench)
    for captured in range(54, 54 + len(offer()), 5):
        bench.verdicts(stream.segment(False, "PA", offer(), stream.seq[0]), captured_bytes=captured)
    assert len(bench.foretold) == 0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([b"PRIVMSG a :\1DCC SEND ", b"PRIVMSG ", b""]), st.binary(max_size=120))
def test_whatever_is_sent_at_most_one_is_foretold(beginning, rest):
    bench = Bench()
    bench.labels(opened(bench).say(beginning + rest + b"\n"))
    assert len(bench.foretold) <= 1
