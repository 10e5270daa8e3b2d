"""The cache is filled once, by one process, which says so; without a cache there is a warning and everything works."""

import fcntl
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from zonetrack.kernels import jit
from zonetrack.service import warmup

SCRIPT = """
import json
from zonetrack.service import warmup
warmup.PIECES = {name: warmup.PIECES[name] for name in %r}
print(json.dumps(warmup.ensure()))
"""
SMALL = ("flush.detach",)
"""A piece that compiles in a second or two."""

needs_jit = pytest.mark.skipif(not jit.JIT, reason="nothing is compiled with the JIT off")


def start(cache, pieces=SMALL, script=SCRIPT, **environment):
    """Start a process that warms a cache up to some pieces; it prints the seconds of what it compiled."""
    settings = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    settings |= {"XDG_CACHE_HOME": str(cache)} | environment
    command = [sys.executable, "-c", script % (pieces,)]
    return subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process):
    """Return what a process of ``start`` had to compile, and what it told people."""
    out, told = process.communicate()
    assert process.returncode == 0, told
    return json.loads(out.splitlines()[-1]), told


@needs_jit
def test_first_start_compiles_and_says_so_and_later_ones_do_not(tmp_path):
    seconds, told = ended(start(tmp_path))
    assert "flush.detach" in seconds and min(seconds.values()) > 0
    assert "compiling kernels" in told and f"compiled {len(seconds)} kernels" in told
    assert ended(start(tmp_path)) == ({}, "")

    more, told = ended(start(tmp_path, (*SMALL, "delete_list.delete")))
    assert "delete_list.delete" in more and "flush.detach" not in more


@needs_jit
def test_a_page_that_is_lost_is_written_again_without_compiling(tmp_path):
    ended(start(tmp_path))
    page = tmp_path / "zonetrack" / jit.source_digest() / warmup.WARM
    page.unlink()
    assert ended(start(tmp_path)) == ({}, "")
    assert page.exists()


@needs_jit
def test_no_cache_is_a_warning(tmp_path):
    occupied = tmp_path / "occupied"
    occupied.write_text("not a directory")
    seconds, told = ended(start(occupied))
    assert "flush.detach" in seconds
    assert told.startswith("warning: ") and "cannot be written" in told


@needs_jit
def test_one_process_fills_the_cache_while_others_wait(tmp_path):
    directory = tmp_path / "zonetrack" / jit.source_digest()
    directory.mkdir(parents=True)
    with (directory / warmup.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = [start(tmp_path), start(tmp_path)]
        assert [process.stderr.readline() for process in waiting] == [
            "waiting for another process that compiles the kernels\n"
        ] * 2
        fcntl.flock(file, fcntl.LOCK_UN)
        compiled = [bool(ended(process)[0]) for process in waiting]
    assert sorted(compiled) == [False, True]


def test_with_the_jit_off_there_is_nothing_to_do(tmp_path):
    assert ended(start(tmp_path, NUMBA_DISABLE_JIT="1")) == ({}, "")


def test_a_page_of_other_sources_or_another_processor_is_not_believed(tmp_path):
    warmup.write_warm(tmp_path, warmup.Warm("somewhere else", list(warmup.PIECES)))
    assert warmup.read_warm(tmp_path).missing() == list(warmup.PIECES)
    warmup.write_warm(tmp_path, warmup.Warm(warmup.built_for(), list(warmup.PIECES)))
    assert warmup.read_warm(tmp_path).missing() == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"colour": 1}'])
def test_an_unreadable_page_means_an_empty_cache(text, tmp_path):
    (tmp_path / warmup.WARM).write_text(text)
    assert warmup.read_warm(tmp_path).missing() == list(warmup.PIECES)


def test_seconds_of_a_kernel_are_without_those_of_the_kernels_it_calls():
    def compiling(name):
        function = SimpleNamespace(__module__="zonetrack.kernels.some", __qualname__=name)
        return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function)})

    moments = iter([0.0, 1.0, 4.0, 5.0, 7.0, 10.0])
    began = []
    stopwatch = warmup.Stopwatch(first=lambda: began.append(True), clock=lambda: next(moments))
    outer, first, second = compiling("outer"), compiling("first"), compiling("second")
    for happens, kernel in [
        (stopwatch.on_start, outer),
        (stopwatch.on_start, first),
        (stopwatch.on_end, first),
        (stopwatch.on_start, second),
        (stopwatch.on_end, second),
        (stopwatch.on_end, outer),
    ]:
        happens(kernel)
    assert stopwatch.seconds == {"some.first": 3.0, "some.second": 2.0, "some.outer": 5.0}
    assert began == [True]


@needs_jit
def test_command_shows_the_seconds_of_each_kernel_even_when_warm(tmp_path):
    compiled, _ = ended(start(tmp_path))
    report, _ = ended(start(tmp_path, script=SCRIPT + "\nwarmup.command(['--json'], standalone_mode=False)"))
    assert report["compiled"] == 0
    assert report["kernels"] == {name: round(seconds, 3) for name, seconds in compiled.items()}
    assert report["cache"].startswith(str(tmp_path))


@needs_jit
@pytest.mark.parametrize("name", warmup.AHEAD)
def test_what_the_second_process_begins_with_becomes_parts(name):
    kernel = warmup.AHEAD[name]
    warmup.only_part(kernel, warmup.Stage())
    assert name == warmup.kernel_name(kernel)
    types = [str(of_argument) for of_argument in next(iter(kernel.parts))]
    assert types[0].startswith("Record") and types[-1] == "uint64"


@needs_jit
def test_again_throws_the_cache_away(tmp_path):
    compiled, _ = ended(start(tmp_path))
    again = SCRIPT + "\nwarmup.command(['--again', '--json'], standalone_mode=False)"
    report, told = ended(start(tmp_path, script=again))
    assert report["kernels"].keys() == compiled.keys() and report["compiled"] == len(compiled)
    assert "compiling kernels" in told
