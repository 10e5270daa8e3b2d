"""What is in the way of a service on this machine, each with its cure.

A row is a question to the doctor's report: where it is answered, that is the problem, and the row says what to do about it.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..clients import address
from ..clients.address import AddressError

Report = Mapping[str, Any]
DESCRIPTORS_MIN = 1_024
FUTEX_WAITV = (5, 16)
"""Linux since which a worker sleeps on all its queues at once."""


class Ailment(NamedTuple):
    """A row."""

    of: Callable[[Report], Iterable[str]]
    """Yields what is wrong."""
    cure: str


class Problem(NamedTuple):
    """What is wrong, and what to do."""

    problem: str
    cure: str


def _space(report: Report) -> Iterable[str]:
    needed = report["total_bytes"]
    for one in report["spaces"]:
        if one["total_bytes"] and one["free_bytes"] < needed:
            yield f"the table needs {needed:,} bytes, {one['free_bytes']:,} are free {one['where']}"


def _huge_pages(report: Report) -> Iterable[str]:
    if not report["huge_pages"]["given"]:
        yield "no huge pages: random lookups in a large table take about twice as long"


def _huge_always(report: Report) -> Iterable[str]:
    if report["huge_pages"]["dev_shm_huge"] == "always":
        yield "/dev/shm is mounted with huge=always: each region takes whole pages of 2 MiB"


def _cache(report: Report) -> Iterable[str]:
    if not report["kernel_cache"]["writable"]:
        yield f"{report['kernel_cache']['directory']} cannot be written: kernels are compiled at every start"


def _interpreted(report: Report) -> Iterable[str]:
    if not report["kernel_cache"]["jit"]:
        yield "NUMBA_DISABLE_JIT is set: kernels run under the interpreter, a thousand times slower"


def _cold(report: Report) -> Iterable[str]:
    cache = report["kernel_cache"]
    if cache["jit"] and cache["writable"] and not cache["files"]:
        yield "no kernels are compiled yet: the first start takes some 40 seconds"


def _convertible(report: Report) -> Iterable[str]:
    for one in report["leftovers"]:
        if one["convertible"]:
            yield f"instance {one['instance']} of {one['user']} is left over from a version with another layout"


def _leftovers(report: Report) -> Iterable[str]:
    for one in report["leftovers"]:
        if not one["convertible"]:
            yield f"instance {one['instance']} of {one['user']} is left over, {one['total_bytes']:,} bytes"


def _machine(report: Report) -> Iterable[str]:
    if report["processors"]["machine"] not in ("x86_64", "AMD64"):
        yield f"this is {report['processors']['machine']}; kernels are written for, and tested on, x86-64"


def _processors(report: Report) -> Iterable[str]:
    if report["processors"]["usable"] == 1:
        yield "one processor: workers and whoever sends them packets take turns"


def _kernel(report: Report) -> Iterable[str]:
    found = re.match(r"(\d+)\.(\d+)", report["processors"]["kernel"])
    if found and tuple(map(int, found.groups())) < FUTEX_WAITV:
        yield f"Linux {report['processors']['kernel']} has no futex_waitv: an idle worker with several queues wakes often"


def _descriptors(report: Report) -> Iterable[str]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_MIN:
        yield f"a process may open {hard} files: many clients, or many queues, will be refused"


def _socket(report: Report) -> Iterable[str]:
    try:
        address.path()
    except AddressError as error:
        yield f"nobody says where the control socket is: {error}"


def _capabilities(report: Report) -> Iterable[str]:
    missing = [name for name in ("cap_net_admin", "cap_net_raw") if not report["capabilities"][name]]
    if missing:
        yield f"without {' and '.join(missing)}: ports on network interfaces cannot be opened; those in shared memory can"


AILMENTS = (
    Ailment(
        _space, "ask for fewer connections (max_connections), or mount it larger: mount -o remount,size=SIZE /dev/shm"
    ),
    Ailment(_huge_pages, "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, as root"),
    Ailment(_huge_always, "mount -o remount,huge=advise /dev/shm, as root"),
    Ailment(_cache, "name a directory that can be written with XDG_CACHE_HOME"),
    Ailment(_interpreted, "unset NUMBA_DISABLE_JIT"),
    Ailment(_cold, "run `zonetrack warmup`, as the user that the service runs as"),
    Ailment(
        _convertible,
        "start a service on it, which saves it in a file, converts it and goes on with it; or remove it: `zonetrack serve "
        "--instance NAME --fresh`",
    ),
    Ailment(
        _leftovers,
        "start a service on it, which goes on with it, or remove it: `zonetrack serve --instance NAME --fresh`",
    ),
    Ailment(_machine, "use a machine with an x86-64 processor"),
    Ailment(_processors, "one worker will do there; more do no good"),
    Ailment(_kernel, "use Linux 5.16 or later"),
    Ailment(_descriptors, "raise it: LimitNOFILE in the unit, or ulimit -n"),
    Ailment(_socket, "set XDG_RUNTIME_DIR, or name the socket with --socket or ZONETRACK_SOCKET"),
    Ailment(_capabilities, "run as root, or give them: AmbientCapabilities in the unit; nothing else needs them"),
)


def found(report: Report) -> list[Problem]:
    """Return what is wrong, each with its cure."""
    return [Problem(problem, one.cure) for one in AILMENTS for problem in one.of(report)]
