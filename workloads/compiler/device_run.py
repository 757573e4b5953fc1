"""The generated Triton kernels of lab 9 on a CUDA device: ``python -m workloads.compiler device-run --out FOLDER``.

Each example at several shapes: right against fp64, then timed beside PyTorch's own kernels one by one and beside the
kernel that torch.compile makes of the same module.  Writes ``lab09_h200.json`` after each shape.
"""

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simulator.errors import UsageError
from simulator.output import check_writable, write_text
from workloads.compiler.fusion.examples import Modulated, SwiGLU
from workloads.compiler.fusion.fused import Fused, fuse, load
from workloads.measure.clock import copies_needed, is_cold, kernel_us, say

FILE = "lab09_h200.json"
SHAPES = ((1, 14336), (64, 14336), (512, 14336), (4096, 14336), (4095, 11007))  # the last: no multiple of a block
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LIMITS = {"fp32": 1e-5, "bf16": 2.0**-7}  # of |out - wanted| / (1 + |wanted|), largest
_MOST_COPIES = 64
Facts = dict[str, Any]


def measure(folder: Path) -> int:
    """Measure every example at every shape and write FILE to *folder*; returns 1 if one is off by more than its limit.

    UsageError where there is no device, OutputError where nothing can be written.
    """
    if not torch.cuda.is_available():
        raise UsageError("device-run needs a CUDA device; this machine has none ('xpusim lab 9' measures on the CPU)")
    path = folder / FILE
    check_writable(path)
    facts: Facts = {"provenance": provenance(), "kernels": {}, "rows": []}
    for module in (SwiGLU(), Modulated()):
        for dtype in DTYPES:
            for row in rows(module, dtype, facts["kernels"]):
                facts["rows"].append(row)
                write_text(path, json.dumps(facts, indent=1) + "\n")
                say(f"{row['module']} {row['dtype']} {row['shape']}: {row}")
    return 0 if all(row["error"] < LIMITS[row["dtype"]] for row in facts["rows"]) else 1


def rows(module: nn.Module, dtype: str, kernels: Facts) -> Iterator[Facts]:
    """Yield one row a shape; *kernels* takes the source of the kernel and its hash."""
    for shape in SHAPES:
        torch._dynamo.reset()  # after a few shapes of one module it gives up and runs the module as it is
        compiled = torch.compile(module, dynamic=False)
        args = arguments(module, shape, dtype)
        made = fuse(module, *(torch.empty_like(each, device="cpu") for each in args))
        name = f"{type(module).__name__} {dtype} {'x'.join(map(str, shape))}"
        kernels[name] = {"sha256": hashlib.sha256(made.triton.encode()).hexdigest(), "source": made.triton}
        nbytes = sum(tensor.nbytes for tensor in (*made.chain.inputs, made.chain.output))
        copies = copies_needed(nbytes, _MOST_COPIES)
        sets = [arguments(module, shape, dtype) for _ in range(copies)]
        with torch.no_grad():
            yield {
                "module": type(module).__name__,
                "dtype": dtype,
                "shape": list(shape),
                "bytes": nbytes,
                "cold": is_cold(nbytes, copies),
                "error": _error(run(made, args, float("nan")), module(*(each.double() for each in args))),
                "eager_us": kernel_us([_call(module, each) for each in sets]),
                "triton_us": kernel_us([_call(lambda *a, m=made: run(m, a), each) for each in sets]),
                "torch_compile_us": kernel_us([_call(compiled, each) for each in sets]),
            }


def arguments(module: nn.Module, shape: tuple[int, int], dtype: str) -> list[Tensor]:
    """Return random operands of *module* on the device."""
    own = [shape] * 3 if isinstance(module, SwiGLU) else [shape, shape[1:], shape[1:]]
    return [torch.randn(each, device="cuda").to(DTYPES[dtype]) for each in own]


def run(made: Fused, args: Sequence[Tensor], poison: float | None = None) -> Tensor:
    """Return what the generated Triton kernel gives; *poison* is written first where it should write."""
    out = torch.empty(made.chain.output.shape, dtype=args[0].dtype, device=args[0].device)
    if poison is not None:
        out.fill_(poison)
    load(made.triton).launch(*(args[index] for index in made.order), out)
    return out


def _call(function: Callable[..., object], args: Sequence[Tensor]) -> Callable[[], object]:
    return lambda: function(*args)


def _error(got: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, relative to 1 + |wanted|; infinite where an element was not written."""
    off = (got.double() - wanted).abs() / (1 + wanted.abs())
    return float(off.nan_to_num(float("inf")).max())


def provenance() -> Facts:
    """Return what the numbers belong to."""
    fields = "name,driver_version,clocks.max.sm,clocks.max.mem,power.limit"
    gpu = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "command": "python -m workloads.compiler device-run --out docs/data",
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": dict(zip(fields.split(","), (each.strip() for each in gpu.split(",")), strict=False)),
        "torch": torch.__version__,
        "triton": version("triton"),
        "method": "microseconds of one call inside a CUDA graph, median of 15 replays, operands in turn",
    }
