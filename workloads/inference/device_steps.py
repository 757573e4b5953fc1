"""What `device_run` measures of a model: decode, prefill and mixed steps, their kernels, and requests served."""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from simulator.serving import Limits
from workloads.gpt.model import Model
from workloads.inference.batch import Batch
from workloads.inference.cache import Pages
from workloads.inference.device_models import BLOCK_SIZE, Sizes, decode_step, mixed_step, random_pages, runner_of
from workloads.inference.device_timing import Facts, device_us, eager_us, graph_of, kernels_of
from workloads.inference.engine import Engine
from workloads.inference.graphs import fill, padded
from workloads.inference.model import Runner
from workloads.inference.sampling import Sampling

PROFILED = (1, 16, 128)  # sequences in a decode step whose kernels are listed
PROFILED_CONTEXT = 2048
Layers = tuple[Pages, ...]


def decode_steps(runner: Runner, pages: Layers, sizes: Sizes) -> Iterator[Facts]:
    """Time of a decode step for every batch and context: a graph is captured once a batch, contexts are its data."""
    blocks = pages[0][0].shape[0]
    widest = -(-max(sizes.contexts) // BLOCK_SIZE)
    for batch in sizes.batches:
        place = padded(batch, False, widest, sizes.device)
        fill(place, decode_step(batch, max(sizes.contexts), blocks, sizes))
        run = _runnable(runner, place, pages, sizes)
        for context in sizes.contexts:
            fill(place, decode_step(batch, context, blocks, sizes, seed=context))
            yield {"batch": batch, "context": context, **device_us(run)}
        del run


def _runnable(runner: Runner, batch: Batch, pages: Layers, sizes: Sizes) -> Any:
    """The step as a replay of a captured graph; dry, as it is."""
    if sizes.dry:
        return lambda: runner(batch, pages)
    return graph_of(lambda: runner(batch, pages)).replay


def prefill_steps(runner: Runner, pages: Layers, sizes: Sizes) -> Iterator[Facts]:
    """Time of one prompt of each length: eagerly, as a graph, and as the graph of the kernel that reads the cache."""
    for length in sizes.prompts:
        batch = mixed_step([(0, length)], pages[0][0].shape[0], sizes)
        facts: Facts = {"tokens": length, "wall_us": eager_us(partial(runner, batch, pages))}
        facts["graph"] = device_us(_runnable(runner, batch, pages, sizes))
        if length in sizes.prompts[::2]:
            paged = replace(batch, fresh=False)
            facts["graph_paged"] = device_us(_runnable(runner, paged, pages, sizes))
        yield facts


def mixed_steps(runner: Runner, pages: Layers, sizes: Sizes) -> Iterator[Facts]:
    """Time of a step with one chunk of a prompt, without and with decodes beside it."""
    context = max(sizes.contexts)
    for decodes in (0, 16, 64):
        for start in (0, context - sizes.chunk):
            pieces = [(context - 1, 1)] * (decodes // 16 if sizes.dry else decodes) + [(start, sizes.chunk)]
            batch = mixed_step(pieces, pages[0][0].shape[0], sizes)
            facts: Facts = {"decodes": decodes, "context": context, "chunk": sizes.chunk, "start": start}
            facts["wall_us"] = eager_us(partial(runner, batch, pages))
            yield facts | {"graph": device_us(_runnable(runner, batch, pages, sizes))}


def profiles(runner: Runner, pages: Layers, sizes: Sizes) -> Iterator[Facts]:
    """Kernels of a replayed decode step, and of one prompt."""
    context, blocks = min(PROFILED_CONTEXT, max(sizes.contexts)), pages[0][0].shape[0]
    for size in PROFILED[:1] if sizes.dry else PROFILED:
        run = _runnable(runner, decode_step(size, context, blocks, sizes), pages, sizes)
        yield {"step": "decode", "batch": size, "context": context, **kernels_of(run)}
    length = sizes.prompts[len(sizes.prompts) // 2]
    run = _runnable(runner, mixed_step([(0, length)], blocks, sizes), pages, sizes)
    yield {"step": "prefill", "tokens": length, **kernels_of(run)}


def measure_model(model: Model, scheme: str, sizes: Sizes) -> Iterator[tuple[str, Any]]:
    """Yield every part of what is measured of *model* with weights of *scheme*, by name, as it is there."""
    before = _allocated(sizes)
    runner = runner_of(model, scheme, sizes)
    yield "weights_bytes", _allocated(sizes) - before
    positions = max(max(65, *sizes.batches) * max(sizes.contexts), *sizes.prompts) + 1024
    pages = random_pages(model.config, positions, sizes)
    if not sizes.dry:
        torch.cuda.reset_peak_memory_stats()
    yield "decode", list(decode_steps(runner, pages, sizes))
    yield "prefill", list(prefill_steps(runner, pages, sizes))
    yield "mixed", list(mixed_steps(runner, pages, sizes))
    yield "kernels", list(profiles(runner, pages, sizes))
    yield "cache_bytes", sum(part.numel() * part.element_size() for pair in pages for part in pair)
    if not sizes.dry:
        yield "peak_bytes", torch.cuda.max_memory_allocated() - before


def _allocated(sizes: Sizes) -> int:
    return 0 if sizes.dry else torch.cuda.memory_allocated()


class Timed(Engine):
    """An engine that also takes the time of the model's part of each step on the device."""

    def __init__(self, runner: Runner, limits: Limits) -> None:
        super().__init__(runner, limits)
        self.device_us: list[float] = []

    def forward(self, batch: Batch) -> tuple[Tensor, bool]:
        if self.graphs is None:
            began = time.perf_counter()
            found = super().forward(batch)
            self.device_us.append(1e6 * (time.perf_counter() - began))
            return found
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        found = super().forward(batch)
        end.record()
        end.synchronize()
        self.device_us.append(1000 * start.elapsed_time(end))
        return found


def serve(model: Model, scheme: str, sizes: Sizes) -> Facts:
    """Serve requests of random lengths that are all there at the start; every step with its slices and times."""
    runner = runner_of(model, scheme, sizes)
    count, prompt, output = sizes.served
    context = prompt + output
    limits = Limits(
        max_batch=count, max_tokens=sizes.chunk, context=context, block_size=BLOCK_SIZE,
        blocks=count * -(-context // BLOCK_SIZE) * 3 // 4,
    )  # fmt: skip
    engine = Timed(runner, limits)
    _warm(engine, prompt)
    generator = torch.Generator().manual_seed(7)
    first = engine.requests
    for number in range(count):
        length = int(torch.randint(max(1, prompt // 8), prompt + 1, (), generator=generator))
        wanted = int(torch.randint(max(1, output // 4), output + 1, (), generator=generator))
        ids = torch.randint(100, (length,), generator=generator).tolist()
        engine.add(ids, wanted, Sampling(seed=number))
    began = time.perf_counter()
    done = engine.run()
    seconds = time.perf_counter() - began
    tokens = sum(len(each.tokens) for number, each in done.items() if number >= first)
    return {
        "limits": {name: getattr(limits, name) for name in Limits.__slots__},
        "seconds": seconds, "output_tokens": tokens, "tokens_per_second": tokens / seconds,
        "preemptions": engine.scheduler.preemptions, "first_request": first,
        "requests": [[n, *engine.asked[n]] for n in range(first, engine.requests)],
        "steps": [_shown(engine, index) for index in range(len(engine.records))],
    }  # fmt: skip


def _warm(engine: Timed, prompt: int) -> None:
    """Capture every batch size, and compile what prompts need, before the clock starts."""
    size = 1
    while size <= engine.scheduler.limits.max_batch:
        for _ in range(size):
            engine.add([1, 2, 3], 3)
        engine.run()
        size *= 2
    engine.add([5] * prompt, 2)
    engine.run()
    engine.records.clear()
    engine.device_us.clear()


def _shown(engine: Timed, index: int) -> Facts:
    record = engine.records[index]
    facts: Facts = {"us": round(1e6 * record.seconds, 1), "device_us": round(engine.device_us[index], 1)}
    facts["replayed"] = record.replayed
    facts["decodes"] = [start for _, start, count, _ in record.slices if count == 1]
    facts["chunks"] = [[start, count, int(samples)] for _, start, count, samples in record.slices if count > 1]
    return facts
