"""The kernels' cache: named after every source, put where it was asked for, and done without where it cannot be."""

import os
import shutil
import subprocess
import sys

import checkout
import pytest
from zonetrack.kernels import jit

needs_jit = pytest.mark.skipif(not jit.JIT, reason="nothing is compiled with the JIT off")

ADD = """
import json, os
from zonetrack.kernels import jit
from zonetrack.kernels.words import u64
@jit.kernel
def add(a, b):
    return a + b
print(json.dumps([jit.CACHED, os.environ["NUMBA_CACHE_DIR"], int(add(u64(2**64 - 1), u64(3)))]))
"""
"""A script with a kernel of its own; it says whether and where that was cached, and what it gave."""


def python(script, **environment):
    """Run a script in a process of its own, as if nobody had chosen a cache; returns what it printed."""
    settings = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, script], env=settings | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The sources of kernels and shm, copied to where they may be changed."""
    layers = tuple(tmp_path / layer for layer in ("kernels", "shm"))
    for layer in layers:
        layer.mkdir()
        for path in (checkout.ROOT / layer.name).glob("*.py"):
            shutil.copy(path, layer)
    monkeypatch.setattr(jit, "_LAYERS", layers)
    return tmp_path


def test_digest_is_of_the_text_and_nothing_else(copied):
    before = jit.source_digest()
    assert len(before) == 16 and int(before, 16) >= 0
    for path in copied.rglob("*.py"):
        os.utime(path, (1, 1))
    assert jit.source_digest() == before


@pytest.mark.parametrize("room", ["kernels/tuples.py", "kernels/words.py", "shm/layout.py", "shm/reasons.py"])
def test_digest_changes_with_any_source(copied, room):
    before = jit.source_digest()
    text = (copied / room).read_text()
    (copied / room).write_text(text + "\n")
    assert jit.source_digest() != before
    (copied / room).write_text(text)
    assert jit.source_digest() == before


def test_digest_changes_with_the_name_of_a_source_and_with_one_more(copied):
    before = jit.source_digest()
    (copied / "kernels" / "tuples.py").rename(copied / "kernels" / "couples.py")
    renamed = jit.source_digest()
    (copied / "kernels" / "more.py").write_text("")
    assert len({before, renamed, jit.source_digest()}) == 3


def test_digest_leaves_out_what_no_kernel_is_compiled_from(copied):
    before = jit.source_digest()
    (copied / "shm" / "segment.py").write_text("")
    assert jit.source_digest() == before


def test_cache_is_where_the_caller_says(monkeypatch, tmp_path):
    monkeypatch.setattr(jit, "CACHE_FROM_CALLER", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_directory() == tmp_path / "zonetrack" / jit.source_digest()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jit.cache_directory() == tmp_path / ".cache" / "zonetrack" / jit.source_digest()
    monkeypatch.setattr(jit, "CACHE_FROM_CALLER", True)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    assert jit.cache_directory() == tmp_path / "own"


@needs_jit
def test_compiled_kernels_are_kept_under_xdg_cache_home(tmp_path):
    script = tmp_path / "add.py"
    script.write_text(ADD)
    expected = tmp_path / "zonetrack" / jit.source_digest()
    assert python(script, XDG_CACHE_HOME=str(tmp_path)) == f'[true, "{expected}", 2]'
    assert list(expected.rglob("add.add*.nbi")) and list(expected.rglob("add.add*.nbc"))


@needs_jit
def test_compiled_kernels_are_kept_in_numbas_own_directory_if_there_is_one(tmp_path):
    script, own = tmp_path / "add.py", tmp_path / "own"
    script.write_text(ADD)
    told = python(script, XDG_CACHE_HOME=str(tmp_path / "xdg"), NUMBA_CACHE_DIR=str(own))
    assert told == f'[true, "{own}", 2]'
    assert list(own.rglob("add.add*.nbi"))
    assert not (tmp_path / "xdg").exists()


def test_kernels_run_without_a_cache(tmp_path):
    script, occupied = tmp_path / "add.py", tmp_path / "occupied"
    script.write_text(ADD)
    occupied.write_text("a file is in the way, which stops root too")
    told = python(script, XDG_CACHE_HOME=str(occupied))
    assert told == f'[false, "{occupied}/zonetrack/{jit.source_digest()}", 2]'
    assert occupied.is_file()


CALLEE = """
from .jit import kernel
@kernel
def step(n):
    return n + {step}
"""
CALLER = """
from .callee import step
from .jit import kernel
@kernel
def walk(n):
    return step(step(n))
"""


def test_an_edited_callee_runs_at_once_inside_a_caller_that_was_cached(tmp_path):
    package = tmp_path / "copied"
    for layer in ("kernels", "shm"):
        (package / layer).mkdir(parents=True)
    for room in ("kernels/__init__.py", "kernels/jit.py", "kernels/linking.py", "shm/layout.py", "shm/reasons.py"):
        shutil.copy(checkout.ROOT / room, package / room)
    (package / "kernels" / "caller.py").write_text(CALLER)
    script = tmp_path / "run.py"
    script.write_text("from copied.kernels.caller import walk\nprint(walk(1))\n")
    callee = package / "kernels" / "callee.py"

    told = []
    for step in (1, 1, 10):
        callee.write_text(CALLEE.format(step=step))
        told.append(int(python(script, XDG_CACHE_HOME=str(tmp_path / "cache"))))
    assert told == [3, 3, 21]
    caches = list((tmp_path / "cache" / "zonetrack").iterdir())
    assert len(caches) == 2  # one for each text of the callee


def test_a_kernel_is_compiled_in_its_caller_only_if_it_is_inlined():
    @jit.kernel
    def called(a):
        return a + a

    @jit.inlined
    def pulled_in(a):
        return a * a

    assert called(3) == 6 and pulled_in(3) == 9
    if jit.JIT:
        assert called.targetoptions["forceinline"] is False and pulled_in.targetoptions["forceinline"] is True
        assert all(f.targetoptions["nogil"] and f.targetoptions["error_model"] == "numpy" for f in (called, pulled_in))
        assert called.nopython_signatures
