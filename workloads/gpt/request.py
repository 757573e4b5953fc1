"""What a user may ask of a model, checked before anything is built; loads no torch."""

from simulator.errors import UsageError, nearest
from workloads.gpt.config import Config

PHASES = ("prefill", "decode", "train")
DEFAULT_SEQ = 512
DEFAULT_CONTEXT = 1024


def step_length(config: Config, phase: str, batch: int, seq: int | None, context: int | None) -> int:
    """Return the positions that a step looks over; UsageError if the request makes no sense."""
    if phase not in PHASES:
        raise UsageError(f"unknown phase {phase!r}{nearest(phase, PHASES)} (known: {', '.join(PHASES)})")
    what, asked, default = ("sequence", seq, DEFAULT_SEQ)
    if phase == "decode":
        what, asked, default = ("context", context, DEFAULT_CONTEXT)
    length = min(default, config.context) if asked is None else asked
    for label, value in (("batch", batch), (what, length)):
        if value < 1:
            raise UsageError(f"{config.name} {phase}: {label} is {value}, needs at least 1")
    if length > config.context:
        raise UsageError(f"{config.name} {phase}: {what} is {length}, longer than the model's context {config.context}")
    return length
