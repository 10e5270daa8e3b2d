"""Every command that README, docs, man pages and --help show is run, once, against one service that README has started.

A command runs as it is shown, in a directory with the files that it names.  What would take minutes is made smaller, what
names a host or an interface that is not here is given another, what goes on until it is interrupted is; each of these has
its row and its reason.  They run in an order: what makes something comes before what shows it and what takes it away.
"""

import contextlib
import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import checkout
import commands
import pytest
from desk import run
from services import Service
from zonetrack.clients import conversation
from zonetrack.clients.errors import Exit
from zonetrack.kernels.jit import JIT

STARTED = "serve --workers 2 --port shm:lab,queues=2"
"""README's own line, which starts the service of all the others."""
BESIDE = ("--port", "shm:lan", "--port", "shm:wan", "--max-connections", "20000")
"""What other pages assume of it."""
PATIENCE_S = 300
"""A dozen processes start at once."""


class Row(NamedTuple):
    """A command, or the beginning of some, that cannot run just as it stands, and why."""

    shown: str
    why: str
    more: str = ""
    """Words behind it."""
    instead: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Words in place of others."""
    codes: tuple[int, ...] = (Exit.OK,)


WIRES = os.geteuid() == 0 and shutil.which("ip") is not None
"""Whether wires between namespaces can be made here."""
HERE = {
    "192.0.2.9": "127.0.0.1:4",
    "192.0.2.9:4739": "127.0.0.1:4",
    "logs.example:514": "127.0.0.1:4",
    "/var/lib/zonetrack.saved": "zonetrack.saved",
}
ROWS = (
    Row("load dump", "a million connections", "--connections 2000 --rounds 1"),
    Row("load scan --threads", "hundreds of thousands of connections", "--connections 2000"),
    Row("load flood", "ten seconds at full rate", "--seconds 1 --connections 2000 --room 1024"),
    Row(
        "load forward", "seconds for each way; its wires take root", f"--seconds 0.1 {'' if WIRES else '--topology vv'}"
    ),
    Row("load views", "looks for half a minute", "--connections 500 --zones 4 --seconds 1"),
    Row("load events", "takes half a minute", "--connections 500"),
    Row("load clients", "sixty-four of them", "--connections 500 --clients 4 --pairs 1"),
    Row("serve", "interfaces of a gateway, and a service of its own", "--check-config"),
    Row("export", "collectors elsewhere", instead=HERE),
    Row("save", "a directory of the system", instead=HERE),
    Row("restore", "a directory of the system", "--replace", instead=HERE),
    Row("doctor", "this machine may have its problems", codes=(Exit.OK, Exit.FAILED)),
    Row("delete", "a host that is not in the capture", codes=(Exit.NOTHING_MATCHED,)),
    Row("zones --zone", "nothing may be in it", codes=(Exit.OK, Exit.NOTHING_MATCHED)),
)
GO_ON = ("events", "export", "top")
"""They look for a while, or until they are interrupted: all of these run at the same time, in processes of their own."""
FIRST = ("send", "timeouts set", "limits set", "zones set", "rules load", "rules check")
LAST = ("timeouts unset", "limits unset", "zones unset", "rules clear", "flush", "restart", "stop", "save", "restore")
"""By what takes something away, in this order."""


def begins(text, words):
    """Return whether a command line begins with some words."""
    return f"{text} ".startswith(f"{words} ")


def place(text):
    """Return where in the order a command comes."""
    for at, group in ((-1, FIRST), (1, LAST)):
        for number, words in enumerate(group):
            if begins(text, words):
                return at, number, text
    return 0, 0, text


SHOWN = sorted({shlex.join(words) for _, words in commands.shown()}, key=place)
LINES = [text for text in SHOWN if text != STARTED and not any(begins(text, words) for words in GO_ON)]
LOOKS = [text for text in SHOWN if any(begins(text, words) for words in GO_ON)]


def adapted(text):
    """Return the words of a command as they are run here, and the codes with which it may end."""
    row = next((row for row in ROWS if begins(text, row.shown)), Row(text, ""))
    words = [row.instead.get(word, word) for word in shlex.split(text)]
    globs = [sorted(glob.glob(word)) if "*" in word else [word] for word in words]
    return [word for group in globs for word in group] + row.more.split(), row.codes


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Start what README starts, in a directory with the files that pages name."""
    place_of_files = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place_of_files)
        Path("capture.pcap").write_bytes(conversation.capture())
        os.symlink(checkout.ROOT / "docs", "docs")
        shutil.copy("docs/examples/stateful-firewall.rules", "firewall.rules")
        shutil.copy("firewall.rules", "stateful-firewall.rules")
        for name, text in (
            ("zonetrack.toml", (checkout.ROOT / "packaging" / "zonetrack.toml").read_text()),
            ("gateway.toml", 'rules = "stateful-firewall.rules"\n'),
            ("before.json", '{"scenario": "hit", "ns_per_packet": 80}'),
            ("after.json", '{"scenario": "hit", "ns_per_packet": 79}'),
        ):
            (place_of_files / name).write_text(text)
        with Service(place_of_files, *STARTED.split()[1:], *BESIDE) as started:
            started.until_ready()
            patch.setenv("ZONETRACK_SOCKET", started.socket)
            patch.setenv("ZONETRACK_INSTANCE", started.instance)
            yield started


@pytest.mark.parametrize("text", [text for text in LINES if place(text)[0] < 1])
def test_it_runs(service, text):
    if begins(text, "load") and not JIT:
        pytest.skip("takes minutes without compiled kernels")
    words, codes = adapted(text)
    outcome = run(*words)
    assert outcome.code in codes, outcome.err


def test_what_looks_for_a_while_runs_until_it_is_interrupted(service):
    with contextlib.ExitStack() as house, service.ask() as ct:
        looking = {}
        for text in LOOKS:
            command = [sys.executable, "-m", "zonetrack.service", *adapted(text)[0]]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            looking[text] = house.enter_context(process)
            house.callback(process.kill)
        subscribed = sum(not begins(text, "top") for text in LOOKS)
        until_s = time.monotonic() + PATIENCE_S
        while ct.stats()["events"]["subscribers"] < subscribed:
            assert time.monotonic() < until_s, {text: process.poll() for text, process in looking.items()}
        ended_by_itself = [text for text in LOOKS if begins(text, "top") or "--count" in text]
        # that something happens: packets are tracked, whatever rules were loaded
        for words in (("rules", "clear"), ("flush",), ("send", "lab", "capture.pcap"), ("flush",)):
            assert run(*words).code == Exit.OK
        for text, process in looking.items():
            if text not in ended_by_itself:
                process.send_signal(signal.SIGINT)
        for text, process in looking.items():
            assert process.wait(PATIENCE_S) == Exit.OK, (text, process.stderr.read())


@pytest.mark.parametrize("text", [text for text in LINES if place(text)[0] == 1])
def test_what_takes_something_away_runs(service, text):
    words, codes = adapted(text)
    if words[0] in ("save", "restore"):
        words += ["--instance", service.instance]
        assert service.wait() == Exit.OK  # it was told to stop
    outcome = run(*words)
    assert outcome.code in codes, outcome.err
    if words == ["restart"]:
        service.until_ready()


def test_every_row_is_of_a_command_that_is_shown():
    for shown in (*(row.shown for row in ROWS), STARTED, *GO_ON, *FIRST, *LAST):
        assert any(begins(text, shown) for text in SHOWN), shown
