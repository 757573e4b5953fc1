"""One description of a training run; the command line overrides its fields one by one."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from simulator.errors import UsageError, nearest
from workloads.gpt.config import Config
from workloads.gpt.presets import preset, preset_names
from workloads.training.tokens import VOCABULARY

PRECISIONS = ("fp32", "bf16")
STAGES = ("pretrain", "sft")


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that decides a run; equal runs on one machine give equal parameters, bit for bit, on the CPU.

    A row is *seq* tokens; an optimizer step sees batch x accumulate rows.
    """

    stage: str = _option("pretrain", "pretrain or sft")
    model: str = _option("tiny", "tiny, small, base, or a preset of workloads.gpt")
    vocab: int = _option(VOCABULARY, "rows of the embedding; bytes need 260")
    seq: int = _option(128, "tokens of a row")
    batch: int = _option(16, "rows of one forward and backward pass")
    accumulate: int = _option(1, "passes whose gradients are added up before a step")
    steps: int = _option(200, "optimizer steps of the whole run")
    lr: float = _option(1e-3, "highest learning rate")
    lr_end: float = _option(0.1, "learning rate at the end, as a part of the highest")
    warmup: int = _option(20, "steps in which the learning rate rises")
    weight_decay: float = _option(0.1, "of matrices; gains and biases have none")
    beta1: float = _option(0.9, "of AdamW")
    beta2: float = _option(0.95, "of AdamW")
    clip: float = _option(1.0, "largest norm of all gradients together")
    precision: str = _option("fp32", "fp32, or bf16: autocast over fp32 parameters")
    checkpointing: bool = _option(False, "keep only the inputs of blocks and compute the rest again")
    device: str = _option("cpu", "cpu, mps or cuda")
    seed: int = _option(0, "of the weights and of the order of rows")
    deterministic: bool = _option(False, "refuse kernels whose result depends on timing (cuda)")
    save_every: int = _option(50, "steps between checkpoints")
    eval_every: int = _option(50, "steps between evaluations")
    eval_rows: int = _option(64, "rows of the validation text in one evaluation")
    log_every: int = _option(10, "steps between lines of the log")
    data: str = _option("stdlib", "stdlib: sources and documentation of the running Python; or a file or folder")
    limit: int = _option(0, "bytes of text to use at most (0: all)")

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.accumulate * self.seq


_TINY = Config(
    name="tiny", source="GPT-2 in small, made up for this lab",
    layers=4, width=128, heads=4, kv_heads=4, head_dim=32, ffn=512, vocab=VOCABULARY, context=256,
    norm="layer", positions="learned", gated=False, bias=True, fused_qkv=True, tied=True,
)  # fmt: skip
_SIZES = {
    "tiny": _TINY,
    "small": replace(
        _TINY, name="small", layers=6, width=384, heads=6, kv_heads=6, head_dim=64, ffn=1536, context=512
    ),
    "base": replace(
        _TINY, name="base", source="GPT-2 (124M) over bytes", layers=12, width=768, heads=12, kv_heads=12, head_dim=64,
        ffn=3072, context=1024,
    ),
}  # fmt: skip


def model_config(name: str, vocab: int = VOCABULARY) -> Config:
    """Return the model called *name* with *vocab* rows of embedding; UsageError if there is none.

    >>> model_config("base").layers
    12
    """
    known = (*_SIZES, *preset_names())
    if name not in known:
        raise UsageError(f"unknown model {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return replace(_SIZES[name] if name in _SIZES else preset(name), vocab=vocab)


def checked(run: Run) -> Config:
    """Return the model of *run*; UsageError with one line if any of its fields makes no sense."""
    config = model_config(run.model, run.vocab)
    for name, known in (("stage", STAGES), ("precision", PRECISIONS), ("device", ("cpu", "mps", "cuda"))):
        value = getattr(run, name)
        if value not in known:
            raise UsageError(f"--{name} {value}: unknown{nearest(value, known)} (known: {', '.join(known)})")
    for name, least in _LEAST.items():
        if getattr(run, name) < least:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(run, name)}: needs at least {least}")
    for name, (fits, need) in _NUMBERS.items():
        if not fits(getattr(run, name)):
            raise UsageError(f"--{name.replace('_', '-')} {getattr(run, name)}: needs {need}")
    if run.seq > config.context:
        raise UsageError(f"--seq {run.seq}: longer than the context of {config.name}, {config.context} tokens")
    return config


_LEAST: dict[str, float] = {
    "vocab": 260, "seq": 2, "batch": 1, "accumulate": 1, "steps": 1, "lr": 0, "lr_end": 0, "warmup": 0,
    "weight_decay": 0, "seed": 0,
    "save_every": 1, "eval_every": 1, "eval_rows": 1, "log_every": 1, "limit": 0,
}  # fmt: skip
LARGEST_SEED = 2**63 - 1
_FINITE = (math.isfinite, "a finite number")
_BELOW_ONE = (lambda value: 0 <= value < 1, "at least 0 and less than 1")
_NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": _FINITE, "lr_end": _FINITE, "weight_decay": _FINITE, "beta1": _BELOW_ONE, "beta2": _BELOW_ONE,
    "clip": (lambda value: value > 0, "more than 0"),
    "seed": (lambda value: value <= LARGEST_SEED, f"at most {LARGEST_SEED}"),
}  # fmt: skip


def override(run: Run, given: dict[str, Any]) -> Run:
    """Return *run* with the values in *given* that are not None."""
    names = {each.name for each in fields(Run)}
    return replace(run, **{name: value for name, value in given.items() if name in names and value is not None})
