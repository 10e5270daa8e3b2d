"""How kernels become machine code: each is a part, and what Python calls is put together of parts and optimized once.

Numba compiles every function to machine code, links it whole into each caller, and optimizes it there again: a kernel is
compiled as often as there are kernels above it.  Here a kernel that kernels call stays a *part*: a module of LLVM's, as it
comes from numba, and which parts it calls.  Only a kernel that Python calls becomes a *door*: all the parts that it reaches,
each once, and one way in.

Kernels raise nothing.  So a call needs neither a status nor a place for an exception, as numba's do: arguments go in, a
value comes out (``Calls``).  Where numba would raise all the same, the process ends (llvm.trap).

    who calls    what is compiled                    what the cache holds
    a kernel     a part                              parts/<digest>.bc, and the digests of all that it reaches
    Python       a door, of parts as they are now    machine code

Concurrency: numba's compiler lock is held.  Any number of processes may use one cache and add to it: parts are named after
their content and never change, a name means the same function in all processes, and what numba keeps is added to under a
lock.

Source: numba's target extension API (numba.core.target_extension), as numba-cuda uses it; numba 0.68.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from llvmlite import binding, ir
from numba.core import callconv, cgutils, codegen, compiler, cpu, event, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, CPUTarget
from numba.core.runtime.nrt import rtsys
from numba.core.sigutils import normalize_signature
from numba.core.target_extension import CPU, dispatcher_registry, jit_registry, target_registry
from numba.core.typing.templates import make_concrete_template

PARTS = "parts"
"""The folder of a cache that holds parts."""
WRITING = "writing"
"""The file of a cache that is locked while something is added to it."""
OPTIONS: dict[str, Any] = {"nopython": True, "nogil": True, "error_model": "numpy", "_nrt": False}
OPTIONS |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # doors have their own, and nobody takes an address

_NAMES_OF_NUMBA = "_ZN"
_DYNAMIC = "numba.dynamic.globals"
_NO, _YES = ir.IntType(1)(0), ir.IntType(1)(1)


class Calls(callconv.CPUCallConv):
    """The calling convention: arguments go in, a value comes out, and nothing else."""

    def get_function_type(self, restype, argtypes):
        """Return LLVM's type of a kernel."""
        arguments = list(self._get_arg_packer(argtypes).argument_types)
        if restype == types.none:
            return ir.FunctionType(ir.VoidType(), arguments)
        return ir.FunctionType(self.context.data_model_manager[restype].get_return_type(), arguments)

    def decorate_function(self, fn, args, fe_argtypes, noalias=False):
        """Name the arguments."""
        self._get_arg_packer(fe_argtypes).assign_names(fn.args, [f"arg.{name}" for name in args])

    def get_arguments(self, func):
        """Return those arguments that the source knows of: all."""
        return func.args

    def return_value(self, builder, retval):
        """End a kernel with a value, or with the one that stands for nothing."""
        if isinstance(builder.function.ftype.return_type, ir.VoidType):
            builder.ret_void()
        else:
            builder.ret(retval)

    def return_native_none(self, builder):
        """End a kernel that returns nothing."""
        builder.ret_void()

    def set_static_user_exc(self, builder, exc, exc_args=None, loc=None, func_name=None):
        """Note what is to be raised: there is no place for it."""

    def return_user_exc(self, builder, exc, exc_args=None, loc=None, func_name=None):
        """End the process where numba would raise."""
        self._return_errcode_raw(builder, callconv.RETCODE_USEREXC)

    def _return_errcode_raw(self, builder, code, mark=None):
        trap = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.trap")
        builder.call(trap, [])
        builder.unreachable()

    def return_status_propagate(self, builder, status):
        """Hand on what a call has raised: none has."""
        builder.unreachable()

    def raise_error(self, builder, pyapi, status):
        """Raise in Python what a door has raised: none has."""

    def call_function(self, builder, callee, resty, argtys, args, attrs=()):
        """Call a kernel, and say that it went well."""
        arguments = list(self._get_arg_packer(argtys).as_arguments(builder, args))
        value = builder.call(callee, arguments, attrs=tuple(attrs))
        status = callconv.Status(callconv.RETCODE_OK, _YES, _NO, _NO, _NO, _NO, _NO, None)
        if resty == types.none:
            return status, self.context.get_dummy_value()
        return status, self.context.get_returned_value(builder, resty, value)


