"""Runs a step of the GPU ladder on torch tensors: checks them, chooses the grid.  Needs torch and Triton only."""

from typing import Any

import torch

from workloads.gemm.steps import ITEM_BYTES, Config, Step

TORCH_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_NAMES = {dtype: name for name, dtype in TORCH_TYPES.items()}
_WIDEST = 16  # bytes: rows that the copy unit reads have to begin at multiples of it
_SMALLEST_DOT = 16  # sides of the smallest product that the matrix unit takes
_INTERPRETED_PROGRAMS = 3  # of a persistent kernel without a device: few, so that each takes several tiles


def checked(a: torch.Tensor, b: torch.Tensor) -> tuple[int, int, int, str]:
    """Return m, n, k and the name of the type of ``a [m, k] @ b [k, n]``.

    Raises ValueError with what was given if the two cannot be multiplied by the ladder.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply {list(a.shape)} by {list(b.shape)}: wanted [m, k] and [k, n]")
    if 0 in a.shape or 0 in b.shape:
        raise ValueError(f"nothing to multiply: {list(a.shape)} by {list(b.shape)}; every size has to be at least 1")
    if a.dtype is not b.dtype or a.dtype not in _NAMES:
        raise ValueError(
            f"cannot multiply {a.dtype} by {b.dtype}: wanted the same type twice, of {', '.join(map(str, _NAMES))}"
        )
    if a.device != b.device:
        raise ValueError(f"operands are on {a.device} and {b.device}: wanted one device")
    for side, operand in (("left", a), ("right", b)):
        if operand.stride(1) != 1:
            raise ValueError(
                f"the {side} operand has strides {tuple(operand.stride())}: wanted elements of a row side by side; "
                "call .contiguous() first"
            )
    return a.shape[0], b.shape[1], a.shape[1], _NAMES[a.dtype]


def multiply(
    a: torch.Tensor, b: torch.Tensor, step: Step, config: Config | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``a @ b`` computed by *step*, cut as *config* says or else as the step does, in *out* if given.

    a [m, k] and b [k, n] are bf16, fp16 or fp32 on one device, elements of a row side by side; so is the result.
    Raises ValueError where operands or configuration do not suit the step.
    """
    m, n, k, dtype = checked(a, b)
    cut = (config or step.config).fitting(dtype)
    c = torch.empty((m, n), dtype=a.dtype, device=a.device) if out is None else out
    _RUN[step.kernel](a, b, c, (m, n, k), cut, dtype)
    return c


def programs(c: torch.Tensor, tiles: int) -> int:
    """Programs of a persistent kernel: one a core of the device of *c*, at most one a tile."""
    cores = torch.cuda.get_device_properties(c.device).multi_processor_count if c.is_cuda else _INTERPRETED_PROGRAMS
    return min(int(cores), tiles)


def _tiles(m: int, n: int, cut: Config) -> int:
    return -(-m // cut.block_m) * -(-n // cut.block_n)


def _elements(a: Any, b: Any, c: Any, sizes: tuple[int, int, int], cut: Config, _: str) -> None:
    from workloads.gemm import kernels  # noqa: PLC0415  only Linux has Triton

    m, n, k = sizes
    kernels.gemm_elements[(_tiles(m, n, cut),)](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), cut.block_m, cut.block_n,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip


def _blocked(kernel: str, a: Any, b: Any, c: Any, sizes: tuple[int, int, int], cut: Config, dtype: str) -> None:
    from workloads.gemm import kernels  # noqa: PLC0415  only Linux has Triton

    _check_tile(cut)
    m, n, k = sizes
    tiles = _tiles(m, n, cut)
    grid = programs(c, tiles) if kernel == "gemm_persistent" else tiles
    even = m % cut.block_m == 0 and n % cut.block_n == 0 and k % cut.block_k == 0
    getattr(kernels, kernel)[(grid,)](
        a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), cut.block_m, cut.block_n, cut.block_k, cut.group,
        even, _precision(dtype), not c.is_cuda, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip


def _tiled(a: Any, b: Any, c: Any, sizes: tuple[int, int, int], cut: Config, dtype: str) -> None:
    _blocked("gemm_tiled", a, b, c, sizes, cut, dtype)


def _persistent(a: Any, b: Any, c: Any, sizes: tuple[int, int, int], cut: Config, dtype: str) -> None:
    _blocked("gemm_persistent", a, b, c, sizes, cut, dtype)


def _descriptor(a: Any, b: Any, c: Any, sizes: tuple[int, int, int], cut: Config, dtype: str) -> None:
    import triton.language as tl  # noqa: PLC0415  only Linux has Triton
    from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: PLC0415

    from workloads.gemm import kernels  # noqa: PLC0415

    _check_tile(cut)
    for name, each in (("left operand", a), ("right operand", b), ("result", c)):
        if each.stride(0) * ITEM_BYTES[dtype] % _WIDEST or each.data_ptr() % _WIDEST:
            raise ValueError(
                f"rows of the {name} are {each.stride(0) * ITEM_BYTES[dtype]} bytes apart: the step 'descriptor' needs "
                f"rows that begin at multiples of {_WIDEST} bytes; use 'persistent'"
            )
    m, n, k = sizes
    stored = cut.block_n // 2 if cut.split_store else cut.block_n
    kernels.gemm_descriptor[(programs(c, _tiles(m, n, cut)),)](
        TensorDescriptor.from_tensor(a, [cut.block_m, cut.block_k]),
        TensorDescriptor.from_tensor(b, [cut.block_k, cut.block_n]),
        TensorDescriptor.from_tensor(c, [cut.block_m, stored]),
        m, n, k, cut.block_m, cut.block_n, cut.block_k, cut.group, cut.split_store,
        {"bf16": tl.bfloat16, "fp16": tl.float16, "fp32": tl.float32}[dtype], _precision(dtype), not c.is_cuda,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip


_RUN = {"elements": _elements, "tiled": _tiled, "persistent": _persistent, "descriptor": _descriptor}


def _check_tile(cut: Config) -> None:
    for name in ("block_m", "block_n", "block_k"):
        size = getattr(cut, name)
        if size < _SMALLEST_DOT or size & (size - 1):
            raise ValueError(f"{name} is {size}: wanted a power of 2 of at least {_SMALLEST_DOT}")


def _precision(dtype: str) -> str:
    """What Triton calls the arithmetic: fp32 stays fp32, it would take tf32 otherwise."""
    return "ieee" if dtype == "fp32" else "tf32"
