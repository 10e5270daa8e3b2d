"""FTP in the `ovs` profile: each segment stands alone, what is malformed is invalid beside, and nothing is used up."""

import pytest
from bursts import CLIENT, SERVER
from helping import CLIENT6, SERVER6, Bench, Stream, syn
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.shm.reasons import Reason

PORT, PASV = b"PORT 192,0,2,1,19,137\r\n", b"227 Entering Passive Mode (198,51,100,1,19,137)\r\n"
EPRT, EPSV = b"EPRT |1|192.0.2.1|5001|\r\n", b"229 Entering Extended Passive Mode (|||5001|)\r\n"
EPRT6 = b"EPRT |2|2001:db8::1|5001|\r\n"


@pytest.fixture
def bench():
    made = Bench(ovs=True)
    yield made
    made.settle()


def talk(bench, ends=(CLIENT, SERVER)):
    stream = Stream(client=ends[0], server=ends[1])
    assert bench.labels(*stream.opened()) == ["new", "est|rpl", "est"]
    return stream


def data(reply, sport, ends=(CLIENT, SERVER)):
    client, server = ends
    return syn(client, sport, server, 5001) if reply else syn(server, sport, client, 5001)


@pytest.mark.parametrize(("line", "reply"), [(PORT, False), (PASV, True), (EPRT, False), (EPSV, True)])
def test_any_number_of_data_connections_are_related_as_long_as_the_parent_lives(bench, line, reply):
    stream = talk(bench)
    assert bench.labels(stream.say(line, reply)) == ["est|rpl" if reply else "est"]
    assert bench.labels(data(reply, 1), data(reply, 2), data(reply, 1)) == ["new|rel"] * 3
    bench.now_ms += 3_600_000
    assert bench.labels(data(reply, 3)) == ["new|rel"]
    bench.one.flush(0)
    assert bench.labels(data(reply, 3)) == ["new"]


@pytest.mark.parametrize(("line", "reply"), [(EPRT6, False), (EPSV, True)])
def test_the_same_for_ipv6(bench, line, reply):
    ends = CLIENT6, SERVER6
    bench.labels(talk(bench, ends).say(line, reply))
    assert bench.labels(data(reply, 1, ends)) == ["new|rel"]


def test_all_of_a_related_connection_is_related(bench):
    bench.labels(talk(bench).say(PASV, True))
    stream = Stream(sport=6000, dport=5001)
    assert bench.labels(*stream.opened(), stream.say(b"x", True)) == [
        "new|rel",
        "est|rel|rpl",
        "est|rel",
        "est|rel|rpl",
    ]


def test_whoever_is_heard_first_is_the_opener(bench):
    stream = Stream()
    stream.segment(flags="S")
    assert bench.labels(stream.segment(True, "A"), stream.say(b"220 hello\r\n", True)) == ["new", "est"]
    assert bench.labels(stream.say(b"200 ok\r\n", True)) == ["est"]
    bench.labels(stream.say(EPSV, True))
    assert bench.labels(syn(CLIENT, 1, SERVER, 5001)) == ["new|rel"]


def test_it_has_its_parents_mark_and_label(bench):
    stream = talk(bench)
    [verdict] = bench.verdicts(stream.segment())
    bench.entries[int(verdict["record"])]["mark"] = 5
    bench.extension(verdict["record"])["label"] = 6, 7
    bench.labels(stream.say(PORT))
    [child] = bench.verdicts(data(False, 1))
    assert bench.entries[int(child["record"])]["mark"] == 5
    assert bench.extension(child["record"])["label"].tolist() == [6, 7]


MALFORMED = [
    (b"PORT\r\n", False),
    (b"PORT x\r\n", False),
    (b"PORT 1,2,3\r\n", False),
    (b"PORT 192,0,2,1,19,256\r\n", False),
    (b"PORT 192,0,2,01,19,137\r\n", False),
    (b"PORT 192,0,2,9,19,137\r\n", False),
    (b"227 no\r\n", True),
    (b"227 (203,0,113,1,19,137)\r\n", True),
    (b"229 no\r\n", True),
    (b"229 (|||99999|)\r\n", True),
    (b"EPRT |2|192.0.2.1|5001|\r\n", False),
    (b"EPRT |1|192.0.2.9|5001|\r\n", False),
    (b"EPRT |1|192.0.2.1|\r\n", False),
    (PORT[:12], False),
]


@pytest.mark.parametrize(("line", "reply"), MALFORMED)
def test_what_is_malformed_is_invalid_beside(bench, line, reply):
    stream = talk(bench)
    [verdict] = bench.verdicts(stream.say(line, reply))
    assert bench.label(verdict) == ("est|rpl|inv" if reply else "est|inv")
    assert verdict["reason"] == Reason.HELPER_REFUSED and len(bench.foretold) == 0


@pytest.mark.parametrize(
    "line", [b"EPRT |1|192.0.2.1|5001|\r\n", b"EPRT |2|2001:db8::2|5001|\r\n", b"EPRT |2|x|1|\r\n"]
)
def test_what_is_malformed_in_ipv6(bench, line):
    assert bench.labels(talk(bench, (CLIENT6, SERVER6)).say(line)) == ["est|inv"]


@pytest.mark.parametrize("line", [b"LIST\r\n", b"226 done\r\n", b"P", b"\0PORT", b"A" * 300])
def test_what_is_none_of_these_is_let_by(bench, line):
    assert bench.labels(talk(bench).say(line)) == ["est"] and len(bench.foretold) == 0


def test_the_last_byte_is_not_looked_at(bench):
    bench.labels(talk(bench).say(PORT[:-2]))  # without its end of line: port 19,13
    assert bench.labels(syn(SERVER, 1, CLIENT, 19 << 8 | 13)) == ["new|rel"]


def test_of_a_long_segment_the_beginning_is_looked_at(bench):
    stream = talk(bench)
    assert bench.labels(stream.say(b"227 " + b"x" * 130 + PASV[4:], True)) == ["est|rpl|inv"]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([b"PORT ", b"227 ", b"229 (|||", b"EPRT |1|", b""]),
    st.one_of(st.binary(max_size=150), st.text("0123456789,.|() ", max_size=40).map(str.encode)),
    st.booleans(),
)
def test_whatever_is_sent_only_its_sender_is_foretold(beginning, rest, reply):
    bench = Bench(ovs=True)
    bench.labels(talk(bench).say(beginning + rest + b"\n", reply))
    assert len(bench.foretold) <= 1
    for expectation in bench.foretold:
        assert expectation["destination"][1] == (0xC6336401 if reply else 0xC0000201)
