"""What kinds of ports could be opened: with all rights, and with none."""

import os

import forked
import pytest
from zonetrack.service.ports import possible


def test_kinds_are_tried_and_those_of_memory_and_files_need_nothing():
    if os.geteuid():
        pytest.skip("needs the rights that ports take")
    missing = possible.missing()
    assert list(missing) == ["shm", "pcap", "afpacket", "xdp", "tap", "nfqueue"]
    assert not any("takes" in why for why in missing.values())
    assert missing["shm"] == missing["pcap"] == missing["afpacket"] == ""


def test_a_right_that_is_missing_is_named():
    def be_nobody(child):
        if not os.geteuid():
            os.setuid(65534)
        child.say(possible.missing())

    with forked.Child(be_nobody) as child:
        missing = child.hear()
        assert child.wait() == 0
    assert missing["afpacket"] == "takes CAP_NET_RAW"
    assert missing["xdp"].startswith("takes CAP_NET_RAW") or "does not have such sockets" in missing["xdp"]
    assert missing["shm"] == missing["pcap"] == ""


def test_what_the_system_has_not_is_said():
    def refuse():
        raise OSError(97, "Address family not supported by protocol")

    kinds = dict(possible.KINDS)
    try:
        possible.KINDS["xdp"] = (refuse, "")
        assert possible.missing()["xdp"] == "this kernel does not have such sockets"
    finally:
        possible.KINDS.update(kinds)
