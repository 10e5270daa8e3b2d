"""restart ends when other processes than before are at work, and not before; and says so when it does not."""

from desk import run
from services import Service
from zonetrack.clients.errors import Exit


def test_it_returns_when_all_are_replaced(tmp_path):
    with Service(tmp_path, "--max-connections", 2000, "--workers", 2) as service:
        service.until_ready()
        before = service.workers()
        assert run("restart", "--socket", service.socket) == (Exit.OK, "restarted, with 2 workers\n", "")
        assert len(service.workers()) == 2 and not set(before) & set(service.workers())
        assert run("restart", "--json", "--socket", service.socket).out == '{"restarted": true, "workers": 2}\n'
        assert service.stop() == Exit.OK


def test_a_service_that_does_not_restart(tmp_path, desk):
    code, out, err = desk.run("restart", "--timeout", 0)  # nobody carries the order out
    assert (code, out) == (Exit.FAILED, "") and "was told to restart, and has not in 0 s" in err


def test_nobody_to_restart(tmp_path):
    assert run("restart", "--socket", tmp_path / "none").code == Exit.NO_SERVICE
