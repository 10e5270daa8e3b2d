"""Over a limit the least valuable connection goes for a new one, where the zone is set so; no other is touched."""

import pytest
import tables
from bursts import Bench, tcp, udp
from zonetrack.kernels import eviction, timeouts
from zonetrack.kernels.eviction import Kind, Stand, Worth
from zonetrack.kernels.jit import JIT
from zonetrack.kernels.ovs_tcp_states import Peer
from zonetrack.kernels.sctp_states import Sctp
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.timeouts import Timeout
from zonetrack.kernels.words import u64
from zonetrack.service.zone_settings import ZoneSettings
from zonetrack.shm.layout import SETTINGS_WORD_DEFAULT, CtState, Life, Setting, Status
from zonetrack.shm.reasons import Reason

NEW = CtState.TRK | CtState.NEW
MANY = 200 if JIT else 40


@pytest.fixture
def bench():
    made = Bench(tables.small(2000, zones=16))
    ZoneSettings(made.table).set(6, {"on_full": "reject"})
    yield made
    made.settle()


def assured(bench, port, zone, now_ms=1000):
    """Make a connection that is assured; returns its verdict."""
    packets = (
        tcp("S", 1000, sport=port),
        tcp("SA", 5000, 1001, reply=True, sport=port),
        tcp("A", 1001, 5001, sport=port),
    )
    return bench.track(*packets, zone=zone, now_ms=now_ms)[-1]


def fill(bench, count, zone):
    for first in range(0, count, 200):
        bench.track(*(udp(port) for port in range(first, first + 200)), zone=zone)


def is_there(bench, verdict):
    life = int(tables.entries(bench.table)["life"][int(verdict["record"])])
    return life & 0xFF == Life.LIVE and life >> 32 == verdict["incarnation"]


def test_the_newest_has_room_and_the_limit_holds(bench):
    tables.set_limit(bench.table, 5, 10)
    kept = [assured(bench, 50_000 + n, 5) for n in range(4)]
    for port in range(MANY):
        (verdict,) = bench.track(udp(port), zone=5)
        assert (verdict["ct_state"], verdict["reason"]) == (NEW, Reason.NONE) and is_there(bench, verdict)
        assert bench.count(5) <= 10
    assert bench.counter(Reason.EVICTED) == MANY - 6
    assert bench.counter(Reason.ZONE_FULL) == 0
    assert all(is_there(bench, verdict) for verdict in kept)


def test_nobody_goes_who_is_assured(bench):
    tables.set_limit(bench.table, 5, 3)
    kept = [assured(bench, 50_000 + n, 5) for n in range(3)]
    bench.track(*(udp(port) for port in range(5)), zone=6)
    (verdict,) = bench.track(udp(), zone=5)
    assert (verdict["ct_state"], verdict["reason"]) == (NEW, Reason.ZONE_FULL)
    assert all(is_there(bench, one) for one in kept) and bench.count(6) == 5
    assert bench.counter(Reason.EVICTED) == 0


def test_for_the_limit_of_all_anybody_may_go(bench):
    tables.totals(bench.table)["limit"] = 1800
    fill(bench, 1800, zone=7)
    (verdict,) = bench.track(udp(), zone=5)
    assert verdict["reason"] == Reason.NONE and is_there(bench, verdict)
    bench.settle()
    assert (bench.count(5), bench.count(7), bench.counter(Reason.EVICTED)) == (1, 1799, 1)
    (verdict,) = bench.track(udp(2), zone=5)  # from now on its own zone has somebody to go
    assert verdict["reason"] == Reason.NONE
    bench.settle()
    assert (bench.count(5), bench.count(7), bench.counter(Reason.EVICTED)) == (1, 1799, 2)


def test_a_zone_that_refuses_loses_nothing_to_others(bench):
    tables.totals(bench.table)["limit"] = 600
    fill(bench, 600, zone=6)
    (verdict,) = bench.track(udp(), zone=5)
    assert verdict["reason"] == Reason.FULL and (bench.count(6), bench.counter(Reason.EVICTED)) == (600, 0)


def test_a_zone_that_is_not_set_so_refuses(bench):
    tables.set_limit(bench.table, 6, 1)
    bench.track(udp(1), zone=6)
    (verdict,) = bench.track(udp(2), zone=6)
    assert verdict["reason"] == Reason.ZONE_FULL and bench.counter(Reason.EVICTED) == 0


