"""The tuple that NAT chooses is one the rule allows and nobody has, found in a bounded search; else there is none."""

from ipaddress import ip_address

import numpy as np
import pytest
import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from tables import Participant
from zonetrack.kernels import bindings, memory, tuples
from zonetrack.kernels.jit import JIT, kernel
from zonetrack.shm.layout import ACTION, PARSED, UNLIMITED, Nat
from zonetrack.shm.reasons import Reason

TCP, UDP, ICMP, GRE = 6, 17, 1, 47
ZONE = 3
NOW_MS = np.uint64(1_000_000)
parsed_at, action_at = memory.record_at(PARSED), memory.record_at(ACTION)


@kernel
def _foresee(views, parsed, reply_key, action):
    bindings.foresee(views, parsed_at(parsed), reply_key, action_at(action))


@kernel
def _choose(views, parsed, action, salt, attempt, now_ms):
    return bindings.choose(views, parsed_at(parsed), action_at(action), salt, attempt, now_ms)


@kernel
def _hash_key(views, key):
    return tuples.hash_key(views, key)


@pytest.fixture(scope="module")
def table():
    table = tables.small(8000 if JIT else 1500, extension_share=1000)
    tables.totals(table)["limit"] = UNLIMITED
    return table


@pytest.fixture
def me(table):
    return Participant(table)


def rule(nat, first=None, last=None, ports=(0, 0)):
    action = np.zeros(1, ACTION)
    action["nat"] = nat | Nat.APPLY
    if first is not None:
        action["nat_first"] = divmod(int(ip_address(first)), 1 << 64)
        action["nat_last"] = divmod(int(ip_address(last or first)), 1 << 64)
    action["nat_ports"] = ports
    return action


def canonical(src, sport, dst, dport, protocol, zone=ZONE):
    """Return the key of a packet and whether its source is the second endpoint."""
    family = ip_address(src).version
    ends = [(int(ip_address(src)), sport), (int(ip_address(dst)), dport)]
    high = ends[0] > ends[1]
    ends.sort()
    words = [half for address, _ in ends for half in divmod(address, 1 << 64)]
    return np.array([*words, ends[0][1] << 48 | ends[1][1] << 32 | zone << 16 | protocol << 8 | family], "u8"), high


def packet(src, sport, dst, dport, protocol=TCP):
    parsed = np.zeros(1, PARSED)
    key, high = canonical(src, sport, dst, dport, protocol)
    parsed["key"], parsed["high_is_source"] = key, high
    parsed["protocol"], parsed["family"], parsed["zone"] = protocol, ip_address(src).version, ZONE
    return parsed


def chosen(me, parsed, action, attempt=0, salt=0):
    """Return the reply's (src, sport, dst, dport) and where the search goes on; None when there is nothing left."""
    at = np.uint64(parsed.ctypes.data)
    after = int(_choose(me.views, at, np.uint64(action.ctypes.data), np.uint64(salt), np.uint64(attempt), NOW_MS))
    if after == int(bindings.EXHAUSTED):
        return None, after
    words = [int(word) for word in parsed["inner_key"][0]]
    family = words[4] & 0xFF
    kind = (
        (lambda value: str(ip_address(value & 0xFFFFFFFF))) if family == 4 else (lambda value: str(ip_address(value)))
    )
    ends = [
        (kind(words[0] << 64 | words[1]), words[4] >> 48),
        (kind(words[2] << 64 | words[3]), words[4] >> 32 & 0xFFFF),
    ]
    if parsed["inner_high_is_source"][0]:
        ends.reverse()
    assert words[4] >> 8 & 0xFF == parsed["protocol"][0] and words[4] >> 16 & 0xFFFF == ZONE
    return (*ends[0], *ends[1]), after


def take(me, reply, protocol=TCP):
    """Make a connection whose own tuple is the one of these replies."""
    assert me.make_one(canonical(*reply, protocol)[0]) is Reason.NONE


