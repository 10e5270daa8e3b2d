"""Every access to memory that is not a local variable: atomics, plain loads and stores by address, prefetch, records.

The only room that knows LLVM.  An address is a u64; every value that goes in or comes out is a u64, whatever its width in
memory.  Under ``NUMBA_DISABLE_JIT=1`` the same names are interpreter twins that hand each *shared* access to ``world``,
where a simulation may switch to another worker, delay a store, or kill.

    name            order    for
    acquire32/64    acquire  a word that others change (A1, A2, A3 of kernels/index)
    release32/64    release  a word whose store publishes what was stored before; intents; unlocking
    read32/64       plain    contents under a lock, or a hint that is checked again
    write32/64      plain    contents under a lock or not yet published
    swap32/64       acq_rel  compare and exchange; acquire alone would let an earlier intent store sink below it
    replace64       release  a word that only the caller may store to, whether or not it becomes another: no branch
    add64           acq_rel  add, and return what was there before
    fence_acquire   acquire  between plain loads of slots and the second look at the zone word
    fence_full      seq_cst  store a flag, then look (the idle "waiting" flag)

Shared are the words of the protocol (tests/model): life, key, lock, expiry, due, slot, directory entry, zone word, counts,
owner words, intents, free lists.  A word is either always accessed by these or always through ``*_at`` records, never
both: a simulated store buffer would not be seen through a record.  ``byte``, ``be16`` ... read frames and private memory.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic
from numba.np.numpy_support import from_dtype

from .jit import JIT, inlined
from .words import LOW_8, u64

intrinsic: Any = _intrinsic
"""What it decorates is called without the typing context, which type checkers cannot know."""

ACQUIRE, RELEASE, PLAIN = "acquire", "release", "plain"


class World:
    """What the interpreter twins do with a shared access: here, simply do it."""

    def load(self, address: int, size: int, order: str) -> int:
        """Return the unsigned value of ``size`` bytes at ``address``."""
        return _WORD[size].from_address(address).value

    def store(self, address: int, size: int, value: int, order: str) -> None:
        """Store ``size`` bytes at ``address``."""
        _WORD[size].from_address(address).value = value

    def swap(self, address: int, size: int, expected: int, desired: int) -> bool:
        """Compare and exchange; return whether the word was ``expected``."""
        word = _WORD[size].from_address(address)
        if word.value != expected:
            return False
        word.value = desired
        return True

    def fence(self, full: bool) -> None:
        """Order what came before against what follows."""

    def relax(self) -> None:
        """Let others run: a spinning worker calls this."""
        os.sched_yield()


_WORD: dict[int, type[ctypes.c_uint8 | ctypes.c_uint16 | ctypes.c_uint32 | ctypes.c_uint64]] = {
    1: ctypes.c_uint8,
    2: ctypes.c_uint16,
    4: ctypes.c_uint32,
    8: ctypes.c_uint64,
}
world: World = World()
"""Set by a simulation; only the interpreter twins look at it."""

if JIT:
    from llvmlite import ir

    _INT = {1: ir.IntType(8), 2: ir.IntType(16), 4: ir.IntType(32), 8: ir.IntType(64)}

    def _pointer(builder, address, size):
        return builder.inttoptr(address, _INT[size].as_pointer())

    def _widen(builder, value):
        return value if value.type.width == 64 else builder.zext(value, _INT[8])

    def _narrow(builder, value, size):
        return value if size == 8 else builder.trunc(value, _INT[size])

    def _is_word(*values):
        return all(value == types.uint64 for value in values)

    def _load(size, order=None, swapped=False):
        @intrinsic
        def load(typingctx, address):
            if not _is_word(address):
                return None

            def codegen(context, builder, sig, args):
                pointer = _pointer(builder, args[0], size)
                if order:
                    value = builder.load_atomic(pointer, order, size)
                else:
                    value = builder.load(pointer)
                    value.align = 1
                return _widen(builder, builder.bswap(value) if swapped else value)

            return types.uint64(types.uint64), codegen

        return load

    @intrinsic
    def le32_from(typingctx, base, offset):
        """Load the word at ``base + offset``: kept apart, LLVM sees a walk along memory and vectorises the loop."""
        if not _is_word(base, offset):
            return None

        def codegen(context, builder, sig, args):
            i8 = ir.IntType(8)
            start = builder.inttoptr(args[0], i8.as_pointer())
            pointer = builder.gep(start, [args[1]], source_etype=i8)
            value = builder.load(builder.bitcast(pointer, _INT[4].as_pointer()))
            value.align = 1
            return _widen(builder, value)

        return types.uint64(types.uint64, types.uint64), codegen

    def _store(size, order=None, swapped=False):
        @intrinsic
        def store(typingctx, address, value):
            if not _is_word(address, value):
                return None

            def codegen(context, builder, sig, args):
                pointer = _pointer(builder, args[0], size)
                word = _narrow(builder, args[1], size)
                if swapped:
                    word = builder.bswap(word)
                if order:
                    builder.store_atomic(word, pointer, order, size)
                else:
                    builder.store(word, pointer).align = 1
                return context.get_dummy_value()

            return types.void(types.uint64, types.uint64), codegen

        return store

    def _swap(size):
        @intrinsic
        def swap(typingctx, address, expected, desired):
            if not _is_word(address, expected, desired):
                return None

            def codegen(context, builder, sig, args):
                result = builder.cmpxchg(
                    _pointer(builder, args[0], size),
                    _narrow(builder, args[1], size),
                    _narrow(builder, args[2], size),
                    "acq_rel",
                    "acquire",
                )
                return builder.extract_value(result, 1)

            return types.boolean(types.uint64, types.uint64, types.uint64), codegen

        return swap

    def _add(size):
        @intrinsic
        def add(typingctx, address, value):
            if not _is_word(address, value):
                return None

            def codegen(context, builder, sig, args):
                pointer = _pointer(builder, args[0], size)
                before = builder.atomic_rmw("add", pointer, _narrow(builder, args[1], size), "acq_rel")
                return _widen(builder, before)

            return types.uint64(types.uint64, types.uint64), codegen

        return add

    def _fence(order):
        @intrinsic
        def fence(typingctx):
            def codegen(context, builder, sig, args):
                builder.fence(order)
                return context.get_dummy_value()

            return types.void(), codegen

        return fence

    acquire32, acquire64 = _load(4, "acquire"), _load(8, "acquire")
    release32, release64 = _store(4, "release"), _store(8, "release")
    read32, read64 = _load(4), _load(8)
    write32, write64 = _store(4), _store(8)
    swap32, swap64 = _swap(4), _swap(8)

    @inlined
    def replace64(address, before, after):
        """Store ``after`` where ``before`` stands: what it costs to store the same is less than to ask."""
        release64(address, after)

    add64 = _add(8)
    fence_acquire, fence_full = _fence("acquire"), _fence("seq_cst")

    byte, le16, le32, le64 = _load(1), _load(2), _load(4), _load(8)
    be16, be32, be64 = _load(2, swapped=True), _load(4, swapped=True), _load(8, swapped=True)
    set_byte, set_le16, set_le32, set_le64 = _store(1), _store(2), _store(4), _store(8)
    set_be16, set_be32, set_be64 = _store(2, swapped=True), _store(4, swapped=True), _store(8, swapped=True)

    def _prefetch(locality):
        @intrinsic
        def prefetch(typingctx, address):
            def codegen(context, builder, sig, args):
                pointer = ir.IntType(8).as_pointer()
                i32 = ir.IntType(32)
                function = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32]), "llvm.prefetch.p0"
                )
                builder.call(function, [builder.inttoptr(args[0], pointer), i32(0), i32(locality), i32(1)])
                return context.get_dummy_value()

            return types.void(types.uint64), codegen

        return prefetch

    prefetch, prefetch_far = _prefetch(3), _prefetch(2)

    @intrinsic
    def multiply_high(typingctx, a, b):
        """Return the upper 64 bits of the 128-bit product."""

        def codegen(context, builder, sig, args):
            wide = ir.IntType(128)
            product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
            return builder.trunc(builder.lshr(product, wide(64)), _INT[8])

        return types.uint64(types.uint64, types.uint64), codegen

    @intrinsic
    def match_line(typingctx, line, tag):
        """Return a bit for each of the 8 slots at ``line`` whose upper 32 bits are ``tag``; plain vector loads (A2: the
        caller puts ``fence_acquire`` between the last line and its second look at the zone word)."""

        def codegen(context, builder, sig, args):
            vector = ir.VectorType(_INT[8], 8)
            slots = builder.load(builder.inttoptr(args[0], vector.as_pointer()))
            slots.align = 64
            tags = builder.lshr(slots, ir.Constant(vector, [32] * 8))
            wanted = ir.Constant(vector, ir.Undefined)
            for lane in range(8):
                wanted = builder.insert_element(wanted, args[1], ir.IntType(32)(lane))
            equal = builder.icmp_unsigned("==", tags, wanted)
            return builder.zext(builder.bitcast(equal, ir.IntType(8)), _INT[8])

        return types.uint64(types.uint64, types.uint64), codegen

    def _two_words(builder, low, high):
        vector = ir.Constant(ir.VectorType(_INT[8], 2), ir.Undefined)
        for lane, word in enumerate((low, high)):
            vector = builder.insert_element(vector, word, ir.IntType(32)(lane))
        return vector

    def _bytes_at(builder, address, words):
        value = builder.load(builder.inttoptr(address, ir.VectorType(_INT[8], words).as_pointer()))
        value.align = 1
        return value

    def _is_any_bit_set(builder, vector):
        wide = ir.IntType(64 * vector.type.count)
        return builder.icmp_unsigned("!=", builder.bitcast(vector, wide), wide(0))

    @intrinsic
    def differs_16(typingctx, address, mask_low, mask_high, wanted_low, wanted_high):
        """Return whether 16 bytes under a mask are other ones than are wanted; both as two words."""
        if not _is_word(address, mask_low, mask_high, wanted_low, wanted_high):
            return None

        def codegen(context, builder, sig, args):
            differences = builder.xor(_bytes_at(builder, args[0], 2), _two_words(builder, args[3], args[4]))
            return _is_any_bit_set(builder, builder.and_(differences, _two_words(builder, args[1], args[2])))

        return types.boolean(*[types.uint64] * 5), codegen

    @intrinsic
    def differs_32(typingctx, a, b):
        """Return whether 32 bytes at two addresses, read plainly, are not the same."""
        if not _is_word(a, b):
            return None

        def codegen(context, builder, sig, args):
            return _is_any_bit_set(builder, builder.xor(*(_bytes_at(builder, address, 4) for address in args)))

        return types.boolean(types.uint64, types.uint64), codegen

    def _carried(builder, words):
        total, carry = words[0], ir.IntType(1)(0)
        for word in words[1:]:
            first = builder.uadd_with_overflow(total, word)
            second = builder.uadd_with_overflow(builder.extract_value(first, 0), builder.zext(carry, _INT[8]))
            total = builder.extract_value(second, 0)
            carry = builder.or_(builder.extract_value(first, 1), builder.extract_value(second, 1))
        return builder.add(total, builder.zext(carry, _INT[8]))

    @intrinsic
    def add_carrying_3(typingctx, a, b, c):
        """Return the ones' complement sum of words: what is carried out of the top comes in at the bottom.

        The last of them is below 2**63, so that what is carried last carries nothing more.
        """

        def codegen(context, builder, sig, args):
            return _carried(builder, args)

        return types.uint64(*[types.uint64] * 3), codegen

    @intrinsic
    def add_carrying_5(typingctx, a, b, c, d, e):
        """As ``add_carrying_3``, of five."""

        def codegen(context, builder, sig, args):
            return _carried(builder, args)

        return types.uint64(*[types.uint64] * 5), codegen

    @intrinsic
    def lowest_bit(typingctx, mask):
        """Return the index of the lowest set bit; ``mask`` is not 0."""

        def codegen(context, builder, sig, args):
            return builder.cttz(args[0], ir.IntType(1)(1))

        return types.uint64(types.uint64), codegen

    @intrinsic
    def copy(typingctx, destination, source, size):
        """Copy ``size`` bytes; the ranges do not overlap."""

        def codegen(context, builder, sig, args):
            pointer, i1 = ir.IntType(8).as_pointer(), ir.IntType(1)
            function = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [pointer, pointer, _INT[8], i1]),
                "llvm.memcpy.p0.p0.i64",
            )
            builder.call(
                function,
                [builder.inttoptr(args[0], pointer), builder.inttoptr(args[1], pointer), args[2], i1(0)],
            )
            return context.get_dummy_value()

        return types.void(types.uint64, types.uint64, types.uint64), codegen

    def _attributed(*attributes):
        @intrinsic
        def mark(typingctx):
            def codegen(context, builder, sig, args):
                for attribute in attributes:
                    builder.function.attributes.add(attribute)
                return context.get_dummy_value()

            return types.void(), codegen

        return mark

    # first line of a kernel that is called and never inlined; seldom: LLVM keeps it and the way to it off the straight line
    @intrinsic
    def views_stay(typingctx):
        """Tell LLVM that the record ``views`` of this kernel is changed by nobody: its fields need not be loaded again
        after every store through an address."""

        def codegen(context, builder, sig, args):
            for argument in builder.function.args:
                if argument.name == "arg.views":
                    argument.add_attribute("noalias")
            return context.get_dummy_value()

        return types.void(), codegen

    apart = _attributed("noinline")
    seldom = _attributed("noinline", "cold")

    def record_at(dtype):
        """Return a function: address -> the record of ``dtype`` there, whose fields read and write memory plainly."""
        record = from_dtype(dtype)

        @intrinsic
        def at(typingctx, address):
            if not _is_word(address):
                return None

            def codegen(context, builder, sig, args):
                return builder.inttoptr(args[0], context.get_value_type(record))

            return record(types.uint64), codegen

        return at

    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @inlined
    def relax():
        """Let another process have the core."""
        _sched_yield()

    @intrinsic
    def pause(typingctx):
        """Tell the core that this is a spin loop (llvm.x86.sse2.pause, or a yield hint on aarch64)."""
        import platform

        name = "llvm.x86.sse2.pause" if platform.machine() in ("x86_64", "AMD64") else None

        def codegen(context, builder, sig, args):
            if name:
                function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), name)
                builder.call(function, [])
            else:
                builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), codegen

else:

    def _twin_load(size, order):
        return lambda address: u64(world.load(int(address), size, order))

    def _twin_store(size, order):
        mask = (1 << 8 * size) - 1
        return lambda address, value: world.store(int(address), size, int(value) & mask, order)

    def _twin_swap(size):
        return lambda address, expected, desired: world.swap(int(address), size, int(expected), int(desired))

    def _peek(size, byteorder):
        return lambda address: u64(int.from_bytes(ctypes.string_at(int(address), size), byteorder))

    def _poke(size, byteorder):
        mask = (1 << 8 * size) - 1
        return lambda address, value: ctypes.memmove(int(address), (int(value) & mask).to_bytes(size, byteorder), size)

    acquire32, acquire64 = _twin_load(4, ACQUIRE), _twin_load(8, ACQUIRE)
    release32, release64 = _twin_store(4, RELEASE), _twin_store(8, RELEASE)
    read32, read64 = _twin_load(4, PLAIN), _twin_load(8, PLAIN)
    write32, write64 = _twin_store(4, PLAIN), _twin_store(8, PLAIN)
    swap32, swap64 = _twin_swap(4), _twin_swap(8)

    def replace64(address, before, after):
        if before != after:
            release64(address, after)

    def add64(address, value):
        before = read64(address)
        while not swap64(address, before, before + value):
            before = read64(address)
        return before

    byte, le16, le32, le64 = (_peek(size, "little") for size in (1, 2, 4, 8))
    be16, be32, be64 = (_peek(size, "big") for size in (2, 4, 8))
    set_byte, set_le16, set_le32, set_le64 = (_poke(size, "little") for size in (1, 2, 4, 8))
    set_be16, set_be32, set_be64 = (_poke(size, "big") for size in (2, 4, 8))

    def le32_from(base, offset):
        return le32(base + offset)

    def fence_acquire():
        world.fence(False)

    def fence_full():
        world.fence(True)

    def prefetch(address):
        pass

    prefetch_far = prefetch

    def multiply_high(a, b):
        return u64((int(a) * int(b)) >> 64)

    def match_line(line, tag):
        mask = 0
        for lane in range(8):
            if world.load(int(line) + 8 * lane, 8, PLAIN) >> 32 == int(tag):
                mask |= 1 << lane
        return u64(mask)

    def differs_16(address, mask_low, mask_high, wanted_low, wanted_high):
        low, high = le64(address) ^ wanted_low, le64(address + u64(8)) ^ wanted_high
        return bool((low & mask_low) | (high & mask_high))

    def differs_32(a, b):
        return any(read64(a + u64(step)) != read64(b + u64(step)) for step in range(0, 32, 8))

    def _add_carrying(*words):
        total = sum(int(word) for word in words)
        while total >> 64:
            total = (total & (1 << 64) - 1) + (total >> 64)
        return u64(total)

    add_carrying_3 = add_carrying_5 = _add_carrying

    def lowest_bit(mask):
        mask = int(mask)
        return u64((mask & -mask).bit_length() - 1)

    def copy(destination, source, size):
        ctypes.memmove(int(destination), int(source), int(size))

    def apart():
        pass

    def seldom():
        pass

    class _Record(np.record):
        """A record whose fields come before numpy's own attributes of the same name, such as ``flags``."""

        def __getattribute__(self, name):
            fields = np.void.__getattribute__(self, "dtype").fields
            if name not in fields:
                return np.record.__getattribute__(self, name)
            value = self.getfield(*fields[name][:2])
            return value.view((_Record, value.dtype)) if value.dtype.names else value

    def record_at(dtype):
        size, record = dtype.itemsize, np.dtype((_Record, dtype))

        def at(address):
            buffer = (ctypes.c_uint8 * size).from_address(int(address))
            return np.frombuffer(buffer, record)[0]

        return at

    def views_stay():
        pass

    def relax():
        world.relax()

    def pause():
        world.relax()


@inlined
def mix(a, b):
    """Return the two halves of the 128-bit product folded into one word (wyhash's step)."""
    return (a * b) ^ multiply_high(a, b)


@inlined
def set_bytes(address, value, size):
    """Fill ``size`` bytes of private memory with ``value``."""
    for i in range(size):
        set_byte(address + u64(i), value & LOW_8)
