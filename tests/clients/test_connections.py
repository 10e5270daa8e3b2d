"""Rows of a dump become dicts and cells of a table; what the words are, and that rows which cannot be read are refused."""

import pytest
from connection_rows import FIELDS, pack
from zonetrack.clients import connections
from zonetrack.clients.connections import ANSWERS, GRE, PEER_FLAGS, SCTP, SCTP_STATES, STATUS, Rows, describe, row
from zonetrack.clients.errors import RemoteProtocolError
from zonetrack.kernels.icmp_types import MESSAGES, Role
from zonetrack.kernels.sctp_states import Sctp
from zonetrack.kernels.tcp_window import PeerFlag


def described(**fields):
    """Return a row with some of its fields as a dict."""
    return describe(*Rows(FIELDS).read(pack(**fields)))


def test_a_connection_with_everything():
    found = described(
        parent=7, label=[1, 2], mark=9, packets=[3, 2], bytes=[164, 112], start_ms=1_767_225_600_000, zone=5
    )
    assert found == {
        "proto": "tcp",
        "proto_num": 6,
        "zone": 5,
        "orig": {"src": "192.0.2.1", "dst": "198.51.100.1", "sport": 40000, "dport": 80, "packets": 3, "bytes": 164},
        "reply": {"src": "198.51.100.1", "dst": "192.0.2.1", "sport": 80, "dport": 40000, "packets": 2, "bytes": 112},
        "state": "ESTABLISHED",
        "status": ["seen_reply", "assured"],
        "timeout": 86399,
        "mark": 9,
        "labels": "0x10000000000000002",
        "parent": {"id": 7},
        "start": 1767225600.0,
        "id": 17,
    }


def test_what_is_absent_is_zero_or_does_not_apply():
    found = described(protocol=17)
    assert not {"mark", "labels", "parent", "helper", "state"} & set(found)


def test_a_reply_whose_tuple_nat_has_changed():
    found = described(reply_src="10.0.0.8", reply_dst="203.0.113.9", reply_sport=8080, reply_dport=1024)
    assert found["reply"] == {
        "src": "10.0.0.8",
        "dst": "203.0.113.9",
        "sport": 8080,
        "dport": 1024,
        "packets": 0,
        "bytes": 0,
    }


def test_types_of_answers_are_the_tracker_s():
    assert {(m.family, m.request): m.type for m in MESSAGES if m.role is Role.ANSWER} == ANSWERS


def test_a_state_of_a_later_service_is_its_number():
    assert described(state=77)["state"] == "77"
    assert described(protocol=SCTP, state=77)["state"] == "77"


def test_states_of_sctp_are_the_tracker_s():
    assert tuple(state.name for state in Sctp) == SCTP_STATES
    for state in Sctp:
        assert described(protocol=SCTP, state=state)["state"] == state.name
    assert "state" not in described(protocol=SCTP, status=STATUS["ovs"], state=2)


def test_the_calls_of_gre():
    found = described(protocol=GRE, sport=0, dport=7, reply_sport=7, reply_dport=0)
    assert (found["orig"]["srckey"], found["orig"]["dstkey"]) == (0, 7)
    assert (found["reply"]["srckey"], found["reply"]["dstkey"]) == (7, 0)
    assert "srckey" not in described(protocol=GRE, sport=0, dport=0)["orig"]


def test_cells():
    assert row(described(packets=[3, 2], bytes=[1640, 112])) == (
        *("tcp", "0", "192.0.2.1:40000", "198.51.100.1:80", "ESTABLISHED", "seen_reply assured", "3 / 2"),
        *("1,640 / 112", "86399"),
    )
    six = {"src": "2001:db8::1", "dst": "2001:db8::2"}
    ping = described(protocol=58, sport=7, dport=128 << 8, **six)
    assert row(ping)[2:4] == ("2001:db8::1", "2001:db8::2 type 128 code 0 id 7")
    udp = described(protocol=17, sport=7, dport=9, **six)
    assert row(udp)[2:4] == ("[2001:db8::1]:7", "[2001:db8::2]:9")
    assert row(described(protocol=200))[0] == "200"
    assert len(row(udp)) == len(connections.HEADINGS)


@pytest.mark.parametrize(
    "field",
    [
        ["name", "<U8", []],
        ["score", "<f8", []],
        ["state", ">u4", []],
        ["matrix", "<u4", [2, 2]],
        ["object", "|O", []],
        *(
            ["huge", "<u8", [1 << 40]],
            ["none", "<u8", [0]],
            ["text", "<u8", ["1"]],
            ["short", "<u8"],
            ["", "", []],
            5,
            None,
        ),
    ],
    ids=str,
)
def test_fields_that_rows_do_not_have_are_refused(field):
    with pytest.raises(RemoteProtocolError, match=r"a field .* which is nothing that can be shown"):
        Rows([field])


def test_rows_have_fields():
    for fields in ([], [["a", "<u8", []], ["a", "<u4", []]]):
        with pytest.raises(RemoteProtocolError, match="rows without fields, or with two of one name"):
            Rows(fields)


def test_windows_of_both_sides_are_shown_where_something_is_known_of_them():
    made = described(scales=[7, 0], peer_flags=[0x01, 0x2A])
    assert (made["wscale_orig"], made["flags_orig"]) == (7, ["window_scale"])
    assert "wscale_reply" not in made and made["flags_reply"] == ["sack_perm", "be_liberal", "maxack_set"]
    assert not {"wscale_orig", "flags_orig"} & set(described(protocol=17, scales=[7, 7]))


def test_flags_are_bits_as_linux_has_them():
    assert list(PEER_FLAGS.values()) == [PeerFlag[name] for name in ("SCALES", "SACKS", "CLOSE_BEGUN", "LIBERAL")] + [
        PeerFlag.UNACKNOWLEDGED,
        PeerFlag.MAXACK_KNOWN,
    ]


def test_a_row_that_is_cut_off_is_refused():
    with pytest.raises(RemoteProtocolError, match="335 bytes of rows of 168 bytes each"):
        list(Rows(FIELDS).read((pack() + pack())[:-1]))
