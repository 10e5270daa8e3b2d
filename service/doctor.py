"""What this machine offers, and what a table would take of it."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import click

from ..clients import tables
from ..clients.errors import NoServiceError, ZonetrackError
from ..kernels import jit
from ..shm import mapping, space, survey
from ..shm.layout import CONNECTIONS_MAX, ZONES_MAX, Region
from ..shm.sizing import CONNECTIONS_DEFAULT, EXTENSION_SHARE_DEFAULT, ZONES_IN_USE_DEFAULT, Geometry
from . import ailments
from .ports import possible

CAPABILITIES = {
    "cap_net_admin": 12,
    "cap_net_raw": 13,
    "cap_ipc_lock": 14,
    "cap_sys_admin": 21,
    "cap_sys_nice": 23,
    "cap_bpf": 39,
}
"""Those that ports, huge tables and real-time workers may want, with their numbers in capabilities(7)."""
_SHMEM_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


# ------------------------------------------------------------------------------------------------ facts
def table(geometry: Geometry) -> dict[str, Any]:
    """Return what a table takes, with the arithmetic: region by region, array by array."""
    regions = {}
    for region in Region:
        arrays = {
            name: {"records": count, "record_bytes": size, "bytes": count * size}
            for name, (count, size) in geometry.arrays(region).items()
        }
        regions[region.name.lower()] = {"bytes": geometry.region_bytes(region), "arrays": arrays}
    return {
        "connections": geometry.connections,
        "zones": geometry.zones_in_use,
        "extension_share": geometry.extension_share,
        "total_bytes": geometry.total_bytes,
        "bytes_per_connection": round(geometry.total_bytes / geometry.connections, 1),
        "regions": regions,
    }


def spaces() -> list[dict[str, Any]]:
    """Return the memories that a table is charged to; ``total_bytes`` 0 means without a limit."""
    every = (space.shared_memory(), space.machine(), *space.groups())
    return [{"where": one.where, "total_bytes": one.total, "free_bytes": one.free} for one in every]


def huge_pages() -> dict[str, Any]:
    """Return whether tables get huge pages, which is tried, and the settings that bear on it."""
    try:
        words = _SHMEM_ENABLED.read_text().split()
    except OSError:
        words = []
    chosen = next((word.strip("[]") for word in words if word.startswith("[")), None)
    return {
        "given": mapping.gives_huge_pages(),
        "page_bytes": mapping.HUGE_BYTES,
        "dev_shm_huge": space.huge_option(),
        "shmem_enabled": chosen,
    }


def capabilities() -> dict[str, bool]:
    """Return which capabilities this process has in effect."""
    lines = Path("/proc/self/status").read_text().splitlines()
    held = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return {name: bool(held >> number & 1) for name, number in CAPABILITIES.items()}


def processors() -> dict[str, Any]:
    """Return how many processors there are, and how many of them this process may use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return {
        "online": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "machine": platform.machine(),
        "model": model,
        "kernel": platform.release(),
    }


def kernel_cache() -> dict[str, Any]:
    """Return where compiled kernels are kept, and how much of them is there."""
    directory = jit.cache_directory()
    sizes = [path.stat().st_size for path in directory.glob("**/*.nbc")] if jit.CACHED else []
    return {
        "directory": str(directory),
        "writable": jit.CACHED,
        "jit": bool(jit.JIT),
        "files": len(sizes),
        "bytes": sum(sizes),
    }


def examine(geometry: Geometry) -> dict[str, Any]:
    """Return all of it, and what somebody should know about it."""
    found = survey.instances()
    report = {
        "table": table(geometry),
        "total_bytes": geometry.total_bytes,
        "spaces": spaces(),
        "huge_pages": huge_pages(),
        "capabilities": capabilities(),
        "ports": possible.missing(),
        "processors": processors(),
        "kernel_cache": kernel_cache(),
        "instances": [one.summary() for one in found if not one.leftover],
        "leftovers": [one.summary() for one in found if one.leftover],
    }
    problems = ailments.found(report)
    report["problems"] = [one._asdict() for one in problems]
    report["warnings"] = [one.problem for one in problems]
    return report


