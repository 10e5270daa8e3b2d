"""The program in an interface's driver: loaded, attached, and gone with its link."""

import os
import socket
import struct

import pytest
from wires import Wires, raw
from zonetrack.service.ports import redirect


def test_the_program_is_five_instructions_and_names_its_map():
    code = redirect.program(77)
    assert len(code) == 6 * 8  # one of them takes two places
    assert struct.unpack_from("<BBhi", code, 8) == (0x18, 0x11, 0, 77)
    assert code[-8] == 0x95


def test_frames_of_queues_without_a_socket_go_on_to_the_system():
    with Wires() as wires, raw("near0") as system:
        sockets = redirect.make_map(1)
        link = redirect.attach(socket.if_nametoindex("near0"), sockets, redirect.DRIVER_MODE)
        wires.send([bytes(60)])
        assert system.recv(100) == bytes(60)
        assert "xdp" in wires.namespace.run("ip", "link", "show", "near0")
        with pytest.raises(OSError):
            redirect.attach(socket.if_nametoindex("near0"), sockets, redirect.DRIVER_MODE)
        redirect.let_go(sockets, 0)  # of one that is not there
        os.close(link)
        os.close(sockets)
        assert "xdp" not in wires.namespace.run("ip", "link", "show", "near0")


def test_what_is_no_socket_of_that_kind_is_refused():
    with Wires():
        sockets = redirect.make_map(1)
        with socket.socket() as other, pytest.raises(OSError):
            redirect.lead(sockets, 0, other.fileno())
        os.close(sockets)


def test_a_missing_right_is_known():
    assert redirect.is_refused(PermissionError(1, "x")) and not redirect.is_refused(FileNotFoundError(2, "x"))
