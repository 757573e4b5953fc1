"""The learning rate over a run."""

import math

from workloads.training.config import Run


def learning_rate(run: Run, step: int) -> float:
    """Return the rate of *step* (the first is 0): a straight line up, then half a cosine down to lr x lr_end.

    >>> run = Run(steps=110, warmup=10, lr=1.0, lr_end=0.1)
    >>> [round(learning_rate(run, step), 3) for step in (0, 9, 10, 60, 109)]
    [0.1, 1.0, 1.0, 0.55, 0.1]
    """
    if step < run.warmup:
        return run.lr * (step + 1) / run.warmup
    share = min(1.0, (step - run.warmup) / max(1, run.steps - run.warmup))
    return run.lr * (run.lr_end + (1 - run.lr_end) * 0.5 * (1 + math.cos(math.pi * share)))
