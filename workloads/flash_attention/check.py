"""``check``: the operator against fp64 on this machine, by whichever implementation it has."""

from dataclasses import dataclass

import torch

from workloads.flash_attention import reference
from workloads.flash_attention.operator import attention_with_logsum, chosen, unavailable

SHAPES = (
    (1, 2, 2, 40, 40, 64, True),
    (1, 4, 2, 20, 33, 96, True),
    (1, 2, 1, 18, 50, 128, False),
    (1, 8, 2, 1, 77, 64, True),
)
LIMIT = 4e-3  # times the largest value of the reference, at least 1, in fp16


@dataclass(frozen=True, slots=True)
class Checked:
    """Largest difference from fp64 of one shape: of the output, the log-sums and the three gradients."""

    shape: tuple[int, int, int, int, int, int, bool]
    errors: dict[str, float]
    ok: bool


def where() -> tuple[torch.device, str]:
    """Return the device to check on and a sentence that says what runs there, and if it is the reference, why."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    why = unavailable(device)
    if why is None:
        return device, f"Triton kernels on {'the GPU' if device.type == 'cuda' else 'the CPU, interpreted'}"
    return device, f"reference in torch: {why}"


def run(device: torch.device) -> list[Checked]:
    """Check each of `SHAPES`: batch, query heads, key heads, queries, keys, head size, causal."""
    return [_one(shape, device) for shape in SHAPES]


def _one(shape: tuple[int, int, int, int, int, int, bool], device: torch.device) -> Checked:
    batch, heads, kv_heads, q_len, kv_len, head, causal = shape
    made = torch.Generator(device).manual_seed(q_len)
    sizes = ((heads, q_len), (kv_heads, kv_len), (kv_heads, kv_len), (heads, q_len))
    q, k, v, grad = (
        torch.randn(batch, count, length, head, generator=made, device=device).half() for count, length in sizes
    )
    leaves = [each.requires_grad_() for each in (q, k, v)]
    backend = "reference" if unavailable(device) else chosen(q, "triton")
    out, logsum = attention_with_logsum(q, k, v, causal, backend=backend)
    grads = torch.autograd.grad(out, leaves, grad)
    exact = (
        *reference.plain(q, k, v, causal, head**-0.5),
        *reference.plain_backward(grad, q, k, v, causal, head**-0.5),
    )
    pairs = zip(("out", "logsum", "dq", "dk", "dv"), (out, logsum, *grads), exact, strict=True)
    errors, ok = {}, True
    for name, got, wanted in pairs:
        errors[name] = float((got.detach().double() - wanted.detach()).abs().max())
        ok = ok and errors[name] <= LIMIT * max(1.0, float(wanted.detach().abs().max()))
    return Checked(shape, errors, ok)
