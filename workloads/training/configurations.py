"""The runs that are measured on a device and predicted for it: one thing changes at a time."""

from dataclasses import replace

from workloads.training.config import Run

_BASE = Run(
    model="base", seq=1024, batch=32, precision="bf16", device="cuda", lr=6e-4, warmup=100, eval_every=500,
    save_every=1000, log_every=20, eval_rows=256,
)  # fmt: skip
_GPT2 = replace(_BASE, model="gpt2", vocab=50304)  # the published 50257, up to a multiple of 64

CONFIGURATIONS: dict[str, Run] = {
    "base, 32 rows": _BASE,
    "base, 32 rows, checkpointing": replace(_BASE, checkpointing=True),
    "base, 8 rows": replace(_BASE, batch=8),
    "base, 4 x 8 rows": replace(_BASE, batch=8, accumulate=4),
    "base, 8 rows, fp32": replace(_BASE, batch=8, precision="fp32"),
    "gpt2, 16 rows": replace(_GPT2, batch=16),
    "gpt2-medium, 16 rows, checkpointing": replace(_GPT2, model="gpt2-medium", batch=16, checkpointing=True),
}
LONG_RUN = "base, 32 rows"
