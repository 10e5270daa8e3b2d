"""SIP: media of a session description, registrations, and everything that forgets or refuses them."""

import pytest
from bursts import CLIENT, SERVER
from helping import CLIENT6, SERVER6, Bench, datagram
from hypothesis import given, settings
from hypothesis import strategies as st
from zonetrack.kernels import helper_sip
from zonetrack.shm.layout import ExpectationFlag, Foretold, Helper, Status
from zonetrack.shm.reasons import Reason

AUDIO = b"m=audio 30000 RTP/AVP 0 8\r\n"


def session(*lines, address=CLIENT):
    """Return a session description with a connection, and lines behind it."""
    kind = b"IP6" if ":" in address else b"IP4"
    return b"v=0\r\no=x 1 1 IN %b %b\r\ns=-\r\nc=IN %b %b\r\nt=0 0\r\n" % (*(kind, address.encode()) * 2,) + b"".join(
        lines or (AUDIO,)
    )


def message(first, cseq=b"1 INVITE", body=b"", *headers):
    """Return a message."""
    lines = [
        first,
        b"Via: SIP/2.0/UDP 192.0.2.1",
        b"CSeq: " + cseq,
        *headers,
        b"Content-Length: %d" % len(body),
        b"",
        b"",
    ]
    return b"\r\n".join(lines) + body


def request(method=b"INVITE", body=None, number=1, *headers):
    """Return a request, of the client."""
    body = session() if body is None else body
    return message(method + b" sip:a@b SIP/2.0", b"%d " % number + method, body, *headers)


def answer(code=200, method=b"INVITE", body=b"", number=1, *headers):
    """Return an answer, of the server."""
    return message(b"SIP/2.0 %d Whatever" % code, b"%d " % number + method, body, *headers)


class Signalling:
    """A client and a server, both at their port 5060."""

    def __init__(self, bench, ends=(CLIENT, SERVER)):
        self.bench, self.ends = bench, ends

    def ask(self, payload):
        return self.bench.verdicts(datagram(self.ends[0], 5060, self.ends[1], 5060, payload))[0]

    def tell(self, payload):
        return self.bench.verdicts(datagram(self.ends[1], 5060, self.ends[0], 5060, payload))[0]


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.settle()


@pytest.fixture
def signalling(bench):
    return Signalling(bench)


def to_client(port, source=SERVER, destination=CLIENT):
    return datagram(source, 4444, destination, port)


def ports(bench, kind=None):
    found = bench.foretold
    return sorted(int(e["last"]) >> 32 & 0xFFFF for e in found if kind in (None, e["kind"]))


# ------------------------------------------------------------------------------------------------ media
def test_rtp_and_rtcp_are_related(bench, signalling):
    signalling.ask(request())
    assert bench.labels(to_client(30000), to_client(30001), to_client(30002)) == ["R>", "R>", "N>"]


def test_what_the_server_offers(bench, signalling):
    signalling.ask(request(body=b""))
    signalling.tell(answer(183, body=session(address=SERVER)))
    assert bench.labels(datagram(CLIENT, 1, SERVER, 30000)) == ["R>"]


def test_only_the_other_end_may_come(bench, signalling):
    signalling.ask(request())
    assert bench.labels(to_client(30000, "203.0.113.1")) == ["N>"]


def test_an_odd_port_is_of_the_pair_below(bench, signalling):
    signalling.ask(request(body=session(b"m=audio 30003 RTP/AVP 0\r\n")))
    assert ports(bench) == [30002, 30003]


def test_ipv6():
    bench = Bench()
    Signalling(bench, (CLIENT6, SERVER6)).ask(request(body=session(address=CLIENT6)))
    assert bench.labels(to_client(30000, SERVER6, CLIENT6)) == ["R>"]


def test_media_of_several_kinds_and_their_own_connections(bench, signalling):
    signalling.ask(
        request(
            body=session(
                AUDIO,
                b"m=video 40000 RTP/AVP 31\r\nc=IN IP4 203.0.113.9\r\n",
                b"m=image 50000 udptl t38\r\n",
                b"m=text 60000 RTP/AVP 0\r\n",
            )
        )
    )
    assert ports(bench) == [30000, 30001, 50000, 50001]
    assert ports(bench, Foretold.IMAGE) == [50000, 50001]


