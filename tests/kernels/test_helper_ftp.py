"""FTP in the `netfilter` profile: what each command and answer foretells, however its segments are cut or repeated."""

import pytest
from bursts import CLIENT, SERVER
from helping import CLIENT6, SERVER6, Bench, Stream, syn
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.shm.reasons import Reason

PORT = b"PORT 192,0,2,1,19,137\r\n"  # 5001
PASV = b"227 Entering Passive Mode (198,51,100,1,19,137)\r\n"
EPSV = b"229 Entering Extended Passive Mode (|||5001|)\r\n"
EPRT, EPRT6 = b"EPRT |1|192.0.2.1|5001|\r\n", b"EPRT |2|2001:db8::1|5001|\r\n"


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


def talk(bench, stream):
    """Open a control connection and let both sides end a line."""
    packets = [*stream.opened(), stream.say(b"220 hello\r\n", True), stream.say(b"USER me\r\n")]
    assert bench.labels(*packets) == ["N>", "E<", "E>", "E<", "E>"]


def data(reply, port=5001, ends=(CLIENT, SERVER)):
    """Return the SYN of the data connection: to the server if its line foretold it, else from its port 20."""
    client, server = ends
    return syn(client, 6000, server, port) if reply else syn(server, 20, client, port)


def is_foretold(bench, reply, ends=(CLIENT, SERVER)):
    return bench.labels(data(reply, ends=ends)) == ["R>"]


# ------------------------------------------------------------------------------------------------ the four of them
@pytest.mark.parametrize(("line", "reply"), [(PORT, False), (PASV, True), (EPRT, False), (EPSV, True)])
def test_the_data_connection_is_related(bench, line, reply):
    stream = Stream()
    talk(bench, stream)
    assert bench.labels(stream.say(line, reply)) == ["E<" if reply else "E>"]
    assert is_foretold(bench, reply)
    assert len(bench.foretold) == 0  # one connection has it


@pytest.mark.parametrize(("line", "reply"), [(EPRT6, False), (EPSV, True)])
def test_the_same_for_ipv6(bench, line, reply):
    stream = Stream(client=CLIENT6, server=SERVER6)
    talk(bench, stream)
    bench.labels(stream.say(line, reply))
    assert is_foretold(bench, reply, (CLIENT6, SERVER6))


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"port 192,0,2,1,19,137\r\n", False),
        (b"PORT  192,0,2,1,19,137\r\n", None),
        (b"EPRT x1x192.0.2.1x5001x\r\n", False),
        (b"227 =198,51,100,1,19,137\r\n", True),
        (b"227 go to 198,51,100,1,19,137 now\r\n", True),
        (b"229 (!!!5001!)\r\n", True),
        (b"eprt |2|2001:0DB8:0:0:0:0:0:1|5001|\r\n", None),
    ],
)
def test_other_spellings(bench, line, reply):
    stream = Stream()
    talk(bench, stream)
    bench.labels(stream.say(line, bool(reply)))
    assert is_foretold(bench, bool(reply)) == (reply is not None)


# ------------------------------------------------------------------------------------------------ segments
@settings(max_examples=20, deadline=None)
@given(st.sampled_from([(PORT, False), (PASV, True), (EPRT, False), (EPSV, True), (EPRT6, False)]), st.data())
def test_a_line_may_be_cut_anywhere(which, cuts):
    line, reply = which
    ends = (CLIENT6, SERVER6) if line == EPRT6 else (CLIENT, SERVER)
    bench, stream = Bench(), Stream(client=ends[0], server=ends[1])
    talk(bench, stream)
    places = sorted(cuts.draw(st.sets(st.integers(1, len(line) - 1), max_size=4)))
    for begin, end in zip([0, *places], [*places, len(line)], strict=True):
        assert bench.labels(stream.say(line[begin:end], reply)) == ["E<" if reply else "E>"]
    assert is_foretold(bench, reply, ends)


def test_every_octet_a_segment(bench):
    stream = Stream()
    talk(bench, stream)
    for i in range(len(PORT)):
        bench.labels(stream.say(PORT[i : i + 1]))
    assert is_foretold(bench, False)


def test_the_beginning_sent_again_whole(bench):
    stream = Stream()
    talk(bench, stream)
    at = stream.seq[0]
    bench.labels(stream.say(PORT[:9]), stream.say(PORT, seq=at))
    assert is_foretold(bench, False)


def test_a_line_sent_again_foretells_again(bench):
    stream = Stream()
    talk(bench, stream)
    at = stream.seq[0]
    bench.labels(stream.say(PORT))
    assert is_foretold(bench, False)
    bench.labels(stream.say(PORT, seq=at))
    assert bench.labels(syn(SERVER, 21, CLIENT, 5001)) == ["R>"]


def test_the_other_side_may_speak_in_between(bench):
    stream = Stream()
    talk(bench, stream)
    bench.labels(stream.say(PORT[:12]), stream.say(b"150 noise\r\n", True), stream.say(PORT[12:]))
    assert is_foretold(bench, False)


def test_a_line_that_does_not_go_on_where_it_ended_is_forgotten(bench):
    stream = Stream()
    talk(bench, stream)
    bench.labels(stream.say(PORT[:12]))
    stream.seq[0] += 1
    bench.labels(stream.say(PORT[12:]))
    assert not is_foretold(bench, False)


def test_what_is_not_at_the_beginning_of_a_line_says_nothing(bench):
    stream = Stream()
    talk(bench, stream)
    bench.labels(stream.say(b"no end of line"), stream.say(PORT))
    assert not is_foretold(bench, False)


