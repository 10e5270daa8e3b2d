"""The one way to make a function a kernel, and where what is compiled is kept.

Numba files a compiled kernel under the text of the module that defines it, and looks no further: edit ``tuples.py``
and ``index.find`` goes on running the old hash.  So the cache directory is named after the text of every module that
may end up inside a kernel, and after the versions of Python and numba.  Change one, and all start afresh.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_LAYERS = (_HERE, _HERE.parent / "shm")
_FROM_SHM = ("layout.py", "reasons.py")
"""What kernels know of the other layer: tests/test_layers.py holds them to it."""
CACHE_FROM_CALLER = "NUMBA_CACHE_DIR" in os.environ
"""Whether the caller chose the cache directory himself."""


def source_digest() -> str:
    """Return 16 hex digits that change whenever a kernel's machine code may have changed."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{sys.version}|{version('numba')}|{version('llvmlite')}|{version('numpy')}".encode())
    kernels, shm = _LAYERS
    for path in (*sorted(kernels.glob("*.py")), *(shm / name for name in _FROM_SHM)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def cache_directory() -> Path:
    """Return the directory that holds the kernels compiled from the present source."""
    if CACHE_FROM_CALLER:
        return Path(os.environ["NUMBA_CACHE_DIR"])
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return root / "zonetrack" / source_digest()


os.environ["NUMBA_CACHE_DIR"] = str(cache_directory())

import numba  # noqa: E402 - after the environment says where the cache is
import numpy as np  # noqa: E402
from numba.core.config import reload_config  # noqa: E402

reload_config()  # someone may have imported numba before us

JIT = not numba.config.DISABLE_JIT  # pyright: ignore[reportPrivateImportUsage, reportAttributeAccessIssue]
"""False under ``NUMBA_DISABLE_JIT=1``: kernels then run under the plain interpreter."""

if not JIT:
    np.seterr(over="ignore")  # u64 arithmetic wraps, as it does in compiled kernels


def _cacheable() -> bool:
    try:
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        return os.access(directory, os.W_OK)
    except OSError:
        return False


CACHED = _cacheable()
"""Whether compiled kernels are kept on disk; where they cannot be, each process compiles for itself."""


def _compiled(func: F, *, forceinline: bool) -> F:
    if not JIT:
        return func
    from . import linking  # numba's compiler, which the interpreter does without

    made = linking.Kernel(func, targetoptions=linking.OPTIONS | {"forceinline": forceinline})
    if CACHED:
        made.enable_caching()
    return cast(F, made)


def kernel(func: F) -> F:
    """Compile ``func`` in nopython mode, without the GIL, cached on disk (kernels/linking).

    ``forceinline=False`` is not the default: left out, numba takes it over from whichever caller is compiled first, and
    one ``inlined`` caller would force a kernel, and all that it calls, into every place that uses it.
    """
    return _compiled(func, forceinline=False)


def inlined(func: F) -> F:
    """Like ``kernel``, for what is too small to be called: LLVM always pulls it into its callers."""
    return _compiled(func, forceinline=True)
