"""``xpusim serve``: requests served by a model on a chip, on a simulated clock.

Continuous batching with chunked prefill over paged KV blocks; the time of each step comes from the model's own traced
graph.  Prints throughput, latencies, goodput, occupancy, what binds, and the rate at which it saturates.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.cli.serving_options import (
    add_model,
    cache_type,
    check_common,
    context_of,
    load_family,
)
from simulator.errors import UsageError

if TYPE_CHECKING:
    from simulator.hardware import Chip
    from simulator.serving.clock import Link
    from simulator.serving.family import Family
    from simulator.serving.sequence import Request
    from workloads.inference.serving import Plan
    from workloads.inference.speculate import Speculation

_MOST = 10**6  # requests


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser("serve", help="serve requests on a simulated clock", description=__doc__)
    add_model(parser)
    parser.add_argument("--quant", default="none", metavar="none|w8|w4", help="weights in groups of 128 (none)")
    parser.add_argument("--requests", metavar="CSV", help="a trace: arrival, prompt, output; also Azure's, BurstGPT's")
    parser.add_argument("--columns", metavar="arrival=X,prompt=Y,output=Z", help="names of the trace's columns")
    parser.add_argument("--rate", metavar="RATE", help="requests made up instead: 4/s, 30/min")
    parser.add_argument("--count", type=int, metavar="N", help="how many of them (1000), or of the trace (all)")
    parser.add_argument("--prompt", default="lognormal:512", metavar="D", help="tokens (lognormal:512)")
    parser.add_argument("--output", default="lognormal:128", metavar="D", help="tokens (lognormal:128)")
    parser.add_argument(
        "--arrivals", default="poisson", metavar="poisson|uniform|gamma", help="gamma: bursts (poisson)"
    )
    parser.add_argument("--shared-prefix", type=int, default=0, metavar="N", help="tokens that all prompts begin with")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument("--max-batch", type=int, default=256, metavar="N", help="sequences in a step (256)")
    parser.add_argument("--max-tokens", type=int, default=2048, metavar="N", help="positions in a step (2048)")
    parser.add_argument("--context", type=int, metavar="N", help="positions of a sequence (the preset's, or 8192)")
    parser.add_argument("--blocks", type=int, metavar="N", help="KV blocks (as many as fit)")
    parser.add_argument("--no-prefix-cache", action="store_true", help="forget the blocks of finished sequences")
    parser.add_argument(
        "--capture", metavar="B,B,...", help="batches with a captured graph; decodes are padded to them"
    )
    parser.add_argument(
        "--disaggregate", metavar="prefill=N,decode=M", help="two pools of chips, KV cache sent between"
    )
    parser.add_argument("--link", metavar="RATE", help="between the pools: 50GB/s (the chip's links)")
    parser.add_argument("--slo", metavar="ttft=1s,tpot=50ms", help="what a request may take, for goodput; also e2e")
    parser.add_argument("--json", metavar="FILE", help="write everything as one JSON object")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")
    parser.add_argument("--timeline", metavar="FILE", help="write a trace for ui.perfetto.dev")
    parser.set_defaults(run=run_serve)


def run_serve(options: argparse.Namespace) -> int:
    """Check everything, read or make requests, trace, serve, write what was asked for, print."""
    from hw_models import load_chip
    from simulator.cli.serve_print import print_summary
    from simulator.serving.metrics import objective
    from workloads.inference.serving import serve

    _check(options)
    slo = objective(options.slo) if options.slo else None
    requests = _requests(options)
    chip = load_chip(options.chip, options.set)
    plan = _plan(options, chip)
    summary = serve(plan, requests, slo)
    _write(options, summary)
    print_summary(summary)
    return 0


def _check(options: argparse.Namespace) -> None:
    """Refuse what can be refused before the trace."""
    from simulator.output import check_writable
    from simulator.packing import bits_of

    check_common(options)
    context_of(options, 8192)
    bits_of(options.quant)
    for path in (options.json, options.html, options.timeline):
        if path is not None:
            check_writable(Path(path))
    if (options.requests is None) == (options.rate is None):
        raise UsageError("serve needs requests: either --requests FILE or --rate 4/s, and not both")
    if options.columns and not options.requests:
        raise UsageError("--columns names columns of a trace; it needs --requests FILE")
    for name in ("count", "max_batch", "max_tokens", "context"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    if options.count is not None and options.count > _MOST:
        raise UsageError(f"--count {options.count}: at most {_MOST:,}")
    if options.shared_prefix < 0:
        raise UsageError(f"--shared-prefix {options.shared_prefix}: must be at least 0")
    if options.blocks is not None and options.blocks < 1:
        raise UsageError(f"--blocks {options.blocks}: must be at least 1; nothing can be served without a KV block")
    if options.link and not options.disaggregate:
        raise UsageError("--link joins two pools; it needs --disaggregate prefill=1,decode=1")


def _requests(options: argparse.Namespace) -> "list[Request]":
    from simulator.serving.arrivals import Pattern, length, make, rate
    from simulator.serving.traces import column_mapping, read_trace

    if options.requests:
        found = read_trace(Path(options.requests), column_mapping(options.columns))
        return found[: options.count] if options.count else found
    prompt, output = length(options.prompt, "--prompt"), length(options.output, "--output")
    pattern = Pattern(rate(options.rate), prompt, output, options.arrivals, shared=options.shared_prefix)
    return make(pattern, options.count or 1000, options.seed)


def _plan(options: argparse.Namespace, chip: "Chip") -> "Plan":
    """Share out the memory and say how long steps take."""
    from simulator.program import mode_of
    from simulator.serving.capacity import capacity, position_bytes
    from simulator.serving.scheduler import Limits
    from workloads.inference.families import packed
    from workloads.inference.serving import Plan
    from workloads.inference.speculate import speculation
    from workloads.inference.times import StepTimes

    how = speculation(options.speculate) if options.speculate else None
    readers, writers = _pools(options)
    if how and writers:
        raise UsageError("--speculate does not go with --disaggregate")
    family = packed(load_family(options), options.quant)
    draft = load_family(options, how.draft) if how else None
    cache = cache_type(options)
    room = capacity(
        family,
        chip,
        options.block_size,
        options.max_tokens,
        options.max_batch,
        options.memory_fraction,
        cache,
        options.blocks,
        draft,
    )
    limits = Limits(
        max_batch=options.max_batch,
        max_tokens=options.max_tokens,
        context=context_of(options, 8192),
        block_size=options.block_size,
        blocks=room.blocks,
        prefix_cache=not options.no_prefix_cache,
        draft=how.tokens if how else 0,
    )

    def times(each: "Family") -> StepTimes:
        return StepTimes(each, chip, mode_of(options.mode), options.fidelity, cache, _captured(options.capture))

    return Plan(
        model=options.target,
        setting=_setting(options, how),
        chip=chip,
        limits=limits,
        capacity=room,
        times=times(family),
        readers=readers,
        writers=writers,
        link=_link(options, chip, position_bytes(family, cache)) if writers else None,
        draft=times(draft) if draft else None,
        speculation=how,
        seed=options.seed,
    )


def _setting(options: argparse.Namespace, how: "Speculation | None") -> str:
    """What runs, in one line."""
    weights = options.dtype if options.quant == "none" else f"{options.quant} weights in groups of 128"
    requests = f"requests of {options.requests}" if options.requests else f"{options.arrivals} arrivals, {options.rate}"
    lengths = "" if options.requests else f", prompts {options.prompt}, outputs {options.output}"
    parts = [f"{weights}, {options.mode} mode, {options.fidelity} model", f"{requests}{lengths}"]
    if options.kv_dtype:
        parts.append(f"KV cache in {options.kv_dtype}")
    if how:
        parts.append(f"{how.draft} proposes {how.tokens} tokens, each accepted with {how.acceptance:g}")
    if options.disaggregate:
        parts.append(f"pools {options.disaggregate}")
    return "; ".join(parts)


def _captured(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        sizes = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        sizes = (0,)
    if sizes[0] < 1:
        raise UsageError(f"--capture {text}: wanted batch sizes of at least 1, such as 1,2,4,8")
    return sizes


def _pools(options: argparse.Namespace) -> tuple[int, int]:
    """Engines that read prompts, and engines that decode; (1, 0) for one that does both."""
    text = options.disaggregate
    if text is None:
        return 1, 0
    given = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        readers, writers = int(given["prefill"]), int(given["decode"])
    except (KeyError, ValueError):
        readers = writers = 0
    if len(given) != 2 or min(readers, writers) < 1:
        raise UsageError(f"--disaggregate {text}: wanted prefill=N,decode=M with at least one chip each")
    return readers, writers


def _link(options: argparse.Namespace, chip: "Chip", position: int) -> "Link":
    """The link that was given, or all of the chip's own."""
    from simulator.serving.clock import Link
    from simulator.units import quantity

    if options.link:
        try:
            bandwidth = quantity(options.link, "B/s")
        except ValueError as error:
            raise UsageError(f"--link: {error}") from None
        if bandwidth < 1:
            raise UsageError(f"--link {options.link}: must be more than 0")
        return Link(bandwidth, chip.links.latency if chip.links else 0, position)
    if chip.links is None:
        raise UsageError(f"{chip.name} has no links; say --link 50GB/s")
    return Link(chip.links.bandwidth * chip.links.count, chip.links.latency, position)


def _write(options: argparse.Namespace, summary: Any) -> None:
    if options.json:
        import json

        from simulator.output import write_text

        write_text(Path(options.json), json.dumps(summary.data(), indent=1) + "\n")
    if options.html:
        from simulator.report.serving import write_serving_page

        write_serving_page(summary, Path(options.html))
    if options.timeline:
        from simulator.report.serving_timeline import write_serving_timeline

        write_serving_timeline(summary, Path(options.timeline))
