"""Bursts through rules: as if each packet went alone, through all its tables, before the next."""

import fragmented
import numpy as np
import pytest
import reference_pipeline
import tables
from ports import receive, udp
from ruled import Switch, Tracker
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from zonetrack.service import rules_compile
from zonetrack.service.rules import Ct, CtClear, Goto, InPort, Masked, Nat, Output, Rule
from zonetrack.shm.layout import NO_TABLE, CtState, FrameFlag, ZoneFrom
from zonetrack.shm.reasons import Reason

NOW_MS = 1_000_000
NEW, EST, INV = (CtState.TRK | one for one in (CtState.NEW, CtState.EST, CtState.INV))
RPL = EST | CtState.RPL

FIREWALL = """
priority=9,arp actions=output:a,output:b
priority=5,ip actions=ct(table=1,zone=7)
table=1,priority=9,ct_state=+est+trk,in_port=a actions=output:b
table=1,priority=9,ct_state=+est+trk,in_port=b actions=output:a
table=1,priority=5,ct_state=+new+trk,in_port=a actions=ct(commit,zone=7),output:b
"""


def datagram(way=0, host=1):
    """Return a datagram of a connection, or its answer."""
    there = (bytes((10, 0, 0, host)), b"\x0a\0\0\x09")
    return udp(*there, 1000, 53, b"x") if way == 0 else udp(*there[::-1], 53, 1000, b"y")


# ------------------------------------------------------------------------------------------------ by hand
def test_a_firewall():
    with Switch(2, FIREWALL) as switch:
        verdicts, came = switch.through("b", [datagram(1)])
        assert (verdicts["ct_state"][0], verdicts["reason"][0]) == (NEW, Reason.RULE_MISSED)
        assert came == {"a": [], "b": []}
        verdicts, came = switch.through("a", [datagram(), datagram()])
        assert verdicts["ct_state"].tolist() == [NEW, NEW]
        assert came["b"] == [datagram(), datagram()]
        verdicts, came = switch.through("b", [datagram(1)])
        assert verdicts["ct_state"].tolist() == [RPL]
        assert came["a"] == [datagram(1)]
        arp = bytes(Ether(dst="ff:ff:ff:ff:ff:ff", src="02:00:00:00:00:01") / ARP())
        assert switch.through("a", [arp])[1] == {"a": [], "b": [arp]}
        hits = switch.rules.hits()
        assert hits["packets"].tolist() == [1, 4, 0, 1, 2]
        assert hits["bytes"].tolist() == [len(arp), 4 * len(datagram()), 0, len(datagram()), 2 * len(datagram())]


def test_in_one_burst_a_later_packet_sees_what_an_earlier_one_did():
    """Both ways of a connection in one burst: the answer meets the rule for established ones."""
    text = """
    priority=5,ip actions=ct(table=1)
    table=1,ct_state=+new actions=ct(commit),IN_PORT
    table=1,ct_state=+est actions=IN_PORT
    """
    with Switch(1, text) as switch:
        verdicts, came = switch.through(
            "a", [datagram(), datagram(host=2), datagram(1), datagram(1, 2), datagram(1, 3)]
        )
        assert verdicts["ct_state"].tolist() == [NEW, NEW, RPL, RPL, NEW]
        assert sorted(came["a"]) == sorted([datagram(), datagram(host=2), datagram(1), datagram(1, 2), datagram(1, 3)])


def test_a_ct_without_commit_makes_nothing():
    with Switch(1, "actions=ct(zone=3),IN_PORT") as switch:
        for _ in range(2):
            assert switch.through("a", [datagram()])[0]["ct_state"].tolist() == [NEW]
        assert switch.worker.counter(Reason.INSERT) == 0


def test_client_says_commit_and_rules_do_not():
    with Switch(1, "actions=ct(zone=3)") as switch:
        switch.send("a", [datagram()], flags=FrameFlag.COMMIT)
        switch.poll()
        assert switch.worker.counter(Reason.INSERT) == 0


@pytest.mark.parametrize(
    ("zone", "expected"),
    [("zone=5", [5, 5]), ("zone=vlan", [7, 0]), ("zone=in_port", [2, 2]), ("zone=port", [66, 66])],
)
def test_zones(zone, expected):
    tagged = bytes(Ether() / Dot1Q(vlan=7) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP())
    with Switch(2, f"actions=ct(commit,{zone})", zones=(65, 66)) as switch:
        assert switch.through("b", [tagged, datagram()])[0]["zone"].tolist() == expected


