"""The log: one line for each thing that happened, for a person, or as JSON for a program.

    2026-11-30 10:48:37.123 warning keeper[812]: worker 1 (pid 815) was killed by SIGKILL  restarts=3
    {"time": 1796035717.123, "level": "warning", "from": "keeper", "pid": 812, "text": "...", "restarts": 3}

All processes of a service write to the standard error that they share; a line is one write, so lines stay whole.  Facts
that a program may want stand beside the text: ``log.info("a worker is ready", extra=log.facts(worker=1))``.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

ROOT = "zonetrack"
FACTS = "facts"


def logger(name: str) -> logging.Logger:
    """Return the logger of a kind of process: ``keeper``, ``control``, ``worker``."""
    return logging.getLogger(f"{ROOT}.{name}")


def facts(**values: Any) -> dict[str, dict[str, Any]]:
    """Return what a log call takes as ``extra``: values beside the text."""
    return {FACTS: values}


class Formatter(logging.Formatter):
    """Lines of either form."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as one line, with the traceback of an exception below it or, as JSON, in it."""
        values: dict[str, Any] = getattr(record, FACTS, {})
        source = record.name.rpartition(".")[2]
        level = record.levelname.lower()
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self.as_json:
            line = {
                "time": round(record.created, 3),
                "level": level,
                "from": source,
                "pid": record.process,
                "text": record.getMessage(),
            } | values
            return json.dumps(line | ({"traceback": trace} if trace else {}), default=str)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        words = "".join(f"  {key}={value}" for key, value in values.items())
        head = f"{moment}.{int(record.msecs):03d} {level} {source}[{record.process}]: {record.getMessage()}{words}"
        return f"{head}\n{trace}" if trace else head


def configure(*, level: str, as_json: bool, stream: TextIO | None = None) -> None:
    """Set the log up, or change how it is written from now on.

    Args:
        level: least important lines.
        as_json: which form.
        stream: standard error when None.
    """
    root = logging.getLogger(ROOT)
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(Formatter(as_json=as_json))
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False
