"""The load test end to end, as people and scripts run it: every scenario's figures, its own checks, and its refusals."""

import json
import subprocess
import sys

import pytest
from zonetrack.clients.errors import Exit
from zonetrack.clients.load import ROWS

FLOORS = {"floor_ns_1", "floor_ns_2", "floor_ns_4"}
COMMON = {"elapsed_s", "generator_ns", "ratio_to_floor", *FLOORS}
PER_PACKET = COMMON | {"ns_per_packet", "packets_per_second"}
PER_CONNECTION = COMMON | {"connections", "ns_per_connection", "connections_per_second", "retries", "lookup_errors"}


def load(*arguments):
    """Run the command, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "zonetrack.service", "load", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def result(*arguments):
    """Return the object that the command prints."""
    done = load(*arguments, "--json")
    assert done.returncode == Exit.OK, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", ["hit", "miss"])
def test_packets_over_zones_and_workers(scenario):
    found = result(scenario, "--connections", 3000, "--threads", 2, "--zones", 5, "--iterations", 2, "--seed", 7)
    assert found.keys() >= PER_PACKET
    assert found["scenario"] == scenario
    assert (found["threads"], found["connections"], found["zones"], found["seed"]) == (2, 3000, 5, 7)
    assert found["packets"] == 6000
    assert found["looked_up"] == 4
    assert found["ratio_to_floor"] == pytest.approx(
        found["ns_per_packet"] / found["floor_ns_4" if scenario == "hit" else "floor_ns_2"], abs=0.01, rel=0.01
    )


@pytest.mark.parametrize("burst", [1, 32])
def test_handshake(burst):
    parameters = ("--threads", 3, "--connections", 200, "--zones", 10, "--data-packets", 2, "--iterations", 4)
    found = result("handshake", *parameters, "--burst", burst)
    assert found.keys() >= PER_CONNECTION
    assert found["connections"] == 3 * 200 * 4
    assert found["connections_per_thread"] == 200
    assert found["packets"] - found["retries"] == 3 * 200 * 4 * (6 + 2 * 2)
    assert found["lookup_errors"] == 0
    assert found["burst"] == burst


def test_scan_without_a_limit_cleans_nothing():
    found = result("scan", "--threads", 2, "--connections", 2000, "--zones", 3)
    assert found.keys() >= PER_CONNECTION | {"cleaned", "peak_connections", "waits", "waited_percent"}
    assert found["connections"] == found["peak_connections"] == 4000
    assert (found["cleaned"], found["waits"], found["lookup_errors"], found["looked_up"]) == (0, 0, 0, 4)


def test_scan_at_the_limit_waits_for_the_sweep():
    found = result("scan", "--threads", 2, "--connections", 1000, "--limit", 500, "--timeout-ms", 250)
    assert found["connections"] == 2000
    assert found["peak_connections"] == 500
    assert found["cleaned"] >= 1500
    assert found["waits"] > 0
    assert found["expiry_floor_s"] == 0.75
    assert 0 < found["waited_percent"] < 100
    assert found["retries"] > 0


def test_nat():
    found = result("nat", "--threads", 2, "--connections", 3000, "--addresses", 3, "--ports", "1024-5119")
    assert found.keys() >= PER_CONNECTION - {"lookup_errors"} | {"ns_per_reply", "exhausted"}
    assert (found["connections"], found["exhausted"], found["looked_up"]) == (3000, 0, 3)
    assert found["packets"] == 6000
    assert found["ports"] == [1024, 5119]


def test_nat_where_ports_run_out():
    found = result("nat", "--connections", 300, "--addresses", 1, "--ports", "1024-1223")
    assert found["exhausted"] == 100


def test_nat_where_ports_have_nearly_run_out():
    found = result("nat", "--connections", 100, "--addresses", 1, "--ports", "1024-3071", "--fill", 99)
    assert found["ports_filled"] == 2048 * 99 // 100
    assert found["commit_us_p50"] <= found["commit_us_p9999"]


def test_unnat():
    found = result("unnat", "--threads", 2, "--connections", 1000, "--iterations", 2, "--expectations", 1000)
    assert found.keys() >= PER_PACKET | {"ns_per_miss_stage", "miss_ratio_to_floor"}
    assert found["packets"] == 4 * 1000 + 3 * 1000 + 2 * 2000


def test_the_same_connections_in_one_zone_and_in_many():
    found = result("zones", "--connections", 20_000, "--zones", 50, "--pairs", 2)
    figures = {"create_ns", "sweep_ns_per_entry", "flush_us_empty", "flush_us_full"}
    assert found.keys() >= figures | {f"{name}_many" for name in figures}
    assert found.keys() >= {"burst_us_p999_idle", "burst_us_p999_during_flush"}
    assert (found["connections"], found["zones"], found["pairs"]) == (20_000, 50, 2)


def test_a_picture_of_a_trial(tmp_path):
    path = tmp_path / "scan.png"
    found = result("scan", "--connections", 1000, "--plot", path)
    assert path.read_bytes().startswith(b"\x89PNG") and "plot" not in found


def test_rules():
    found = result("rules", "--rules", 200, "--connections", 300, "--iterations", 2)
    names = {f"ns_per_{name}{suffix}" for name in ("packet", "new_packet") for suffix in ("", "_one_rule")}
    assert found.keys() >= names | {"ratio_to_one_rule"}
    assert found["packets"] == 2 * 2 * 2 * 600  # old and new ones, by one rule and by all, in two rounds


def test_the_floor_alone():
    found = result("floor", "--megabytes", 1)
    assert found.keys() >= FLOORS
    assert found["megabytes"] == 1


def test_repeated_trials_have_a_median_and_a_spread():
    found = result("hit", "--connections", 1000, "--repeat", 3)
    assert found["repeat"] == 3
    for name in PER_PACKET:
        lowest, highest = found["spread"][name]
        assert lowest <= found[name] <= highest


def test_a_person_gets_a_table():
    done = load("miss", "--connections", 1000, "--zones", 2)
    assert done.returncode == Exit.OK, done.stderr
    assert done.stdout.startswith("miss: connections 1000  zones 2  threads 1  ")
    for name in PER_PACKET:
        assert name in done.stdout
    assert "\x1b" not in done.stdout


def test_a_limit_that_is_too_small_fails_and_says_why():
    done = load("handshake", "--threads", 2, "--connections", 100, "--iterations", 1, "--limit", 150, "--json")
    assert done.returncode == Exit.FAILED
    assert done.stdout == ""
    assert "connections were refused for" in done.stderr and "(full), with 150 in the table" in done.stderr
    assert "Traceback" not in done.stderr


def test_connections_that_expire_too_early_fail_and_are_named():
    done = load("hit", "--connections", 50_000, "--timeout-ms", 1, "--json")
    assert done.returncode == Exit.FAILED
    assert "packets with a wrong verdict" in done.stderr


def test_two_results_side_by_side(tmp_path):
    paths = []
    for name, ns in (("a", 80.0), ("b", 60.0)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"scenario": "hit", "ns_per_packet": ns}))
        paths.append(path)
    assert result("compare", *paths) == {"ns_per_packet": {"before": 80.0, "after": 60.0, "ratio": 0.75}}
    shown = load("compare", *paths)
    assert "ns_per_packet" in shown.stdout and "0.750" in shown.stdout


def test_what_cannot_be_compared_fails_and_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("not json")
    done = load("compare", path, path)
    assert done.returncode == Exit.FAILED
    assert "a.json: not a result of load --json" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("no-such-scenario",),
        ("hit", "--burst", 0),
        ("hit", "--burst", 257),
        ("hit", "--zones", 65537),
        ("hit", "--threads", 0),
        ("hit", "--megabytes", 1),
        ("nat", "--ports", "70000"),
        ("nat", "--ports", "20-10"),
        ("nat", "--ports", "http"),
        ("nat", "--fill", 100),
        ("hit", "--plot", "hit.gif"),
        ("zones", "--plot", "zones.png"),
        ("flood", "--threads", 1),
        ("compare", "/nowhere/a.json", "/nowhere/b.json"),
    ],
)
def test_wrong_usage(arguments):
    done = load(*arguments)
    assert done.returncode == Exit.USAGE
    assert done.stdout == ""


def test_more_connections_than_any_table_has_is_wrong_usage():
    done = load("hit", "--connections", 2**28 + 1)
    assert done.returncode == Exit.USAGE
    assert "connections must be 1 to 268435456" in done.stderr


@pytest.mark.parametrize("flags", [("--via", "service"), ("--port", "lab")])
def test_service_and_port_belong_together(flags):
    done = load("hit", *flags)
    assert done.returncode == Exit.USAGE
    assert "--via service and --port NAME belong together" in done.stderr


def test_port_that_there_is_not():
    done = load("hit", "--via", "service", "--port", "lab", "--instance", "nobody")
    assert done.returncode == Exit.NOTHING_MATCHED
    assert "a port lab of instance nobody" in done.stderr


def test_every_scenario_there_is_has_a_command():
    from zonetrack.clients.nat_scenarios import NAT_SCENARIOS
    from zonetrack.clients.scenarios import SCENARIOS

    assert {*SCENARIOS, *NAT_SCENARIOS} <= {row.name for row in ROWS}
