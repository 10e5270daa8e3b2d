"""Queues of the host's firewall: opened and closed, handed on to another process; what the system refuses is one line."""

import os
import socket

import firewalls
import forked
import pytest
from wires import Namespace
from zonetrack.service.ports.errors import PortError
from zonetrack.service.ports.nfqueue import NfqueuePort, listed
from zonetrack.shm.layout import QUEUED, PortKind
from zonetrack.shm.queues import Queues


@pytest.fixture
def host():
    firewalls.need()
    namespace = Namespace()
    with namespace.entered():
        firewalls.queue("OUTPUT", 5, 6, "udp", bypass=True)
        yield namespace
    namespace.close()


def datagram():
    """Return the sender and receiver of a datagram that is on its way."""
    sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(30)
    sender.sendto(b"x", receiver.getsockname())
    return sender, receiver


def test_each_queue_is_a_place_whoever_works_there(host):
    with NfqueuePort(5, "host", queues=2, zone=3) as made:
        queues = Queues([made], workers=4)
        assert queues.records["receives"].tolist() == [1, 1]
        assert set(queues.records["kind"].tolist()) == {PortKind.NFQUEUE}
        assert queues.records["rx"].view(QUEUED)["number"].tolist() == [5, 6]
        assert [listed()[number][3:5] for number in (5, 6)] == [[2, 65531]] * 2
        assert made.descriptors()[:2] == queues.records["rx_descriptor"].tolist()
        assert made.total_bytes > 0 and made.is_whole
        assert made.about() == {"device": "5:6", "length": 4096, "fail_open": False, "gso": True}
    assert listed() == {}


def test_one_that_is_closed_takes_no_more_and_another_process_goes_on_with_it(host):
    made = NfqueuePort(5, queues=2)
    made.close()
    sockets = [*datagram(), *datagram()]
    dropped = [row[5] for row in listed().values()]
    assert sum(dropped) == 2
    other = NfqueuePort(5, queues=2, descriptors=[os.dup(one) for one in made.descriptors()])
    made.unlink()
    sockets += datagram()
    assert sum(row[2] for row in listed().values()) == 1
    other.unlink()
    sender, receiver = datagram()  # nobody listens: it goes on
    assert receiver.recv(10) == b"x"
    for one in (*sockets, sender, receiver):
        one.close()


def test_losses_are_told_by_cause(host):
    with NfqueuePort(5, length=1) as made:
        queue = Queues([made]).records[0]
        sockets = [end for _ in range(10) for end in datagram()]
        waits = listed()[5][2]
        made.look(queue)
        assert waits <= 1 and queue["rx_dropped"] == queue["causes"][0] == listed()[5][5] > 0
        for one in sockets:
            one.close()


def test_a_queue_that_another_program_has_is_one_line(host):
    with NfqueuePort(6), pytest.raises(PortError) as raised:
        NfqueuePort(5, queues=2)
    assert str(raised.value) == "port nfqueue:5: another program listens to queue 6 already"
    assert listed() == {}


def test_a_queue_that_there_is_not_is_one_line():
    with pytest.raises(PortError, match="port nfqueue:65535: there is no queue 65536: they end at 65535"):
        NfqueuePort(65535, queues=2)


def test_who_lacks_the_right_is_told_which(host):
    def be_nobody(child):
        os.setuid(65534)
        try:
            NfqueuePort(5)
        except PortError as error:
            child.say(str(error))

    with forked.Child(be_nobody) as child:
        assert "listening to queue 5: the right to do that is missing" in child.hear()
        assert child.wait() == 0