def part_path(digest: str) -> Path:
    """Return where the cache holds a part."""
    return Path(os.environ["NUMBA_CACHE_DIR"]) / PARTS / f"{digest}.bc"


def write_part(code: bytes) -> str:
    """Put a part into the cache, and return its digest."""
    digest = hashlib.blake2b(code, digest_size=16).hexdigest()
    path = part_path(digest)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        whole = path.with_suffix(f".{os.getpid()}")
        whole.write_bytes(code)
        whole.replace(path)
    return digest


class Library(codegen.JITCodeLibrary):
    """A part; or a door, from the moment that it is finalized."""

    def __init__(self, codegen: Any, name: str) -> None:
        super().__init__(codegen, name)
        self.kept: dict[str, None] = {}
        """Digests: of a part that was put into the cache its own; of one that came from there, all that it reaches."""
        self.is_here = True
        """Whether a part's code is in memory: what came from the cache is read when a door needs it."""

    def add_linking_library(self, library: Any) -> None:
        """Note a part that this one calls."""
        if isinstance(library, Library):
            self._linking_libraries.append(library)
        elif library is not rtsys.library:
            raise NotImplementedError(
                f"{library.name} is no kernel, and is called in another way: kernels cannot call it"
            )

    def add_llvm_module(self, ll_module: Any) -> None:
        """Take code as it is: it is optimized in doors."""
        ll_module.data_layout = self._codegen._data_layout
        self._final_module.link_in(ll_module)

    def reached(self) -> Iterator[Library]:
        """Yield this part and all that it calls, each once."""
        seen, waiting = {self}, [self]
        while waiting:
            part = waiting.pop()
            yield part
            for other in part._linking_libraries:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)

    def finalize(self) -> None:
        """Make a door: link all that it reaches, optimize it, and have it made machine code."""
        self._raise_if_finalized()
        linked: set[str] = set()
        for part in self.reached():
            if part.is_here and part is not self:
                linked.update(part.kept)
                self._link(part._final_module.clone())
        for part in self.reached():
            for digest in part.kept:
                if digest not in linked:
                    linked.add(digest)
                    self._link(binding.parse_bitcode(part_path(digest).read_bytes()))
        self._optimize_final_module()
        self._final_module.verify()
        self._finalize_final_module()

    def _link(self, module: Any) -> None:
        """Link a part; where two processes have compiled the same kernel, either will do."""
        for function in module.functions:
            if not function.is_declaration and function.linkage == binding.Linkage.external:
                function.linkage = "linkonce_odr"
        self._final_module.link_in(module)

    def _verify_declare_only_symbols(self) -> None:
        """Refuse a door that lacks a part: LLVM would end the process."""
        for function in self._final_module.functions:
            if function.is_declaration and function.name.startswith(_NAMES_OF_NUMBA):
                raise AssertionError(f"{self.name} lacks {function.name}")

    def keep(self) -> list[str]:
        """Put a part and all that it reaches into the cache; return their digests."""
        digests: dict[str, None] = {}
        for part in self.reached():
            if not part.kept:
                part.kept = {write_part(part._final_module.as_bitcode()): None}
            digests |= part.kept
        return list(digests)

    @classmethod
    def remembered(cls, codegen: Any, name: str, digests: list[str]) -> Library:
        """Return a part that the cache holds."""
        self = cls(codegen, name)
        self.kept, self.is_here = dict.fromkeys(digests), False
        return self

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """Return a door as the cache holds it: machine code, and the names that it defines."""
        return self.name, "door", (self._get_compiled_object(), [f.name for f in self.get_defined_functions()])

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Library:
        name, _, (code, defined) = state
        self = cls(codegen, name)
        self.enable_object_caching()
        self._set_compiled_object(code)
        self._finalize_final_module()
        codegen._engine._defined_symbols.update(defined)
        return self


