"""``python -m workloads.training.device_run --out FOLDER``: the measured half of the comparison, on a CUDA device.

Measures step time and memory of each configuration, pre-trains and fine-tunes for the minutes given, and writes one
JSON file.  Needs torch and numpy and nothing else.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from simulator.units import quantity
from workloads.gpt.parameters import parameters
from workloads.training import checkpoint
from workloads.training.chat import prompt
from workloads.training.config import Run, checked
from workloads.training.configurations import CONFIGURATIONS, LONG_RUN
from workloads.training.journal import read
from workloads.training.loop import Trainer
from workloads.training.metrics import FLOP_CONVENTION, Peak, utilisation
from workloads.training.network import summed_loss
from workloads.training.packing import Order, Rows
from workloads.training.runs import rows_of, start
from workloads.training.sampling import sample
from workloads.training.tokens import END, decode, encode

WARM, TIMED = 8, 20
Facts = dict[str, Any]


def main() -> int:
    """Measure, train, write."""
    parser = argparse.ArgumentParser(prog="python -m workloads.training.device_run", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the JSON file")
    parser.add_argument("--work", type=Path, default=Path("out/training"), help="folder of the checkpoints")
    parser.add_argument("--pretrain-seconds", type=float, default=190)
    parser.add_argument("--sft-seconds", type=float, default=50)
    parser.add_argument("--peak", default="989.4 TFLOP/s", help="dense bf16 peak of the device")
    options = parser.parse_args()
    peak = Peak(quantity(options.peak, "FLOP/s"), "bf16", torch.cuda.get_device_name())
    began = time.perf_counter()
    rows, held, source = rows_of(CONFIGURATIONS[LONG_RUN])
    say(f"text read in {time.perf_counter() - began:.1f} s: {source}")
    facts: Facts = {"provenance": _provenance(peak, source), "configurations": {}}
    target = options.out / "lab04_h200.json"
    for name, run in CONFIGURATIONS.items():
        facts["configurations"][name] = _guarded(lambda run=run: measure(run, rows, held, peak))
        say(f"{name}: {json.dumps({k: v for k, v in facts['configurations'][name].items() if k != 'kernels'})}")
        _save(target, facts)
    for name, part in (
        ("resume", lambda: resumed(rows, held, options.work)),
        ("pretrain", lambda: pretrain(facts, options, peak)),
        ("sft", lambda: sft(facts, options, peak)),
    ):
        facts[name] = _guarded(part)
        say(f"{name}: {json.dumps({k: v for k, v in facts[name].items() if k != 'log'})}")
        _save(target, facts)
    return 0


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _save(path: Path, facts: Facts) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n")


def _guarded(part: Any) -> Facts:
    """Run *part*; what went wrong becomes its result, so that the rest is still measured."""
    try:
        found: Facts = part()
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    gc.collect()
    torch.cuda.empty_cache()
    return found


def _provenance(peak: Peak, source: str) -> Facts:
    device = torch.cuda.get_device_properties(0)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": device.name,
        "memory_bytes": device.total_memory,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "text": source,
        "peak": str(peak),
        "mfu_convention": FLOP_CONVENTION,
        "method": f"eager PyTorch, fused AdamW, batches from host memory; {WARM} steps to warm up, then step_ms: wall "
        f"time of {TIMED} steps without waiting in between, over {TIMED}; waited_ms: median of {TIMED} steps, each "
        "waited for; peak_bytes: torch.cuda.max_memory_allocated over one of them, less baseline_bytes that other "
        "configurations had left; kernels: GPU time of one step by kernel, from torch's profiler",
    }


def measure(run: Run, rows: Rows, held: Rows, peak: Peak) -> Facts:
    """Return step times, memory and kernels of one configuration."""
    torch._C._cuda_clearCublasWorkspaces()
    baseline = torch.cuda.memory_allocated()
    trainer = Trainer(run, Path(), rows, held, peak)
    order = Order(len(rows), run.batch * run.accumulate, run.seed)
    for _ in range(WARM):
        trainer.one(order)
        trainer.step += 1
    torch.cuda.synchronize()
    facts: Facts = {"run": asdict(run), "parameters": parameters(trainer.network.config).total}
    facts["step_ms"] = _steady(trainer, order)
    facts["state"] = _smi("clocks.sm,power.draw,temperature.gpu")
    facts["waited_ms"] = _waited(trainer, order)
    facts |= _memory(trainer, order, baseline)
    rate = run.tokens_per_step / facts["step_ms"] * 1000
    facts |= {"tokens_per_second": rate, "mfu": utilisation(trainer.network.config, run.seq, rate, peak)}
    facts["kernels"] = _kernels(trainer, order)
    return facts


def _steady(trainer: Trainer, order: Order) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(TIMED):
        trainer.one(order)
        trainer.step += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1000 / TIMED


def _waited(trainer: Trainer, order: Order) -> float:
    return statistics.median(_steady_one(trainer, order) for _ in range(TIMED))


def _steady_one(trainer: Trainer, order: Order) -> float:
    began = time.perf_counter()
    trainer.one(order)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1000


def _memory(trainer: Trainer, order: Order, baseline: int) -> Facts:
    """Peak of one step, and what is allocated between its parts, without what was there before the configuration."""
    torch.cuda.reset_peak_memory_stats()
    resident = torch.cuda.memory_allocated()
    trainer.one(order)
    torch.cuda.synchronize()
    facts = {"peak_bytes": torch.cuda.max_memory_allocated() - baseline, "resident_bytes": resident - baseline}
    inputs, targets = trainer._parts(order)[0]
    logits = trainer.network(inputs)
    facts["after_forward_bytes"] = torch.cuda.memory_allocated() - baseline
    loss = summed_loss(logits, targets)
    del logits
    facts["after_loss_bytes"] = torch.cuda.memory_allocated() - baseline
    loss.backward()  # type: ignore[no-untyped-call]
    facts["after_backward_bytes"] = torch.cuda.memory_allocated() - baseline
    trainer.optimizer.zero_grad(set_to_none=True)
    return {**facts, "reserved_bytes": torch.cuda.memory_reserved(), "baseline_bytes": baseline}


def _kernels(trainer: Trainer, order: Order) -> list[tuple[str, int, float]]:
    """Name, calls and microseconds in all of the kernels of one step, longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        trainer.one(order)
        torch.cuda.synchronize()
    totals: dict[str, tuple[int, float]] = {}
    for event in profile.events() or []:
        if event.device_type.name == "CUDA":
            calls, us = totals.get(event.name, (0, 0.0))
            totals[event.name] = calls + 1, us + event.time_range.elapsed_us()
    listed = [(name[:110], calls, round(us, 1)) for name, (calls, us) in totals.items()]
    return sorted(listed, key=lambda each: -each[2])


