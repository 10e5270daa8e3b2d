"""The checkout as tests look at it: its root, its layers, the rooms in them, and what git tracks."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("shm", "kernels", "service", "clients")


def rooms():
    """Return the path of every room of the package, keyed by its name as in ``kernels/words``."""
    paths = (path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py")))
    return {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in paths if path.name != "__init__.py"}


def page(name):
    """Return the text of a page of docs; skip the test where tests run against an installed package without them."""
    docs = ROOT / "docs"
    if not docs.is_dir():
        pytest.skip("no docs beside the tests")
    return (docs / name).read_text()


def tracked():
    """Return the paths that git tracks, relative to the root; skip the test where there is no checkout or no git."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"git ls-files says: {listed.stderr.strip()}")
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