def test_a_medium_may_have_the_only_connection(bench, signalling):
    body = b"v=0\r\ns=-\r\nm=audio 30000 RTP/AVP 0\r\nc=IN IP4 192.0.2.1\r\n"
    signalling.ask(request(body=body))
    assert ports(bench) == [30000, 30001]


@pytest.mark.parametrize(
    "body",
    [
        session(address="203.0.113.1"),
        session(b"m=audio 0 RTP/AVP 0\r\n"),
        session(b"m=text 30000 RTP/AVP 0\r\n"),
        session(AUDIO + b"c=IN IP4 203.0.113.1\r\n"),
        b"",
        b"c=IN IP4 192.0.2.1\r\n" + AUDIO,  # no session description
    ],
)
def test_media_that_are_not_the_senders_own_or_not_followed(bench, signalling, body):
    assert signalling.ask(request(body=body))["reason"] == Reason.NONE and len(bench.foretold) == 0


@pytest.mark.parametrize("method", [b"INVITE", b"invite", b"UPDATE", b"ACK", b"PRACK"])
def test_requests_that_describe(bench, signalling, method):
    signalling.ask(request(method))
    assert ports(bench) == [30000, 30001]


@pytest.mark.parametrize("method", [b"BYE", b"OPTIONS", b"REGISTER", b"INFO", b"INVITED"])
def test_requests_that_do_not(bench, signalling, method):
    assert signalling.ask(request(method))["reason"] == Reason.NONE and len(bench.foretold) == 0


def test_a_call_that_ends_forgets_its_media(bench, signalling):
    signalling.ask(request())
    signalling.ask(request(b"BYE", b"", 2))
    assert len(bench.foretold) == 0


def test_a_new_invitation_replaces_the_media(bench, signalling):
    signalling.ask(request())
    signalling.ask(request(body=session(b"m=audio 32000 RTP/AVP 0\r\n"), number=2))
    assert ports(bench) == [32000, 32001]


@pytest.mark.parametrize(("code", "number", "left"), [(486, 1, 0), (302, 1, 0), (486, 2, 2), (180, 1, 2), (200, 1, 2)])
def test_an_invitation_that_is_refused_is_forgotten(bench, signalling, code, number, left):
    signalling.ask(request())
    signalling.tell(answer(code, number=number))
    assert len(bench.foretold) == left


def test_two_connections_may_tell_of_the_same_call(bench, signalling):
    signalling.ask(request())
    again = datagram(CLIENT, 5062, SERVER, 5060, request())
    assert bench.reasons(again) == [Reason.NONE] and ports(bench) == [30000, 30001]


# ------------------------------------------------------------------------------------------------ registrations
CONTACT = b"Contact: <sip:me@192.0.2.1:5070>;expires=120"


def register(signalling, *headers, code=200, number=7):
    signalling.ask(request(b"REGISTER", b"", 7, b"Contact: <sip:me@192.0.2.1:5070>"))
    return signalling.tell(answer(code, b"REGISTER", b"", number, *headers))


def test_who_registered_can_be_called_as_long_as_it_says(bench, signalling):
    register(signalling, CONTACT)
    [made] = bench.foretold
    assert made["flags"] & ExpectationFlag.PERMANENT and made["expiry_ms"] == bench.now_ms + 120_000
    calls = [datagram(SERVER, port, CLIENT, 5070, request()) for port in (5060, 5061)]
    for verdict in bench.verdicts(*calls):
        assert bench.label(verdict) == "R>"
        entry = bench.entries[int(verdict["record"])]
        assert entry["status"] & Status.RELATED and bench.extension(verdict["record"])["helper"] == Helper.SIP
    bench.now_ms += 120_000
    assert bench.labels(datagram(SERVER, 5062, CLIENT, 5070, request())) == ["N>"]


@pytest.mark.parametrize(
    "headers",
    [
        (b"Expires: 60", b"Contact: sip:192.0.2.1:5070"),
        (b"m: <sip:me@192.0.2.1:5070>", b"Expires: 60"),
        (b"Contact: <sip:other@203.0.113.1>", b"Contact: <sip:me@192.0.2.1:5070>;expires=60"),
    ],
)
def test_other_spellings(bench, signalling, headers):
    register(signalling, *headers)
    assert ports(bench) == [5070] and bench.foretold[0]["expiry_ms"] == bench.now_ms + 60_000