def _smi(query: str) -> str:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def resumed(rows: Rows, held: Rows, work: Path) -> Facts:
    """Train 6 steps at once, and 3 steps, a new process' worth of state, and 3 more: are the parameters equal?"""
    run = replace(CONFIGURATIONS["base, 8 rows"], steps=6, deterministic=True, warmup=2)
    order = Order(len(rows), run.batch, run.seed)
    folder = work / "resume"
    folder.mkdir(parents=True, exist_ok=True)
    straight = Trainer(run, folder, rows, held)
    for _ in range(3):
        straight.one(order)
        straight.step += 1
    path = checkpoint.save(folder, run, 3, straight.network, straight.optimizer)
    again = Trainer(run, folder, rows, held)
    again.restore(checkpoint.load(path))
    for trainer in (straight, again):
        for _ in range(3):
            trainer.one(order)
            trainer.step += 1
    torch.use_deterministic_algorithms(False)
    pairs = zip(straight.network.parameters(), again.network.parameters(), strict=True)
    return {"equal": all(torch.equal(a, b) for a, b in pairs), "kernels": "deterministic algorithms"}


def pretrain(facts: Facts, options: argparse.Namespace, peak: Peak) -> Facts:
    """Pre-train for the time given: as many steps as fit, at the step time just measured."""
    steps = int(options.pretrain_seconds / facts["configurations"][LONG_RUN]["step_ms"] * 1000)
    run = replace(CONFIGURATIONS[LONG_RUN], steps=steps)
    found, trainer = _train(run, options.work / "pretrain", None, peak)
    text = sample(trainer.network, encode("def read_lines(path):\n    "), 300)
    return {**found, "sample": decode(text)}


def sft(facts: Facts, options: argparse.Namespace, peak: Peak) -> Facts:
    """Fine-tune the pre-trained model on questions and answers for the time given."""
    steps = int(options.sft_seconds / facts["configurations"][LONG_RUN]["step_ms"] * 1000)
    run = replace(CONFIGURATIONS[LONG_RUN], stage="sft", steps=steps, lr=1e-4, warmup=20, eval_every=50)
    base = checkpoint.found(options.work / "pretrain")[-1]
    found, trainer = _train(run, options.work / "sft", base, peak)
    questions = ("What does os.path.join do?", "What is collections.OrderedDict?", "What is the module json for?")
    answers = {
        each: decode(sample(trainer.network, prompt(each), 160, temperature=0.3, stop=END)) for each in questions
    }
    return {**found, "answers": answers}


def _train(run: Run, folder: Path, base: Path | None, peak: Peak) -> tuple[Facts, Trainer]:
    checked(run)
    trainer, journal = start(run, folder, base=base, peak=peak)
    before = trainer.validate()
    began = time.perf_counter()
    trainer.train(journal)
    seconds = time.perf_counter() - began
    lines = read(folder)
    facts = {"seconds": seconds, "validation_loss_before": before, "state": _smi("clocks.sm,power.draw")}
    return {**facts, "header": lines[0], "log": lines[1:]}, trainer


if __name__ == "__main__":
    raise SystemExit(main())