def test_ct_clear_forgets():
    text = """
    actions=ct(zone=4,table=1)
    table=1 actions=ct_clear,goto_table:2
    table=2,ct_state=-trk,ct_zone=0 actions=IN_PORT
    """
    with Switch(1, text) as switch:
        assert switch.through("a", [datagram()])[1]["a"] == [datagram()]


def test_what_was_tracked_in_a_zone_is_not_tracked_there_again():
    """Looked up, then committed: it counts once, as often as it is said."""
    text = "actions=ct(table=1,zone=3)\ntable=1 actions=ct(commit,zone=3),ct(commit,zone=3),ct(zone=3,table=2)\n"
    with Switch(1, text + "table=2,ct_state=+trk,ct_zone=3 actions=IN_PORT") as switch:
        for turn in range(1, 4):
            verdicts, came = switch.through("a", [datagram()])
            assert came["a"] == [datagram()]
            entry = tables.entries(switch.table)[verdicts["record"][0]]
            assert entry["packets"].tolist() == [turn, 0]
        assert switch.worker.counter(Reason.INSERT) == 1
        wrong = bytearray(datagram())
        wrong[24] ^= 1
        switch.through("a", [bytes(wrong)])
        assert switch.worker.counter(Reason.INVALID) == 1


def test_marks_and_labels_are_set_and_asked_for():
    """By the commit that makes a connection, by one that finds it, and by one behind a lookup."""
    text = """
    priority=9,udp,tp_dst=53 actions=ct(commit,mark=0x5/0xf,label=0x70000000000000000,table=1)
    priority=5,ip actions=ct(table=2)
    table=1,ct_mark=5/0xf,ct_label=0x70000000000000000 actions=IN_PORT
    table=2 actions=ct(commit,exec(set_field:0x60/0xf0->ct_mark,set_field:0x1/0x1->ct_label)),resubmit(,3)
    table=3,ct_mark=0x65,ct_label=0x70000000000000001 actions=IN_PORT
    """
    with Switch(1, text, extension_share=1000) as switch:
        for packet, mark in ((datagram(), 5), (datagram(1), 0x65), (datagram(), 0x65), (datagram(1), 0x65)):
            verdicts, came = switch.through("a", [packet])
            assert verdicts["mark"].tolist() == [mark]
            assert came["a"] == [packet]
        assert tables.entries(switch.table)["packets"][verdicts["record"][0]].tolist() == [2, 2]


def test_force_makes_the_sender_the_opener():
    text = "udp,tp_dst=53 actions=ct(commit)\npriority=5,ip actions=ct(table=1)\ntable=1 actions=ct(commit,force)"
    with Switch(1, text) as switch:
        switch.through("a", [datagram()])
        verdicts, _ = switch.through("a", [datagram(1)])
        assert verdicts["ct_state"].tolist() == [NEW]
        verdicts, _ = switch.through("a", [datagram()])
        assert verdicts["ct_state"].tolist() == [RPL]


def test_after_ct_clear_it_is():
    text = "actions=ct(commit),ct_clear,ct(commit),IN_PORT"
    with Switch(1, text) as switch:
        verdicts, _ = switch.through("a", [datagram()])
        assert tables.entries(switch.table)[verdicts["record"][0]]["packets"].tolist() == [2, 0]


def test_a_pipeline_without_end_is_ended():
    with Switch(1, "actions=ct(table=0)") as switch:
        verdicts, _ = switch.through("a", [datagram(), datagram(host=2)])
        assert verdicts["reason"].tolist() == [Reason.RULE_TABLES] * 2
        assert switch.rules.hits()["packets"].tolist() == [2 * 64]


def test_what_is_no_packet_at_all_meets_rules_too():
    with Switch(2, "priority=1,ip,actions=drop\npriority=0,actions=output:b") as switch:
        assert switch.through("a", [b"", b"\x01"])[1]["b"] == [b"", b"\x01"]


def test_invalid_packets_can_be_told():
    wrong = bytearray(datagram())
    wrong[24] ^= 1  # the checksum of the IP header
    with Switch(1, "actions=ct(table=1)\ntable=1,ct_state=+inv actions=IN_PORT") as switch:
        verdicts, came = switch.through("a", [bytes(wrong), datagram()])
        assert verdicts["reason"].tolist() == [Reason.L3CSUM_ERR, Reason.RULE_MISSED]
        assert came["a"] == [bytes(wrong)]


