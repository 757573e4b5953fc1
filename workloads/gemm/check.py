"""Every step of both ladders against fp64 at sizes that no tile divides."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from workloads.gemm.cpu import CPU_LADDER
from workloads.gemm.cpu import multiply as cpu_multiply
from workloads.gemm.steps import DTYPES, LADDER
from workloads.gemm.traffic import Sizes

ODD = ((1, 1, 1), (17, 33, 65), (40, 72, 24))
TINY = ((1, 1, 1), (5, 3, 7), (18, 8, 24))  # for kernels of one element a thread, which an interpreter walks through
LIMITS = {"bf16": 1e-2, "fp16": 2e-3, "fp32": 1e-5}  # of ||out - wanted|| / ||wanted||


class Outcome(NamedTuple):
    """One step at one size: relative error, or why the step refuses the size."""

    step: str
    dtype: str
    sizes: Sizes
    error: float | None
    refused: str = ""

    @property
    def right(self) -> bool:
        """Whether the product is within the limit of its type, or was refused in words."""
        return bool(self.refused) if self.error is None else self.error < LIMITS[self.dtype]


def triton_missing() -> str:
    """Return why Triton's kernels cannot run here, in words for a user; empty if they can."""
    if find_spec("triton") is None:
        return (
            "Triton is not installed (pip install 'xpusim[triton]'; there is none for macOS): only the CPU ladder runs"
        )
    return ""


def gpu_ladder(device: str, dtypes: Sequence[str] = DTYPES) -> Iterator[Outcome]:
    """Run every Triton step on *device*; on ``cpu`` the environment has to hold ``TRITON_INTERPRET=1``."""
    import torch  # noqa: PLC0415  takes a second to load

    from workloads.gemm.launch import TORCH_TYPES, multiply  # noqa: PLC0415  needs torch

    for dtype in dtypes:
        for step in LADDER:
            for m, n, k in TINY if step.kernel == "elements" and device == "cpu" else ODD:
                torch.manual_seed(m + n + k)
                a = torch.randn(m, k).to(device, TORCH_TYPES[dtype])
                b = torch.randn(k, n).to(device, TORCH_TYPES[dtype])
                out = torch.full((m, n), float("nan"), dtype=a.dtype, device=device)
                try:
                    multiply(a, b, step, out=out)
                except ValueError as refusal:
                    yield Outcome(step.name, dtype, (m, n, k), None, str(refusal))
                    continue
                wanted = a.double() @ b.double()
                yield Outcome(step.name, dtype, (m, n, k), float((out.double() - wanted).norm() / wanted.norm()))


def cpu_ladder() -> Iterator[Outcome]:
    """Run every CPU step in fp32 and fp16."""
    rng = np.random.default_rng(7)
    for dtype, kind in (("fp32", np.float32), ("fp16", np.float16)):
        for step in CPU_LADDER:
            for m, n, k in (*ODD, (129, 300, 200)):
                a, b = rng.standard_normal((m, k)).astype(kind), rng.standard_normal((k, n)).astype(kind)
                wanted = a.astype(np.float64) @ b.astype(np.float64)
                error = np.linalg.norm(cpu_multiply(a, b, step) - wanted) / np.linalg.norm(wanted)
                yield Outcome(step.name, dtype, (m, n, k), float(error))
