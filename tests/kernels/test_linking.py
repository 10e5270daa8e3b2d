"""A kernel that kernels call is a part, compiled once; what Python calls is a door, made of parts; calls carry values."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numba
import pytest
from numba.core.event import install_listener
from numba.core.registry import CPUDispatcher
from zonetrack.kernels import jit
from zonetrack.kernels.words import u64
from zonetrack.service.warmup import Stopwatch

if not jit.JIT:
    pytest.skip("nothing is compiled with the JIT off", allow_module_level=True)

from zonetrack.kernels import linking

NOTHING_COMPILED = tempfile.TemporaryDirectory(prefix="zonetrack-")


def begin_with_nothing(patch):
    """Let what is decorated from now on find nothing that an earlier run has compiled."""
    patch.setenv("NUMBA_CACHE_DIR", NOTHING_COMPILED.name)
    patch.setattr(numba.config, "CACHE_DIR", NOTHING_COMPILED.name)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    begin_with_nothing(monkeypatch)


decorating = pytest.MonkeyPatch()
begin_with_nothing(decorating)


@jit.kernel
def twice(a):
    """Return the double."""
    return a + a


@jit.kernel
def four_times(a):
    """Return the double of the double."""
    return twice(twice(a))


@jit.kernel
def six_times(a):
    """Return the sum of two that call the same."""
    return four_times(a) + twice(a)


@jit.kernel
def smaller(a, b):
    """Return what numba has in Python."""
    return min(a, b)


@jit.kernel
def swapped(a, b, is_wanted):
    """Return two values."""
    return (b, a) if is_wanted else (a, b)


@jit.kernel
def through_a_pair(a, b):
    """Return whether of two the first is the smaller, seen through a kernel that returns two."""
    first, second = swapped(a, b, a < b)
    return first > second


@jit.kernel
def nothing(a):
    """Return nothing."""


@jit.kernel
def after_nothing(a):
    """Return what went in, after a call that returns nothing."""
    nothing(a)
    return a


decorating.undo()


def part_of(kernel):
    """Return LLVM's text of the only part of a kernel."""
    (part,) = kernel.parts.values()
    return str(part.library._final_module)


def test_a_kernel_that_only_kernels_call_gets_no_machine_code():
    assert six_times(u64(7)) == 42
    assert len(twice.parts) == len(four_times.parts) == len(six_times.parts) == 1
    assert not twice.overloads and not four_times.overloads and len(six_times.overloads) == 1
    assert twice(u64(7)) == 14  # and now Python calls it
    assert len(twice.overloads) == 1


def test_a_part_is_compiled_once_for_all_doors():
    @jit.kernel
    def shared(a):
        return a * a

    @jit.kernel
    def one(a):
        return shared(a) + u64(1)

    @jit.kernel
    def two(a):
        return shared(a) + one(a)

    stopwatch = Stopwatch(clock=iter(range(100)).__next__)
    with install_listener("numba:compile", stopwatch):
        assert (one(u64(3)), two(u64(3))) == (10, 19)
    compiled = [name.rpartition(".")[2] for name in stopwatch.seconds]
    assert sorted(compiled) == ["one", "shared", "two"]
    parts = one.parts | two.parts
    assert len(parts) == 1  # of the same types
    (library,) = {part.library for part in shared.parts.values()}
    assert all(library in list(part.library.reached()) for k in (one, two) for part in k.parts.values())


def test_a_call_hands_over_arguments_and_gets_a_value():
    assert six_times(u64(1)) == 6
    called = [line for line in part_of(four_times).splitlines() if "call i64" in line]
    assert len(called) == 2 and not [line for line in called if "ptr" in line]
    assert "alloca ptr" not in part_of(four_times)  # no place for an exception


def test_all_kinds_of_values_come_back():
    assert (smaller(u64(5), u64(3)), smaller(u64(2), u64(3))) == (3, 2)
    assert swapped(u64(1), u64(2), True) == (2, 1) and swapped(u64(1), u64(2), False) == (1, 2)
    assert through_a_pair(u64(1), u64(2)) is True and through_a_pair(u64(2), u64(1)) is True
    assert through_a_pair(u64(1), u64(1)) is False
    assert nothing(u64(1)) is None and after_nothing(u64(9)) == 9


