"""Connections of a table at rest: who opened, what each direction is called, what is left of their time, the order."""

import foretelling
import gateway
import numpy as np
import pytest
import tables
from helping import Bench, answer, request
from zonetrack.clients.connections import PEER_STATES, STATUS, Rows, describe
from zonetrack.kernels.ovs_tcp_states import Peer
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.service.connections import FIELDS, listed, packed, parents_of
from zonetrack.shm import segment
from zonetrack.shm.layout import CONNECTION, CONNECTION_BYTES, ENTRY, HEADER, Life, Nat, Region, Status
from zonetrack.shm.sizing import Geometry

TCP, UDP, ICMP, ICMPV6, GRE, OTHER = 6, 17, 1, 58, 47, 200
A, B = 0xC0000201, 0xC6336401  # 192.0.2.1, 198.51.100.1
NOW_MS = 50_000


def entry(protocol, low, high, status=0, zone=0, family=4, **fields):
    """Return an ENTRY; endpoints are (high word, low word, port)."""
    made = np.zeros(1, ENTRY)[0]
    made["key"] = [*low[:2], *high[:2], low[2] << 48 | high[2] << 32 | zone << 16 | protocol << 8 | family]
    made["life"] = 3 << 32 | Life.LIVE
    made["status"] = status
    made["expiry_ms"], made["created_ms"] = NOW_MS + 86_399_999, NOW_MS
    made["packets"], made["bytes"] = [3, 2], [164, 112]
    for name, value in fields.items():
        made[name] = value
    return made


def described(made, record=0, wall_offset_ms=0):
    """Return an ENTRY as a dict."""
    rows = packed(np.array([made]), np.array([record]), NOW_MS, wall_offset_ms)
    return describe(*Rows(FIELDS).read(rows.tobytes()))


def test_a_tcp_connection_as_the_docs_have_it():
    made = entry(TCP, (0, A, 40000), (0, B, 80), Status.SEEN_REPLY | Status.ASSURED, zone=5, state=3, mark=9)
    assert described(made, 17, 1_767_225_550_000) == {
        "proto": "tcp",
        "proto_num": 6,
        "zone": 5,
        "orig": {"src": "192.0.2.1", "dst": "198.51.100.1", "sport": 40000, "dport": 80, "packets": 3, "bytes": 164},
        "reply": {"src": "198.51.100.1", "dst": "192.0.2.1", "sport": 80, "dport": 40000, "packets": 2, "bytes": 112},
        "state": "ESTABLISHED",
        "status": ["seen_reply", "assured"],
        "timeout": 86399,
        "mark": 9,
        "start": 1767225600.0,
        "id": 3 << 32 | 17,
    }


def test_the_second_endpoint_may_be_the_opener():
    made = described(entry(UDP, (0, A, 53), (0, B, 4000), Status.ORIG_IS_HIGH))
    assert (made["orig"]["src"], made["orig"]["sport"], made["orig"]["dport"]) == ("198.51.100.1", 4000, 53)
    assert (made["reply"]["src"], made["reply"]["sport"]) == ("192.0.2.1", 53)
    assert made["status"] == [] and "state" not in made and "mark" not in made


@pytest.mark.parametrize(
    ("protocol", "family", "query", "answer"), [(ICMP, 4, 8, 0), (ICMP, 4, 13, 14), (ICMPV6, 6, 128, 129)]
)
def test_icmp_tuples_carry_type_code_and_id(protocol, family, query, answer):
    made = described(entry(protocol, (0, A, 77), (0, B, query << 8 | 1), family=family))
    assert [made["orig"][name] for name in ("type", "code", "id")] == [query, 1, 77]
    assert [made["reply"][name] for name in ("type", "code", "id")] == [answer, 1, 77]
    assert "sport" not in made["orig"]


def test_ipv6_and_protocols_without_ports_or_name():
    made = described(entry(OTHER, (0x20010DB8 << 32, 1, 0), (0x20010DB8 << 32, 2, 0), family=6))
    assert (made["orig"]["src"], made["orig"]["dst"], made["proto"], made["proto_num"]) == (
        "2001:db8::1",
        "2001:db8::2",
        "unknown",
        OTHER,
    )
    assert described(entry(GRE, (0, A, 0), (0, B, 0)))["proto"] == "gre"


def test_what_has_expired_has_no_time_left():
    assert described(entry(UDP, (0, A, 1), (0, B, 2), expiry_ms=NOW_MS - 1))["timeout"] == 0


def test_more_time_than_a_row_can_tell_is_the_most_it_can():
    assert described(entry(UDP, (0, A, 1), (0, B, 2), expiry_ms=1 << 60))["timeout"] == 0xFFFFFFFF // 1000


def test_a_table_without_connections_has_an_empty_listing():
    assert list(listed(segment.anonymous(Geometry(10, 1, 0)), NOW_MS)) == []


def test_rows_are_described_as_they_are_packed():
    rows = np.zeros(3, CONNECTION)
    rows["zone"], rows["packets"] = [1, 2, 3], [[4, 5], [6, 7], [8, 9]]
    assert sum(np.dtype(kind).itemsize * int(np.prod(shape)) for _, kind, shape in FIELDS) == CONNECTION_BYTES
    read = list(Rows(FIELDS).read(rows.tobytes()))
    assert [(row["zone"], row["packets", 0], row["packets", 1]) for row in read] == [(1, 4, 5), (2, 6, 7), (3, 8, 9)]


