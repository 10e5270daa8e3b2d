"""A gateway between two hosts of one network, in namespaces: the hosts believe that one wire joins them."""

import os

from wires import Namespace, need, run
from zonetrack.service.ports import interface

INSIDE, OUTSIDE = "192.0.2.1", "192.0.2.10"


class Town:
    """Three namespaces: a host inside, a gateway, a host outside; the hosts believe that one wire joins them."""

    def __init__(self):
        need()
        self.inside, self.gateway, self.outside = Namespace(), Namespace(), Namespace()
        for host, name, port, ip in (
            (self.inside, "in0", "lan0", INSIDE),
            (self.outside, "out0", "wan0", OUTSIDE),
        ):
            with self.gateway.entered():
                run("ip", "link", "add", port, "type", "veth", "peer", "name", name)
                run("ip", "link", "set", port, "up")
                run("ip", "link", "set", name, "netns", f"/proc/{os.getpid()}/fd/{host.descriptor}")
            with host.entered():
                for offload in ("tso", "gso", "gro"):
                    interface.set_offload(name, offload, False)
                run("ip", "addr", "add", f"{ip}/24", "dev", name)
                run("ip", "link", "set", name, "up")

    def fill_in_checksums(self):
        """Have the hosts do that themselves: a driver's program is not told which are missing."""
        for host, name in ((self.inside, "in0"), (self.outside, "out0")):
            with host.entered():
                interface.set_offload(name, "tx-checksumming", False)

    def leave_cutting_to_devices(self):
        """Have the hosts send segments of up to 64 KiB, as they do where their device cuts them."""
        for host, name in ((self.inside, "in0"), (self.outside, "out0")):
            with host.entered():
                for offload in ("gso", "tso"):
                    interface.set_offload(name, offload, True)

    def close(self):
        """Let go of all of it."""
        for one in (self.inside, self.gateway, self.outside):
            one.close()
