"""What is packaged: units that systemd takes, a Dockerfile whose flags there are, a configuration that is read."""

import configparser
import re
import shutil
import subprocess

import checkout
import pytest
from zonetrack.service.config import load

PACKAGING = checkout.ROOT / "packaging"
if not PACKAGING.is_dir():
    pytest.skip("no packaging beside the tests", allow_module_level=True)


def unit():
    """Return the sections of the unit; of a key that is there twice the last."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(PACKAGING / "zonetrack.service")
    return parser


def test_systemd_takes_the_unit(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    path = tmp_path / "zonetrack.service"
    text = (PACKAGING / "zonetrack.service").read_text()
    path.write_text(text.replace("/usr/bin/zonetrack", shutil.which("true")).replace("notify-reload", "notify"))
    done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True, check=False)
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if "zonetrack.service" in line]
    assert complaints == []


def test_the_unit_waits_for_what_the_service_says():
    service = unit()["Service"]
    assert service["Type"] == "notify-reload" and int(service["WatchdogSec"]) > 0
    assert service["ExecStart"].split()[1:] == ["serve"]
    assert service["MemoryDenyWriteExecute"] == "no", "kernels are compiled"


def test_the_unit_keeps_the_world_out():
    service = unit()["Service"]
    assert service["User"] == service["Group"] == "zonetrack"
    assert (service["RuntimeDirectoryMode"], service["UMask"]) == ("0750", "0077")
    assert service["NoNewPrivileges"] == "yes" and service["ProtectSystem"] == "strict"
    assert set(service["CapabilityBoundingSet"].split()) == {"CAP_NET_ADMIN", "CAP_NET_RAW"}


def test_directories_and_user_belong_together():
    lines = [line.split() for line in (PACKAGING / "zonetrack.tmpfiles").read_text().splitlines() if line[:1] == "d"]
    assert {(path, mode, user, group) for _, path, mode, user, group, _ in lines} == {
        ("/run/zonetrack", "0750", "zonetrack", "zonetrack"),
        ("/var/cache/zonetrack", "0750", "zonetrack", "zonetrack"),
    }
    assert re.search(r"^u zonetrack ", (PACKAGING / "zonetrack.sysusers").read_text(), re.MULTILINE)


def test_the_configuration_is_one():
    loaded = load({}, {}, PACKAGING / "zonetrack.toml")
    assert loaded.config.control.group == "zonetrack" and str(loaded.config.metrics.listen) == "127.0.0.1:9810"


def test_the_image_runs_commands_that_there_are():
    from zonetrack.clients.cli import COMMANDS

    text = (PACKAGING / "Dockerfile").read_text()
    assert set(re.findall(r'(?:RUN zonetrack |CMD \["(?:zonetrack", ")?)(\w+)', text)) == {"warmup", "count", "serve"}
    assert {"warmup", "count", "serve"} <= set(COMMANDS)
    assert re.search(r"^USER zonetrack$", text, re.MULTILINE)