def test_a_limit_of_none_at_all_has_no_victim(bench):
    tables.set_limit(bench.table, 5, 0)
    (verdict,) = bench.track(udp(), zone=5)
    assert verdict["reason"] == Reason.ZONE_FULL and bench.count(5) == 0


def test_a_limit_that_was_lowered_is_reached_by_and_by(bench):
    bench.track(*(udp(port) for port in range(20)), zone=5)
    tables.set_limit(bench.table, 5, 10)
    (verdict,) = bench.track(udp(99), zone=5)
    assert verdict["reason"] == Reason.ZONE_FULL  # eight have gone for it, and there are still too many
    assert bench.counter(Reason.EVICTED) == 8
    (verdict,) = bench.track(udp(99), zone=5)
    assert verdict["reason"] == Reason.NONE and bench.count(5) == 10


def test_many_in_a_burst(bench):
    tables.set_limit(bench.table, 5, 8)
    verdicts = bench.track(*(udp(port) for port in range(30)), zone=5)
    assert not verdicts["reason"].any()
    assert bench.count(5) <= 8 and is_there(bench, verdicts[-1])


# ---------------------------------------------------------------------------------------------------- who goes first
UDP_MS = int(timeouts.DEFAULTS_MS[Timeout.UDP])
NOW_MS = 100_000


def reset(bench, port, zone):
    """Make a connection that is assured and reset; returns its verdict."""
    assured(bench, port, zone, NOW_MS)
    return bench.track(tcp("RA", 1001, 5001, sport=port), zone=zone, now_ms=NOW_MS)[-1]


def replied(bench, port, zone):
    return bench.track(udp(port), udp(port, reply=True), zone=zone, now_ms=NOW_MS)[-1]


def unreplied(bench, port, zone, now_ms=NOW_MS):
    return bench.track(udp(port), zone=zone, now_ms=now_ms)[-1]


def expired(bench, port, zone):
    """Make a connection that is over at NOW_MS."""
    return unreplied(bench, port, zone, now_ms=NOW_MS - UDP_MS)


def test_the_least_valuable_goes_first(bench):
    tables.set_limit(bench.table, 5, 5)
    makers = (replied, expired, unreplied, reset)
    rows = {maker.__name__: maker(bench, 100 + n, 5) for n, maker in enumerate(makers)}
    rows["assured"] = assured(bench, 200, 5, NOW_MS)
    for gone in ("expired", "reset", "unreplied", "replied"):
        assert is_there(bench, rows[gone])
        new = assured(bench, 60_000 + len(rows), 5, NOW_MS)
        assert new["reason"] == Reason.NONE and is_there(bench, new)
        assert not is_there(bench, rows.pop(gone))
        assert all(is_there(bench, verdict) for verdict in rows.values())
    (verdict,) = bench.track(udp(9), zone=5, now_ms=NOW_MS)
    assert verdict["reason"] == Reason.ZONE_FULL and is_there(bench, rows["assured"])
    assert bench.counter(Reason.EVICTED) == 4


def test_of_equals_the_one_goes_whose_time_ends_first(bench):
    tables.set_limit(bench.table, 5, 8)
    times = [5000, 3000, 7000, 2000, 8000, 4000, 6000, 9000]
    made = {now: unreplied(bench, 100 + n, 5, now) for n, now in enumerate(times)}
    for n, now in enumerate(sorted(times)):
        unreplied(bench, 300 + n, 5, 20_000)
        assert [is_there(bench, made[one]) for one in sorted(times)] == [one > now for one in sorted(times)]


def test_a_handshake_in_a_flood_is_completed(bench):
    """A flood from ever new ports, four full turns of the limit long, between the steps of each handshake."""
    tables.set_limit(bench.table, 5, 40)
    kept = [assured(bench, 50_000 + n, 5) for n in range(8)]
    port, now = 1, 1000
    for n in range(6):
        number, steps = 40_000 + n, (("S", 1000, 0, False), ("SA", 5000, 1001, True), ("A", 1001, 5001, False))
        for flags, seq, ack, reply in steps:
            (verdict,) = bench.track(tcp(flags, seq, ack, reply, sport=number), zone=5, now_ms=now)
            assert verdict["reason"] == Reason.NONE and is_there(bench, verdict)
            now += 20
            bench.track(*(tcp("S", 7, sport=port + i) for i in range(5)), zone=5, now_ms=now)
            port += 5
        kept.append(verdict)
    assert all(is_there(bench, verdict) for verdict in kept)


