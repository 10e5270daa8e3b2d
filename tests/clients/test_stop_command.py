"""stop ends when the keeper has ended, and not before; and says so when it does not."""

import json
import os

import peer
from desk import run
from zonetrack.clients.errors import Exit
from zonetrack.clients.stop_command import watched


def test_it_waits_until_the_keeper_has_ended(tmp_path):
    path = tmp_path / "s"
    with peer.running(path, 0, "mortal") as process:
        assert run("stop", "--socket", path) == (Exit.OK, "stopped\n", "")
        assert process.poll() == 0 or process.wait() == 0
    with peer.running(tmp_path / "t", 0, "mortal"):
        told = json.loads(run("stop", "--socket", tmp_path / "t", "--unlink", "--json").out)
        assert told == {"stopped": True, "unlinked": True, "orphans": []}


def test_a_keeper_that_does_not_end(tmp_path, desk):
    code, out, err = desk.run("stop", "--timeout", 0)  # its keeper is this process
    assert (code, out) == (Exit.FAILED, "")
    assert err == f"Error: the service (keeper {os.getpid()}) was told to stop, and has not in 0 s\n"


def test_nobody_to_stop(tmp_path):
    code, _, err = run("stop", "--socket", tmp_path / "none")
    assert code == Exit.NO_SERVICE and "no service answers at" in err


def test_a_process_that_is_not_there_cannot_be_watched():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert watched(child) is None
