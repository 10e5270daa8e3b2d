"""The connections of a running service, as a numpy array: who has the most?"""

import sys

from zonetrack.clients.sync import connect

with connect(sys.argv[1]) as ct:
    table = ct.dump()
print(len(table), "connections,", table["bytes"].sum(), "bytes")