def test_work_is_bounded_where_all_are_assured(bench):
    """A victim is found among many that stay, as long as it is one of those that are looked at."""
    tables.set_limit(bench.table, 5, 60)
    for n in range(59):
        assured(bench, 50_000 + n, 5)
    lone = unreplied(bench, 7, 5)
    assert unreplied(bench, 8, 5)["reason"] == Reason.NONE and not is_there(bench, lone)
    assert int(eviction.LOOKS_MAX) >= 60


# ---------------------------------------------------------------------------------------------------- rows
@pytest.mark.parametrize("state", Tcp)
def test_states_of_tcp(state):
    closing = state in (Tcp.FIN_WAIT, Tcp.CLOSE_WAIT, Tcp.LAST_ACK, Tcp.TIME_WAIT, Tcp.CLOSE)
    assert eviction.STANDS[Kind.TCP, state] == (Stand.CLOSING if closing else Stand.OPEN)


@pytest.mark.parametrize("state", Sctp)
def test_states_of_sctp(state):
    assert eviction.STANDS[Kind.SCTP, state] == (Stand.CLOSING if "SHUTDOWN" in state.name else Stand.OPEN)


@pytest.mark.parametrize(
    ("one", "other", "stand"),
    [
        (Peer.ESTABLISHED, Peer.ESTABLISHED, Stand.ESTABLISHED),
        (Peer.ESTABLISHED, Peer.CLOSING, Stand.ESTABLISHED),
        (Peer.FIN_WAIT_2, Peer.ESTABLISHED, Stand.ESTABLISHED),
        (Peer.CLOSING, Peer.CLOSING, Stand.CLOSING),
        (Peer.TIME_WAIT, Peer.TIME_WAIT, Stand.CLOSING),
        (Peer.SYN_SENT, Peer.ESTABLISHED, Stand.OPEN),
        (Peer.SYN_SENT, Peer.CLOSED, Stand.OPEN),
    ],
)
def test_states_of_both_sides(one, other, stand):
    assert eviction.STANDS[Kind.OVS_TCP, one << 4 | other] == stand


@pytest.mark.parametrize(
    ("protocol", "status", "state", "expiry_ms", "worth"),
    [
        (6, Status.ASSURED | Status.SEEN_REPLY, Tcp.ESTABLISHED, 9000, Worth.KEPT),
        (6, Status.ASSURED | Status.SEEN_REPLY, Tcp.ESTABLISHED, 1000, Worth.EXPIRED),
        (6, Status.ASSURED | Status.SEEN_REPLY, Tcp.TIME_WAIT, 9000, Worth.CLOSING),
        (6, Status.SEEN_REPLY, Tcp.SYN_RECV, 9000, Worth.UNASSURED),
        (6, 0, Tcp.SYN_SENT, 9000, Worth.UNREPLIED),
        (6, Status.OVS | Status.SEEN_REPLY, Peer.ESTABLISHED << 4 | Peer.ESTABLISHED, 9000, Worth.KEPT),
        (6, Status.OVS, Peer.TIME_WAIT << 4 | Peer.TIME_WAIT, 9000, Worth.CLOSING),
        (132, Status.ASSURED, Sctp.SHUTDOWN_SENT, 9000, Worth.CLOSING),
        (132, Status.ASSURED, Sctp.ESTABLISHED, 9000, Worth.KEPT),
        (17, Status.SEEN_REPLY, Tcp.TIME_WAIT, 9000, Worth.UNASSURED),
    ],
)
def test_worth(protocol, status, state, expiry_ms, worth):
    table = tables.small()
    entries = tables.entries(table)[:1]
    entries["key"][0, 4] = protocol << 8 | 4
    entries["status"], entries["state"], entries["expiry_ms"] = status, state, expiry_ms
    views = tables.Participant(table).views
    assert eviction.worth(views, u64(entries.ctypes.data), u64(1000)) == worth
    tables.zones(table)["settings"][0] = SETTINGS_WORD_DEFAULT & 0xFFFF | Setting.NO_EXPIRY
    assert eviction.worth(views, u64(entries.ctypes.data), u64(1000)) != Worth.EXPIRED
