"""Correctness on the device that is measured: every kernel beside torch in fp64, and the engine beside itself.

Errors are norm(out - reference) / norm(reference): bf16 operands give 1e-3 to 1e-2, fp32 far below 1e-3; what is not a
number never passes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from simulator.serving import Limits
from workloads.gpt.generate import generate
from workloads.gpt.model import Model
from workloads.gpt.presets import preset
from workloads.inference import launch, reference
from workloads.inference.device_models import BLOCK_SIZE, Sizes, decode_step, mixed_step, random_pages
from workloads.inference.device_timing import Facts
from workloads.inference.engine import Engine
from workloads.inference.graphs import Graphs
from workloads.inference.launch import Tile, tiles_for
from workloads.inference.model import Runner
from workloads.inference.quantise import pack, unpack

LIMIT = 1e-2  # of bf16; fp16 and fp32 are better


def guarded(part: Callable[..., object], *arguments: object) -> object:
    """What *part* returns, or what went wrong in it: one failure must not lose the rest."""
    try:
        return part(*arguments)
    except Exception as error:  # compilers and drivers raise anything
        return {"ok": False, "error": f"{type(error).__name__}: {str(error)[:400]}"}


def all_checks(sizes: Sizes) -> Facts:
    """Return the checks by name, each with ``ok``."""
    return {name: guarded(check) for name, check in _checks(sizes)}


def _checks(sizes: Sizes) -> Iterator[tuple[str, Callable[[], object]]]:
    shape = (200, 300) if sizes.dry else (1000, 1111 // 8 * 8)
    for bits in (4, 8):
        for rows in (1, 3, 17) if sizes.dry else (1, 2, 7, 16, 31, 64, 100, 300):
            for tile in tiles_for(rows):
                yield f"w{bits} {rows} rows, {tile}", _bound(_linear, bits, rows, shape, tile, sizes)
    for group, head, window in ((4, 64, 0), (2, 128, 0), (4, 128, 100), (1, 96, 0)):
        yield f"attention {group} a key head, {head} wide, window {window}", _bound(_attend, group, head, window, sizes)
    for normed in (False, True):
        yield f"rows {'with' if normed else 'without'} norm of heads", _bound(_rows, normed, sizes)
    for scheme in ("none", "w4"):
        yield f"replay beside eager, {scheme}", _bound(_replay, scheme, sizes)
    yield "engine beside the unbatched model", _bound(_engine, sizes)


def _bound(check: Callable[..., Facts], *arguments: object) -> Callable[[], Facts]:
    return lambda: check(*arguments)


def relative(out: Tensor, wanted: Tensor) -> float:
    """Return norm(out - wanted) / norm(wanted)."""
    return float((out.double() - wanted.double()).norm() / wanted.double().norm())


def _judged(*errors: float, limit: float = LIMIT) -> Facts:
    return {"ok": all(error <= limit for error in errors), "errors": [float(f"{error:.3g}") for error in errors]}


def _linear(bits: int, rows: int, shape: tuple[int, int], tile: Tile, sizes: Sizes) -> Facts:
    weight = torch.randn(shape, device=sizes.device)
    packed = pack(weight, bits)
    x = torch.randn(rows, shape[1], device=sizes.device, dtype=sizes.dtype)
    wanted = x.double() @ unpack(packed, shape[1], torch.float64).t()
    found = [launch.linear(x, packed.data, packed.scales, packed.zeros, bits, tile) for _ in range(2)]
    facts = _judged(*(relative(each, wanted) for each in found))
    facts["ok"] &= bool((found[0] == found[1]).all())  # parts are added in the same order each time
    return facts


def _attend(group: int, head: int, window: int, sizes: Sizes) -> Facts:
    kv_heads, scale = 2, 20 if sizes.dry else 1
    pieces = [(0, 1), (700 // scale, 1), (2000 // scale, 1), (0, 300 // scale), (555 // scale, 130 // scale)]
    config = replace(preset("llama-8b"), layers=1, heads=group * kv_heads, kv_heads=kv_heads, head_dim=head)
    ((keys, values),) = random_pages(config, 5000, sizes)
    batch = mixed_step(pieces, keys.shape[0], sizes)
    q = torch.randn(len(batch.tokens), group * kv_heads, head, device=sizes.device, dtype=sizes.dtype)
    where = batch.tables, batch.starts, batch.lengths, batch.decodes
    found = launch.attention(q, keys, values, *where, batch.longest, window)
    wanted = reference.attention(q.double(), keys.double(), values.double(), *where, window)
    return _judged(relative(found[: batch.decodes], wanted[: batch.decodes]), relative(found, wanted))


def _rows(normed: bool, sizes: Sizes) -> Facts:
    heads, kv_heads, head, tokens = 6, 2, 64, 9
    config = replace(preset("llama-8b"), layers=1, heads=heads, kv_heads=kv_heads, head_dim=head)
    ((keys, values),) = random_pages(config, 256, sizes)
    qkv, gains = _random(sizes, tokens, (heads + 2 * kv_heads) * head), _random(sizes, 2, head)
    angles = torch.rand(100, head // 2, device=sizes.device) * 6
    at = torch.arange(tokens, device=sizes.device, dtype=torch.int32) + 7
    slots = torch.where(at == 9, -1, at * 3)
    own, other = [(keys.clone(), values.clone()) for _ in range(2)]
    rest = angles.cos(), angles.sin(), at, slots, *((gains[0], gains[1]) if normed else (None, None)), 1e-6
    found = (*launch.place(qkv, *own, *rest), *own)
    wanted = (*reference.place(qkv, *other, *rest), *other)
    x, y = _random(sizes, tokens, 1000), _random(sizes, tokens, 1000)
    sums = zip(launch.add_norm(x, y, y[0], 1e-5), reference.add_norm(x, y, y[0], 1e-5), strict=True)
    return _judged(
        *(relative(one, two) for one, two in zip(found, wanted, strict=True)),
        *(relative(one, two) for one, two in sums),
        relative(launch.gate(x), reference.gate(x)),
    )


def _random(sizes: Sizes, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, device=sizes.device, dtype=sizes.dtype)


def _small(sizes: Sizes, dtype: torch.dtype) -> Model:
    config = replace(
        preset("qwen3-0.6b"), layers=2, width=128, heads=4, kv_heads=2, head_dim=64, ffn=256, vocab=200, context=256,
        tied=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Model(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    return model.to(sizes.device, dtype).eval()


def _replay(scheme: str, sizes: Sizes) -> Facts:
    """Padded replays write the same logits and the same cache as eager steps."""
    runner = Runner(_small(sizes, sizes.dtype), scheme)
    pages = random_pages(runner.config, 2048, sizes)
    batch = decode_step(3, 150, 128, sizes)
    eager = runner(batch, pages)
    if sizes.dry:
        return _judged(0.0 if bool(eager.isfinite().all()) else 1.0)
    limits = Limits(max_batch=8, context=256, block_size=BLOCK_SIZE, blocks=128)
    replayed = Graphs(runner, pages, limits).run(batch)
    assert replayed is not None  # it is all decode
    return _judged(relative(replayed, eager), limit=3 * LIMIT)  # libraries choose other kernels for four rows


def _engine(sizes: Sizes) -> Facts:
    """Greedy tokens in fp32 of twelve requests together, of which some are preempted, beside each alone."""
    model = _small(sizes, torch.float32)
    limits = Limits(max_batch=5, max_tokens=48, context=128, block_size=BLOCK_SIZE, blocks=20)
    engine = Engine(Runner(model), limits)
    generator = torch.Generator().manual_seed(1)
    most = 3 if sizes.dry else 12
    prompts = [torch.randint(200, (5 + 6 * n,), generator=generator).tolist() for n in range(most)]
    for prompt in prompts:
        engine.add(prompt, 4 if sizes.dry else 30)
    done = engine.run()
    same = [_alone(model, prompt, len(done[n].tokens)) == done[n].tokens for n, prompt in enumerate(prompts)]
    replayed = sum(record.replayed for record in engine.records)
    return {
        "ok": all(same), "same": sum(same), "of": len(same), "preemptions": engine.scheduler.preemptions,
        "steps": len(engine.records), "replayed": replayed,
    }  # fmt: skip


def _alone(model: Model, prompt: list[int], count: int) -> list[int]:
    """The tokens of one request by `workloads.gpt`: no batch, no pages."""
    ids = torch.tensor([prompt], device=model.embedding.weight.device)
    tokens: list[int] = generate(model, ids, count)[0, len(prompt) :].tolist()
    return tokens
