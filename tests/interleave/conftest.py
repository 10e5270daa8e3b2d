"""Interleavings need the interpreter: with the JIT on only the test that starts a run without it is collected."""

from zonetrack.kernels.jit import JIT

collect_ignore_glob = ["test_*.py"] if JIT else []