def test_what_is_compiled_for_others_is_not_called():
    foreign = numba.njit(lambda a: a)

    @jit.kernel
    def calls_it(a):
        return foreign(a)

    with pytest.raises(Exception, match=r"No definition|no kernel"):
        calls_it(u64(1))
    assert foreign(3) == 3 and type(foreign) is CPUDispatcher


def test_a_door_that_lacks_a_part_is_refused():
    assert twice(u64(1)) == 2 and four_times(u64(1)) == 4
    (part,) = four_times.parts.values()
    library = linking.target.target_context.codegen().create_library("alone")
    library.add_llvm_module(part.library._final_module.clone())
    with pytest.raises(AssertionError, match=r"alone lacks _ZN.*twice"):
        library.finalize()


def test_a_name_means_the_same_function_in_all_processes():
    def made(value):
        @jit.kernel
        def add(a):
            return a + value

        return add

    one, two = made(u64(1)), made(u64(2))
    assert (one(u64(5)), two(u64(5))) == (6, 7)
    names = {part.fndesc.llvm_func_name for kernel in (one, two) for part in kernel.parts.values()}
    assert len(names) == 2  # though their text is the same
    assert linking.unique_name(twice.py_func) == linking.unique_name(twice.py_func)
    assert linking.unique_name(twice.py_func) != linking.unique_name(four_times.py_func)


FIRST = """
from zonetrack.kernels.jit import kernel
from zonetrack.kernels.words import u64
@kernel
def step(a):
    return min(a + u64(1), u64(100))
@kernel
def walk(a):
    return step(step(a))
@kernel
def run(a):
    return step(a) + step(a)
"""
CALLS = """
import json
from numba.core.event import install_listener
from zonetrack.service.warmup import Stopwatch
import rooms
stopwatch = Stopwatch()
with install_listener("numba:compile", stopwatch):
    told = int(getattr(rooms, "%s")(rooms.u64(%d)))
print(json.dumps([told, sorted(name for name in stopwatch.seconds if name.startswith("rooms"))]))
"""


@pytest.fixture
def ask(tmp_path):
    """Return a function that calls a kernel of FIRST in a process of its own: what it gave, and what was compiled."""
    (tmp_path / "rooms.py").write_text(FIRST)

    def ask(name, argument):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
        script = CALLS % (name, argument)
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return ask


def test_the_next_process_compiles_nothing(ask):
    assert ask("walk", 7) == '[9, ["rooms.step", "rooms.walk"]]'
    assert ask("walk", 99) == "[100, []]"


def test_a_door_is_made_of_parts_in_the_cache(ask, tmp_path):
    assert ask("step", 7) == '[8, ["rooms.step"]]'
    assert ask("walk", 7) == '[9, ["rooms.walk"]]'
    assert len(list((tmp_path / "cache" / linking.PARTS).glob("*.bc"))) == 3  # step, walk, and numba's min


def test_two_processes_fill_one_cache(ask, tmp_path):
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(ask, ("walk", "run") * 2, (7, 7, 7, 7)))
    assert [json.loads(text)[0] for text in told] == [9, 16, 9, 16]
    assert ask("walk", 8) == "[10, []]" and ask("run", 8) == "[18, []]"


def test_a_cache_that_is_gone_is_made_again(ask, tmp_path, monkeypatch):
    assert ask("step", 7) == '[8, ["rooms.step"]]'
    cache = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    shutil.rmtree(cache)

    @jit.kernel
    def late(a):
        return a

    assert late(u64(3)) == 3
    assert list(cache.glob(f"{linking.PARTS}/*.bc"))


def test_parts_that_are_gone_are_compiled_again(ask, tmp_path):
    assert ask("step", 7) == '[8, ["rooms.step"]]'
    for path in (tmp_path / "cache" / linking.PARTS).iterdir():
        path.unlink()
    assert ask("step", 8) == "[9, []]"  # a door needs no parts
    assert ask("walk", 7) == '[9, ["rooms.step", "rooms.walk"]]'