@pytest.mark.parametrize(
    ("headers", "more"),
    [
        ((CONTACT,), {"code": 401}),
        ((CONTACT,), {"code": 100}),
        ((CONTACT,), {"number": 8}),
        ((b"Contact: <sip:me@192.0.2.1:5070>;expires=0",), {}),
        ((b"Contact: <sip:me@192.0.2.1:5070>",), {}),
        ((b"Contact: <sip:me@192.0.2.1:80>;expires=9",), {}),
        ((b"Contact: <sip:me@203.0.113.1:5070>;expires=9",), {}),
        ((b"Contact: *",), {}),
    ],
)
def test_registrations_that_are_none(bench, signalling, headers, more):
    register(signalling, *headers, **more)
    assert len(bench.foretold) == 0


def test_a_registration_that_is_taken_back(bench, signalling):
    register(signalling, CONTACT)
    register(signalling, b"Contact: <sip:me@192.0.2.1:5070>;expires=0")
    assert len(bench.foretold) == 0


def test_media_do_not_forget_a_registration(bench, signalling):
    register(signalling, CONTACT)
    signalling.ask(request())
    signalling.ask(request(b"BYE", b"", 2))
    assert ports(bench) == [5070]


# ------------------------------------------------------------------------------------------------ refused, kept
REFUSED = {
    "no number": message(b"INVITE sip:a@b SIP/2.0", b"x"),
    "no number at all": b"INVITE sip:a@b SIP/2.0\r\nVia: x\r\n\r\n" + session(),
    "no code": b"SIP/2.0 OK\r\nCSeq: 1 INVITE\r\n\r\n",
    "a port of a server": request(body=session(b"m=audio 80 RTP/AVP 0\r\n")),
    "a port too high": request(body=session(b"m=audio 99999 RTP/AVP 0\r\n")),
    "no address": request(body=b"v=0\r\ns=-\r\n" + AUDIO),
}


@pytest.mark.parametrize("name", REFUSED)
def test_messages_that_cannot_be_right(bench, signalling, name):
    signalling.ask(request(b"OPTIONS"))
    verdict = signalling.ask(REFUSED[name])
    assert bench.label(verdict) == "I" and verdict["reason"] == Reason.HELPER_REFUSED and len(bench.foretold) == 0


def test_signalling_keeps_its_connection_for_an_hour(bench, signalling):
    record = int(signalling.ask(b"x")["record"])
    assert bench.entries[record]["expiry_ms"] == bench.now_ms + helper_sip.KEPT_MS
    bench.now_ms += 3_500_000
    assert bench.label(signalling.tell(answer(100))) == "E<"


def test_lines_and_bytes_beyond_the_bound_are_not_read(bench, signalling):
    assert signalling.ask(request(b"INVITE", session(), 1, *[b"X: y"] * 600))["reason"] == Reason.NONE
    assert len(bench.foretold) == 0


def test_a_snapped_message_is_read_as_far_as_it_goes(bench, signalling):
    packet = datagram(CLIENT, 5060, SERVER, 5060, request())
    whole = len(bytes(packet))
    for captured in range(42, whole, 13):
        bench.verdicts(packet, captured_bytes=captured)
        assert len(bench.foretold) in (0, 2)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([b"INVITE sip:x SIP/2.0\r\n", b"SIP/2.0 200 OK\r\n", b"REGISTER sip:x SIP/2.0\r\n", b""]),
    st.lists(
        st.sampled_from(
            [b"CSeq: 1 INVITE", b"CSeq: 1 REGISTER", CONTACT, b"v=0", b"c=IN IP4 192.0.2.1", AUDIO[:-2], b""]
        )
        | st.binary(max_size=40),
        max_size=8,
    ),
    st.booleans(),
)
def test_whatever_is_sent_few_are_foretold(first, lines, reply):
    bench = Bench()
    signalling = Signalling(bench)
    signalling.ask(b"hello")
    payload = first + b"\r\n".join(lines)
    (signalling.tell if reply else signalling.ask)(payload or b"x")
    assert len(bench.foretold) <= 6
