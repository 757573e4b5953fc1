"""``python -m workloads.measure.compiled --out FILE``: what torch.compile makes of small models, and how long it takes.

The oracle of ``simulator/passes``: kernels of Inductor in the code that it writes (default mode, no CUDA graphs),
those that ran by CUPTI where there is a CUDA device, and wall times of compiled steps.  Without one, Inductor's CPU
backend is asked, whose fused kernels are C++ loops.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from workloads.measure.clock import say
from workloads.measure.steps import DEVICE, STEPS, load_models

Config = dict[str, int]
Step = Callable[[], object]
_FUSED = re.compile(r"\b((?:triton|cpp)_\w*fused\w*)(?:\.run)?\(")
_EXTERNAL = re.compile(r"(extern_kernels\.\w+|torch\.ops\.\w+\.\w+\.\w+|aten\.\w+\.\w+)\(")


class NaiveAttention(nn.Module):
    """softmax(Q K^T / sqrt(d) + mask) V, written out as a textbook does."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        return torch.softmax(scores, dim=-1) @ v


def layers(models: ModuleType) -> dict[str, Callable[[], nn.Module]]:
    """Models of two and four layers: the difference is what a layer takes."""
    return {
        "gpt-2l": lambda: models.GPT2(2, 768, 12),
        "gpt-4l": lambda: models.GPT2(4, 768, 12),
        "llama-2l": lambda: models.Llama(2, 2048, 32, 8, 8192),
        "llama-4l": lambda: models.Llama(4, 2048, 32, 8, 8192),
    }


def counted() -> Iterator[tuple[str, str, Config]]:
    """Steps whose kernels are counted; their number hardly depends on sizes, which are small for a CPU."""
    large = DEVICE == "cuda"
    yield "prefill", "gpt-2l", {"B": 8, "S": 1024} if large else {"B": 2, "S": 64}
    yield "prefill", "llama-2l", {"B": 1, "S": 4096} if large else {"B": 2, "S": 64}
    yield "train", "gpt-2l", {"B": 16, "S": 1024} if large else {"B": 2, "S": 64}
    yield "train", "llama-2l", {"B": 2, "S": 2048} if large else {"B": 2, "S": 64}
    yield "attention", "naive", {"B": 2, "H": 16, "S": 2048 if large else 64, "D": 64}
    yield "decode", "llama-2l", {"B": 8, "ctx": 1024} if large else {"B": 2, "ctx": 64}
    for count in ("2l", "4l"):  # short kernels: the host decides, and two lengths tell what a kernel takes it
        yield "prefill", f"gpt-{count}", {"B": 1, "S": 32}


def timed() -> Iterator[tuple[str, str, Config]]:
    """Whole steps for checking predictions, beside those of hw_models/data/h200/models.csv."""
    yield "prefill", "gpt2", {"B": 1, "S": 1024}
    yield "train", "gpt2", {"B": 4, "S": 1024}
    yield "prefill", "llama-1b", {"B": 8, "S": 2048}
    yield "decode", "llama-1b", {"B": 32, "ctx": 1024}
    yield "prefill", "gpt2", {"B": 8, "S": 1024}
    yield "train", "gpt2-medium", {"B": 8, "S": 1024}
    yield "train", "llama-1b", {"B": 2, "S": 2048}
    yield "prefill", "gpt2-xl", {"B": 1, "S": 1024}


def _compiling(make: Callable[[], nn.Module]) -> Callable[[], Any]:
    return lambda: torch.compile(make(), dynamic=False)


def main() -> int:
    """Write one JSON object: provenance, and for each step its kernels and milliseconds."""
    parser = argparse.ArgumentParser(prog="python -m workloads.measure.compiled", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("hw_models/data/h200/user_models.py"))
    parser.add_argument("--counts-only", action="store_true", help="no whole steps")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no step after that long")
    options = parser.parse_args()
    models = load_models(options.models)
    vars(models)["MODELS"] = {name: _compiling(make) for name, make in {**models.MODELS, **layers(models)}.items()}
    found: dict[str, Any] = {"provenance": _provenance(), "steps": []}
    begin = time.perf_counter()
    for phase, name, config in [*counted(), *([] if options.counts_only else timed())]:
        if time.perf_counter() - begin > options.seconds:
            say(f"out of time before {phase} {name}")
            break
        try:
            row = {"phase": phase, "model": name, "config": config, **_compiled(models, phase, name, config)}
        except RuntimeError as error:  # out of memory, or no compiler
            row = {"phase": phase, "model": name, "config": config, "error": str(error).splitlines()[0]}
        say(f"{time.perf_counter() - begin:.0f} s: {json.dumps(row)[:400]}")
        found["steps"].append(row)
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _provenance() -> dict[str, object]:
    cuda = torch.cuda.is_available()
    return {
        "command": "python -m workloads.measure.compiled",
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "mode": "torch.compile(mode=default), static shapes, bf16",
        "code": "calls in the wrappers that Inductor writes: fused kernels of its own, and external ones",
        "ran": "device kernels of one step by CUPTI; forward, loss, backward and optimizer for train",
        "ms": "least of 5 medians of 10 steps, wall time; host_ms: time until the last launch, least of 30",
    }


def _compiled(models: ModuleType, phase: str, name: str, config: Config) -> dict[str, Any]:
    from torch._inductor.utils import run_and_get_code  # noqa: PLC0415  loads the compiler

    torch._dynamo.reset()
    torch.manual_seed(20261201)
    step = _attention(config) if phase == "attention" else STEPS[phase](models, name, config)
    _, codes = run_and_get_code(step)
    calls: Counter[str] = Counter()
    external: Counter[str] = Counter()
    for code in codes:
        body = code[code.find("\ndef call(") :] if "\ndef call(" in code else code[code.find("    def call(") :]
        body = body[: body.find("\ndef benchmark_compiled_module")]
        calls.update(each.split("_fused")[0] for each in _FUSED.findall(body))
        external.update(_EXTERNAL.findall(body))
    row: dict[str, Any] = {
        "fused": sum(calls.values()),
        "external": sum(external.values()),
        "code": dict(calls),
        "externals": dict(external),
    }
    return row | (_ran(step) if torch.cuda.is_available() else {})


def _attention(config: Config) -> Step:
    shape = config["B"], config["H"], config["S"], config["D"]
    q, k, v = (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(3))
    model = torch.compile(NaiveAttention())
    return torch.no_grad()(lambda: model(q, k, v))


def _ran(step: Step) -> dict[str, Any]:
    """Times of a compiled step, then its kernels by name and microseconds."""
    for _ in range(3):
        step()
    ms = min(sorted(_wall_ms(step)[1] for _ in range(10))[5] for _ in range(5))
    host = min(_wall_ms(step)[0] for _ in range(30))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = [each for each in profile.events() or [] if each.device_type.name == "CUDA"]
    kernels = [
        (each.name[:100], round(each.time_range.elapsed_us(), 2))
        for each in sorted(events, key=lambda each: each.time_range.start)
    ]
    return {"ms": round(ms, 5), "host_ms": round(host, 5), "ran": len(kernels), "kernels": kernels}


def _wall_ms(step: Step) -> tuple[float, float]:
    """Milliseconds until the last launch, and until the device is done."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    launched = time.perf_counter()
    torch.cuda.synchronize()
    return 1000 * (launched - start), 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    raise SystemExit(main())
