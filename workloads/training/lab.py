"""Lab 4: a GPT trained for real on this machine, and what the same run and a larger one take on a chip."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.hardware import Chip
from simulator.units import PS_PER_SECOND, decimal, seconds
from workloads.gpt.generate import one_thread
from workloads.gpt.parameters import parameters
from workloads.lab import LabAnswer, LabTable
from workloads.training.config import Run, model_config
from workloads.training.configurations import CONFIGURATIONS, LONG_RUN
from workloads.training.forecast import Forecast, forecast
from workloads.training.journal import Journal
from workloads.training.loop import Trainer
from workloads.training.packing import Order
from workloads.training.runs import rows_of

HERE = Run(steps=150, batch=8, warmup=10, lr=2e-3, limit=1_000_000, save_every=1000, eval_every=1000, eval_rows=8)
BUDGET = 12.0  # seconds of training
_TRIED = 2  # steps that are timed to see how many fit
_FEWEST = 8
_LARGE = (LONG_RUN, f"{LONG_RUN}, checkpointing", "gpt2, 16 rows")


@dataclass(frozen=True, slots=True)
class Trained:
    """What this machine did: loss on held-out text before and after, in nats a byte, and the time of a step."""

    run: Run
    source: str
    before: float
    after: float
    step_seconds: float


def answer(chip: Chip) -> LabAnswer:
    """Train a tiny GPT for some seconds, and predict that run and three larger ones on *chip*."""
    trained = train_here(BUDGET)
    found = {f"{trained.run.model}, {trained.run.batch} rows": forecast(trained.run, chip)}
    found |= {name: forecast(CONFIGURATIONS[name], chip) for name in _LARGE}
    large, lean = found[_LARGE[0]], found[_LARGE[1]]
    return LabAnswer(
        question="how long does a training step take, and who holds the memory?",
        sentence=_sentence(trained, found, chip),
        tables=(_times(trained, found, chip), _holders(found)),
        bound=large.result.bound,
        verdict=_verdict(large, lean, found),
        data={
            "here": _here(trained),
            "runs": {name: _numbers(each) for name, each in found.items()},
        },
    )


def train_here(budget: float) -> Trained:
    """Train `HERE`, with fewer steps where *budget* seconds are not enough for all of them."""
    rows, held, source = rows_of(HERE)
    # a model this small gains little from threads, and loses ten times as much where others use the cores too
    with tempfile.TemporaryDirectory() as name, one_thread():
        folder = Path(name)
        run = replace(HERE, steps=_steps(Trainer(HERE, folder, rows, held), budget))
        trainer = Trainer(run, folder, rows, held)
        before = trainer.validate()
        began = time.perf_counter()
        trainer.train(Journal(folder, {}))
        took = time.perf_counter() - began
        return Trained(run, source, before, trainer.validate(), took / run.steps)


def _steps(trial: Trainer, budget: float) -> int:
    """How many steps fit, by the time of a few; the first of them, which warms up, does not count."""
    order = Order(len(trial.rows), HERE.batch, HERE.seed)
    trial.one(order)
    began = time.perf_counter()
    for trial.step in range(1, 1 + _TRIED):
        trial.one(order)
    each = (time.perf_counter() - began) / _TRIED
    return max(_FEWEST, min(HERE.steps, int(budget / each)))


def _sentence(trained: Trained, found: dict[str, Forecast], chip: Chip) -> str:
    tiny, large = next(iter(found.values())), found[_LARGE[0]]
    at_peak = large.memory.at_peak()
    lasting = at_peak["parameters"] + at_peak["optimizer"] + at_peak["gradients"]
    size = parameters(model_config(large.run.model, large.run.vocab)).total
    return (
        f"{trained.run.steps} steps on this machine bring the loss on text that the model has not seen from "
        f"{trained.before:.2f} to {trained.after:.2f} nats a byte at {_ms(trained.step_seconds)} a step; {chip.name} "
        f"would take {_ms(tiny.step_seconds)}. A GPT of {decimal(size, '')} parameters on "
        f"{decimal(large.run.tokens_per_step, '')} tokens a step takes it {_ms(large.step_seconds)} (MFU "
        f"{large.mfu:.0%}) and {decimal(large.peak_bytes, 'B')}, of which parameters, gradients and optimizer are "
        f"{lasting / large.peak_bytes:.0%}: what the forward pass leaves for the backward pass is nearly all the rest."
    )


def _ms(value: float) -> str:
    return seconds(value * PS_PER_SECOND, 3)


def _times(trained: Trained, found: dict[str, Forecast], chip: Chip) -> LabTable:
    rows = []
    here: Sequence[str] = (_ms(trained.step_seconds), f"{trained.run.tokens_per_step / trained.step_seconds:,.0f}")
    for name, each in found.items():
        rows.append((
            name, each.run.precision, *here, _ms(each.step_seconds), f"{each.tokens_per_second:,.0f}",
            f"{each.mfu:.1%}", decimal(each.peak_bytes, "B"), "" if each.fits else "no", str(each.result.bound),
        ))  # fmt: skip
        here = ("", "")
    return LabTable(
        title=f"One optimizer step, here and on {chip.name}",
        columns=(
            "run", "type", ">here", ">tokens/s", f">{chip.name}", ">tokens/s", ">MFU", ">peak memory", "fits",
            "bound by",
        ),
        rows=rows,
        note=f"here: {trained.source}. MFU: model FLOP as in the PaLM paper over the dense peak of the type; "
        f"{chip.name} has {decimal(chip.dram.capacity, 'B')}",
    )  # fmt: skip


def _holders(found: dict[str, Forecast]) -> LabTable:
    owners = [*next(iter(found.values())).memory.at_peak(), "library workspace"]
    held = [{**each.memory.at_peak(), "library workspace": each.workspace} for each in found.values()]
    return LabTable(
        title="Who holds the memory at the peak of a step",
        columns=("owner", *(f">{name}" for name in found)),
        rows=[(owner, *(decimal(each[owner], "B") for each in held)) for owner in owners],
        note="AdamW over fp32 parameters: 4 B a parameter, 4 B a gradient, 8 B of states; bf16 is autocast",
    )


def _verdict(large: Forecast, lean: Forecast, found: dict[str, Forecast]) -> str:
    tiny = next(iter(found.values()))
    fewer = 1 - lean.peak_bytes / large.peak_bytes
    slower = lean.step_seconds / large.step_seconds - 1
    small = (
        f"A step as small as the one here is {tiny.result.bound} bound on {large.chip.name} at an MFU of "
        f"{tiny.mfu:.1%}: more tokens a step would help, which again is capacity."
        if tiny.mfu < large.mfu
        else f"{large.chip.name} is small enough that even the step here fills it."
    )
    return (
        f"Training asks a SoC for capacity beside arithmetic: the activations of a step grow with its tokens, and "
        f"computing them again instead saves {fewer:.0%} of the memory for {slower:.0%} more time. {small}"
    )


def _here(trained: Trained) -> dict[str, Any]:
    return {
        "text": trained.source,
        "steps": trained.run.steps,
        "tokens_per_step": trained.run.tokens_per_step,
        "validation_loss_before": trained.before,
        "validation_loss_after": trained.after,
        "step_seconds_measured": trained.step_seconds,
    }


def _numbers(found: Forecast) -> dict[str, Any]:
    numbers = found.as_json()
    return {name: value for name, value in numbers.items() if name != "timeline"} | {"fits": found.fits}
