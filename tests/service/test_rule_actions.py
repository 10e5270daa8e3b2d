"""What happens to a packet, in words: each action is read and written again; what cannot stand is refused with words."""

import ipaddress

import pytest
from zonetrack.service import rule_actions
from zonetrack.service.rules import Answer, Ct, CtClear, Goto, InPort, Masked, Names, Nat, Normal, Output, Route
from zonetrack.shm.layout import ZoneFrom

NAMES = Names({"lan": 1, "wan": 2}, {"quick": 3}, {"ftp": 1})
ONES = (1 << 128) - 1


def v4(text):
    return int(ipaddress.IPv4Address(text))


def v6(text):
    return int(ipaddress.IPv6Address(text))


def read(text):
    return rule_actions.read(rule_actions.pieces(text), NAMES)


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("drop", ()),
        ("output:wan", (Output(2),)),
        ("output:lan,output:wan", (Output(1), Output(2))),
        ("IN_PORT", (InPort(),)),
        ("NORMAL", (Normal(),)),
        ("ct_clear,goto_table:7", (CtClear(), Goto(7))),
        ("ct", (Ct(),)),
        ("ct(table=1)", (Ct(next_table=1),)),
        ("ct(commit,force,zone=5),output:lan", (Ct(5, commit=True, force=True), Output(1))),
        ("ct(table=1,zone=vlan)", (Ct(zone_from=ZoneFrom.VLAN, next_table=1),)),
        ("ct(commit,zone=in_port)", (Ct(zone_from=ZoneFrom.IN_PORT, commit=True),)),
        ("ct(commit,zone=port)", (Ct(zone_from=ZoneFrom.PORT, commit=True),)),
        ("ct(commit,exec(set_field:0x1->ct_mark,set_field:0x5/0xf->ct_label))",
         (Ct(commit=True, mark=Masked(1, 0xFFFFFFFF), label=Masked(5, 15)),)),
        ("ct(commit,alg=ftp,timeout=quick)", (Ct(commit=True, helper=1, policy=3),)),
        ("ct(commit,timeout=0)", (Ct(commit=True, policy=0),)),
        ("ct(table=2,nat)", (Ct(next_table=2, nat=Nat()),)),
        ("ct(commit,nat(src=10.0.0.1))", (Ct(commit=True, nat=Nat("src", v4("10.0.0.1"), v4("10.0.0.1"), 4)),)),
        ("ct(commit,nat(dst=10.0.0.1-10.0.0.9:80-90,random,persistent))",
         (Ct(commit=True, nat=Nat("dst", v4("10.0.0.1"), v4("10.0.0.9"), 4, 80, 90, ("random", "persistent"))),)),
        ("ct(commit,nat(src=[fd00::1]-[fd00::2]:80))",
         (Ct(commit=True, nat=Nat("src", v6("fd00::1"), v6("fd00::2"), 6, 80, 80)),)),
        ("ct(commit,nat(src=fd00::1-fd00::2))", (Ct(commit=True, nat=Nat("src", v6("fd00::1"), v6("fd00::2"), 6)),)),
        ("route(from=02:00:00:00:01:01,to=02:00:00:00:02:10,address=192.0.2.1)",
         (Route(0x020000000101, 0x020000000210, v4("192.0.2.1"), 4),)),
        ("route(from=02:00:00:00:01:01,to=02:00:00:00:02:10,address=fd00::1,mtu=1400),output:lan",
         (Route(0x020000000101, 0x020000000210, v6("fd00::1"), 6, 1400), Output(1))),
        ("answer(02:00:00:00:01:01,fd00::1)", (Answer(0x020000000101, v6("fd00::1"), 6),)),
        ("ct(commit,nat(src=0.0.0.0))", (Ct(commit=True, nat=Nat("src", 0, 0, 4)),)),
    ],
)  # fmt: skip
def test_actions_are_read_and_written_again(text, actions):
    assert read(text) == actions
    assert ",".join(rule_actions.words(actions, NAMES)) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("2", "output:wan"),
        ("normal,in_port", "NORMAL,IN_PORT"),
        ("resubmit(,7)", "goto_table:7"),
        ("ct()", "ct"),
        ("ct(commit, mark=1/3, label=0x2, helper=ftp)",
         "ct(commit,alg=ftp,exec(set_field:0x1/0x3->ct_mark,set_field:0x2->ct_label))"),
        ("ct(commit,exec(load:0x1->NXM_NX_CT_MARK[]))", "ct(commit,exec(set_field:0x1->ct_mark))"),
        ("ct(zone=NXM_OF_VLAN_TCI[0..11],table=1)", "ct(table=1,zone=vlan)"),
        ("DROP", "drop"),
    ],
)  # fmt: skip
def test_other_spellings(text, canonical):
    assert ",".join(rule_actions.words(read(text), NAMES)) == canonical


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no actions: write drop for none"),
        ("outptu:1", "unknown action 'outptu:1': nearest is 'output'"),
        ("output:3", "there is no port 3"),
        ("drop,output:1", "drop goes with no other action"),
        ("ct(table=1),output:1", "output:1: what stands behind a jump to a table would meet a copy of the packet"),
        ("goto_table:1,output:1", "would meet a copy"),
        ("goto_table:255", "expected a table up to 254"),
        ("ct(mark=1)", "ct: mark goes with commit only"),
        ("ct(timeout=1)", "ct: timeout goes with commit only"),
        ("ct(nat(src=1.1.1.1))", "ct: nat(src=...) goes with commit only"),
        ("ct(commit,commit)", "ct: commit is said twice"),
        ("ct(zone=1,zone=vlan)", "ct: zone is said twice"),
        ("ct(zone=65536)", "expected a number up to 0xffff"),
        ("ct(comit)", "ct: unknown argument 'comit': nearest is 'commit'"),
        ("ct(commit,exec(set_field:1->eth_src))", "exec takes set_field:VALUE[/MASK]->ct_mark or ->ct_label"),
        ("ct(commit,alg=sip)", "there is no helper 'sip': ftp"),
        ("ct(commit,nat(src=10.0.0.9-10.0.0.1))", "a range goes from the lower to the higher"),
        ("ct(commit,nat(src=here))", "no range of addresses: 'here'"),
        ("ct(commit,nat(src=1.1.1.1,hash,random))", "hash and random cannot both hold"),
        ("ct(commit,nat(random))", "random needs src or dst"),
        ("ct(commit", "parentheses do not match"),
        ("route(from=02:00:00:00:01:01)", "route takes from=MAC,to=MAC,address=ADDRESS"),
        ("route(from=2:0:0:0:1:1,to=02:00:00:00:02:10,address=192.0.2.1)", "expected an Ethernet address"),
        ("route(from=02:00:00:00:01:01,to=02:00:00:00:02:10,address=here)", "expected an address, found 'here'"),
        ("route(from=02:00:00:00:01:01,to=02:00:00:00:02:10,address=192.0.2.1,mtu=67)", "an mtu is 68 at least"),
        ("answer(192.0.2.1)", "answer takes MAC,ADDRESS"),
    ],
)
def test_what_cannot_be_is_refused(text, complaint):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert complaint in str(caught.value)
