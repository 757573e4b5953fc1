"""From a module to its one kernel: trace, apply the rule, generate, compile, and check against the module."""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from frontends import trace
from hw_models import load_chip
from simulator.costs import compute_model
from simulator.dtypes import DType
from simulator.errors import TraceError, UsageError
from simulator.graph import OperatorGraph, Role
from simulator.passes.prices import Prices
from workloads.compiler.fusion.chain import Chain, chain_of
from workloads.compiler.fusion.generate import numba_source, triton_source
from workloads.compiler.fusion.operations import OPERATIONS
from workloads.compiler.fusion.rule import members

_TYPES = {torch.float32: DType.FP32, torch.bfloat16: DType.BF16}
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7}  # bf16: two steps of its 8 bits, which eager takes often


@dataclass(frozen=True, slots=True)
class Fused:
    """A compiled chain.

    graph   the program before the rule; *sources* its storages in the order of ``chain.inputs``.
    source  the numba module that runs here; *triton* the one for a GPU.
    """

    chain: Chain
    graph: OperatorGraph
    source: str
    triton: str
    order: tuple[int, ...]
    kernel: Callable[..., None] = field(repr=False)

    def __call__(self, *args: torch.Tensor) -> torch.Tensor:
        """Return what the module returns, in one pass over memory; *args* on the CPU."""
        out = torch.empty(self.chain.output.shape, dtype=args[0].dtype)
        self.into(out, *args)
        return out

    def into(self, out: torch.Tensor, *args: torch.Tensor) -> None:
        """Write the result to *out*."""
        for index, tensor in zip(self.order, self.chain.inputs, strict=True):
            if tuple(args[index].shape) != tensor.shape or args[index].dtype != args[0].dtype:
                raise UsageError(
                    f"the kernel was generated for {list(tensor.shape)} {tensor.dtype} as argument {index}; "
                    f"got {list(args[index].shape)} {args[index].dtype}"
                )
        if out.numel():
            self.kernel(*(self._array(args[index]) for index in self.order), self._array(out))

    def _array(self, tensor: torch.Tensor) -> Any:
        """The same memory as numpy sees it, in rows of the loop; bf16 as the integers that it is stored as."""
        flat = tensor.detach().contiguous()
        plain = flat.view(torch.int16) if flat.dtype is torch.bfloat16 else flat
        return plain.numpy().reshape(-1, self.chain.columns)


def fuse(module: nn.Module, *args: torch.Tensor) -> Fused:
    """Return the kernel of a module that is one chain of known pointwise operators on its arguments.

    Raises UsageError for types that it has no kernel for, TraceError if the module is no such chain, or if the kernel
    does not give what the module gives.
    """
    kinds = {each.dtype for each in args}
    if len(kinds) != 1 or not kinds <= _TYPES.keys():
        raise UsageError(
            f"arguments of {', '.join(sorted(str(each) for each in kinds)) or 'no type'}; "
            "wanted all torch.float32 or all torch.bfloat16"
        )
    # on the meta device, so that arguments that share memory here are still two arguments
    graph = trace(module, [torch.empty_like(each, device="meta") for each in args])
    found = members(graph, Prices(compute_model("roofline", load_chip("h200"))))
    if len(found) != 1 or len(found[0]) != len(graph):
        raise TraceError(
            f"{type(module).__name__} is {len(graph)} operators ({', '.join(op.target for op in graph)}), not one "
            f"chain of these on whole tensors: {', '.join(OPERATIONS)}"
        )
    chain = chain_of(found[0])
    source = numba_source(chain)
    kernel = Fused(chain, graph, source, triton_source(chain), _order(graph, chain), load(source).kernel)
    check(kernel, module, args)
    return kernel


def check(kernel: Fused, module: nn.Module, args: Sequence[torch.Tensor]) -> float:
    """Return the largest error against *module* on random numbers, relative to 1 + |x|; TraceError if it is too large.

    The graph does not hold arguments such as the factor of an addition: this is what finds a chain that has one.
    """
    made = torch.Generator().manual_seed(0)
    given = [torch.randn(each.shape, generator=made).to(each.dtype) for each in args]
    with torch.no_grad():
        wanted = module(*(each.double() for each in given))
    got = kernel(*given).double()
    if not wanted.numel():
        return 0.0
    error = float(((got - wanted).abs() / (1 + wanted.abs())).nan_to_num(0.0).max())
    if error > _TOLERANCE[args[0].dtype]:
        raise TraceError(
            f"the kernel of {kernel.chain.text} is off by {error:.1e} from {type(module).__name__}: an argument that "
            "the graph does not hold, such as alpha of an addition"
        )
    return error


@cache
def load(source: str) -> Any:
    """Return the module of *source*, compiled once; from a file, because Triton reads the source of its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "generated.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("generated", path)
        assert spec is not None  # it is a Python file
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found


def _order(graph: OperatorGraph, chain: Chain) -> tuple[int, ...]:
    """The argument that each input of the chain is."""
    given = [each.id for each in graph.storages if each.role is Role.INPUT]
    unknown = [graph.storages[t.storage].name for t in chain.inputs if t.storage not in given]
    if unknown:
        raise TraceError(f"{', '.join(unknown)}: parameters of the module; wanted all tensors as arguments")
    return tuple(given.index(tensor.storage) for tensor in chain.inputs)