# ------------------------------------------------------------------------------------------------ what may be chosen
@pytest.mark.parametrize("opener", [("10.0.0.1", "10.0.0.9"), ("10.0.0.9", "10.0.0.1")])
def test_a_source_keeps_its_port_while_that_is_free(opener, me):
    client, server = opener
    rule_ = rule(Nat.SOURCE, "192.0.2.1")
    reply, _ = chosen(me, packet(client, 40000, server, 80), rule_)
    assert reply == (server, 80, "192.0.2.1", 40000)
    take(me, reply)
    other, _ = chosen(me, packet(client, 40000, server, 80), rule_)
    assert other[:3] == (server, 80, "192.0.2.1") and other[3] >= 1024 and other[3] != 40000
    there, _ = chosen(me, packet(client, 40000, "10.0.0.77", 80), rule_)
    assert there[3] == 40000  # towards another host the same port is another tuple


@pytest.mark.parametrize(("port", "low", "high"), [(22, 1, 511), (511, 1, 511), (512, 600, 1023), (1023, 600, 1023)])
def test_a_privileged_source_gets_a_port_like_its_own(port, low, high, me):
    rule_ = rule(Nat.SOURCE, "192.0.2.2")
    seen = set()
    for host in range(1, 4):
        first, after = chosen(me, packet(f"10.1.{port % 256}.{host}", port, "10.0.0.9", 80), rule_)
        assert first[3] == port
        again, _ = chosen(me, packet(f"10.1.{port % 256}.{host}", port, "10.0.0.9", 80), rule_, attempt=after)
        assert low <= again[3] <= high
        seen.add(again[3])
    assert len(seen) > 1


def test_a_destination_keeps_its_port_or_gets_one_of_the_rules(me):
    reply, _ = chosen(me, packet("10.0.0.1", 40000, "203.0.113.1", 80), rule(Nat.DESTINATION, "10.2.0.1"))
    assert reply == ("10.2.0.1", 80, "10.0.0.1", 40000)
    reply, _ = chosen(
        me, packet("10.0.0.1", 40001, "203.0.113.1", 80), rule(Nat.DESTINATION, "10.2.0.1", ports=(8080, 8081))
    )
    assert reply[0] == "10.2.0.1" and reply[1] in (8080, 8081) and reply[2:] == ("10.0.0.1", 40001)


def test_where_a_destinations_ports_are_taken_the_source_gives_way(me):
    rule_ = rule(Nat.DESTINATION, "10.2.0.2", ports=(8080, 8081))
    opened = packet("10.0.0.1", 40000, "203.0.113.1", 80)
    for port in (8080, 8081):
        take(me, ("10.2.0.2", port, "10.0.0.1", 40000))
    reply, _ = chosen(me, opened, rule_)
    assert reply[0] == "10.2.0.2" and reply[1] in (8080, 8081) and reply[2] == "10.0.0.1" and reply[3] != 40000


def test_an_echo_changes_its_identifier(me):
    rule_ = rule(Nat.SOURCE, "192.0.2.3")
    echo = packet("10.0.0.1", 7, "10.0.0.9", 8 << 8, ICMP)
    reply, _ = chosen(me, echo, rule_)
    assert reply == ("10.0.0.9", 8 << 8, "192.0.2.3", 7)
    take(me, reply, ICMP)
    reply, _ = chosen(me, echo, rule_)
    assert reply[:3] == ("10.0.0.9", 8 << 8, "192.0.2.3") and reply[3] != 7
    ranged, _ = chosen(me, echo, rule(Nat.SOURCE, "192.0.2.3", ports=(500, 501)))
    assert ranged[3] in (500, 501)


