"""An Open vSwitch of our own, where one is installed: its datapath runs in its process, its ports lead nowhere.

Two programs, and the sockets and files of both in a directory that goes with them.  It needs no root, no kernel module and
no interface, and knows nothing of a switch of the system.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
PATIENCE_S = 60


def missing():
    """Return why there can be none here, None if there can."""
    without = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if without:
        return f"{without[0]} of Open vSwitch is not installed"
    return None if SCHEMA.exists() else f"{SCHEMA} is not here"


class Switch:
    """One with a bridge and a port, that commits all it gets to a zone."""

    def __init__(self, zone):
        self._house = contextlib.ExitStack()
        # the path of a socket is short
        self.directory = Path(self._house.enter_context(tempfile.TemporaryDirectory(prefix="ovs-", dir="/tmp")))
        places = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        self._environment = {**os.environ, "PATH": PATH} | dict.fromkeys(places, str(self.directory))
        try:
            self._start(zone)
        except BaseException:
            self.close()
            raise

    def _start(self, zone):
        database = f"unix:{self.directory}/db.sock"
        self._run("ovsdb-tool", "create", "conf.db", str(SCHEMA))
        self._serve("ovsdb-server", "conf.db", "--remote=punix:db.sock", f"--unixctl={self.directory}/db.ctl")
        vsctl = ("ovs-vsctl", f"--db={database}", "--retry", f"--timeout={PATIENCE_S}")
        self._run(*vsctl, "--no-wait", "init")
        flags = ("--enable-dummy=override", "--disable-system", f"--unixctl={self.directory}/switch.ctl")
        self._serve("ovs-vswitchd", database, *flags)
        bridge = ("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
        port = ("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy")
        self._run(*vsctl, *bridge, "--", *port)
        for match in ("ip", "ipv6"):
            flow = f"{match},actions=ct(commit,zone={zone})"
            self._run("ovs-ofctl", "add-flow", f"unix:{self.directory}/br0.mgmt", flow)

    def _run(self, *words):
        done = subprocess.run(
            words, cwd=self.directory, env=self._environment, capture_output=True, text=True, timeout=2 * PATIENCE_S
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def _serve(self, *words):
        process = self._house.enter_context(
            subprocess.Popen(
                [*words, "-vconsole:off"],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        self._house.callback(process.terminate)

    def ask(self, *words):
        """Return what ovs-appctl prints."""
        return self._run("ovs-appctl", "-t", f"{self.directory}/switch.ctl", *words)

    @property
    def version(self):
        """Its version, as 3.1.0."""
        return self.ask("version").splitlines()[0].split()[-1]

    def send(self, frames):
        """Have frames come in at the port."""
        for frame in frames:
            self.ask("netdev-dummy/receive", "p1", frame.hex())

    def dump(self, zone, *flags):
        """Return the lines of a zone's connections."""
        return self.ask("dpctl/dump-conntrack", *flags, f"zone={zone}").splitlines()

    def until(self, zone, words):
        """Wait until a connection stands in the list; the switch takes frames in their order."""
        until_s = time.monotonic() + PATIENCE_S
        while not any(words in line for line in self.dump(zone)):
            assert time.monotonic() < until_s, self.dump(zone)

    def close(self):
        """End it."""
        self._house.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
