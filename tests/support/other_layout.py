"""An earlier version of the program: its records are laid out in another way, and all else is as it is now.

Its kernels go by the layout that they find, so it is a whole service; it runs under the interpreter, for the cache of
compiled kernels knows of one layout only.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TABLE = (
    # two fields of a connection have changed their places, and two bits their numbers
    ('("mark", "u4"),  #    ', '("extension", "u4"),  #    '),
    ('("extension", "u4"),  # index of its', '("mark", "u4"),  # index of its'),
    ("    TORN = 1 << 3", "    TORN = 1 << 1"),
    ("    SEEN_REPLY = 1 << 1", "    SEEN_REPLY = 1 << 3"),
)
QUEUES = (
    ('("zone", "u4"),\n        ("port", "u4"),  # index of its port', '("port", "u4"),\n        ("zone", "u4"),'),
)
_HOOK = """
import importlib.machinery
import sys

CHANGES = {changes}


class Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        text = self.get_data(self.path).decode()
        for before, after in CHANGES:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        return compile(text, self.path, "exec")


class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name != "zonetrack.shm.layout":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        found.loader = Loader(name, found.origin)
        return found


sys.meta_path.insert(0, Finder)
"""


def environment(directory, changes):
    """Return variables with which Python starts that version.

    Args:
        directory: for a room that Python imports at its start.
        changes: of the text of shm/layout, each with what stands there now: TABLE or QUEUES.
    """
    (directory / "sitecustomize.py").write_text(_HOOK.format(changes=json.dumps(changes)))
    return {"PYTHONPATH": f"{directory}:{Path(__file__).parent}", "NUMBA_DISABLE_JIT": "1"}


_CLIENT = """
import sys

from outliving import Clients

clients = Clients(sys.argv[1])
said = [*clients.asked(), *clients.answered()]
clients.close()
print(*said)
"""


def ask_and_answer(service, variables):
    """Open flows with a client of that version, and answer in each; return the ct_state of all packets."""
    told = subprocess.run(
        [sys.executable, "-c", _CLIENT, service.instance],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(one) for one in told.stdout.split()]