def test_errors_find_the_connection_that_an_earlier_packet_of_the_burst_made():
    inner = IP(src="10.0.0.1", dst="10.0.0.9") / UDP(sport=1000, dport=53)
    error = bytes(Ether() / IP(src="10.0.0.9", dst="10.0.0.1") / ICMP(type=3, code=3) / inner)
    text = "actions=ct(table=1)\ntable=1,ct_state=+new actions=ct(commit)\ntable=1,ct_state=+rel actions=IN_PORT"
    with Switch(1, text) as switch:
        verdicts, came = switch.through("a", [datagram(), error])
        assert verdicts["ct_state"][1] & CtState.REL
        assert came["a"] == [error]


def test_rules_change_between_bursts_and_no_packet_is_lost():
    with Switch(2, "actions=output:b") as switch:
        assert switch.through("a", [datagram()])[1]["b"] == [datagram()]
        switch.send("a", [datagram()] * 3)
        switch.load("actions=IN_PORT")
        switch.poll()
        assert [len(switch.came(name)[1]) for name in "ab"] == [3, 0]
        switch.rules.withdraw()
        switch.send("a", [datagram()])
        switch.poll()
        descriptors, frames = receive(switch.client("a"))
        assert frames == [datagram()]
        assert descriptors["verdict"]["ct_state"].tolist() == [NEW]


# ------------------------------------------------------------------------------------------------ random ones
HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.1.1"]


def packets(random, count):
    """Return random packets between few hosts, and their fields."""
    made = []
    for _ in range(count):
        src, dst = random.choice(HOSTS, 2, replace=False).tolist()
        ports = [int(port) for port in random.choice([53, 80, 1000], 2)]
        kind = random.choice(["udp", "tcp", "icmp"])
        fields = {"eth_type": 0x800, "src": _number(src), "dst": _number(dst)}
        vlan = int(random.choice([0, 0, 5, 6]))
        ip = IP(src=src, dst=dst)
        if kind == "icmp":
            type_ = int(random.choice([8, 0]))
            data = ip / ICMP(type=type_, id=7)
            fields |= {"protocol": 1, "sport": type_}
        elif kind == "udp":
            data = ip / UDP(sport=ports[0], dport=ports[1])
            fields |= {"protocol": 17, "sport": ports[0], "dport": ports[1]}
        else:
            flags = random.choice(["S", "SA", "A", "R"])
            data = ip / TCP(sport=ports[0], dport=ports[1], flags=flags, seq=100, ack=100)
            fields |= {"protocol": 6, "sport": ports[0], "dport": ports[1], "tcp_flags": int(data[TCP].flags)}
        if vlan:
            fields["vlan"] = 0x1000 | vlan
        made.append((bytes(Ether() / Dot1Q(vlan=vlan) / data if vlan else Ether() / data), fields))
    return made


def _number(text):
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


def _match(random):
    masks = [
        {"in_port": Masked(int(random.integers(1, 4)), 0xFFFF)},
        {"protocol": Masked(int(random.choice([1, 6, 17])), 0xFF)},
        {"src": Masked(_number("10.0.0.0"), 0xFFFFFF00)},
        {"dst": Masked(_number("10.0.0.1"), 0xFFFFFFFF)},
        {"dport": Masked(53, 0xFFFF)},
        {"vlan": Masked(0x1005, 0x1FFF)},
        {"zone": Masked(2, 0xFFFF)},
        {"ct_state": Masked(CtState.TRK, CtState.TRK)},
        {"ct_state": Masked(0, CtState.TRK)},
        {"ct_state": Masked(NEW, NEW)},
        {"ct_state": Masked(EST, EST)},
        {"ct_state": Masked(RPL, RPL)},
        {"ct_state": Masked(INV, INV)},
        {"mark": Masked(1, 1)},
    ]
    found = {}
    for one in random.choice(len(masks), int(random.integers(0, 3)), replace=False):
        found |= masks[one]
    return found


SOURCES, OTHERS, SERVICES = ("192.0.2.1", "192.0.2.4"), ("192.0.2.3", "192.0.2.9"), ("203.0.113.1", "203.0.113.2")


def _nat(random):
    """Return a translation, or none; ports are many, for whose turn comes first is not said."""
    way, ends = (
        ("", None), ("", None), ("src", SOURCES), ("src", OTHERS), ("dst", SERVICES), ("src", None), (None, None),
    )[int(random.integers(0, 7))]  # fmt: skip
    if not way:
        return None if way is None else Nat()
    low, high = map(_number, ends) if ends else (0, 0)
    return Nat(way, low, high, 4, 1024, 65535)


