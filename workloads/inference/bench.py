"""What batching and quantisation bring on this machine's CPU: ``python -m workloads.inference bench --device cpu``.

The unbatched loop is `workloads.gpt.generate`: one request after the other, each with a contiguous cache of keys and
values, so that what differs is the batch and not the cache.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from simulator.serving import Limits
from workloads.gpt.generate import generate
from workloads.gpt.model import Model
from workloads.gpt.presets import preset
from workloads.inference.cache import make_pages
from workloads.inference.engine import Engine
from workloads.inference.model import Runner
from workloads.inference.quality import quality, trained
from workloads.inference.steps import ragged

Facts = dict[str, Any]
FILE = "lab06_cpu.json"
_BLOCK = 16
_WEIGHTS = (("fp32", "none"), ("bf16", "none"), ("w8", "w8"), ("w4", "w4"))  # packed weights: activations in fp32
_STEPS = 9
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """What is measured: *requests* of a model at once, each with the same lengths."""

    model: str = "gpt2"
    requests: int = 16
    prompt: int = 16
    output: int = 64
    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    context: int = 128


def bench(work: Work, say: Callable[[str], None]) -> Facts:
    """Measure the preset that *work* names, with random weights."""
    config = preset(work.model)
    torch.manual_seed(0)
    return measure(Model(config, context=1024).eval(), work, say)


def measure(model: Model, work: Work, say: Callable[[str], None]) -> Facts:
    """Measure everything and return it, with where and how it was measured."""
    facts: Facts = {"provenance": provenance(work), "batching": batching(model, work)}
    found = facts["batching"]
    say(f"{work.requests} requests of {work.prompt} + {work.output} tokens, {work.model} in fp32")
    say(f"  one after the other {found['unbatched']:8.1f} tokens/s")
    say(f"  together            {found['batched']:8.1f} tokens/s, {found['gain']:.1f} times as many")
    say(f"tokens/s of decode at context {work.context}, by batch: {', '.join(map(str, work.batches))}")
    facts["decode"] = [_decode_row(model, name, scheme, work, say) for name, scheme in _WEIGHTS]
    small = trained()
    facts["quality"] = [asdict(quality(small, scheme)) for scheme in ("w8", "w4")]
    for q in facts["quality"]:
        say(
            f"  {q['scheme']}: {q['bits']:.2f} bits a weight, error of weights {q['weight_error']:.2%} (expected "
            f"{q['expected']:.2%}), of logits {q['logit_error']:.2%}, perplexity {q['perplexity_before']:.4f} -> "
            f"{q['perplexity']:.4f}"
        )
    return facts


def _decode_row(model: Model, name: str, scheme: str, work: Work, say: Callable[[str], None]) -> Facts:
    facts = {"weights": name, **decode(model.bfloat16() if name == "bf16" else model.float(), scheme, work)}
    rates = " ".join(f"{rate:8.1f}" for rate in facts["tokens_per_s"])
    say(f"  {name:5s} {facts['weights_bytes'] / 1e6:7.1f} MB {rates}")
    return facts


def batching(model: Model, work: Work) -> Facts:
    """Return output tokens a second of the same requests, one after the other and together."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(model.config.vocab, (work.requests, work.prompt), generator=generator)
    _alone(model, prompts[:1], work.output)  # a warm-up
    alone = [_alone(model, prompts[n : n + 1], work.output) for n in range(work.requests)]
    together = [_together(model, prompts.tolist(), work) for _ in range(_ROUNDS + 1)][1:]  # and another
    same = sum(one == other for (one, _), other in zip(alone, together[0][0], strict=True))
    unbatched = work.output / statistics.median(seconds for _, seconds in alone)
    batched = work.requests * work.output / statistics.median(seconds for _, seconds in together)
    return {"unbatched": unbatched, "batched": batched, "gain": batched / unbatched, "same_tokens": same}


def _alone(model: Model, prompt: torch.Tensor, output: int) -> tuple[list[int], float]:
    began = time.perf_counter()
    tokens: list[int] = generate(model, prompt, output)[0, prompt.shape[1] :].tolist()
    return tokens, time.perf_counter() - began


def _together(model: Model, prompts: list[list[int]], work: Work) -> tuple[list[list[int]], float]:
    context = work.prompt + work.output
    limits = Limits(
        max_batch=len(prompts), max_tokens=2048, context=context, block_size=_BLOCK,
        blocks=len(prompts) * -(-context // _BLOCK),
    )  # fmt: skip
    engine = Engine(Runner(model, context=context), limits)
    for prompt in prompts:
        engine.add(prompt, work.output)
    began = time.perf_counter()
    done = engine.run()
    return [done[n].tokens for n in range(len(prompts))], time.perf_counter() - began


def decode(model: Model, scheme: str, work: Work) -> Facts:
    """Return tokens a second of decode steps by batch, and the bytes of the weights that each step reads."""
    runner = Runner(model, scheme, context=work.context)
    blocks = max(work.batches) * -(-work.context // _BLOCK)
    pages = make_pages(runner.config, blocks, _BLOCK, runner.dtype, runner.device)
    rates = []
    for size in work.batches:
        batch = ragged([(work.context - 1, 1)] * size, blocks, _BLOCK, runner.device)
        runner(batch, pages)
        rates.append(size / statistics.median(_seconds(partial(runner, batch, pages)) for _ in range(_STEPS)))
    return {"weights_bytes": weights_bytes(runner), "batches": work.batches, "tokens_per_s": rates}


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def weights_bytes(runner: Runner) -> int:
    """Return the bytes of all matrices that a decode step multiplies with."""
    return sum(module.nbytes for module in runner.linears())


def provenance(work: Work) -> Facts:
    """Return what the numbers were measured on, and how."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": _numba(),
        "work": asdict(work),
        "method": "batching: output tokens over wall time, prompts included, after a warm-up; unbatched: "
        "workloads.gpt.generate, one request after the other, with its own cache, median of the requests; batched: "
        f"median of {_ROUNDS} rounds of all of them. decode: median of "
        f"{_STEPS} steps, random weights; packed weights with activations in fp32. quality: a model of a quarter "
        "million parameters trained on two sentences",
    }


def _numba() -> str | None:
    try:
        import numba  # noqa: PLC0415  it is in the labs extra
    except ImportError:
        return None
    version: str = numba.__version__
    return version


def _cpu() -> str:
    """Name of the processor as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(facts: Facts, out: Path) -> Path:
    """Write *facts* to *out* (a folder) and return the file."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / FILE
    path.write_text(json.dumps(facts, indent=1) + "\n")
    return path
