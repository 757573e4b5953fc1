"""Starts and continues runs: text, folder, log, trainer, in that order, so that bad input stops before the work."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.errors import OutputError, UsageError
from workloads.gpt.parameters import parameters
from workloads.training import checkpoint
from workloads.training.chat import library_chats, packed_chats
from workloads.training.config import Run, checked
from workloads.training.corpus import load_corpus
from workloads.training.journal import Journal
from workloads.training.loop import Progress, Trainer
from workloads.training.metrics import FLOP_CONVENTION, Peak, memory_in_use
from workloads.training.packing import Rows, packed

_HELD_CHATS = 20  # every so many conversations are kept for validation


def rows_of(run: Run) -> tuple[Rows, Rows, str]:
    """Return training rows, validation rows, and what they are from."""
    if run.stage == "pretrain":
        corpus = load_corpus(run.data, run.limit)
        held = corpus.validation if len(corpus.validation) > run.seq else corpus.train
        return packed(corpus.train, run.seq), packed(held, run.seq), corpus.source
    chats = library_chats(None if run.data == "stdlib" else Path(run.data))
    if not chats:
        raise UsageError(f"empty corpus: {run.data} holds no documented Python")
    train = [each for at, each in enumerate(chats) if at % _HELD_CHATS]
    rows, too_long = packed_chats(train, run.seq)
    held_rows, _ = packed_chats(chats[::_HELD_CHATS], run.seq)
    licence = "PSF License Agreement" if run.data == "stdlib" else "licence as its owner says"
    source = f"{len(chats):,} questions about documented names of {run.data}, {licence}"
    return rows, held_rows, f"{source}; {too_long} too long for a row"


def start(
    run: Run,
    folder: Path,
    *,
    resume: bool = False,
    base: Path | None = None,
    peak: Peak | None = None,
    progress: Progress | None = None,
) -> tuple[Trainer, Journal]:
    """Return a trainer and its log, ready for `Trainer.train`.

    resume  go on from the newest checkpoint in *folder*.
    base    a checkpoint whose parameters the run starts from, with a new optimizer: fine-tuning.
    Raises UsageError, CheckpointError or OutputError before anything in *folder* is touched.
    """
    checked(run)
    state = _newest(run, folder, resume)
    begin = checkpoint.load(base) if base and state is None else None
    rows, held, source = rows_of(run)
    trainer = Trainer(run, folder, rows, held, peak, progress)
    if state:
        trainer.restore(state)
    elif begin:
        _adopt(trainer, begin, base)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {error.strerror}") from None
    return trainer, Journal(folder, _header(trainer, source), trainer.step)


def _newest(run: Run, folder: Path, resume: bool) -> checkpoint.State | None:
    existing = checkpoint.found(folder)
    if not resume:
        if existing:
            raise UsageError(f"{folder}: has {existing[-1].name} already; --resume goes on, --out names another folder")
        return None
    if not existing:
        raise UsageError(f"{folder}: no checkpoint to resume from")
    state = checkpoint.load(existing[-1])
    checkpoint.check_same(existing[-1], state.run, run)
    if run.steps < state.step:
        raise UsageError(f"{folder}: already at step {state.step}, --steps {run.steps} leaves nothing to do")
    return state


def _adopt(trainer: Trainer, begin: checkpoint.State, path: Path | None) -> None:
    """Take the parameters of another run."""
    before, now = begin.run, trainer.run
    if (before.model, before.vocab) != (now.model, now.vocab):
        raise UsageError(
            f"{path}: holds model {before.model} with {before.vocab} tokens, "
            f"this run asks for {now.model} with {now.vocab}"
        )
    trainer.network.load_state_dict(begin.network)


def _header(trainer: Trainer, source: str) -> dict[str, Any]:
    return {
        "run": asdict(trainer.run),
        "parameters": parameters(trainer.network.config).total,
        "rows": len(trainer.rows),
        "text": source,
        "peak": str(trainer.peak) if trainer.peak else None,
        "mfu_convention": FLOP_CONVENTION,
        "memory": memory_in_use(trainer.run.device)[1],
    }
