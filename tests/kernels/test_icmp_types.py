"""The rows say what becomes of each type, and a type without a row is nothing."""

import pytest
from zonetrack.kernels import icmp_types
from zonetrack.kernels.icmp_types import MESSAGES, TYPES, Known, Role
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import Setting

ROWS = {(message.family, message.type): message for message in MESSAGES}


@kernel
def _find(family, number, settings):
    return icmp_types.find(family, number, settings)


@kernel
def _ports(found, code, identifier):
    return icmp_types.ports(found, code, identifier)


def found(family, number, settings=Setting.CHECKSUM):
    word = int(_find(u64(family), u64(number), u64(settings)))
    return Role(word & 0xFF), word >> 8


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: f"icmp{message.family}-{message.type}")
def test_each_row(message):
    assert found(message.family, message.type) == (message.role, message.request)
    everywhere = message.known == Known.EVERYWHERE
    ovs = found(message.family, message.type, Setting.OVS | Setting.CHECKSUM)
    assert ovs == ((message.role, message.request) if everywhere else (Role.NONE, 0))


def test_a_type_without_a_row_is_nothing():
    for family in (4, 6):
        for number in range(256):
            if (family, number) not in ROWS:
                assert found(family, number) == found(family, number, Setting.OVS) == (Role.NONE, 0)


def test_each_answer_has_its_request():
    for message in MESSAGES:
        if message.role in (Role.REQUEST, Role.ANSWER):
            assert ROWS[message.family, message.request].role == Role.REQUEST
    requests = [message.type for message in MESSAGES if message.role == Role.REQUEST]
    answered = [message.request for message in MESSAGES if message.role == Role.ANSWER]
    assert sorted(requests) == sorted(answered)


def test_request_and_answer_mirror_each_other():
    for message in MESSAGES:
        if message.role == Role.ANSWER:
            answer = _find(u64(message.family), u64(message.type), u64(0))
            request = _find(u64(message.family), u64(message.request), u64(0))
            to = _ports(request, u64(5), u64(0x1234))
            back = _ports(answer, u64(5), u64(0x1234))
            assert tuple(to) == (0x1234, message.request << 8 | 5) == tuple(back)[::-1]


def test_the_table_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        TYPES[0] = 1
