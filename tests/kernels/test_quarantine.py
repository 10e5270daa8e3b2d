"""What a translated TCP connection leaves is kept from others for a while, and from its own opener never."""

import numpy as np
import pytest
import tables
from bursts import Bench, frames_of
from hypothesis import given, settings
from hypothesis import strategies as st
from parsing import EXAMPLES
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from zonetrack.clients.nat_scenarios import action
from zonetrack.kernels import burst, delete_list, quarantine, sweep, walk
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import FILTER, LINE_SLOTS, QUARANTINE_LINES, VERDICT, CtState, Nat
from zonetrack.shm.reasons import Reason

NEW, EST, RPL, SNAT = CtState.NEW, CtState.EST, CtState.RPL, CtState.SNAT
CLIENT, SERVER, PUBLIC = "10.0.0.1", "198.51.100.1", "192.0.2.100"
NOW_MS = 1_000_000
ONE_PORT, TWO_PORTS = (action(Nat.SOURCE, 0xC0000264, 1, (2000, last)) for last in (2000, 2001))
TIME_WAIT_MS = 120_000


def tcp(src, sport, dst, dport, flags, seq=0, ack=0):
    return IP(src=src, dst=dst) / TCP(sport=sport, dport=dport, flags=flags, seq=seq, ack=ack, window=8192)


def send(bench, packet, asked=ONE_PORT, now_ms=NOW_MS):
    """Track one packet; returns its ct_state without trk, the source port with which it goes on, and its reason."""
    frames, [buffer] = frames_of([Ether() / packet], 0)
    frames["action"] = asked.ctypes.data
    verdict = np.zeros(1, VERDICT)
    burst.track_burst(bench.views, *map(u64, (frames.ctypes.data, 1, now_ms, verdict.ctypes.data)))
    state = int(verdict["ct_state"][0]) & ~CtState.TRK
    return state, Ether(buffer.tobytes())[TCP].sport, Reason(int(verdict["reason"][0]))


@kernel
def _put(views, hash_, word, now_s):
    quarantine._put(views, hash_, word, now_s)


@kernel
def _holds(views, hash_, own_hash, now_ms):
    return quarantine.holds(views, hash_, own_hash, now_ms)


@pytest.fixture
def bench():
    """A table with a quarantine."""
    table = tables.small(300, extension_share=1000)
    kept = np.zeros((QUARANTINE_LINES, LINE_SLOTS), "u8")
    table.quarantine = kept.ctypes.data
    bench = Bench(table)
    bench.kept = kept
    yield bench
    delete_list.run(bench.views)
    tables.assert_at_rest(table)


def establish(bench, client=CLIENT, now_ms=NOW_MS):
    """Open a connection and have it answered; returns the state of its SYN."""
    state, _, _ = send(bench, tcp(client, 40000, SERVER, 80, "S", 100), now_ms=now_ms)
    if state == NEW | SNAT:
        send(bench, tcp(SERVER, 80, PUBLIC, 2000, "SA", 900, 101), now_ms=now_ms)
        send(bench, tcp(client, 40000, SERVER, 80, "A", 101, 901), now_ms=now_ms)
    return state


def delete_all(bench, now_ms):
    """Delete every connection, as a client of the control socket does."""
    cursor, wanted = np.zeros(1, "u8"), np.zeros(1, FILTER).view(np.recarray)[0]
    count = walk.delete(bench.views, wanted, u64(now_ms), u64(1 << 20), u64(cursor.ctypes.data))
    delete_list.run(bench.views)
    return int(count)


def test_what_is_deleted_early_keeps_its_port_for_time_wait(bench):
    assert establish(bench) == NEW | SNAT
    assert delete_all(bench, NOW_MS) == 1
    state, _, reason = send(bench, tcp("10.0.0.2", 40000, SERVER, 80, "S", 1), ONE_PORT, now_ms=NOW_MS + TIME_WAIT_MS)
    assert (state, reason) == (NEW, Reason.NAT_EXHAUSTED)
    assert establish(bench, "10.0.0.3", NOW_MS + TIME_WAIT_MS + 2000) == NEW | SNAT
    assert bench.counter(Reason.QUARANTINED) == bench.counter(Reason.QUARANTINE_REFUSED) == 1


