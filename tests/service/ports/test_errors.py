"""What the system says against a port becomes one line that names the port."""

import errno

import pytest
from zonetrack.clients.errors import Exit
from zonetrack.service.ports.errors import because


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EPERM, "run as root, or give the program CAP_NET_RAW"),
        (errno.ENOMEM, "not enough memory"),
        (errno.EINVAL, "Invalid argument"),
    ],
)
def test_a_line_says_what_was_tried_and_why_not(code, words):
    error = because("afpacket:eth0", "opening a packet socket", OSError(code, "x"))
    assert str(error).startswith("port afpacket:eth0: opening a packet socket: ") and words in str(error)
    assert "\n" not in str(error) and error.exit_code == Exit.FAILED