def _ct(random, next_table, translating=False):
    number = int(random.choice([0, 2, 3]))
    zone_from = ZoneFrom(random.choice([ZoneFrom.NUMBER, ZoneFrom.NUMBER, *ZoneFrom]))
    commit = bool(random.random() < 0.5)
    mark = Masked(int(random.choice([1, 2])), 3) if commit and random.random() < 0.4 else None
    nat = _nat(random) if translating else None
    return Ct(0 if zone_from else number, zone_from, commit=commit, next_table=next_table, mark=mark, nat=nat)


def _actions(random, table, tables, translating):
    actions = []
    for _ in range(int(random.integers(0, 3))):
        port = int(random.integers(1, 4))
        actions.append(
            [Output(port), InPort(), CtClear(), _ct(random, NO_TABLE, translating), Output(port)][
                int(random.integers(0, 5))
            ]
        )
    later = [one for one in tables if one > table]
    if later and (table == 0 or random.random() < 0.5):
        next_table = int(random.choice(later))
        actions.append(Goto(next_table) if random.random() < 0.4 else _ct(random, next_table, translating))
    return tuple(actions)


def pipeline(random, rules, translating=False):
    """Return a random pipeline."""
    tables = [0, 1, 2, 5]
    ip = {"eth_type": Masked(0x800, 0xFFFF)} if translating else {}
    made = {}
    for table in tables:
        made[table] = Rule(table, 0, 0, ip, _actions(random, table, tables, translating))
    for _ in range(rules):
        table = int(random.choice(tables))
        actions = _actions(random, table, tables, translating)
        one = Rule(table, int(random.integers(1, 5)), 0, ip | _match(random), actions)
        made.setdefault(one.identity, one)
    return list(made.values())


@pytest.mark.parametrize("seed", range(12))
def test_random_packets_through_random_pipelines(seed):
    random = np.random.default_rng(seed)
    rules = pipeline(random, int(random.choice([4, 20, 60])))
    zones = (11, 12, 13)
    with Switch(3, slots=1024, zones=zones, connections=2000) as switch:
        switch.rules.publish(rules_compile.compile_rules(rules))
        reference = reference_pipeline.Pipeline(rules, Tracker(2000), zones)
        for turn in range(3):
            name = "abc"[turn % 3]
            burst = packets(random, 32)
            verdicts, came = switch.through(name, [data for data, _ in burst], NOW_MS + turn)
            expected = [reference.go(data, fields | {"in_port": 1 + turn % 3}, NOW_MS + turn) for data, fields in burst]
            for field in ("ct_state", "reason", "zone", "direction", "flags", "state", "mark"):
                assert verdicts[field].tolist() == [int(verdict[field]) for verdict, _, _ in expected], field
            for number, port in enumerate("abc", 1):
                out = [data for _, outputs, _ in expected for one, data in outputs if one == number]
                assert sorted(came[port]) == sorted(out)
        numbered = rules_compile.ordered(rules)
        assert switch.rules.hits()["packets"].tolist() == [reference.hits[id(rule)] for rule in numbered]
        assert sum(reference.hits.values()) > 96


def turned(data):
    """Return an answer to a frame."""
    packet = Ether(data)
    ip = packet[IP]
    ip.src, ip.dst = ip.dst, ip.src
    del ip.chksum
    if ICMP in ip:
        ip[ICMP].type = 8 - ip[ICMP].type
        del ip[ICMP].chksum
    else:
        l4 = ip[TCP] if TCP in ip else ip[UDP]
        l4.sport, l4.dport = l4.dport, l4.sport
        if TCP in ip:
            l4.flags, l4.ack = "SA" if l4.flags == "S" else "A", l4.seq + 1
        del l4.chksum
    return bytes(packet)