@pytest.mark.parametrize("server", ["9.0.0.1", "198.51.100.1"])
def test_a_translated_connection_is_listed_with_the_tuple_of_its_replies(server):
    world = gateway.Gateway(helpers=False)
    went = world.send(gateway.udp("10.0.0.1", 1000, server, 53), gateway.rule(Nat.SOURCE, "192.0.2.9", ports=(7, 7)))
    assert went.ends == ("192.0.2.9", 7, server, 53)
    [shown] = listed(world.table, world.now_ms)
    assert [shown["orig"][name] for name in ("src", "sport", "dst", "dport")] == ["10.0.0.1", 1000, server, 53]
    assert [shown["reply"][name] for name in ("src", "sport", "dst", "dport")] == [server, 53, "192.0.2.9", 7]
    assert shown["status"] == ["source_nat"]


def test_every_status_that_a_person_is_shown_and_every_state_has_its_name():
    kept_for_oneself = {bit for bit in Status if bit.name.endswith("_IS_HIGH")} | {Status.SOURCE_COUNTED}
    assert {bit.name.lower(): int(bit) for bit in Status if bit not in kept_for_oneself} == STATUS
    for state in Tcp:
        assert described(entry(TCP, (0, A, 1), (0, B, 2), state=state))["state"] == state.name


@pytest.mark.parametrize(
    ("orig", "reply", "shown"),
    [
        (Peer.SYN_SENT, Peer.CLOSED, "SYN_SENT"),
        (Peer.ESTABLISHED, Peer.SYN_SENT, "ESTABLISHED"),
        (Peer.CLOSING, Peer.ESTABLISHED, "CLOSING"),
        (Peer.ESTABLISHED, Peer.FIN_WAIT_2, "TIME_WAIT"),
        (Peer.TIME_WAIT, Peer.TIME_WAIT, "TIME_WAIT"),
    ],
)
def test_in_the_ovs_profile_each_side_has_a_state(orig, reply, shown):
    made = described(entry(TCP, (0, A, 1), (0, B, 2), Status.OVS, state=orig | reply << 4))
    assert (made["state"], made["state_orig"], made["state_reply"]) == (shown, orig.name, reply.name)
    assert made["status"] == ["ovs"]
    assert "state" not in described(entry(UDP, (0, A, 1), (0, B, 2), Status.OVS, state=1))


def test_every_state_of_a_side_has_its_name():
    assert all(PEER_STATES[peer] == peer.name for peer in Peer)


def test_a_listing_is_in_the_order_of_opening_and_leaves_out_what_is_over():
    table = segment.anonymous(Geometry(10, 1, 0))
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    entries[5] = entry(UDP, (0, A, 1), (0, B, 2), created_ms=30)
    entries[2] = entry(UDP, (0, A, 9), (0, B, 2), created_ms=20)
    entries[3] = entry(UDP, (0, A, 8), (0, B, 2), created_ms=20)
    entries[7] = entry(UDP, (0, A, 7), (0, B, 2), created_ms=10, expiry_ms=NOW_MS)
    entries[8] = entry(UDP, (0, A, 7), (0, B, 2), life=Life.DEAD)
    np.frombuffer(table.regions[Region.CONTROL], HEADER, 1)["wall_offset_ms"] = 1000
    assert [(c["orig"]["sport"], c["start"]) for c in listed(table, NOW_MS)] == [(8, 1.02), (9, 1.02), (1, 1.03)]
    assert [c["orig"]["sport"] for c in listed(table, NOW_MS, expired=True)] == [7, 8, 9, 1]


# ------------------------------------------------------------------------------------------------ what was foretold
def test_a_related_connection_is_shown_with_its_parent_and_its_parent_with_its_helper():
    bench = Bench()
    [parent] = bench.verdicts(request())
    bench.extension(parent["record"])["label"] = 1, 2
    bench.verdicts(answer())
    first, second = listed(bench.table, bench.now_ms)
    assert (first["helper"], first["labels"], first["status"]) == ("tftp", hex(1 << 64 | 2), ["helper"])
    assert "parent" not in first and second["status"] == ["related"]
    ends = {"src": "192.0.2.1", "dst": "198.51.100.1", "sport": 2000, "dport": 69}
    assert second["parent"] == {"id": first["id"], "proto": "udp"} | ends and "helper" not in second


def test_parents_that_are_gone_or_never_were_are_not_found():
    table = tables.small()
    parent = foretelling.parent_of(tables.Participant(table), tables.keys(1))
    ids = np.array([parent, parent, 0, parent + (1 << 32), 0xFFFFFFF0], "u8")
    assert list(parents_of(table, ids, NOW_MS)) == [parent]
    assert parents_of(table, np.zeros(3, "u8"), NOW_MS) == {}


def test_a_parent_that_is_gone_is_an_id():
    bench = Bench()
    [parent] = bench.verdicts(request())
    bench.verdicts(answer())
    bench.one.delete(int(parent["record"]), incarnation=int(parent["incarnation"]))
    [left] = listed(bench.table, bench.now_ms)
    assert left["parent"] == {"id": int(parent["incarnation"]) << 32 | int(parent["record"])}