class Codegen(codegen.JITCPUCodegen):
    """Numba's code generator, with our libraries."""

    _library_class = Library


class Context(cpu.CPUContext):
    """What numba knows of this processor, with our calls and our libraries."""

    @global_compiler_lock
    def init(self) -> None:
        """Set up, once."""
        super().init()
        self._internal_codegen = Codegen("zonetrack")

    @property
    def call_conv(self) -> Calls:
        """How kernels are called."""
        return Calls(self)

    def add_dynamic_addr(self, builder: Any, intaddr: int, info: str) -> Any:
        """Return what a name that means a kernel is worth: nobody looks at it, and code without addresses can be kept."""
        return self.get_dummy_value() if info == Kernel.__name__ else super().add_dynamic_addr(builder, intaddr, info)

    def post_lowering(self, mod: Any, library: Any) -> None:
        """Leave out numba's runtime: kernels allocate nothing."""


class Target(CPUTarget):
    """Contexts of our own: what numba compiles for others is called otherwise."""

    @cached_property
    def _toplevel_target_context(self) -> Context:
        return Context(self.typing_context, self._target_name)


class Host(CPU):
    """This processor, with our calls: what numba has in Python (``min``) it compiles for kernels as it does them."""


target = Target("zonetrack")


def unique_name(function: Any) -> str:
    """Return what tells a function from others of its name, in whatever process."""
    code = function.__code__
    if function.__closure__ is not None or not os.path.exists(code.co_filename):
        return uuid.uuid4().hex[:16]  # who made it may have made others, of other values
    digest = hashlib.blake2b(digest_size=8)
    for text in (code.co_filename, code.co_firstlineno, code.co_code, code.co_names, code.co_consts):
        digest.update(repr(text).encode())
    return digest.hexdigest()


class Front(compiler.Compiler):
    """Numba's compiler as far as LLVM's module."""

    def __init__(
        self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, locals: Any
    ):
        flags.no_compile = True
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def _compile_bytecode(self) -> Any:
        """Name a kernel as every process does: numba counts, and what two processes kept would bear each other's names."""
        function: Any = self.state.func_id
        function.unique_id = unique_name(function.func)
        return super()._compile_bytecode()


class PartFiles(CompileResultCacheImpl):
    """A part in the cache: what its callers must know of it, and the digests of all that it reaches."""

    def reduce(self, data: Any) -> Any:
        """Put the code where parts are, and return what leads to it."""
        data.fndesc.typemap = data.fndesc.calltypes = None
        return data.library.name, data.library.keep(), data.fndesc, data.environment, data.signature

    def rebuild(self, target_context: Any, reduced_data: Any) -> Any:
        """Return a part, None where some of the code is gone."""
        name, digests, fndesc, environment, signature = reduced_data
        if not all(part_path(digest).exists() for digest in digests):
            return None
        return compiler.compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=object(),
            signature=signature,
            objectmode=False,
            lifted=(),
            fndesc=fndesc,
            library=Library.remembered(target_context.codegen(), name, digests),
            environment=environment,
            reload_init=[],
        )

    def check_cachable(self, data: Any) -> bool:
        """Return whether code holds no address of this process."""
        return not any(name.startswith(_DYNAMIC) for name in map(_name, data.library._final_module.global_variables))


def _name(value: Any) -> str:
    return value.name


class DoorFiles(CompileResultCacheImpl):
    """A door in the cache."""

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        """Return the name of its files: a kernel's part has others."""
        return f"door-{super().get_filename_base(fullname, abiflags)}"


