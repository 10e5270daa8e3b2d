"""A real service of two workers and a port of two queues, both of which the first worker has: for tests that move them."""

import contextlib

from desk import run
from services import Service
from zonetrack.clients.errors import Exit


@contextlib.contextmanager
def service(directory):
    """Start it, and stop it in order."""
    (directory / "x.toml").write_text('assign = { "lab.1" = 0 }\n')
    flags = ("--max-connections", 2000, "--workers", 2, "--port", "shm:lab,queues=2,slots=8")
    with Service(directory, *flags, "--config", directory / "x.toml") as made:
        yield made.until_ready()
        assert made.stop() == Exit.OK


def holders(service):
    """Return which worker has each queue."""
    with service.ask() as ct:
        return {row["queue"]: row["worker"] for row in ct.queues()["queues"]}


def command(service, *words):
    """Run a command against the service; options of a group stand behind all its words."""
    return run(*words, "--socket", service.socket)
