"""One driver on a table: it sends, finds what it made, waits no longer than it must, and leaves at rest."""

import numpy as np
import pytest
import tables
from zonetrack.clients.driver import CheckFailed, Driver, now_ms
from zonetrack.clients.traffic import SAMPLE_STRIDE, Packet
from zonetrack.shm import roster, segment
from zonetrack.shm.layout import BLOCK_RECORDS, ENTRY, GLOBAL, POLICY, Life, Region
from zonetrack.shm.sizing import Geometry


@pytest.fixture
def table():
    return segment.anonymous(Geometry(16 * BLOCK_RECORDS, 4, 0))


def sent(table, first_packet, last_packet, count, **fields):
    """Return a driver that has sent the packets from first to last of some connections."""
    driver = Driver(table, 1, 32)
    driver.sender.set(count=count, end=count, **fields)
    driver.sender.send(first_packet, last_packet)
    driver.run()
    return driver


def live(table):
    """Return all records, and which of them are connections; writes go to the table."""
    entries = table.array(Region.ENTRIES, "entries", ENTRY)
    return entries, np.flatnonzero(entries["life"] & 0xFF == Life.LIVE)


def test_every_connection_is_made_once(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 1000)
    assert driver.sender.complaint() is None
    assert driver.sender.stream["finished"] == driver.connections == driver.tally.peak_connections == 1000
    assert driver.sender.stream["packets"] == 3000


def test_what_was_made_is_found_and_what_was_not_is_not(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 100)
    verdicts = driver.look_up(np.arange(100, dtype="u8"), Packet.ACK, now_ms())
    assert len(set(verdicts["record"])) == 100
    with pytest.raises(CheckFailed, match=r"looked up again: 1 packets .* PROBE of connection 5"):
        driver.look_up(np.array([5], "u8"), Packet.PROBE, now_ms())
    assert driver.connections == 100


def test_looking_up_at_the_last_moment_moves_the_expiry(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 600)
    entries, records = live(table)
    before = entries["expiry_ms"][records].max()
    driver.look_up_just_before_expiry(np.arange(600, dtype="u8"), Packet.ACK)
    assert driver.tally.looked_up == 1200
    assert entries["expiry_ms"][records].min() > before


def test_a_connection_that_has_expired_is_missed(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 10)
    entries, records = live(table)
    entries["expiry_ms"][records] = now_ms() - 1
    with pytest.raises(CheckFailed, match="looked up again"):
        driver.look_up_just_before_expiry(np.arange(10, dtype="u8"), Packet.SYN_ACK)


def test_refused_connections_are_made_when_others_have_expired(table):
    tables.refuse(table)
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = 100
    table.array(Region.CONTROL, "policies", POLICY)["timeout_ms"][0] = 20
    driver = sent(table, Packet.SYN, Packet.RST, 250)
    assert driver.sender.stream["finished"] == 250
    assert driver.tally.peak_connections == 100
    assert driver.tally.cleaned >= 150
    assert driver.tally.waits > 0


def test_waiting_for_nothing_ends(table):
    tables.refuse(table)
    table.array(Region.CONTROL, "globals", GLOBAL)["limit"] = 10
    with pytest.raises(CheckFailed, match=r"22 connections were refused for \d+ ms \(full\), with 10 in the table"):
        sent(table, Packet.SYN, Packet.ACK, 32)


def test_wrong_verdicts_are_counted_and_the_first_is_named(table):
    driver = sent(table, Packet.SYN_ACK, Packet.SYN_ACK, 40)
    assert driver.sender.stream["errors"] == 40
    assert "the first of them SYN_ACK of connection 0: expected est|rpl|trk, found " in driver.sender.complaint()


def test_one_in_a_thousand_is_sampled_with_the_moment_of_its_last_packet(table):
    begun = now_ms()
    driver = sent(table, Packet.SYN, Packet.RST, 3500, first=500, sampling=1)
    samples = driver.sender.take_samples()
    assert samples["number"].tolist() == [SAMPLE_STRIDE, 2 * SAMPLE_STRIDE, 3 * SAMPLE_STRIDE]
    assert all(begun <= moment <= now_ms() for moment in samples["finished_ms"].tolist())
    assert len(driver.sender.take_samples()) == 0


def test_random_draws_stay_within_the_range(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 50)
    driver.sender.send(Packet.DATA, Packet.ANSWER_ACK)
    driver.run()
    entries, records = live(table)
    expires = entries["expiry_ms"][records].min()
    driver.sender.set(random=12345, end=2000)
    driver.sender.send(Packet.EITHER)
    driver.run()
    assert driver.sender.complaint() is None
    assert driver.sender.stream["finished"] == 2000
    assert driver.connections == 50
    entries, records = live(table)
    assert entries["expiry_ms"][records].min() >= expires, "no timeout was shortened"


def test_it_leaves_at_rest(table):
    driver = sent(table, Packet.SYN, Packet.ACK, 10)
    driver.leave()
    assert roster.present(table) == []