def test_a_protocol_without_ports_has_one_tuple_an_address(me):
    rule_ = rule(Nat.SOURCE, "192.0.2.4")
    reply, after = chosen(me, packet("10.0.0.1", 0, "10.0.0.9", 0, GRE), rule_)
    assert reply == ("10.0.0.9", 0, "192.0.2.4", 0)
    assert chosen(me, packet("10.0.0.1", 0, "10.0.0.9", 0, GRE), rule_, after)[0] is None
    take(me, reply, GRE)
    assert chosen(me, packet("10.0.0.2", 0, "10.0.0.9", 0, GRE), rule_)[0] is None


def test_without_an_address_only_the_port_may_change(me):
    """All-zero SNAT: an address is kept, a port changes where it must."""
    opened = packet("10.0.0.1", 40000, "10.0.0.9", 443)
    reply, after = chosen(me, opened, rule(Nat.SOURCE))
    assert reply == ("10.0.0.9", 443, "10.0.0.1", 40000)
    reply, _ = chosen(me, opened, rule(Nat.SOURCE), after)
    assert reply[:3] == ("10.0.0.9", 443, "10.0.0.1") and reply[3] != 40000


def test_ipv6(me):
    opened = packet("2001:db8::1", 40000, "2001:db8::9", 443)
    reply, _ = chosen(me, opened, rule(Nat.SOURCE, "2001:db8:1::5", "2001:db8:1::8"))
    assert reply[:2] == ("2001:db8::9", 443) and reply[3] == 40000
    assert ip_address("2001:db8:1::5") <= ip_address(reply[2]) <= ip_address("2001:db8:1::8")


# ------------------------------------------------------------------------------------------------ how it is searched
def all_of(me, parsed, action):
    """Return every candidate of a packet, in order, none of them taken."""
    found, attempt = [], 0
    while True:
        reply, attempt = chosen(me, parsed, action, attempt)
        if reply is None:
            return found
        found.append(reply)


