"""Whole steps of plain PyTorch models, in the format of hw_models/data/h200/models.csv, and the kernels they run."""

import csv
import importlib.util
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from workloads.measure.clock import replay_us, say

CAPTURES = 7
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # without one, Inductor can still be asked what it would fuse
Step = Callable[[], object]
Config = dict[str, int]
Kernel = tuple[str, float, float]  # name, microseconds, start in microseconds


def cells() -> Iterator[tuple[str, str, Config]]:
    """Steps that the shipped models.csv does not hold: other models, batches and lengths."""
    for model, batch, seq in (
        ("gpt2-medium", 2, 512),
        ("gpt2-large", 4, 768),
        ("llama-3b", 1, 1024),
        ("llama-1b", 3, 1536),
    ):
        yield "prefill", model, {"B": batch, "S": seq}
    yield "prefill", "llama-8b", {"B": 2, "S": 1000}
    for model in ("llama-1b", "llama-3b", "llama-8b"):
        for batch, context in ((1, 1024), (4, 4096), (16, 512), (48, 2048), (96, 768)):
            yield "decode", model, {"B": batch, "ctx": context}
    for model, batch, seq in (
        ("gpt2", 8, 512),
        ("gpt2-medium", 4, 1024),
        ("gpt2-large", 2, 1024),
        ("llama-1b", 1, 2048),
    ):
        yield "train", model, {"B": batch, "S": seq}


def load_models(path: Path) -> ModuleType:
    """Return the user's file at *path* as a module; it holds ``MODELS`` and ``caches``."""
    spec = importlib.util.spec_from_file_location("user_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_steps(models: ModuleType, out: Path, seed: int) -> None:
    """Measure every cell, eager and captured, and write one row each; a cell that fails is reported."""
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["phase", "model", "config", "mode", "ms", "peak_bytes", "note"])
        for phase, model, config in cells():
            torch.manual_seed(seed)
            try:
                for row in _measure(models, phase, model, config):
                    say(f"{phase} {model} {config} {row}")
                    writer.writerow([phase, model, json.dumps(config), *row])
            except RuntimeError as error:  # out of memory, say
                say(f"not measured: {phase} {model} {config}: {str(error).splitlines()[0]}")
            file.flush()
            torch.cuda.empty_cache()


def _measure(models: ModuleType, phase: str, name: str, config: Config) -> Iterator[tuple[object, ...]]:
    step = STEPS[phase](models, name, config)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    eager = _eager_ms(step)
    times = [] if phase == "train" else [f"{us / 1000:.5f}" for us, _ in _captures(step)]
    yield "eager", f"{min(eager, _eager_ms(step)):.5f}", peak, ""  # the host is at times half as fast
    if times:
        yield "graph", times[CAPTURES // 2], peak, f"{CAPTURES} captures: {times[0]} to {times[-1]}"


def _captures(step: Step) -> list[tuple[float, Any]]:
    """Return captures of one step with their microseconds, fastest first.

    The same kernels, captured again, can leave 0.1 or 0.5 us between them, and keep to it in every replay.
    """
    graphs = [torch.cuda.CUDAGraph() for _ in range(CAPTURES)]
    for graph in graphs:
        with torch.cuda.graph(graph):
            step()
    return sorted(((replay_us(graph), graph) for graph in graphs), key=lambda pair: pair[0])


def _eager_ms(step: Step) -> float:
    for _ in range(3):
        step()
    return min(statistics.median(_wall_ms(step) for _ in range(10)) for _ in range(5))


def _wall_ms(step: Step) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def list_kernels(models: ModuleType, out: Path, seed: int) -> None:
    """List the kernels of every cell: of a replay of the median capture, or of one eager step of training."""
    listing: dict[str, list[Kernel]] = {}
    for phase, model, config in cells():
        torch.manual_seed(seed)
        listing[f"{phase} {model} {json.dumps(config)}"] = _kernels(STEPS[phase](models, model, config), phase)
        out.write_text(json.dumps(listing))
        torch.cuda.empty_cache()


def _kernels(step: Step, phase: str) -> list[Kernel]:
    """Name, microseconds and start of each kernel, in order of start."""
    for _ in range(3):
        step()
    action = step if phase == "train" else _captures(step)[CAPTURES // 2][1].replay
    action()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        action()
        torch.cuda.synchronize()
    found = [event for event in profile.events() or [] if event.device_type.name == "CUDA"]
    found.sort(key=lambda event: event.time_range.start)
    first = found[0].time_range.start if found else 0.0
    return [
        (_short(event.name), round(event.time_range.elapsed_us(), 3), round(event.time_range.start - first, 3))
        for event in found
    ]


_SHARED = re.compile(r"\(anonymous namespace\)::|(at|native|binary_internal|c10)::|gpu_kernel_impl_nocast<|^void ")


def _short(name: str) -> str:
    """Return the name of a kernel less what most share: what tells kernels apart stands late in it."""
    return _SHARED.sub("", name)[:90]


def _model(models: ModuleType, name: str) -> Any:
    with torch.device(DEVICE):
        return models.MODELS[name]().to(torch.bfloat16)


def _ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, 50000, (batch, tokens), device=DEVICE)


def _prefill(models: ModuleType, name: str, config: Config) -> Step:
    model, ids = _model(models, name), _ids(config["B"], config["S"])
    return torch.no_grad()(lambda: model(ids))


def _decode(models: ModuleType, name: str, config: Config) -> Step:
    model, ids = _model(models, name), _ids(config["B"], 1)
    caches = models.caches(model, config["B"], config["ctx"], torch.bfloat16, DEVICE)
    return torch.no_grad()(lambda: model(ids, caches))


def _train(models: ModuleType, name: str, config: Config) -> Step:
    model, ids = _model(models, name), _ids(config["B"], config["S"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    last_only = {"last_only": False} if name.startswith("llama") else {}

    def step() -> None:
        logits = model(ids, **last_only)
        torch.autograd.backward(F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), ids.view(-1)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()  # makes the optimizer's state
    return step


STEPS: dict[str, Callable[[ModuleType, str, Config], Step]] = {"prefill": _prefill, "decode": _decode, "train": _train}
