"""A filter over the wire becomes masks and values, or an error that names what cannot be."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.clients.connections import COALESCED, PEER_STATES, TCP_STATES
from zonetrack.clients.errors import BadParameterError, UnknownParameterError
from zonetrack.kernels.ovs_tcp_states import Peer
from zonetrack.kernels.sctp_states import Sctp
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.service import filters
from zonetrack.service.filters import EVERYTHING, read
from zonetrack.shm.layout import FILTER, Status


def fields(**value):
    """Return what a filter compares: the fields of its FILTER that are not zero."""
    record = read("filter", value).record
    return {name: record[name].tolist() for name in FILTER.names if record[name].any()}


def test_an_empty_filter_means_everything():
    assert fields() == {}
    assert (EVERYTHING.names, EVERYTHING.zone, EVERYTHING.is_counted) == (frozenset(), None, True)


@pytest.mark.parametrize(
    ("value", "compared"),
    [
        ({"zone": 5}, {"last": 5 << 16, "last_mask": 0xFFFF0000}),
        ({"zone": 0}, {"last_mask": 0xFFFF0000}),
        ({"proto": "udp"}, {"last": 17 << 8, "last_mask": 0xFF00}),
        ({"proto": "UDP"}, {"last": 17 << 8, "last_mask": 0xFF00}),
        ({"proto": 255}, {"last": 255 << 8, "last_mask": 0xFF00}),
        ({"sport": 53}, {"ports": 53 << 16, "ports_mask": 0xFFFF << 16}),
        ({"dport": 53}, {"ports": 53, "ports_mask": 0xFFFF}),
        ({"sport": 1, "dport": 2}, {"ports": 1 << 16 | 2, "ports_mask": 0xFFFFFFFF}),
        ({"mark": 7}, {"mark": 7, "mark_mask": 0xFFFFFFFF}),
        ({"mark": [0xFF, 0x0F]}, {"mark": 0x0F, "mark_mask": 0x0F}),
        ({"mark": "0x10/0xf0"}, {"mark": 0x10, "mark_mask": 0xF0}),
        ({"mark": "9"}, {"mark": 9, "mark_mask": 0xFFFFFFFF}),
        ({"unreplied": True}, {"status_mask": int(Status.SEEN_REPLY)}),
        ({"unreplied": False}, {}),
        (
            {"state": "established"},
            {"last": 6 << 8, "last_mask": 0xFF00, "states": 1 << Tcp.ESTABLISHED, "ovs_states": 0x18},
        ),
        (
            {"state": "cookie_wait"},
            {"last": 132 << 8, "last_mask": 0xFF00, "states": 1 << Sctp.COOKIE_WAIT},
        ),
        *(
            (
                {"state": "ESTABLISHED", "proto": sctp},
                {"last": 132 << 8, "last_mask": 0xFF00, "states": 1 << Sctp.ESTABLISHED},
            )
            for sctp in ("sctp", 132)
        ),
        ({"state": "CLOSING"}, {"last": 6 << 8, "last_mask": 0xFF00, "ovs_states": 1 << Peer.CLOSING}),
        ({"state": "CLOSE"}, {"last": 6 << 8, "last_mask": 0xFF00, "states": 1 << Tcp.CLOSE}),
    ],
)
def test_what_is_said_is_compared_and_nothing_else(value, compared):
    assert fields(**value) == compared


@pytest.mark.parametrize(("place", "name"), list(enumerate(filters.ADDRESSES)))
@pytest.mark.parametrize("text", ["192.0.2.1", "192.0.2.77/24", "0.0.0.0/0", "2001:db8::1", "2001:db8:77::/32", "::/0"])
def test_addresses_and_prefixes(place, name, text):
    network = ipaddress.ip_network(text, strict=False)
    record = read("filter", {name: text}).record
    for field, number in (("address", int(network.network_address)), ("address_mask", int(network.netmask))):
        words = record[field].tolist()
        assert words.pop(2 * place) == number >> 64
        assert words.pop(2 * place) == number & 2**64 - 1
        assert set(words) == {0}
    assert (int(record["last"]), int(record["last_mask"])) == (network.version, 0xFF)


@pytest.mark.parametrize(
    ("value", "parameter"),
    [
        ({"zone": 65536}, "filter.zone"),
        ({"zone": -1}, "filter.zone"),
        ({"zone": "5"}, "filter.zone"),
        ({"proto": "no-such"}, "filter.proto"),
        ({"proto": 256}, "filter.proto"),
        ({"proto": True}, "filter.proto"),
        ({"src": "192.0.2.256"}, "filter.src"),
        ({"src": "192.0.2.1/33"}, "filter.src"),
        ({"src": 5}, "filter.src"),
        ({"src": ["192.0.2.1"]}, "filter.src"),
        ({"reply_dst": ""}, "filter.reply_dst"),
        ({"sport": 65536}, "filter.sport"),
        ({"state": "ASLEEP"}, "filter.state"),
        ({"state": 3}, "filter.state"),
        ({"mark": 2**32}, "filter.mark"),
        ({"mark": "x/1"}, "filter.mark"),
        ({"mark": "1/2/3"}, "filter.mark"),
        ({"mark": []}, "filter.mark"),
        ({"mark": None}, "filter.mark"),
        ({"unreplied": 1}, "filter.unreplied"),
        ({"src": "192.0.2.1", "dst": "::1"}, "filter.dst"),
        ({"proto": "udp", "state": "ESTABLISHED"}, "filter.state"),
        ({"state": "ESTABLISHED", "proto": "udp"}, "filter.state"),
        ({"state": "SYN_SENT", "proto": "sctp"}, "filter.state"),
        ({"state": "COOKIE_WAIT", "proto": "tcp"}, "filter.state"),
    ],
)
def test_what_cannot_be_is_named(value, parameter):
    with pytest.raises(BadParameterError) as refused:
        read("filter", value)
    assert refused.value.detail == {"parameter": parameter}


def test_what_is_unknown_is_named_with_the_nearest():
    with pytest.raises(UnknownParameterError, match="did you mean sport") as refused:
        read("filter", {"s_port": 5})
    assert refused.value.detail == {"parameter": "filter.s_port", "nearest": "sport"}


@pytest.mark.parametrize("value", [None, [], "zone=5", 5])
def test_a_filter_is_a_map(value):
    with pytest.raises(BadParameterError, match="a map"):
        read("filter", value)


@pytest.mark.parametrize(
    ("value", "counted"), [({}, True), ({"zone": 7}, True), ({"zone": 7, "proto": 6}, False), ({"mark": 0}, False)]
)
def test_which_filters_the_table_has_counts_of(value, counted):
    wanted = read("filter", value)
    assert wanted.is_counted == counted
    assert wanted.zone == value.get("zone")


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from([*filters.READERS, "other"]), anything, max_size=4))
def test_any_values_are_read_or_refused(value):
    try:
        wanted = read("filter", value)
    except (BadParameterError, UnknownParameterError) as error:
        assert len(str(error)) < 300
    else:
        assert wanted.names == frozenset(value)


def test_every_state_that_is_shown_can_be_asked_for():
    for number, name in enumerate(PEER_STATES):
        assert filters.STATES[filters.TCP][COALESCED.get(name, name)][1] >> number & 1
    for number, name in enumerate(TCP_STATES):
        assert filters.STATES[filters.TCP][name][0] == 1 << number