# ------------------------------------------------------------------------------------------------ for people
def show(report: dict[str, Any]) -> None:
    """Write a report as tables."""
    sizes = report["table"]
    rows = []
    for region, part in sizes["regions"].items():
        for name, array in part["arrays"].items():
            rows.append((region, name, f"{array['records']:,}", f"{array['record_bytes']:,}", f"{array['bytes']:,}"))
        rows.append((region, "with header, in whole pages", "", "", f"{part['bytes']:,}"))
    rows.append(("total", f"{sizes['bytes_per_connection']:,} a connection", "", "", f"{sizes['total_bytes']:,}"))
    title = f"A table of {sizes['connections']:,} connections, {sizes['zones']:,} zones in use"
    tables.show(("region", "array", "records", "bytes each", "bytes"), rows, title)
    click.echo()
    tables.show(("this machine", ""), list(_facts(report)))
    everybody = report["instances"] + report["leftovers"]
    if everybody:
        click.echo()
        tables.show(
            ("instance", "state", "user", "owner", "alive", "dead", "bytes", "made"),
            [_line(one) for one in everybody],
            "Instances in /dev/shm",
        )


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for one in report["spaces"]:
        total = f"{one['total_bytes']:,}" if one["total_bytes"] else "any number of"
        rows.append((f"bytes {one['where']}", f"{one['free_bytes']:,} free of {total}"))
    huge, cpu, cache = report["huge_pages"], report["processors"], report["kernel_cache"]
    settings = f"/dev/shm huge={huge['dev_shm_huge']}, shmem_enabled {huge['shmem_enabled']}"
    rows.append(("huge pages", f"{'yes' if huge['given'] else 'no'} ({settings})"))
    rows.append(("processors", f"{cpu['usable']} usable of {cpu['online']}, {cpu['model'] or cpu['machine']}"))
    rows.append(("Linux", cpu["kernel"]))
    held = [name for name, has in report["capabilities"].items() if has]
    rows.append(("capabilities", " ".join(held) or "none"))
    rows.append(("ports", ", ".join(kind for kind, why in report["ports"].items() if not why)))
    rows += [(f"no {kind} ports", why) for kind, why in report["ports"].items() if why]
    state = f"{cache['files']} files, {cache['bytes']:,} bytes" if cache["writable"] else "cannot be written"
    rows.append(("kernel cache", f"{cache['directory']}: {state}"))
    return rows


def _line(one: dict[str, Any]) -> tuple[str, ...]:
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["created_s"])) if one["created_s"] else "?"
    owner = str(one["owner"]) if one["owner"] else "nobody"
    people = (", ".join(one["alive"]) or "nobody", ", ".join(one["dead"]) or "nobody")
    state = "left over, " + one["state"] if one["leftover"] else one["state"]
    return (one["instance"], state, one["user"], owner, *people, f"{one['total_bytes']:,}", made)


def _geometry_of(instance: str) -> Geometry:
    """Return the sizes of an instance that is there."""
    one = next((one for one in survey.instances() if one.instance == instance), None)
    if one is None:
        raise NoServiceError(f"there is no instance {instance}")
    try:
        return Geometry(one.connections, one.zones_in_use, one.extension_share)
    except ValueError:
        raise ZonetrackError(f"the sizes of instance {instance} cannot be read: {one.state.lower()}") from None


@click.command()
@click.option(
    "--max-connections",
    type=click.IntRange(1, CONNECTIONS_MAX),
    default=CONNECTIONS_DEFAULT,
    show_default=True,
    help="Connections that the table shall hold.",
)
@click.option(
    "--zones",
    type=click.IntRange(1, ZONES_MAX),
    default=ZONES_IN_USE_DEFAULT,
    show_default=True,
    help="Zones in use at once.",
)
@click.option(
    "--extension-share",
    type=click.IntRange(0, 1000),
    default=EXTENSION_SHARE_DEFAULT,
    show_default=True,
    help="Connections per 1,000 with NAT, label or helper.",
)
@click.option("--instance", help="Show the sizes of this instance instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(max_connections: int, zones: int, extension_share: int, instance: str | None, as_json: bool) -> None:
    """Say what this machine offers, and what a table would take, region by region."""
    geometry = _geometry_of(instance) if instance else Geometry(max_connections, zones, extension_share)
    report = examine(geometry)
    if as_json:
        click.echo(json.dumps(report))
    else:
        show(report)
    for one in report["problems"]:
        click.echo(f"warning: {one['problem']}\n    cure: {one['cure']}", err=True)
