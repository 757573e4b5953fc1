"""Small runs on a small text, for the tests of lab 4."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from workloads.training.config import Run

TEXT = "def add(a, b):\n    return a + b\n\n\n" * 60


def small_run(folder: Path, **changes: object) -> Run:
    """A run of a few seconds at most over a text that is written to *folder*."""
    text = folder / "text.py"
    text.write_text(TEXT)
    fields: dict[str, object] = {
        "seq": 32, "batch": 2, "steps": 6, "warmup": 2, "save_every": 2, "eval_every": 3, "eval_rows": 2,
        "log_every": 2, "data": str(text),
    }  # fmt: skip
    return Run(**{**fields, **changes})  # type: ignore[arg-type]


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take ten times as long as one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
