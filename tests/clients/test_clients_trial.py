"""Many clients at once: all figures are there, and each check that can fail does."""

import contextlib

import numpy as np
import pytest
from served import Service
from zonetrack.clients import clients_trial
from zonetrack.clients.clients_trial import TURNS, Asker, ClientsPlan, Crowd
from zonetrack.clients.driver import CheckFailed
from zonetrack.clients.dump_trial import COUNTS, turns
from zonetrack.kernels.jit import JIT

PLAN = ClientsPlan(connections=20_000 if JIT else 200, clients=16, pairs=2)


def test_a_trial_has_all_figures(monkeypatch):
    monkeypatch.setattr(clients_trial, "TURN_S", 0.1)
    found = clients_trial.conduct(PLAN, lambda packets: None)
    assert found["count_ms_p50"] <= found["count_ms_p99"] and found["counts"] >= 1
    assert found["packets_per_second"] > 0 and found["requests_per_second"] > 0
    assert all(found[f"packet_rate_fall_percent_{turn}"] < 100 for turn in TURNS[1:])


def test_turns_go_round():
    assert [turns(number, TURNS)[0] for number in range(4)] == ["idle", "busy", "flood", "idle"]


def test_a_crowd_has_every_answer_before_it_rests(tmp_path):
    with Service(tmp_path / "x.sock", in_flight_max=clients_trial.IN_FLIGHT) as service:
        many = Crowd(service.path, 4)
        with contextlib.closing(many):
            many.flood(0.0)
            assert many.answered == 4 * clients_trial.IN_FLIGHT
        assert service.ask("count") == {"count": 0}


def test_who_is_refused_or_hung_up_on_says_so(tmp_path):
    with Service(tmp_path / "x.sock", in_flight_max=1) as service:
        asker = Asker(service.path, 0)
        with contextlib.closing(asker.socket):
            asker.socket.setblocking(True)
            asker.ask()
            with pytest.raises(CheckFailed, match="wait already"):
                while True:
                    asker.hear()
    with Service(tmp_path / "x.sock", clients_max=1) as service:
        first, second = Asker(service.path, 0), Asker(service.path, 1)
        with contextlib.closing(first.socket), contextlib.closing(second.socket):
            second.socket.setblocking(True)
            with pytest.raises(CheckFailed, match="1 clients are connected"):
                second.hear()


def test_a_fall_is_told_beside_the_rate_of_its_own_round():
    result = np.zeros(1, [("rates", "f8", (3, 3)), ("answers", "u8"), ("flood_s", "f8")])[0]
    result["rates"] = [[100, 98, 96], [50, 50, 48], [200, 180, 190]]
    result["answers"], result["flood_s"] = 3_000, 1.5
    counts = np.zeros(1, COUNTS)[0]
    counts["count"] = 100
    counts["ns"][:100] = np.arange(100) * 1_000_000
    found = clients_trial.figures(result, counts)
    assert (found["packet_rate_fall_percent_busy"], found["packet_rate_fall_percent_flood"]) == pytest.approx((2, 4))
    assert (found["requests_per_second"], found["packets_per_second"]) == (2_000, 100)
    assert found["count_ms_p99"] == pytest.approx(98.01)
    counts["count"] = 0
    with pytest.raises(CheckFailed, match="before anything was counted"):
        clients_trial.figures(result, counts)
