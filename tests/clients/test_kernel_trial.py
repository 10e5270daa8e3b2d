"""Both gateways forward what is sent; Linux tracks it; what the generator takes by itself is taken off."""

import shutil

import pytest
import wires
from zonetrack.clients import kernel_trial
from zonetrack.clients.kernel_trial import TICKS, figures


def test_both_forward_and_are_compared():
    wires.need()
    if shutil.which("iptables") is None:
        pytest.skip("iptables(8) is not here")
    said = []
    told = kernel_trial.conduct(5, 64, 0.2, said.append)
    assert [row["by"] for row in told["rows"]] == ["zonetrack", "kernel"]
    assert all(0 < row["received"] <= row["sent"] for row in told["rows"])
    assert told["ratio_per_cpu_second"] > 0 and told["generator_ns"] >= 0
    assert len(said) == 3


def test_the_generator_is_taken_off():
    run = {"sent": 1_000.0, "received": 900.0, "cpu_s": 3.0, "elapsed_s": 2.0}
    row = figures("kernel", run, 0.001)
    assert (row["packets_per_second"], row["packets_per_cpu_second"]) == (450.0, 450.0)
    assert figures("kernel", run, 1.0)["packets_per_cpu_second"] == 900.0 * TICKS
