"""IPFIX as others read it: every message through decoders that nobody here wrote, each field by its name at IANA."""

import ipaddress

import numpy as np
import pytest
from connection_rows import pack
from netflow.ipfix import IPFIXExportPacket
from scapy.layers.netflow import NetflowFlowsetV9, NetflowHeader
from zonetrack.clients.ipfix import REVERSE, TEMPLATES, EndReason, Exporter, Flows
from zonetrack.shm.layout import CONNECTION

START_MS = 1_767_225_600_123
SOURCE_NAT = 1 << 8
SIX = {"src": "2001:db8::1", "dst": "2001:db8::2"}


def flows_of(*packed, reasons=None):
    rows = np.frombuffer(b"".join(packed), CONNECTION)
    count = len(rows)
    packets, octets = np.tile(np.array([3, 2], "u8"), (count, 1)), np.tile(np.array([164, 112], "u8"), (count, 1))
    reasons = np.array(reasons or [EndReason.IDLE] * count, "u1")
    return Flows(rows, packets, octets, reasons, np.full(count, START_MS + 5000, "u8"))


def decoded(flows, bytes_max=1400):
    """Return the header fields of each message, and all records as dicts, as the `netflow` package reads them."""
    exporter = Exporter(7, bytes_max)
    known, headers, records = {}, [], []
    for message in (exporter.announce(1_767_225_700), *exporter.messages(flows, 1_767_225_700)):
        packet = IPFIXExportPacket(message, known)
        known |= packet.templates
        headers.append(packet.header)
        records += [flow.data for flow in packet.flows]
        assert len(message) <= bytes_max
    return headers, records


def test_a_flow_of_ipv4():
    headers, (record,) = decoded(flows_of(pack(zone=5, start_ms=START_MS, id=9 << 32 | 4)))
    assert [(one.version, one.obervation_domain_id, one.sequence_number) for one in headers] == [(10, 7, 0), (10, 7, 0)]
    assert headers[1].export_uptime == 1_767_225_700
    assert str(ipaddress.ip_address(record["sourceIPv4Address"])) == "192.0.2.1"
    assert str(ipaddress.ip_address(record["destinationIPv4Address"])) == "198.51.100.1"
    assert (record["sourceTransportPort"], record["destinationTransportPort"]) == (40000, 80)
    assert (record["protocolIdentifier"], record["flowEndReason"], record["biflowDirection"]) == (6, 1, 1)
    assert (record["flowStartMilliseconds"], record["flowEndMilliseconds"]) == (START_MS, START_MS + 5000)
    assert (record["ingressVRFID"], record["flowId"], record["firewallEvent"]) == (5, 9 << 32 | 4, 2)


def test_templates_as_scapy_reads_them():
    """The reverse direction has the numbers of the other under an enterprise of its own."""
    message = NetflowHeader(Exporter(0, 1400).announce(0))
    told = message[NetflowFlowsetV9].templates
    assert [one.templateID for one in told] == list(TEMPLATES)
    for one in told:
        fields = [(field.fieldType, field.fieldLength, field.enterpriseNumber) for field in one.template_fields]
        assert fields == [
            (field.number, int(field.kind.lstrip(">uV")), field.enterprise or None)
            for field in TEMPLATES[one.templateID]
        ]
    assert [field.number for field in TEMPLATES[256] if field.enterprise == REVERSE] == [2, 1]


def test_both_directions_are_counted():
    exporter = Exporter(0, 1400)
    known = IPFIXExportPacket(exporter.announce(0), {}).templates
    (message,) = exporter.messages(flows_of(pack()), 0)
    (flow,) = IPFIXExportPacket(message, known).flows
    assert {(2, 3), (2, 2), (1, 164), (1, 112)} <= flow.fields  # by number, forth and back


def test_what_is_behind_a_translation():
    nat = {"status": 6 | SOURCE_NAT, "reply_dst": "203.0.113.7", "reply_dport": 50000}
    _, (four, six) = decoded(flows_of(pack(**nat), pack(**SIX, status=6 | SOURCE_NAT, reply_dst="2001:db8::99")))
    assert str(ipaddress.ip_address(four["postNATSourceIPv4Address"])) == "203.0.113.7"
    assert str(ipaddress.ip_address(four["postNATDestinationIPv4Address"])) == "198.51.100.1"
    assert (four["postNAPTSourceTransportPort"], four["postNAPTDestinationTransportPort"]) == (50000, 80)
    assert ipaddress.ip_address(six["postNATSourceIPv6Address"]) == ipaddress.ip_address("2001:db8::99")


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"protocol": 1, "sport": 77, "dport": 8 << 8}, "icmpTypeCodeIPv4", 8 << 8),
        ({"protocol": 1, "sport": 77, "dport": 8 << 8}, "sourceTransportPort", 0),
        ({"protocol": 58, "sport": 77, "dport": 128 << 8, **SIX}, "icmpTypeCodeIPv6", 128 << 8),
        ({"protocol": 17, **SIX}, "destinationTransportPort", 80),
        ({"protocol": 47}, "protocolIdentifier", 47),
    ],
)
def test_fields_of_some_protocols(fields, name, value):
    _, (record,) = decoded(flows_of(pack(**fields)))
    assert record[name] == value


@pytest.mark.parametrize(("reason", "event"), [(0, 1), (EndReason.ACTIVE, 5), (EndReason.RESOURCES, 2)])
def test_why_a_record_was_made(reason, event):
    _, (record,) = decoded(flows_of(pack(), reasons=[reason]))
    assert (record["flowEndReason"], record["firewallEvent"]) == (reason, event)


def test_many_flows_are_cut_into_messages_and_numbered():
    headers, records = decoded(flows_of(*(pack(sport=port, **(SIX if port % 2 else {})) for port in range(1000, 1100))))
    assert sorted(record["sourceTransportPort"] for record in records) == list(range(1000, 1100))
    assert len(headers) > 5 and headers[-1].sequence_number < 100
    counted = [one.sequence_number for one in headers]
    assert counted == sorted(counted)


def test_nothing_to_tell_is_no_message():
    assert list(Exporter(0, 1400).messages(flows_of()._replace(rows=np.zeros(0, CONNECTION)), 0)) == []
