"""A run from its first step, or from its last checkpoint, to its end."""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from workloads.training import checkpoint
from workloads.training.config import Run, checked
from workloads.training.errors import TrainingError
from workloads.training.evaluate import evaluate
from workloads.training.journal import Journal
from workloads.training.metrics import Peak, memory_in_use, reset_peak, synchronise, utilisation
from workloads.training.network import Network
from workloads.training.packing import Order, Rows, on_device
from workloads.training.schedule import learning_rate
from workloads.training.step import Done, Pair, make_optimizer, train_step


class Progress(Protocol):
    """Somebody who is told how a run goes: a progress bar, or nobody."""

    def advance(self, step: int, said: dict[str, Any]) -> None:
        """*step* steps are done; *said* is what the log has got since the last call, perhaps nothing."""


@dataclass(slots=True)
class Trainer:
    """One run in one folder.

    rows, held  packed training and validation rows; *peak* for MFU; *progress* is told after each step.
    """

    run: Run
    folder: Path
    rows: Rows
    held: Rows
    peak: Peak | None = None
    progress: Progress | None = None
    network: Network = field(init=False)
    optimizer: torch.optim.AdamW = field(init=False)
    step: int = field(init=False, default=0)
    _recent: list[Done] = field(init=False, default_factory=list)
    _since: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        """Make the model and the optimizer, the same for the same seed."""
        config = checked(self.run)
        torch.use_deterministic_algorithms(self.run.deterministic)
        torch.manual_seed(self.run.seed)
        self.network = Network(config, self.run.precision, self.run.checkpointing).to(self.run.device)
        self.optimizer = make_optimizer(self.network, self.run)

    def restore(self, state: checkpoint.State) -> None:
        """Go on after the steps that *state* had done."""
        self.network.load_state_dict(state.network)
        self.optimizer.load_state_dict(state.optimizer)
        self.step = state.step

    def train(self, journal: Journal) -> None:
        """Do the steps that are left, write the log, save checkpoints.

        Raises TrainingError for the first loss or gradient that is no number; the checkpoints before it stay.
        """
        order = Order(len(self.rows), self.run.batch * self.run.accumulate, self.run.seed)
        reset_peak(self.run.device)
        self._start_clock()
        while self.step < self.run.steps:
            self._recent.append(self.one(order))
            self.step += 1
            said = self._say(journal) if self._due(self.run.log_every) or self._stops() else {}
            if self.progress:
                self.progress.advance(self.step, said)

    def _due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.run.steps

    def _stops(self) -> bool:
        """Whether something else is done after this step, which must not count as time of training."""
        return self.step == 1 or self._due(self.run.save_every) or self._due(self.run.eval_every)

    def _start_clock(self) -> None:
        synchronise(self.run.device)
        self._recent.clear()
        self._since = time.perf_counter()

    def one(self, order: Order) -> Done:
        """Do the step whose number is `step`, which stays as it is; nothing is checked, logged or saved."""
        self.network.train()
        lr = learning_rate(self.run, self.step)
        return train_step(self.network, self.optimizer, self._parts(order), lr, self.run.clip)

    def _parts(self, order: Order) -> list[Pair]:
        which, size = order.of_step(self.step), self.run.batch
        pieces = [which[first : first + size] for first in range(0, len(which), size)]
        return [on_device(self.rows, piece, self.run.device) for piece in pieces]

    def _say(self, journal: Journal) -> dict[str, Any]:
        """Look at the steps since the last look, then evaluate and save if it is time; return what went to the log."""
        said = self._measured()
        if self._due(self.run.eval_every):
            said["validation_loss"] = self.validate()
        journal.write(said)
        if self._due(self.run.save_every):
            checkpoint.save(self.folder, self.run, self.step, self.network, self.optimizer)
        self._start_clock()
        return said

    def validate(self) -> float:
        """Return the loss on held-out rows in nats a token."""
        return evaluate(self.network, self.held, self.run.eval_rows, self.run.batch, self.run.device)

    def _measured(self) -> dict[str, Any]:
        losses, norms = self._values()
        seconds = (time.perf_counter() - self._since) / len(losses)
        rate = self.run.tokens_per_step / seconds
        memory, _ = memory_in_use(self.run.device)
        used = utilisation(self.network.config, self.run.seq, rate, self.peak)
        return {
            "step": self.step,
            "loss": sum(losses) / len(losses),
            "lr": learning_rate(self.run, self.step - 1),
            "gradient_norm": norms[-1],
            "step_seconds": seconds,
            "tokens_per_second": rate,
            "mfu": used,
            "memory_bytes": memory,
        }

    def _values(self) -> tuple[list[float], list[float]]:
        """Read losses and norms, which waits for the device; TrainingError if one is no number."""
        losses = torch.stack([done.loss for done in self._recent]).tolist()
        norms = torch.stack([done.norm for done in self._recent]).tolist()
        first = self.step - len(losses) + 1
        for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), first):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                what = f"loss is {loss}" if not math.isfinite(loss) else f"norm of the gradients is {norm}"
                raise TrainingError(f"{what} at step {step}: stopped; {self._left()}")
        return losses, norms

    def _left(self) -> str:
        good = checkpoint.found(self.folder)
        return f"the last good checkpoint is {good[-1]}" if good else "no checkpoint had been saved"
