"""The torch operators ``xpusim_flash::forward`` and ``::backward``, and the function that calls them.

They have shape functions, so that they run on meta tensors, and are tied together for autograd.  Where tensors are on a
GPU and Triton is there they run its kernels; else the reference.
"""

import os
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from simulator.errors import UsageError
from workloads.flash_attention import reference
from workloads.flash_attention.checks import check, check_kernels, check_scale

BACKENDS = ("auto", "triton", "reference")


def attention(
    query: Tensor, key: Tensor, value: Tensor, causal: bool = False, scale: float | None = None, backend: str = "auto"
) -> Tensor:
    """Return softmax(query key^T x scale) value, [batch, heads, queries, head size], in the layout of *query*.

    key, value  may have fewer heads: query heads share them in order (grouped queries).
    causal      the last query stands on the last key and sees no later one.
    scale       of the scores; by default one over the root of the head size.
    backend     ``triton`` for the kernels, ``reference`` for the algorithm in torch, ``auto`` for what the tensors'
                device has.  Gradients flow in either.

    Raises `UsageError` for what does not fit together or what the wanted backend cannot do; the message says what can.
    """
    return attention_with_logsum(query, key, value, causal, scale, backend)[0]


def attention_with_logsum(
    query: Tensor, key: Tensor, value: Tensor, causal: bool = False, scale: float | None = None, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Return what `attention` does, and the log-sum-exp of each row of scores: [batch, heads, queries], no gradient."""
    check(query, key, value, causal)
    scale = query.shape[3] ** -0.5 if scale is None else float(scale)
    check_scale(scale)
    out, logsum = forward(query, key, value, causal, scale, chosen(query, backend))
    return out, logsum


def chosen(query: Tensor, backend: str = "auto") -> str:
    """Return ``triton`` or ``reference`` for tensors like *query*; raises `UsageError` if *backend* cannot be had."""
    if backend not in BACKENDS:
        raise UsageError(f"attention: no backend '{backend}'; backends: {', '.join(BACKENDS)}")
    if backend == "reference" or (backend == "auto" and query.device.type == "cpu"):
        return "reference"
    if query.device.type == "meta":
        return "triton"  # what the program would run on a GPU
    missing = unavailable(query.device)
    if missing is None:
        check_kernels(query)
        if query.device.type == "cpu" and query.dtype == torch.bfloat16:
            raise UsageError("attention: Triton's interpreter multiplies bf16 as if it were integers; use fp16 with it")
        return "triton"
    if backend == "auto":
        return "reference"
    raise UsageError(f"attention: {missing}; backend='reference' computes the same without")


def unavailable(device: torch.device) -> str | None:
    """Say why the kernels cannot run on *device*, or return None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed (it exists for Linux only: pip install 'xpusim[triton]')"
    if device.type != "cuda" and not interpreted():
        return f"the Triton kernels need a CUDA device, and the tensors are on '{device.type}'"
    return None


def interpreted() -> bool:
    """Whether Triton was asked to interpret kernels on the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@torch.library.custom_op("xpusim_flash::forward", mutates_args=())
def forward(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, backend: str
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp; arguments as `attention` has checked and completed them."""
    if backend == "reference":
        return reference.attention(query, key, value, causal, scale)
    from workloads.flash_attention import launch  # noqa: PLC0415  needs Triton

    return launch.forward(query, key, value, causal, scale)


@torch.library.custom_op("xpusim_flash::backward", mutates_args=())
def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsum: Tensor, causal: bool, scale: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key and value."""
    if backend == "reference":
        return reference.backward(grad, query, key, value, out, logsum, causal, scale)
    from workloads.flash_attention import launch  # noqa: PLC0415  needs Triton

    return launch.backward(grad, query, key, value, out, logsum, causal, scale)


@forward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float, backend: str) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return torch.empty_like(query), query.new_empty(query.shape[:3], dtype=wide)


@backward.register_fake
def _(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsum: Tensor, causal: bool, scale: float,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, *ctx.settings = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # else a tensor of zeros is made for the log-sums
    ctx.save_for_backward(query, key, value, *output)


def _differentiate(ctx: Any, grad: Tensor | None, _logsum: None) -> tuple[Tensor | None, ...]:
    if grad is None:  # nobody asks for the gradient of this output
        return (None,) * 6
    query, key, value, out, logsum = ctx.saved_tensors
    return (*backward(grad, query, key, value, out, logsum, *ctx.settings), None, None, None)


forward.register_autograd(_differentiate, setup_context=_keep)
