"""Flags over environment over file over defaults; each slip is named, with the nearest key."""

from dataclasses import replace

import pytest
from zonetrack.clients.errors import Exit
from zonetrack.service import config
from zonetrack.service.config import Config, ConfigError, Limits, load
from zonetrack.service.ports.specs import PortSpec
from zonetrack.shm.layout import UNLIMITED


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file of configuration."""

    def write(text):
        path = tmp_path / "zonetrack.toml"
        path.write_text(text)
        return path

    return write


def complaints(*arguments, **more):
    with pytest.raises(ConfigError) as raised:
        load(*arguments, **more)
    assert raised.value.exit_code == Exit.USAGE
    return str(raised.value).splitlines()


def test_defaults_are_those_of_the_contract():
    loaded = load({}, {})
    assert loaded.config == Config()
    assert (loaded["max_connections"], loaded["fresh"], loaded["ports"]) == (131_072, False, ())


def test_flags_over_environment_over_file(file):
    path = file('workers = 2\nmax_connections = 1000\ninstance = "a"\n[control]\nclients_max = 9\n')
    environment = {"ZONETRACK_MAX_CONNECTIONS": "2000", "ZONETRACK_INSTANCE": "b", "ZONETRACK_FRESH": ""}
    loaded = load({"instance": "c", "workers": None, "ports": ()}, environment, path)
    found = loaded.config
    assert (found.workers, found.max_connections, found.instance, found.control.clients_max) == (2, 2000, "c", 9)
    assert loaded.sources == {
        "workers": str(path),
        "max_connections": "environment",
        "instance": "flag",
        "control.clients_max": str(path),
    }


def test_the_environment_names_the_file(file):
    path = file("workers = 3")
    assert load({}, {"ZONETRACK_CONFIG": str(path)}).config.workers == 3


def test_limits_and_ports_in_a_file(file):
    path = file('ports = ["shm:lab,queues=2"]\n[limits]\nglobal = 500\ndefault = "none"\nzones = {5 = 7}')
    found = load({}, {}, path).config
    assert found.limits == Limits(500, UNLIMITED, {5: 7})
    assert found.ports == (PortSpec("shm", "lab", 2, 0),)


def test_all_that_is_wrong_is_told_at_once(file):
    path = file('worker = 2\nworkers = 0\ncontrol = 7\nfrsh = 1\n[limits]\nzone = {5 = 7}\n[tracking]\nloose = "maybe"')
    told = complaints({"max_connections": -1}, {"ZONETRACK_WORKRES": "1", "ZONETRACK_ELSEWHERE": "1"}, path)
    assert told == [
        f"{path}: unknown key 'worker': nearest is 'workers'",
        f"{path}: control: expected a table [control], found 7",
        f"{path}: unknown key 'frsh': nearest is 'fresh'",
        f"{path}: unknown key 'limits.zone': nearest is 'limits.zones'",
        "environment: unknown variable ZONETRACK_WORKRES: nearest is ZONETRACK_WORKERS",
        f"{path}: workers: expected a whole number from 1 to 128, found 0",
        f"{path}: tracking.loose: expected true or false, found 'maybe'",
        "flag: max_connections: expected a whole number from 1 to 268,435,456, found -1",
    ]


def test_zones_and_timeouts_in_a_file(file):
    path = file(
        "[timeouts.web]\nudp_first = 9.5\n[timeouts.7]\ntcp_close = 3\n"
        '[zones.5]\nprofile = "ovs"\nloose = false\npolicy = "web"\n[zones.6]\npolicy = 7\nmax_retrans = 1'
    )
    found = load({}, {}, path).config
    assert found.timeouts == {"web": {"udp_first": 9.5}, 7: {"tcp_close": 3}}
    assert found.zones == {
        5: {"profile": "ovs", "loose": False, "policy": "web"},
        6: {"policy": 7, "max_retrans": 1},
    }


def test_zones_and_timeouts_in_the_environment():
    environment = {
        "ZONETRACK_TIMEOUTS": "web:udp=9.5,icmp=3 7:tcp_close=3",
        "ZONETRACK_ZONES": "5:profile=ovs,loose=off,policy=web 6:policy=7,max_retrans=1",
    }
    loaded = load({}, environment)
    assert loaded.config.timeouts == {"web": {"udp": 9.5, "icmp": 3}, 7: {"tcp_close": 3}}
    assert loaded.config.zones == {
        5: {"profile": "ovs", "loose": False, "policy": "web"},
        6: {"policy": 7, "max_retrans": 1},
    }
    values = {path: row["value"] for path, row in config.page(loaded).items()}
    assert load(values, {}).config == loaded.config


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[zones.5]\nlose = true", "zones: there is no setting 'lose'; did you mean loose?"),
        ("[zones.5]\nloose = 1", "zones: 5.loose: true or false, not 1"),
        ("[zones.65536]\nloose = true", "zones: expected a whole number from 0 to 65,535, found 65536"),
        ("[zones.5]", "zones: 5: names no setting"),
        ("[zones]\n5 = 7", "zones: 5: expected a table of settings, found 7"),
        ("zones = 7", "zones: expected tables of settings, found 7"),
        ("[zones.5]\npolicy = 64", "zones: 5.policy: a number from 0 to 63"),
        ("[timeouts.web]\nupd = 5", "timeouts: there is no timeout 'upd'; did you mean udp?"),
        ("[timeouts.web]\nudp = 'x'", "timeouts: web.udp: seconds from 0.001"),
        ("[timeouts.64]\nudp = 5", "timeouts: policy: a number from 0 to 63"),
    ],
)
def test_zones_and_timeouts_that_cannot_be(file, content, words):
    path = file(content)
    (told,) = complaints({}, {}, path)
    assert told.startswith(f"{path}: {words}")


@pytest.mark.parametrize(("content", "words"), [("workers = ", "not TOML"), (b"\xff", "cannot be read")])
def test_a_file_that_cannot_be_read(tmp_path, content, words):
    path = tmp_path / "x.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (told,) = complaints({}, {}, path)
    assert told.startswith(f"{path}: {words}")


def test_a_file_that_was_named_and_is_not_there(tmp_path):
    (told,) = complaints({}, {}, tmp_path / "none.toml")
    assert "cannot be read" in told and "No such file" in told


def test_what_changed_is_live_or_needs_a_restart():
    before = Config()
    after = replace(before, workers=4, drain_ms=7, limits=Limits(global_=5))
    assert config.differences(before, after) == (["drain_ms", "limits.global"], ["workers"])
    merged = config.merge(before, after)
    assert merged == replace(after, workers=before.workers)
    assert config.differences(merged, after) == ([], ["workers"])


def test_a_page_can_be_read_back():
    loaded = load({"ports": ("shm:lab",)}, {"ZONETRACK_LIMITS_ZONES": "5=1 7=none"})
    page = config.page(loaded)
    assert page["ports"] == {"value": ["shm:lab,queues=1,zone=0,slots=512"], "source": "flag"}
    assert page["limits.zones"] == {"value": {"5": 1, "7": "none"}, "source": "environment"}
    assert page["workers"] == {"value": 1, "source": "default"}
    values = {path: row["value"] for path, row in page.items()}
    assert load(values, {}).config == loaded.config


def test_every_key_has_a_name_in_the_environment():
    variables = {one.variable: path for path, one in config.KEYS.items()}
    assert variables["ZONETRACK_LIMITS_GLOBAL"] == "limits.global"
    assert len(variables) == len(config.KEYS)
    assert all(one.says for one in config.KEYS.values())
