"""Ports of every kind outlive the keeper that opened them, and the workers that use them: packets go on."""

import os
import signal

import firewalls
from ports import datagrams
from services import Service
from wires import Wires

PORTS = ("xdp:near0,ring=128", "afpacket:near1,latency=low,ring_mb=1", "nfqueue:5,queues=2", "tap:t0,queues=2")
RULES = "in_port=near0 actions=output:near1\nin_port=near1 actions=output:near0\n"


def test_the_next_keeper_goes_on_with_them(tmp_path):
    firewalls.need()
    rules = tmp_path / "through.rules"
    rules.write_text(RULES)
    flags = ["--max-connections", 2000, "--workers", 2, *(word for port in PORTS for word in ("--port", port))]
    environment = {"ZONETRACK_RULES": str(rules)}
    with Wires(2) as wires, Service(tmp_path, *flags, environment=environment) as first:
        first.until_ready()

        def goes_through(number):
            frames = datagrams(20, first=number)
            wires.send(frames)
            assert wires.receive(20, 1) == frames
            wires.send(frames, 1)
            assert wires.receive(20) == frames

        goes_through(0)
        first.kill_keeper()
        goes_through(100)
        with Service(tmp_path, *flags, after=first, environment=environment) as second:
            second.until_ready()
            second.hear("adopted who was left")
            goes_through(200)
            with second.ask() as ct:
                for worker in ct.workers():
                    os.kill(worker["pid"], signal.SIGKILL)
                    second.hear("it is started again")
                goes_through(300)
                queues = [queue for port in ct.ports() for queue in port["queues"]]
            assert not any(queue["tx_full"] or queue["tx_failed"] for queue in queues)
            assert second.stop() == 0
