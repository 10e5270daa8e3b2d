"""The page of docs that says how a service is configured, and what becomes of it and of its processes.

    python -m zonetrack.service.service_page

``make docs`` writes docs/service.md with it, and a test compares the two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

from ..shm.format import table
from ..shm.transitions import Transition
from . import lives, phases
from .config import FILE_DEFAULT, KEYS, plain

INTRODUCTION = f"""# The service

Printed from `service/config.py`, `service/phases.py` and `service/lives.py` by `make docs`; change it there.

`zonetrack serve` runs a keeper, which holds the table, the ports and the control socket, and keeps the others alive:
control, which answers clients, and workers, which track packets. It prints a line that begins with `ready` when packets
can flow. SIGTERM and SIGINT empty the queues and stop it, SIGHUP reads the configuration again.

When the keeper dies, or is told by SIGUSR2 to leave, the others go on. The next `serve` of the same instance adopts them if
it would make the same: layout of the table and of what they share beside it, workers, ports, sizes, socket. Else, or with
`--fresh`, it ends them in order first. A table of another layout, which an earlier version has left, is saved in a file
(`save_directory`) and converted: the line that begins with `ready`, the log and `zonetrack stats` say so.

`zonetrack stop` ends those who were left too, whether there is a keeper or not. `zonetrack restart` has the keeper begin
anew with the program as it is then, and replaces the workers one at a time; their successors answer what waits in their
queues.

## Configuration

Flags win over the environment, that over the file (`{FILE_DEFAULT}`, or `--config`, or `ZONETRACK_CONFIG`), and that over
the defaults. A key `control.clients_max` stands in the file's table `[control]`, and is ZONETRACK_CONTROL_CLIENTS_MAX in
the environment. What is live takes effect when the configuration is read again. `zonetrack serve --check-config` shows
every key, its value, and where that came from.

Under systemd: `Type=notify-reload`, `KillMode=process`, `Restart=on-failure`, and `RestartKillSignal=SIGUSR2`, so that
`systemctl stop` ends everything through the keeper, and `systemctl restart` replaces the keeper alone.
"""


def keys() -> Iterator[str]:
    """Yield the table of all keys."""
    rows = (
        (f"`{path}`", _value(plain(one.default)), "live" if one.live else "", one.says) for path, one in KEYS.items()
    )
    yield from table(("key", "default", "", "what"), rows)


def _value(default: object) -> str:
    return "" if default is None else f"`{json.dumps(default)}`"


def _diagram(rows: Iterable[Transition], first: str, last: str) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {first}"
    for before, event, after, _ in rows:
        if before is not after:
            yield f"    {before.name} --> {after.name}: {event.name}"
    yield f"    {last} --> [*]"
    yield "```"
    yield ""


def _rows(rows: Iterable[Transition]) -> Iterator[str]:
    cells = ((before.name, event.name, after.name, why) for before, event, after, why in rows)
    yield from table(("from", "what happens", "to", "why"), cells)


def lines() -> Iterator[str]:
    """Yield the lines of docs/service.md."""
    yield INTRODUCTION
    yield from keys()
    yield "## A service"
    yield ""
    yield from _diagram(phases.TRANSITIONS, phases.Phase.STARTING.name, phases.Phase.OVER.name)
    yield from _rows(phases.TRANSITIONS)
    yield "## A worker, and control"
    yield ""
    yield f"After {lives.HEAT_MAX:.0f} deaths close together the next start waits {lives.PAUSE_S} s, after each further one"
    yield f"twice as long, {lives.PAUSE_S_MAX:.0f} s at most; each second of life makes up for a death."
    yield ""
    yield from _diagram(lives.TRANSITIONS, lives.Life.WAITING.name, lives.Life.GONE.name)
    yield from _rows(lives.TRANSITIONS)


def page() -> str:
    """Return docs/service.md as text."""
    return "\n".join(lines()).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
