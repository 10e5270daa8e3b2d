"""The copy without intents is the program but for those, and does not say what it is about to do."""

import json
import os
import subprocess
import sys

from .without import ROOT, copy, silenced

LOOK = """
import json, numpy as np
from types import SimpleNamespace
from zonetrack.kernels import intents
from zonetrack.kernels.words import u64
from zonetrack.shm.layout import INTENT, Step
line = np.zeros(1, INTENT)
views = SimpleNamespace(intent=u64(line.ctypes.data))
intents.set_record(views, u64(6), Step.UPDATE)
intents.set_segments(views, u64(1), u64(2))
intents.set_zone(views, u64(3), u64(4))
intents.set_field(views, intents.INCARNATION, u64(5))
intents.set_field(views, intents.CREDIT, u64(8))
print(json.dumps({name: int(line[name][0]) for name in ("step", "record", "segment_low", "zone", "incarnation", "credit")}))
"""


def seen(where):
    """Return what a kernel of a copy leaves in an intent line."""
    environment = {**os.environ, "PYTHONPATH": str(where), "NUMBA_DISABLE_JIT": "1"}
    told = subprocess.run([sys.executable, "-c", LOOK], cwd=where, env=environment, check=True, capture_output=True)
    return json.loads(told.stdout)


def test_only_credit_is_told(tmp_path):
    told = seen(copy(tmp_path / "usual", silent=False))
    assert all(told.values()) and told["record"] == 7
    assert seen(copy(tmp_path / "silent", silent=True)) == dict.fromkeys(told, 0) | {"credit": 8}


def test_nothing_else_differs(tmp_path):
    copy(tmp_path, silent=True)
    differ = [
        path.name
        for path in (tmp_path / "zonetrack").rglob("*.py")
        if path.read_text() != (ROOT / path.relative_to(tmp_path / "zonetrack")).read_text()
    ]
    assert differ == ["intents.py"]
    assert silenced((ROOT / "kernels" / "intents.py").read_text()).count("\n    return\n") == 7