@settings(max_examples=EXAMPLES // 8, deadline=None)
@given(st.integers(1, 65535), st.integers(1, 65535), st.integers(0, 2**16 - 1))
def test_a_search_is_bounded_and_never_looks_twice(table, a, b, port):
    me = Participant(table)
    first, last = min(a, b), max(a, b)
    candidates = all_of(
        me, packet("10.7.0.1", port, "10.7.0.9", 80), rule(Nat.SOURCE, "192.0.2.9", ports=(first, last))
    )
    assert len(set(candidates)) == len(candidates) == min(last - first + 1, bindings.PROBES_MAX)
    assert all(first <= reply[3] <= last for reply in candidates)


def test_two_addresses_are_tried(me):
    candidates = all_of(
        me, packet("10.7.0.1", 5, "10.7.0.9", 80), rule(Nat.SOURCE, "192.0.2.16", "192.0.2.31", (1024, 65535))
    )
    addresses = list(dict.fromkeys(reply[2] for reply in candidates))
    assert len(addresses) == 2 and len(candidates) == bindings.PROBES_MAX
    one, two = (int(ip_address(each)) - int(ip_address("192.0.2.16")) for each in addresses)
    assert two == (one + 1) % 16


@pytest.mark.parametrize("first", ["10.0.0.1", "192.0.2.10", "192.0.2.77", "2001:db8::1"])
@pytest.mark.parametrize("nat", [Nat.SOURCE, Nat.DESTINATION])
def test_the_hash_that_is_told_is_that_of_the_tuple(first, nat, me):
    """Whichever end comes first in the key: an end that has the address of the other is told from it by its port."""
    other = "2001:db8::77" if ":" in first else "192.0.2.77"
    rule_ = rule(nat, other, ports=(40_000, 40_030) if nat & Nat.SOURCE else (70, 90))
    opened = packet(first, 40_015, other, 80)
    attempt = 0
    for _ in range(20):
        _, attempt = chosen(me, opened, rule_, attempt)
        key = np.uint64(opened.ctypes.data + PARSED.fields["inner_key"][1])
        assert opened["reply_hash"][0] == _hash_key(me.views, key)


def test_the_highest_ports_are_ports_like_any(me):
    reply, _ = chosen(me, packet("10.0.0.1", 65535, "10.0.0.9", 65535), rule(Nat.SOURCE, "192.0.2.1"))
    assert reply == ("10.0.0.9", 65535, "192.0.2.1", 65535)


def test_a_full_range_is_found_full_and_its_last_port_is_found(me):
    rule_ = rule(Nat.SOURCE, "192.0.2.40", ports=(2000, 2099))
    for port in range(2000, 2099):
        take(me, ("10.8.0.9", 80, "192.0.2.40", port))
    reply, _ = chosen(me, packet("10.8.0.1", 5, "10.8.0.9", 80), rule_)
    assert reply == ("10.8.0.9", 80, "192.0.2.40", 2099)
    take(me, reply)
    assert chosen(me, packet("10.8.0.1", 5, "10.8.0.9", 80), rule_)[0] is None


@pytest.mark.parametrize("addresses", [61, 64])
def test_where_half_is_taken_two_looks_are_enough_whatever_the_number_of_addresses(addresses):
    """Address and first port are independent: a power of two has no neighbourhood in which connections gather."""
    ports, half = 16, addresses * 8
    table = tables.small(2 * half + 200, extension_share=1000)
    tables.totals(table)["limit"] = UNLIMITED
    me = Participant(table)
    rule_ = rule(Nat.SOURCE, "192.0.3.0", str(ip_address("192.0.3.0") + addresses - 1), (2000, 2000 + ports - 1))
    looks = []
    for i in range(half):
        reply, after = chosen(me, packet(f"10.{i >> 8}.{i & 255}.1", 30000 + i, "10.0.0.9", 80), rule_)
        take(me, reply)
        looks.append(after)
    assert sum(looks) / half < 2.5
    assert sum(looks[-half // 4 :]) / (half // 4) < 4


def test_where_one_port_in_a_hundred_is_free_a_commit_looks_248_times_at_most():
    table = tables.small(1100)
    tables.totals(table)["limit"] = UNLIMITED
    me = Participant(table)
    rule_ = rule(Nat.SOURCE, "192.0.4.1", ports=(10_000, 10_999))
    for port in range(10_000, 11_000):
        if port % 100:
            take(me, ("10.8.1.9", 80, "192.0.4.1", port))
    found = 0
    for i in range(40):
        reply, after = chosen(me, packet(f"10.8.2.{i + 1}", 5, "10.8.1.9", 80), rule_)
        if reply is None:
            assert after == int(bindings.EXHAUSTED)
        else:
            assert reply[3] % 100 == 0 and after <= bindings.PROBES_MAX
            found += 1
    assert found > 30  # 1 - 0.99 ** 248 of them, about


LONG = rule(Nat.SOURCE, "192.0.4.1", ports=(10_000, 10_999))


def occupied(free):
    """Return who works on a table in which all ports of LONG are taken but some."""
    table = tables.small(1100)
    tables.totals(table)["limit"] = UNLIMITED
    me = Participant(table)
    for port in range(10_000, 11_000):
        if port not in free:
            take(me, ("10.8.1.9", 80, "192.0.4.1", port))
    return me


def test_of_a_long_range_no_port_is_looked_at_in_vain_again():
    free = set(range(10_000, 11_000, 50))
    me = occupied(free)
    found, searches, looks = set(), 0, 0
    while len(found) < len(free):
        searches += 1
        reply, after = chosen(me, packet(f"10.8.2.{searches}", 5, "10.8.1.9", 80), LONG)
        looks += min(after, bindings.PROBES_MAX)
        if reply is not None:
            take(me, reply)
            found.add(reply[3])
        assert looks <= 1000 + bindings.NEAR * searches
    assert found == free
    assert chosen(me, packet("10.8.3.1", 5, "10.8.1.9", 80), LONG)[0] is None


def test_a_port_that_another_has_freed_is_found_when_none_is_known_to_be_free():
    me = occupied(())
    for number in range(6):
        assert chosen(me, packet(f"10.8.2.{number + 1}", 5, "10.8.1.9", 80), LONG)[0] is None
    other = Participant(me.table)
    other.remove(canonical("10.8.1.9", 80, "192.0.4.1", 10_500, TCP)[0])
    other.run()
    found = [chosen(me, packet(f"10.8.3.{number + 1}", 5, "10.8.1.9", 80), LONG)[0] for number in range(40)]
    assert {reply[3] for reply in found if reply is not None} == {10_500}


def test_when_the_first_address_is_full_the_second_is_searched(me):
    rule_ = rule(Nat.SOURCE, "192.0.5.1", "192.0.5.2", (2000, 2099))
    opened = packet("10.8.3.1", 5, "10.8.3.9", 80)
    first = chosen(me, opened, rule_)[0][2]
    for port in range(2000, 2100):
        take(me, ("10.8.3.9", 80, first, port))
    reply, _ = chosen(me, opened, rule_)
    assert {first, reply[2]} == {"192.0.5.1", "192.0.5.2"}


def test_what_is_foreseen_is_what_is_chosen_first(me):
    rule_ = rule(Nat.SOURCE, "192.0.6.0", "192.0.6.63", (1024, 65535))
    opened = packet("10.8.4.1", 5, "10.8.4.9", 80)
    key = np.uint64(opened.ctypes.data + PARSED.fields["inner_key"][1])
    _foresee(me.views, np.uint64(opened.ctypes.data), key, np.uint64(rule_.ctypes.data))
    foreseen = opened["inner_key"].copy()
    chosen(me, opened, rule_)
    assert (opened["inner_key"] == foreseen).all() and foreseen.any()


def test_addresses_and_ports_are_spread(me):
    rule_ = rule(Nat.SOURCE, "192.0.2.64", "192.0.2.127", (1024, 65535))
    replies = [chosen(me, packet(f"10.9.{i // 200}.{i % 200}", 40000, "10.0.0.9", 80), rule_)[0] for i in range(400)]
    assert len({reply[2] for reply in replies}) > 55
    assert len({reply[3] for reply in replies}) > 390
    by_address = {}
    for _, _, address, port in replies:
        by_address.setdefault(address, []).append((port - 1024) // 16128)
    assert max(len(set(quarters)) for quarters in by_address.values()) == 4  # no address keeps to a part of the range


def test_the_same_tuple_is_bound_alike_unless_at_random(me):
    rule_ = rule(Nat.SOURCE, "192.0.2.128", "192.0.2.191", (1024, 65535))
    opened = packet("10.9.0.1", 1, "10.0.0.9", 80)
    assert chosen(me, opened, rule_, salt=1)[0] == chosen(me, opened, rule_, salt=2)[0]
    rule_["nat"] |= np.uint32(Nat.RANDOM)
    assert chosen(me, opened, rule_, salt=1)[0] != chosen(me, opened, rule_, salt=2)[0]


def test_a_persistent_address_is_the_openers(me):
    rule_ = rule(Nat.SOURCE | Nat.PERSISTENT, "192.0.2.192", "192.0.2.255", (1024, 65535))
    addresses = {chosen(me, packet("10.9.0.1", port, f"10.0.{port}.9", 80), rule_)[0][2] for port in range(1, 30)}
    assert len(addresses) == 1
    rule_["nat"] &= ~np.uint32(Nat.PERSISTENT)
    addresses = {chosen(me, packet("10.9.0.1", port, f"10.0.{port}.9", 80), rule_)[0][2] for port in range(1, 30)}
    assert len(addresses) > 5


def test_nothing_is_held_and_nothing_is_left(table, me):
    chosen(me, packet("10.9.0.1", 1, "10.0.0.9", 80), rule(Nat.SOURCE, "192.0.2.1"))
    tables.assert_at_rest(table)
