"""The command line at a desk: a real control process over a table with known connections, and commands run against it."""

from typing import NamedTuple

import numpy as np
from click.testing import CliRunner
from served import Service
from tables import LATER
from zonetrack.clients import cli
from zonetrack.clients.errors import Exit

CLIENT, SERVER = 0xC0000201, 0xC6336401  # 192.0.2.1, 198.51.100.1
TCP, UDP = 6, 17


class Outcome(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run(*arguments):
    """Run a command as ``main`` does, without leaving this process."""
    result = CliRunner().invoke(cli.group, [str(argument) for argument in arguments])
    code, err = result.exit_code, result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        if not hasattr(result.exception, "exit_code"):
            raise result.exception
        code, err = Exit(result.exception.exit_code), f"{err}Error: {result.exception}\n"
    return Outcome(code, result.stdout, err)


def key(zone, port, protocol=UDP):
    """Return the key of a connection from the client's port to the server's port 53."""
    return np.array([0, CLIENT, 0, SERVER, port << 48 | 53 << 32 | zone << 16 | protocol << 8 | 4], "u8")


class Desk:
    """A service that a test fills, asks and commands."""

    def __init__(self, directory):
        self.service = Service(directory / "desk.sock")
        self.maker = self.service.participant()

    @property
    def socket(self):
        """Path of its socket."""
        return self.service.path

    def run(self, *arguments):
        """Run a command against this service."""
        words = [str(argument) for argument in arguments]
        names = (
            2
            if words[0] in ("limits", "rules", "timeouts")
            or words[1:2] in (["set"], ["unset"], ["show"], ["queues"], ["assign"])
            else 1
        )
        return run(*words[:names], "--socket", self.socket, *words[names:])

    def fill(self, zone, count, protocol=UDP):
        """Make connections in a zone, from ports 1000 on."""
        self.maker.made(np.stack([key(zone, 1000 + n, protocol) for n in range(count)]), expiry_ms=LATER)
