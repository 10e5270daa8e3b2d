"""What begins and ends, as it happens, until ten have been seen."""

import sys
from itertools import islice

from zonetrack.clients.sync import connect

with connect(sys.argv[1]) as ct:
    for event in islice(ct.events(["new", "destroy"]), 10):
        print(event["event"], event["orig"]["src"], event.get("end", ""), flush=True)