def test_another_port_is_chosen_while_there_is_one(bench):
    _, first, _ = send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), TWO_PORTS)
    send(bench, tcp(SERVER, 80, PUBLIC, first, "SA", 900, 101))
    delete_all(bench, NOW_MS)
    for host in range(2, 6):
        state, other, _ = send(bench, tcp(f"10.0.0.{host}", 40000, SERVER, 80, "S", 1), TWO_PORTS)
        assert (state, other) == (NEW | SNAT, 4001 - first)
        delete_all(bench, NOW_MS)


def test_the_same_opener_may_have_it_at_once(bench):
    establish(bench)
    delete_all(bench, NOW_MS)
    assert establish(bench) == NEW | SNAT


def test_who_has_served_time_wait_leaves_nothing(bench):
    establish(bench)
    for packet in (
        tcp(CLIENT, 40000, SERVER, 80, "FA", 101, 901),
        tcp(SERVER, 80, PUBLIC, 2000, "FA", 901, 102),
        tcp(CLIENT, 40000, SERVER, 80, "A", 102, 902),
    ):
        assert send(bench, packet, now_ms=NOW_MS)[0] & EST
    later = u64(NOW_MS + TIME_WAIT_MS + 100)
    assert int(sweep.sweep(bench.views, later, u64(1 << 20))) == 1
    assert not bench.kept.any()


def test_who_was_never_answered_leaves_nothing(bench):
    send(bench, tcp(CLIENT, 40000, SERVER, 80, "S", 100), ONE_PORT, now_ms=NOW_MS)
    delete_all(bench, NOW_MS)
    assert not bench.kept.any()


def test_a_reset_frees_the_record_and_not_the_port(bench):
    establish(bench)
    assert send(bench, tcp(SERVER, 80, PUBLIC, 2000, "RA", 901, 101), now_ms=NOW_MS)[0] & RPL
    assert int(sweep.sweep(bench.views, u64(NOW_MS + 20_000), u64(1 << 20))) == 1
    assert establish(bench, "10.0.0.2", NOW_MS + 30_000) == NEW
    assert establish(bench, "10.0.0.2", NOW_MS + 20_000 + TIME_WAIT_MS + 2000) == NEW | SNAT


def test_without_a_quarantine_a_port_is_free_at_once():
    bench = Bench(tables.small(300, extension_share=1000))
    establish(bench)
    delete_all(bench, NOW_MS)
    assert establish(bench, "10.0.0.2") == NEW | SNAT


# ------------------------------------------------------------------------------------------------ the words
def word(tag, opener, until_s):
    return u64(tag << 40 | opener << 24 | until_s & 0xFFFFFF)


def test_a_full_line_forgets_what_ends_first(bench):
    hashes = [u64(tag << 40) for tag in range(1, LINE_SLOTS + 2)]
    for i, hash_ in enumerate(hashes):
        _put(bench.views, hash_, word(i + 1, 7, 1000 + (i + 3) % 9), u64(900))
    held = [bool(_holds(bench.views, hash_, u64(8), u64(900_000))) for hash_ in hashes]
    assert held == [i != 6 for i in range(LINE_SLOTS + 1)]
    assert bench.counter(Reason.QUARANTINE_FORGOTTEN) == 1


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(st.integers(0, 1 << 40), st.integers(1, 1 << 22), st.integers(0, 1 << 23))
def test_seconds_wrap(start_s, length_s, later_s):
    """2**24 seconds are half a year: a word that ended less than half of that ago has ended."""
    table = tables.small(10)
    kept = np.zeros((QUARANTINE_LINES, LINE_SLOTS), "u8")
    table.quarantine = kept.ctypes.data
    me = tables.Participant(table)
    _put(me.views, u64(5 << 40), word(5, 7, start_s + length_s), u64(start_s))
    assert bool(_holds(me.views, u64(5 << 40), u64(8), u64((start_s + later_s) * 1000))) == (later_s < length_s)
