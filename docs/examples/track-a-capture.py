"""Every connection of a capture, in five lines."""

import sys

from zonetrack.service.embedded import Tracker

with Tracker() as tracker:
    verdicts = tracker.capture(sys.argv[1])
    for connection in tracker.describe():
        print(connection["proto"], connection["orig"]["src"], connection["orig"]["dst"], connection.get("state", ""))
print(len(verdicts), "packets")