class Shared(FunctionCache):
    """What numba keeps of one kernel; several processes may add to it."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Put a result into the cache: its number and its file by one process at a time."""
        directory = Path(os.environ["NUMBA_CACHE_DIR"])
        directory.mkdir(parents=True, exist_ok=True)  # someone may have thrown it away meanwhile
        with (directory / WRITING).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            super().save_overload(sig, data)


class PartCache(Shared):
    """The parts of one kernel, by the types of its arguments."""

    _impl_class = PartFiles


class DoorCache(Shared):
    """The doors of one kernel, by the types of its arguments."""

    _impl_class = DoorFiles


class Kernel(CPUDispatcher):
    """A compiled function: a door for Python, a part for kernels; each is made when it is first called for."""

    targetdescr = target

    def __init__(
        self, py_func: Any, locals: Any = None, targetoptions: Any = None, pipeline_class: Any = Front
    ) -> None:
        super().__init__(py_func, locals, targetoptions, pipeline_class)
        self.parts: dict[tuple, Any] = {}
        """By types of arguments; those of doors are numba's ``overloads``."""
        self._front: Any = vars(self)["_compiler"]
        self._is_cached = False

    def enable_caching(self) -> None:
        """Keep what is compiled."""
        self._is_cached = True

    @cached_property
    def _part_cache(self) -> Any:
        return PartCache(self.py_func) if self._is_cached else NullCache()

    @cached_property
    def _door_cache(self) -> Any:
        return DoorCache(self.py_func) if self._is_cached else NullCache()

    def _told(self, args: tuple) -> Any:
        """Tell those who listen to numba that something is compiled."""
        return event.trigger_event("numba:compile", data={"dispatcher": self, "args": args, "return_type": None})

    def part(self, args: tuple) -> Any:
        """Return numba's result for some types of arguments, as kernels call it."""
        found = self.parts.get(args)
        if found is not None:
            return found
        with global_compiler_lock, self._compiling_counter:
            found = self._part_cache.load_overload(args, self.targetctx)
            if found is None:
                with self._told(args):
                    found = self._front.compile(args, None)._replace(entry_point=object())
                self._part_cache.save_overload(args, found)
            self.targetctx.insert_user_function(found.entry_point, found.fndesc, [found.library])
            self.parts[args] = found
        return found

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the types of a call from another kernel."""
        pysig, args = self._front.fold_argument_types(args, kws)
        self.part(tuple(args))
        name = self.py_func.__name__
        signatures = [part.signature for part in self.parts.values()]
        return make_concrete_template(f"CallTemplate({name})", key=name, signatures=signatures), pysig, args, {}

    def get_overload(self, sig: Any) -> Any:
        """Return what a call from another kernel finds the part by."""
        return self.parts[tuple(normalize_signature(sig)[0])].entry_point

    def compile(self, sig: Any) -> Any:
        """Return the door for some types of arguments."""
        args = tuple(normalize_signature(sig)[0])
        existing = self.overloads.get(args)
        if existing is not None:
            return existing.entry_point
        with global_compiler_lock:
            door = self._door_cache.load_overload(args, self.targetctx)
            if door is None:
                part = self.part(args)
                with self._told(args):
                    door = self._door_to(part)
                self._door_cache.save_overload(args, door)
            self.add_overload(door)
        return door.entry_point

    def _door_to(self, part: Any) -> Any:
        context: Any = self.targetctx
        library = context.codegen().create_library(part.fndesc.qualname)
        library.enable_object_caching()
        library.add_linking_library(part.library)
        with context.push_code_library(library):
            context.create_cpython_wrapper(library, part.fndesc, part.environment, None, release_gil=True)
        entry_point = context.get_executable(library, part.fndesc, part.environment)
        return part._replace(entry_point=entry_point, library=library)


def of_numba(**_options: Any) -> Callable[[Callable], Kernel]:
    """Decorate what numba has in Python, and a kernel calls."""
    return lambda function: Kernel(function, targetoptions=OPTIONS)


target_registry["zonetrack"] = Host
dispatcher_registry[Host] = Kernel
jit_registry[Host] = of_numba
