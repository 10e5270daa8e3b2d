"""A port's memory, torn by a client: a page of zeros stands in for one that is gone, and whoever touched it goes on.

Who may write a file of memory may make it shorter, or free pages in its middle and fill what they leave elsewhere.  Whoever
touches such a page gets SIGBUS (mmap(2)).  Here the signal's handler maps a page of zeros there, for this process alone, and
the access is made again.  What zeros say is checked like anything that a client writes: a port is its client's to break.

A sealed memory file would prevent the first of the two only, and could not be attached to by name.

Concurrency: a handler is native code that touches a list of spans and calls mmap; it needs neither Python nor a lock.
Children inherit handler and list.  Other faults go to who handled them before, or end the process.

Source: sigaction(2), SIGBUS with BUS_ADRERR.  Display servers treat what clients share with them likewise.
"""

from __future__ import annotations

import ctypes
import os
import signal
import weakref
from functools import cache

import numpy as np
from llvmlite import binding

SPANS_MAX = 1024
_SA_SIGINFO = 4
_ADDRESS_OFFSET = 16  # siginfo_t: si_addr, where words have 64 bits
_PROTECTION, _FLAGS = 3, 0x32  # PROT_READ | PROT_WRITE; MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED

# A span is where it begins and its bytes, none where there is no span any more.
_spans = np.zeros((SPANS_MAX, 2), "u8")
_libc = ctypes.CDLL(None, use_errno=True)


class _Action(ctypes.Structure):
    """struct sigaction of the C library."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_before = _Action()
"""What there was, for faults that are not ours."""

_HANDLER = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @sigaction(i32, ptr, ptr)

define void @handle(i32 %signal, ptr %about, ptr %context) {{
entry:
  %field = getelementptr i8, ptr %about, i64 {where}
  %address = load i64, ptr %field
  %spans = inttoptr i64 {spans} to ptr
  br label %look
look:
  %i = phi i64 [0, %entry], [%next, %other]
  %span = getelementptr [2 x i64], ptr %spans, i64 %i
  %base = load i64, ptr %span
  %second = getelementptr i64, ptr %span, i64 1
  %size = load i64, ptr %second
  %offset = sub i64 %address, %base
  %is_inside = icmp ult i64 %offset, %size
  br i1 %is_inside, label %lay, label %other
other:
  %next = add i64 %i, 1
  %is_last = icmp eq i64 %next, {count}
  br i1 %is_last, label %hand_on, label %look
lay:
  %page = and i64 %address, -{page}
  %place = inttoptr i64 %page to ptr
  %got = call ptr @mmap(ptr %place, i64 {page}, i32 {protection}, i32 {flags}, i32 -1, i64 0)
  %is_there = icmp eq ptr %got, %place
  br i1 %is_there, label %done, label %hand_on
hand_on:
  %before = inttoptr i64 {before} to ptr
  %unused = call i32 @sigaction(i32 %signal, ptr %before, ptr null)
  br label %done
done:
  ret void
}}
"""


@cache
def _compiled() -> tuple[binding.ExecutionEngine, int]:
    """Return the handler's address, and what keeps it there."""
    source = _HANDLER.format(
        where=_ADDRESS_OFFSET,
        spans=_spans.ctypes.data,
        count=SPANS_MAX,
        page=os.sysconf("SC_PAGE_SIZE"),
        protection=_PROTECTION,
        flags=_FLAGS,
        before=ctypes.addressof(_before),
    )
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(source)
    module.verify()
    engine = binding.create_mcjit_compiler(module, binding.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return engine, engine.get_function_address("handle")


def _handle_faults() -> None:
    """Have the handler called in this process and in whoever it forks; what was there before is noted once."""
    address, now = _compiled()[1], _Action()
    _set(None, now)
    if now.handler == address:
        return
    ctypes.memmove(ctypes.addressof(_before), ctypes.addressof(now), ctypes.sizeof(_Action))
    _set(_Action(handler=address, flags=_SA_SIGINFO), None)


def _set(new: _Action | None, old: _Action | None) -> None:
    given = [None if one is None else ctypes.byref(one) for one in (new, old)]
    if _libc.sigaction(int(signal.SIGBUS), *given):
        raise OSError(ctypes.get_errno(), "SIGBUS cannot be handled")


def mend(memory: np.ndarray) -> None:
    """Let pages of zeros stand in for pages of ``memory`` that are gone, in this process and those it forks.

    Args:
        memory: shared with a client, as long as the array lives.

    Raises:
        OSError: the handler is refused, or there are too many ports.
    """
    _handle_faults()
    address = memory.ctypes.data
    (free,) = np.nonzero(_spans[:, 1] == 0)
    if not len(free):
        raise OSError(f"there is memory of {SPANS_MAX} clients already")
    span = _spans[free[0]]
    span[0] = address
    span[1] = memory.nbytes  # last: a span counts from here on
    weakref.finalize(memory, _forget, span)


def _forget(span: np.ndarray) -> None:
    span[1] = 0
