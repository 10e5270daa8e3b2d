"""A machine in good health has no problems; each problem is named once, with a cure."""

import pytest
from zonetrack.service import ailments
from zonetrack.service.ailments import AILMENTS

HEALTHY = {
    "total_bytes": 1000,
    "spaces": [{"where": "in /dev/shm", "total_bytes": 5000, "free_bytes": 4000}],
    "huge_pages": {"given": True, "dev_shm_huge": "advise"},
    "kernel_cache": {"directory": "/cache", "writable": True, "jit": True, "files": 3},
    "leftovers": [],
    "processors": {"machine": "x86_64", "usable": 2, "kernel": "6.1.0-13-amd64"},
    "capabilities": {"cap_net_admin": True, "cap_net_raw": True},
}
LEFT = {"instance": "old", "user": "nobody", "total_bytes": 77, "convertible": False}


@pytest.fixture(autouse=True)
def somewhere(monkeypatch):
    """The socket has a place, wherever tests run."""
    monkeypatch.setenv("ZONETRACK_SOCKET", "/run/x.sock")


def test_a_machine_in_good_health():
    assert ailments.found(HEALTHY) == []


@pytest.mark.parametrize(
    ("change", "problem", "cure"),
    [
        (
            {"spaces": [{"where": "there", "total_bytes": 9, "free_bytes": 8}]},
            "needs 1,000 bytes, 8 are free there",
            "max_connections",
        ),
        ({"huge_pages": {"given": False, "dev_shm_huge": "never"}}, "no huge pages", "shmem_enabled"),
        ({"huge_pages": {"given": True, "dev_shm_huge": "always"}}, "huge=always", "remount"),
        (
            {"kernel_cache": {"directory": "/cache", "writable": False, "jit": True, "files": 0}},
            "/cache cannot be written",
            "XDG_CACHE_HOME",
        ),
        (
            {"kernel_cache": {"directory": "/cache", "writable": True, "jit": False, "files": 0}},
            "NUMBA_DISABLE_JIT",
            "unset",
        ),
        (
            {"kernel_cache": {"directory": "/cache", "writable": True, "jit": True, "files": 0}},
            "no kernels are compiled",
            "warmup",
        ),
        ({"leftovers": [LEFT | {"convertible": True}]}, "instance old of nobody is left over from", "converts it"),
        ({"leftovers": [LEFT]}, "instance old of nobody is left over, 77 bytes", "--fresh"),
        ({"processors": {"machine": "aarch64", "usable": 2, "kernel": "6.1"}}, "this is aarch64", "x86-64"),
        ({"processors": {"machine": "x86_64", "usable": 1, "kernel": "6.1"}}, "one processor", "one worker"),
        (
            {"processors": {"machine": "x86_64", "usable": 2, "kernel": "5.10.0"}},
            "Linux 5.10.0 has no futex_waitv",
            "5.16",
        ),
        ({"capabilities": {"cap_net_admin": True, "cap_net_raw": False}}, "without cap_net_raw", "AmbientCapabilities"),
    ],
)
def test_each_problem_has_its_cure(change, problem, cure):
    (found,) = ailments.found(HEALTHY | change)
    assert problem in found.problem and cure in found.cure


def test_a_socket_without_a_place(monkeypatch):
    monkeypatch.delenv("ZONETRACK_SOCKET")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (found,) = ailments.found(HEALTHY)
    assert "where the control socket is" in found.problem and "XDG_RUNTIME_DIR" in found.cure


def test_few_files(monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 64))
    (found,) = ailments.found(HEALTHY)
    assert "may open 64 files" in found.problem and "LimitNOFILE" in found.cure


def test_every_ailment_has_a_cure_of_its_own():
    assert len({one.cure for one in AILMENTS}) == len({one.of for one in AILMENTS}) == len(AILMENTS)
