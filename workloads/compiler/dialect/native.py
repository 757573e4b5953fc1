"""Runs a lowered module as machine code: MLIR's own tools take it to LLVM, llvmlite compiles it.

Needs ``mlir-opt`` and ``mlir-translate``, from version 16 on (rtl/install-tools.sh installs them); versions before 17
know some operations and attributes by older names.  They get text in the generic form, which all of them read.
"""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, cast

import numpy as np
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.printer import Printer

from simulator.errors import UsageError
from workloads.compiler.dialect import ops
from workloads.compiler.dialect.execute import Printed, check_shapes, function_named, written
from workloads.compiler.dialect.lower import PRINTER
from workloads.compiler.dialect.ops import Array

_VERSIONS = range(30, 15, -1)
_SEGMENTS = "operandSegmentSizes"
_OLD_NAMES = {f"{_SEGMENTS} =": "operand_segment_sizes =", '"arith.maximumf"': '"arith.maxf"'}  # before 17
_TYPED = re.compile(r"(?:\{[^{}*]*\}|\[[^\[\]{}*]*\]|\b(?:float|ptr|i\d+))\*")


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of ``mlir-opt`` and ``mlir-translate``, and their *version*."""

    opt: str
    translate: str
    version: int


def tools() -> Tools:
    """Return the newest tools on the path; UsageError, which says how to get them, if there are none."""
    for suffix in ("", *(f"-{version}" for version in _VERSIONS)):
        opt, translate = shutil.which(f"mlir-opt{suffix}"), shutil.which(f"mlir-translate{suffix}")
        if opt and translate:
            said = re.search(r"version (\d+)", _output([opt, "--version"], ""))
            version = int(said[1]) if said else 0
            if version >= min(_VERSIONS):
                return Tools(opt, translate, version)
    raise UsageError("there is no mlir-opt of version 16 or later: 'apt-get install mlir-16-tools' on Debian or Ubuntu")


def to_llvm(module: ModuleOp) -> str:
    """Return LLVM IR of *module*, which is linalg or loops on memrefs; UsageError if MLIR refuses it."""
    found = tools()
    old = found.version < 17
    memref = f"{'convert' if old else 'finalize'}-memref-to-llvm"
    passes = (
        "func.func(convert-linalg-to-loops),convert-scf-to-cf,convert-arith-to-llvm,"
        f"{memref},convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts"
    )
    lowered = _output([found.opt, f"--pass-pipeline=builtin.module({passes})"], _generic(module, old=old))
    return _opaque(_output([found.translate, "--mlir-to-llvmir"], lowered))


def _opaque(text: str) -> str:
    """LLVM IR *text* with pointers that do not say to what, the only ones that LLVM reads from version 17 on.

    >>> _opaque("%1 = load { float*, i64 }, { float*, i64 }* %0")
    '%1 = load { ptr, i64 }, ptr %0'
    """
    while (found := _TYPED.sub("ptr", text)) != text:
        text = found
    return text


def run_native(module: ModuleOp, *args: Array, function: str = "main", printed: Printed = written) -> list[Array]:
    """Return what *function* of a lowered *module* returns for *args*, run as machine code; else as `run`."""
    found = function_named(module, function)
    check_shapes(found, args)
    if isinstance(found.body.block.last_op, ops.ReturnOp):
        raise UsageError(f"{function} is not lowered yet: to_linalg or to_loops does that")
    results = [_described(cast(Any, each).get_shape()) for each in found.function_type.outputs]
    given = [_descriptor(np.ascontiguousarray(each, np.float32)) for each in args]
    out = _record(results)()
    callback = _PRINT(lambda rank, at: printed(_array(ctypes.cast(at, ctypes.POINTER(_described((0,) * rank)))[0])))
    with _Compiled(to_llvm(module), {PRINTER: callback}) as code:
        pointers = [ctypes.byref(out)] * bool(results) + [ctypes.byref(each) for each in given]
        code.function(f"_mlir_ciface_{function}", len(pointers))(*pointers)
        return [_array(getattr(out, f"result{index}")) for index in range(len(results))]


def _generic(module: ModuleOp, *, old: bool) -> str:
    """*module* in the generic form, properties among the attributes, its functions callable from C."""
    copy = module.clone()
    for op in copy.walk():
        if isinstance(op, func.FuncOp) and op.body.blocks:
            op.attributes["llvm.emit_c_interface"] = UnitAttr()
        if op.dialect_name() == arith.Arith.name:
            op.properties.pop("fastmath", None)  # none, which is what is assumed
        op.attributes.update(op.properties)
        op.properties.clear()
    text = StringIO()
    Printer(text, print_generic_format=True).print_op(copy)
    found = text.getvalue()
    for new, name in _OLD_NAMES.items() if old else ():
        found = found.replace(new, name)
    return found


def _output(command: Sequence[str], given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{command[0]}: {done.stderr.splitlines()[0] if done.stderr else done.returncode}")
    return done.stdout


class _Compiled:
    """LLVM IR as machine code, for as long as it is entered; *symbols* are what it calls."""

    def __init__(self, text: str, symbols: dict[str, Any]) -> None:
        from llvmlite import binding  # type: ignore[import-untyped]  # noqa: PLC0415  loads LLVM

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        for name, callback in symbols.items():
            binding.add_symbol(name, ctypes.cast(callback, ctypes.c_void_p).value)
        machine = binding.Target.from_default_triple().create_target_machine(opt=2)
        self._engine = binding.create_mcjit_compiler(binding.parse_assembly(text), machine)

    def __enter__(self) -> "_Compiled":
        self._engine.finalize_object()
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    def function(self, name: str, count: int) -> Callable[..., None]:
        """The function called *name*, which takes *count* pointers."""
        address = self._engine.get_function_address(name)
        return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address)


_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)


def _described(shape: Sequence[int]) -> type[ctypes.Structure]:
    """MLIR's descriptor of a memref with as many axes as *shape* has."""
    axes = ctypes.c_int64 * len(shape)
    fields = [("allocated", ctypes.c_void_p), ("aligned", ctypes.POINTER(ctypes.c_float)), ("offset", ctypes.c_int64)]
    return type("Memref", (ctypes.Structure,), {"_fields_": [*fields, ("sizes", axes), ("strides", axes)]})


def _record(types: Sequence[type[ctypes.Structure]]) -> type[ctypes.Structure]:
    return type("Results", (ctypes.Structure,), {"_fields_": [(f"result{i}", each) for i, each in enumerate(types)]})


def _descriptor(values: Array) -> ctypes.Structure:
    """The descriptor of *values*, which the caller keeps."""
    axes = ctypes.c_int64 * values.ndim
    data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    strides = axes(*(each // values.itemsize for each in values.strides))
    made = _described(values.shape)(values.ctypes.data, data, 0, axes(*values.shape), strides)
    made.values = values  # lives as long as the descriptor
    return made


def _array(buffer: Any) -> Array:
    """A copy of what a descriptor shows."""
    shape = tuple(buffer.sizes)
    if not shape:
        return np.array(buffer.aligned[buffer.offset], np.float32)
    flat = np.ctypeslib.as_array(buffer.aligned, (buffer.offset + sum((n - 1) * s for n, s in zip(
        shape, buffer.strides, strict=True)) + 1,))  # fmt: skip
    strides = [4 * each for each in buffer.strides]
    return np.lib.stride_tricks.as_strided(flat[buffer.offset :], shape, strides).copy()