def test_the_first_segment_is_not_known_to_begin_a_line(bench):
    stream = Stream()
    bench.labels(*stream.opened(), stream.say(PORT))
    assert not is_foretold(bench, False)
    bench.labels(stream.say(PORT))
    assert bench.labels(syn(SERVER, 21, CLIENT, 5001)) == ["R>"]


def test_until_the_server_was_heard_nobody_is_read(bench):
    stream = Stream()
    bench.labels(stream.segment(flags="A"), stream.say(b"x\r\n"), stream.say(PORT))  # picked up, one side only
    assert len(bench.foretold) == 0


def test_a_segment_not_captured_whole_is_not_read(bench):
    stream = Stream()
    talk(bench, stream)
    assert bench.labels(stream.say(PORT), captured_bytes=14 + 20 + 20 + 15) == ["E>"]
    assert not is_foretold(bench, False)


def test_two_lines_are_remembered_over_a_wrap_of_numbers(bench):
    stream = Stream()
    stream.seq = [2**32 - 12, 2**32 - 30]
    talk(bench, stream)
    for _ in range(3):
        bench.labels(stream.say(b"NOOP\r\n"), stream.say(b"200 ok\r\n", True))
    at = stream.seq[1]
    bench.labels(stream.say(PASV, True))
    assert is_foretold(bench, True)
    bench.labels(stream.say(PASV, True, seq=at))
    assert bench.labels(syn(CLIENT, 7000, SERVER, 5001)) == ["R>"]


# ------------------------------------------------------------------------------------------------ what is refused
WRONG = [
    (b"PORT\r\n", False),
    (b"PORT 1,2,3\r\n", False),
    (b"PORT 192,0,2,1,19,137\n", False),
    (b"PORT 192,0,2,1,19,137,5\r\n", False),
    (b"PORT 192,0,2,1,19,300\r\n", False),
    (b"PORT 99999999999999999999,0,2,1,19,137\r\n", False),
    (b"PORT a,b\r\n", False),
    (b"EPRT |2|192.0.2.1|5001|\r\n", False),
    (b"EPRT |1|192.0.2.1.1|5001|\r\n", False),
    (b"EPRT |1|192.0.2|5001|\r\n", False),
    (b"EPRT |1|192.0.2.1|0|\r\n", False),
    (b"EPRT |1|192.0.2.1|65536|\r\n", False),
    (b"EPRT 11119\r\n", False),
    (b"227 Entering Passive Mode\r\n", True),
    (b"227 1,2,3,4,5 6\r\n", True),
    (b"229 Entering Extended Passive Mode (||5001|)\r\n", True),
    (b"229 (|||)\r\n", True),
    (b"229 (|||5001\r\n", True),
]


@pytest.mark.parametrize(("line", "reply"), WRONG)
def test_a_line_that_cannot_be_right_is_refused_and_foretells_nothing(bench, line, reply):
    stream = Stream()
    talk(bench, stream)
    [verdict] = bench.verdicts(stream.say(line, reply))
    assert bench.label(verdict) == "I" and verdict["reason"] == Reason.HELPER_REFUSED
    assert bench.one.counter(Reason.HELPER_REFUSED) == bench.one.counter(Reason.INVALID) == 1
    assert not is_foretold(bench, reply)
    assert bench.labels(stream.say(b"QUIT\r\n")) == ["E>"]  # the connection goes on


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        (b"PORT 192,0,2,9,19,137\r\n", False),
        (b"PORT 192,0,2,1,0,0\r\n", False),
        (b"227 (203,0,113,1,19,137)\r\n", True),
        (b"EPRT |1|203.0.113.1|5001|\r\n", False),
        (b"PASS port\r\n", False),
        (b"2270 no\r\n", True),
        (b"\r\n", False),
        (b"226 (|||5001|)\r\n", True),
        (PASV, False),
        (PORT, True),
    ],
)
def test_what_says_nothing_for_its_sender_is_let_by(bench, line, reply):
    stream = Stream()
    talk(bench, stream)
    assert bench.reasons(stream.say(line, reply)) == [Reason.NONE] and len(bench.foretold) == 0


def test_another_clients_place_is_not_given_away(bench):
    """Two control connections foretell the same connection: the second command is refused, as Linux does."""
    one, other = Stream(sport=1111), Stream(sport=2222)
    talk(bench, one)
    talk(bench, other)
    assert bench.reasons(one.say(PORT), other.say(PORT)) == [Reason.NONE, Reason.HELPER_REFUSED]


def test_a_newer_one_takes_the_place_of_an_older(bench):
    stream = Stream()
    talk(bench, stream)
    bench.labels(stream.say(PORT), stream.say(b"PORT 192,0,2,1,19,138\r\n"))
    assert len(bench.foretold) == 1 and not is_foretold(bench, False)
    assert bench.labels(data(False, 5002)) == ["R>"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"", b"PORT ", b"EPRT |", b"227 ", b"229 (|", b"EPRT |2|"]),
            st.one_of(st.binary(max_size=60), st.text("0123456789,.|:()\r\n abcdef", max_size=60).map(str.encode)),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_whatever_is_sent_at_most_one_is_foretold_and_only_to_its_sender(said):
    bench, stream = Bench(), Stream()
    talk(bench, stream)
    for beginning, rest, reply in said:
        line = beginning + rest + b"\r\n"
        bench.labels(stream.say(line, reply))
        assert len(bench.foretold) <= 1
        for expectation in bench.foretold:
            assert expectation["destination"][1] in (0xC0000201, 0xC6336401)
