"""The scenarios on paper: which packets each sends, to which zones, and how much of it there is."""

from collections import Counter

import pytest
from zonetrack.clients.scenarios import SCENARIOS, Handshake, Hit, Miss, Plan, Scan, conversation, draws
from zonetrack.clients.traffic import DATA, Packet

N = len(DATA)


def zones_of(scenario):
    """Return the connections of each zone, counted one by one from the formula of each worker."""
    zones, found = scenario.plan.zones, Counter()
    for index in range(scenario.plan.threads):
        first, count = scenario.share(index)
        found.update((number + scenario.zone_offset(index)) % zones for number in range(first, first + count))
    return [found[zone] for zone in range(zones)]


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("threads", [1, 3, 10])
@pytest.mark.parametrize("zones", [1, 7, 100])
def test_zone_counts_are_those_of_every_number(name, threads, zones):
    scenario = SCENARIOS[name](Plan(threads=threads, connections=250, zones=zones))
    assert scenario.zone_counts().tolist() == zones_of(scenario)


def test_a_handshake_worker_begins_at_its_own_part_of_the_zones():
    """Zone = (j + worker x zones / workers) mod zones."""
    scenario = Handshake(Plan(threads=4, connections=30, zones=10))
    for index in range(4):
        first, _ = scenario.share(index)
        zones = [(first + j + scenario.zone_offset(index)) % 10 for j in range(30)]
        assert zones == [(j + index * 10 // 4) % 10 for j in range(30)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_two_workers_make_the_same_connection(name):
    scenario = SCENARIOS[name](Plan(threads=7, connections=100))
    numbers = [n for index in range(7) for n in range(scenario.share(index)[0], sum(scenario.share(index)))]
    assert len(numbers) == len(set(numbers)) == scenario.kept


def test_a_conversation_without_data_has_six_packets():
    assert [packet for packet, _, _ in conversation(0)] == [
        Packet.SYN,
        Packet.SYN_ACK,
        Packet.ACK,
        Packet.FIN,
        Packet.FIN_BACK,
        Packet.LAST_ACK,
    ]


def test_data_and_their_acknowledgments_are_one_run():
    assert list(conversation(2))[3:] == [
        (Packet.DATA, 0, 4),
        (Packet.FIN, 2 * N, 1),
        (Packet.FIN_BACK, 2 * N, 1),
        (Packet.LAST_ACK, 2 * N, 1),
    ]
    assert Handshake(Plan(connections=50, data_packets=20_000)).packets_count == 50 * 40_006


def test_the_headline_is_ten_million_connections_and_sixty_million_packets():
    scenario = Handshake(Plan(threads=10, connections=10_000, zones=100, iterations=100))
    assert scenario.units == 10_000_000
    assert scenario.packets_count == 60_000_000


def test_handshake_sends_packet_i_of_all_before_packet_i_plus_1():
    runs = list(Handshake(Plan(connections=50, iterations=2)).perform(0))
    assert [run.packets[0] for run in runs] == 2 * [packet for packet, _, _ in conversation(0)]
    assert all(run.packets[0] == run.packets[1] and run.end == run.count == 50 for run in runs)
    assert [run.iteration for run in runs] == 6 * [0] + 6 * [1]


def test_scan_sends_four_packets_in_a_row():
    (run,) = Scan(Plan(connections=50)).perform(0)
    assert run.packets_count == 200
    assert list(range(run.packets[0], run.packets[1] + 1)) == [Packet.SYN, Packet.SYN_ACK, Packet.ACK, Packet.RST]


def test_hit_and_miss_count_packets():
    assert Hit(Plan(connections=50, iterations=4, threads=3)).units == 200
    assert Miss(Plan(connections=50, iterations=4, threads=3)).units == 200


def test_only_miss_makes_no_records():
    commits = {name: {run.commits for run in kind(Plan()).perform(0)} for name, kind in SCENARIOS.items()}
    assert commits == {"hit": {True}, "miss": {False}, "handshake": {True}, "scan": {True}}


@pytest.mark.parametrize(("limit", "held"), [(None, 2000), (300, 300), (0, 0), (5000, 2000)])
def test_what_is_held_is_bounded_by_the_limit(limit, held):
    assert Scan(Plan(threads=2, connections=1000, limit=limit)).held == held


def test_draws_begin_elsewhere_for_each_worker_and_seed():
    states = {draws(Plan(seed=seed), index) for seed in range(20) for index in range(20)}
    assert len(states) == 400
    assert all(0 < state < 2**64 for state in states)