def as_they_are_and_translated(random, seen, count):
    """Return a burst: new packets, and among them those of connections that were seen, in any of their forms, both ways."""
    burst = [data for data, _ in packets(random, count)]
    for at in random.choice(count, count * 2 // 3, replace=False) if seen else ():
        one = seen[int(random.integers(0, len(seen)))]
        burst[at] = turned(one) if random.random() < 0.5 else one
    return burst


@pytest.mark.parametrize("seed", range(12))
def test_random_packets_through_random_pipelines_that_translate(seed):
    """Also where a burst holds packets of one connection as they were sent and as they came out."""
    random = np.random.default_rng(1000 + seed)
    rules = pipeline(random, int(random.choice([4, 12, 30])), translating=True)
    zones = (11, 12, 13)
    more = {"connections": 500, "extension_share": 1000}
    with Switch(3, slots=1024, zones=zones, **more) as switch:
        switch.rules.publish(rules_compile.compile_rules(rules))
        reference = reference_pipeline.Pipeline(rules, Tracker(**more), zones)
        seen = []
        for turn in range(4):
            burst = as_they_are_and_translated(random, seen, 32)
            verdicts, came = switch.through("abc"[turn % 3], burst, NOW_MS + turn)
            arrived = [(data, reference_pipeline.fields_of(data) | {"in_port": 1 + turn % 3}) for data in burst]
            expected = [reference.go(*one, NOW_MS + turn) for one in arrived]
            for field in ("ct_state", "reason", "zone", "direction", "flags", "state", "mark"):
                assert verdicts[field].tolist() == [int(verdict[field]) for verdict, _, _ in expected], field
            for number, port in enumerate("abc", 1):
                out = [data for _, outputs, _ in expected for one, data in outputs if one == number]
                assert sorted(came[port]) == sorted(out)
                seen += out
            seen += burst
        numbered = rules_compile.ordered(rules)
        assert switch.rules.hits()["packets"].tolist() == [reference.hits[id(rule)] for rule in numbered]


TWO_STEPS = """
priority=9,ip,nw_dst=192.0.2.1 actions=ct(table=1,zone=1,nat)
priority=5,ip actions=ct(table=2,zone=9)
table=2,ip actions=ct(commit,table=1,zone=1,nat(src=192.0.2.1:2000-2000))
table=1,ct_state=+new actions=IN_PORT
table=1,ct_state=+rpl actions=IN_PORT
"""


def test_an_answer_to_the_translated_tuple_comes_after_what_it_answers():
    """In one burst of one queue: the opener takes two steps to its zone, the answer one, and yet comes second."""
    answer = udp(b"\x0a\0\0\x09", b"\xc0\0\2\1", 53, 2000, b"y")
    with Switch(1, TWO_STEPS, extension_share=1000) as switch:
        verdicts, came = switch.through("a", [datagram(), answer])
        assert [int(state) for state in verdicts["ct_state"]] == [NEW | CtState.SNAT, RPL | CtState.DNAT]
        assert came["a"][1] == udp(b"\x0a\0\0\x09", b"\x0a\0\0\1", 53, 1000, b"y")


# ------------------------------------------------------------------------------------------------ fragments
PIECES = [piece.frame for piece in fragmented.cut(fragmented.udp(3200), 1480, 2960)]
THROUGH_CT = """
priority=5,ip actions=ct(table=1,zone=7)
table=1,ct_state=+new actions=ct(commit,zone=8,table=2)
table=2,ct_state=+new actions=output:b
table=2,ct_state=+inv actions=output:a
"""


def test_fragments_wait_in_each_ct_and_go_on_from_there_with_its_verdict():
    with Switch(2, THROUGH_CT) as switch:
        first, middle, last = PIECES
        answers, came = switch.through("a", [last, first])
        assert (len(answers), came) == (0, {"a": [], "b": []})
        switch.send("a", [middle], tag=50)
        switch.poll()
        switch.poll()
        answers, out = switch.came("a")
        assert out == [] and sorted(answers["tag"].tolist()) == [0, 1, 50]
        assert set(answers["verdict"]["ct_state"].tolist()) == {NEW} and set(answers["verdict"]["zone"]) == {8}
        assert sorted(switch.came("b")[1]) == sorted(PIECES)
        assert switch.rules.hits()["packets"].tolist() == [3, 3, 3, 0]
        assert switch.worker.counter(Reason.RULE_DROPPED) == 0 and switch.worker.counter(Reason.INSERT) == 1


def test_fragments_whose_datagram_expires_go_on_as_invalid_ones():
    with Switch(2, "priority=5,ip actions=ct(table=1)\ntable=1,ct_state=+inv actions=output:b") as switch:
        answers, _ = switch.through("a", PIECES[:1], now_ms=1000)
        assert len(answers) == 0
        switch.poll(now_ms=31_000)
        assert switch.came("b")[1] == PIECES[:1]
        assert switch.came("a")[0]["verdict"]["reason"].tolist() == [Reason.FRAGMENT_EXPIRED]


def test_fragments_that_waited_while_other_rules_came_are_dropped():
    with Switch(2, THROUGH_CT) as switch:
        assert len(switch.through("a", PIECES[:2], now_ms=1000)[0]) == 0
        switch.load("priority=9,ip actions=ct(table=1)\ntable=1 actions=output:b")
        switch.poll(now_ms=31_000)
        assert switch.came("b")[1] == []
        assert switch.came("a")[0]["verdict"]["reason"].tolist() == [Reason.FRAGMENT_EXPIRED] * 2
        assert switch.worker.counter(Reason.RULE_MISSED) == 2
