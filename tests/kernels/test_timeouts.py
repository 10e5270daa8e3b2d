import re

import numpy as np
import pytest
import tracker
from zonetrack.kernels import memory, outcome, timeouts
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.tcp_states import Tcp
from zonetrack.kernels.timeouts import DEFAULTS_MS, DEFAULTS_OVS_S, DEFAULTS_S, OVS, Timeout
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import POLICY, TIMEOUTS_MAX, VIEWS

views_at = memory.record_at(VIEWS)


@kernel
def length_ms(views, policy, timeout):
    return timeouts.length_ms(views_at(views), policy, timeout)


@pytest.fixture
def policies():
    """Three policies, and the address of views that name them."""
    rows = np.zeros(3, POLICY)
    views = np.zeros(1, VIEWS)
    views[0]["policies"] = rows.ctypes.data
    return rows, views


@pytest.mark.parametrize("timeout", Timeout)
def test_a_row_of_zeros_is_the_default_of_the_profile(policies, timeout):
    rows, views = policies
    rows[1]["timeout_ms"] = 1
    for profile, first, other in ((0, DEFAULTS_S, DEFAULTS_OVS_S), (OVS, DEFAULTS_OVS_S, DEFAULTS_S)):
        default_ms = 1000 * (first[timeout] if timeout in first else other[timeout])
        assert length_ms(tracker.at(views), u64(0), u64(timeout | profile)) == default_ms
        assert DEFAULTS_MS[timeout | profile] == default_ms
        assert length_ms(tracker.at(views), u64(1), u64(timeout | profile)) == 1


@pytest.mark.parametrize("timeout", Timeout)
def test_each_policy_has_its_own(policies, timeout):
    rows, views = policies
    for i, row in enumerate(rows):
        row["timeout_ms"] = 1000 * i + np.arange(TIMEOUTS_MAX) + 1
    for i in range(3):
        assert length_ms(tracker.at(views), u64(i), u64(timeout)) == 1000 * i + timeout + 1


def test_a_term_is_the_shorter_of_two(policies):
    rows, views = policies
    rows[2]["timeout_ms"][Timeout.TCP_ESTABLISHED] = 7
    term = u64(outcome.term(u64(Timeout.TCP_ESTABLISHED), u64(Timeout.TCP_UNACKNOWLEDGED)))
    alone = u64(outcome.term(u64(Timeout.UDP), u64(Timeout.UDP)))
    lengths = [int(tracker.term_ms(tracker.at(views), u64(i), term)) for i in range(3)]
    assert lengths == [300_000, 300_000, 7]
    assert tracker.term_ms(tracker.at(views), u64(0), alone) == 30_000


def test_a_cap_of_0_caps_nothing(policies):
    rows, views = policies
    term = u64(outcome.term(u64(Timeout.UDP), u64(Timeout.UDP_ONE_WAY_MAX)))
    for cap_ms, length in ((0, 30_000), (1, 1), (29_999, 29_999), (30_001, 30_000), (2**32 - 1, 30_000)):
        rows[0]["timeout_ms"][Timeout.UDP_ONE_WAY_MAX] = cap_ms
        assert tracker.term_ms(tracker.at(views), u64(0), term) == length


def test_every_tcp_state_has_a_timeout():
    names = {timeout.name for timeout in Timeout}
    assert all(f"TCP_{state.name}" in names for state in Tcp if state is not Tcp.NONE)


def test_defaults_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        DEFAULTS_MS[0] = 1
    assert max({*DEFAULTS_S.values(), *DEFAULTS_OVS_S.values()}) * 1000 < 2**32


def test_defaults_are_those_measured():
    """Seconds of a live Linux 6.18, read from its sysctls."""
    measured = """
        tcp: syn_sent 120, syn_recv 60, established 432000, fin_wait 120, close_wait 60, last_ack 30, time_wait 120,
        close 10, max_retrans 300, unacknowledged 300; udp 30, udp_stream 120, icmp 30, icmpv6 30, gre 30, gre_stream 180,
        generic 600
    """
    tcp, others = measured.split(";")
    pairs = [(f"TCP_{name}", s) for name, s in re.findall(r"(\w+) (\d+)", tcp)] + re.findall(r"(\w+) (\d+)", others)
    for name, seconds in pairs:
        assert DEFAULTS_S[Timeout[name.upper()]] == int(seconds)
