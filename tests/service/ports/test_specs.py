"""SPEC: what is read, what is refused and how, and that what is written is read again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zonetrack.service.ports import specs
from zonetrack.service.ports.specs import PortSpec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("shm:lab", PortSpec("shm", "lab")),
        ("shm:lab,queues=2,zone=5", PortSpec("shm", "lab", 2, 5)),
        ("shm:lab,slots=64", PortSpec("shm", "lab", slots=64)),
        ("afpacket:eth0", PortSpec("afpacket", "eth0", device="eth0")),
        ("tap:t0,queues=2", PortSpec("tap", "t0", 2, device="t0")),
        ("afpacket:eth0,latency=low", PortSpec("afpacket", "eth0", device="eth0", more=(("latency", "low"),))),
        ("xdp:eth0,queues=2", PortSpec("xdp", "eth0", 2, device="eth0")),
        (
            "xdp:eth0,mode=zerocopy,ring=1024,name=wan",
            PortSpec("xdp", "wan", device="eth0", more=(("mode", "zerocopy"), ("ring", 1024))),
        ),
        ("nfqueue:5", PortSpec("nfqueue", "nfqueue5", device="5")),
        (
            "nfqueue:0,queues=4,name=host,length=100,fail_open=on,gso=off",
            PortSpec("nfqueue", "host", 4, device="0", more=(("fail_open", True), ("gso", False), ("length", 100))),
        ),
        ("pcap:/tmp/a.pcap,zone=3", PortSpec("pcap", "a", zone=3, device="/tmp/a.pcap")),
        ("pcap:-,out=b.pcap,name=b", PortSpec("pcap", "b", device="-", more=(("out", "b.pcap"),))),
        (
            "afpacket:eth0.7,queues=4,zone=7,name=wan,fanout=flows,outgoing=on,ring_mb=64",
            PortSpec(
                "afpacket",
                "wan",
                4,
                7,
                device="eth0.7",
                more=(("fanout", "flows"), ("outgoing", True), ("ring_mb", 64)),
            ),
        ),
    ],
)
def test_specs_are_read(text, spec):
    assert specs.read(text) == spec
    assert specs.read(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (7, "found 7"),
        (
            "lab",
            "expected a port as shm:NAME, afpacket:INTERFACE, xdp:INTERFACE, tap:INTERFACE",
        ),
        ("shm:", "found 'shm:'"),
        ("wifi:a", "found 'wifi:a'"),
        ("xdp:eth0,mode=fast", "mode of xdp:eth0: expected one of copy, zerocopy, found 'fast'"),
        ("nfqueue:eth0", "found 'nfqueue:eth0'"),
        ("nfqueue:5,length=0", "length of nfqueue:5: expected a whole number from 1 to 1,048,576, found '0'"),
        ("shm:a,speed=1", "found 'speed=1' in 'shm:a,speed=1'; shm takes queues, zone, slots"),
        ("shm:a,zone=1,zone=2", "found 'zone=2'"),
        ("shm:a,slots=100", "slots of shm:a: expected a power of two, found 100"),
        ("shm:a,zone=65536", "zone of shm:a: expected a whole number from 0 to 65,535"),
        ("pcap:-", "'-' is no file to read, so say out=FILE"),
        ("pcap:a.pcap,queues=2", "pcap takes zone, name, out"),
        ("afpacket:a,slots=4", "found 'slots=4'"),
        ("afpacket:interface-with-a-long-name", "found 'afpacket:interface-with-a-long-name'"),
        ("afpacket:eth0.7", "'eth0.7' cannot be the name of a port; say name=NAME"),
        ("afpacket:eth0,fanout=best", "expected one of addresses, flows, found 'best'"),
        ("afpacket:eth0,outgoing=1", "expected on or off, found '1'"),
        ("afpacket:eth0,name=a.b", "name of afpacket:eth0: expected 1 to 32"),
    ],
)
def test_what_is_wrong_is_said(text, words):
    with pytest.raises(ValueError) as raised:
        specs.read(text)
    assert words in str(raised.value)


@given(st.from_regex(specs.NAME, fullmatch=True), st.integers(1, 1024), st.integers(0, 65535), st.integers(2, 16))
def test_a_port_is_written_as_it_is_read(name, queues, zone, power):
    spec = PortSpec("shm", name, queues, zone, 1 << power)
    assert specs.read(str(spec)) == spec
