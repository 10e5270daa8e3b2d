"""Frames from anywhere, as bytes: what is each of them to its connection?"""

import sys

from scapy.utils import PcapReader
from zonetrack.service.embedded import Tracker

frames = [bytes(packet) for packet in PcapReader(sys.argv[1])]
with Tracker(profile="ovs") as tracker:
    verdicts = tracker.track(frames, zone=5)
    print((verdicts["ct_state"] & 0x10 != 0).sum(), "of", len(frames), "invalid")
    print(len(tracker.connections(zone=5, proto="tcp")), "connections of TCP")
