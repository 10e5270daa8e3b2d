"""A service by its name and by its own address, from one port of one client: two connections that are never mixed up."""

import numpy as np
import pytest
import tables
from gateway import CLIENT, DNAT, EST, INV, NEW, RPL, SERVER, SNAT, TRANSLATE, VIRTUAL, Gateway, ip, rule, udp
from scapy.layers.inet import TCP
from zonetrack.kernels import delete_list
from zonetrack.shm.layout import FrameFlag, Nat, Setting
from zonetrack.shm.reasons import Reason

TO_SERVER = rule(Nat.DESTINATION, SERVER)


@pytest.fixture
def gateway():
    made = Gateway(helpers=False)
    yield made
    made.settle()


def fresh(gateway, packet, action=TRANSLATE):
    """Send a packet that was not translated yet."""
    return gateway.send(packet, action, flags=FrameFlag.FRESH)


def there(target, data=b"x"):
    return udp(CLIENT, 10000, target, 80, data)


def test_both_work_and_stay_apart(gateway):
    named = fresh(gateway, there(VIRTUAL), TO_SERVER)
    direct = fresh(gateway, there(SERVER))
    assert named.ends == (CLIENT, 10000, SERVER, 80)
    port = direct.ends[1]
    assert direct.ct_state == NEW | SNAT and direct.ends == (CLIENT, port, SERVER, 80) and port != 10000
    for _ in range(2):
        back = fresh(gateway, udp(SERVER, 80, CLIENT, 10000))
        assert (back.ends, back.ct_state, back.record) == ((VIRTUAL, 80, CLIENT, 10000), EST | RPL | SNAT, named.record)
        back = fresh(gateway, udp(SERVER, 80, CLIENT, port))
        assert (back.ends, back.ct_state, back.record) == ((SERVER, 80, CLIENT, 10000), EST | RPL | DNAT, direct.record)
        again = fresh(gateway, there(VIRTUAL))
        assert (again.ends, again.record) == ((CLIENT, 10000, SERVER, 80), named.record)
        again = fresh(gateway, there(SERVER))
        assert (again.ends, again.record) == ((CLIENT, port, SERVER, 80), direct.record)


@pytest.mark.parametrize("gone", [0, 1])
def test_one_lives_on_when_the_other_goes(gateway, gone):
    records = [fresh(gateway, there(VIRTUAL), TO_SERVER).record, fresh(gateway, there(SERVER)).record]
    gateway.now_ms += 20_000
    assert fresh(gateway, there(SERVER if gone == 0 else VIRTUAL)).record == records[1 - gone]
    gateway.now_ms += 15_000
    for _ in range(2):
        if gone == 0:
            assert fresh(gateway, there(SERVER)).record == records[1]
            assert fresh(gateway, udp(SERVER, 80, CLIENT, 10000)).record != records[0]
        else:
            assert fresh(gateway, there(VIRTUAL)).record == records[0]
            back = fresh(gateway, udp(SERVER, 80, CLIENT, 10000))
            assert back.record == records[0] and back.ends == (VIRTUAL, 80, CLIENT, 10000)
        delete_list.run(gateway.bench.views)


def test_where_nothing_is_translated_the_second_is_refused_and_the_first_is_unharmed(gateway):
    named = fresh(gateway, there(VIRTUAL), TO_SERVER)
    before = tables.entries(gateway.table)["packets"][named.record].tolist()
    refused = fresh(gateway, there(SERVER), None)
    assert (refused.reason, refused.ct_state, refused.record) == (Reason.CLASH, NEW, 0xFFFFFFFF)
    assert tables.entries(gateway.table)["packets"][named.record].tolist() == before
    assert gateway.counter(Reason.CLASH) == 1


def test_one_that_comes_by_translated_is_its_own(gateway):
    named = fresh(gateway, there(VIRTUAL), TO_SERVER)
    again = gateway.send(there(SERVER))
    assert again.record == named.record and again.ends == (CLIENT, 10000, SERVER, 80)
    fresh(gateway, there(SERVER))
    assert gateway.bench.count() == 2


def test_replies_that_nobody_has_asked_for_are_of_the_one_there_is(gateway):
    """What looks like a reply that was translated already, and is fresh: there is no other connection."""
    snat = fresh(gateway, there(SERVER), rule(Nat.SOURCE, "203.0.113.9"))
    back = fresh(gateway, udp(SERVER, 80, CLIENT, 10000))
    assert back.record == snat.record and back.ct_state & RPL


def test_tcp_segments_go_to_the_connection_that_they_are_of(gateway):
    def segment(target, flags, seq, ack=0):
        return ip(CLIENT, target) / TCP(sport=10000, dport=80, flags=flags, seq=seq, ack=ack, window=8192)

    named = fresh(gateway, segment(VIRTUAL, "S", 1000), TO_SERVER)
    direct = fresh(gateway, segment(SERVER, "S", 900_000_000))
    port = direct.ends[1]
    for destination, seq, record in ((10000, 1000, named.record), (port, 900_000_000, direct.record)):
        answer = ip(SERVER, CLIENT) / TCP(sport=80, dport=destination, flags="SA", seq=5, ack=seq + 1, window=8192)
        went = fresh(gateway, answer)
        assert went.record == record and not went.ct_state & INV and went.ends[2:] == (CLIENT, 10000)
    for target, seq, record in ((VIRTUAL, 1001, named.record), (SERVER, 900_000_001, direct.record)):
        went = fresh(gateway, segment(target, "A", seq, 6))
        assert went.record == record and went.ct_state & EST


def test_in_the_profile_of_open_vswitch_too(gateway):
    tables.zones(gateway.table)["settings"][0] |= np.uint16(Setting.OVS)
    named, direct = fresh(gateway, there(VIRTUAL), TO_SERVER), fresh(gateway, there(SERVER))
    assert named.record != direct.record and direct.ends[1] != 10000
