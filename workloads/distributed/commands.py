"""The commands of this lab: each runs, and prints one table with its verdict below."""

import argparse
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from frontends import parse_mesh
from simulator.errors import UsageError
from simulator.units import binary, decimal, quantity
from workloads.distributed.job import TYPES, Job
from workloads.distributed.launch import run_processes
from workloads.distributed.predicted import wire_by_rank
from workloads.distributed.ring import all_reduce, sent_bytes
from workloads.distributed.trainer import DIMENSIONS, train, train_alone
from workloads.distributed.volume import volumes

TOLERANCE = {"fp64": 1e-12, "fp32": 1e-5}
_REPEATS = 5


def parallel(text: str, world: int | None = None) -> tuple[int, int]:
    """Return the ranks of dp and tp; UsageError for other names, and if they do not multiply to *world*."""
    found = parse_mesh(text)
    for name in found:
        if name not in DIMENSIONS:
            raise UsageError(f"--parallel: this lab knows dp and tp, got {name!r}")
    dp, tp = (found.get(name, 1) for name in DIMENSIONS)
    if min(dp, tp) < 1:
        raise UsageError(f"--parallel: every dimension has at least one rank, got {text}")
    if world is not None and dp * tp != world:
        raise UsageError(f"--world {world} does not factor into dp={dp}, tp={tp}, which has {dp * tp}")
    return dp, tp


def read(text: str, unit: str, option: str) -> int:
    """Return a quantity of the command line; UsageError says which option is wrong."""
    try:
        return quantity(text, unit)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return *rows* below *columns*, all but the first set to the right."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for place, title in enumerate(columns):
        made.add_column(title, justify="right" if place else "left")
    for row in rows:
        made.add_row(*row)
    return made


def run(options: argparse.Namespace, console: Console) -> int:
    """Train alone and in parallel; print losses, bytes and times side by side; 1 if they are not as they should be."""
    dp, tp = parallel(options.parallel, options.world)
    if options.collectives not in ("ring", "torch"):
        raise UsageError(f"--collectives is ring or torch, got {options.collectives!r}")
    ring = options.collectives == "ring"
    job = Job(options.model, dp, tp, options.dtype, options.steps, ring=ring)
    ranks = run_processes(train, job.world, job)
    alone, predicted = train_alone(job), wire_by_rank(job)
    console.print(f"{job.model}, {job.dtype}, dp={dp} x tp={tp}: {job.world} processes over gloo\n")
    console.print(_losses(job, alone, ranks))
    console.print()
    console.print(_wire(ranks, predicted, ring))
    right, text = verdict(job, alone, ranks, predicted)
    console.print(f"\n{text}")
    return 0 if right else 1


def mean_losses(job: Job, ranks: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the loss of each step over the whole batch: the mean of its parts, which are of one size."""
    return [sum(rank["losses"][step] for rank in ranks) / len(ranks) for step in range(job.steps)]


def _losses(job: Job, alone: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (str(step), f"{one:.9f}", f"{several:.9f}", f"{abs(several - one):.1e}", f"{1e3 * slowest:.1f} ms")
        for step, (one, several, slowest) in enumerate(
            zip(
                alone["losses"],
                mean_losses(job, ranks),
                (max(rank["seconds"][step] for rank in ranks) for step in range(job.steps)),
                strict=True,
            )
        )
    ]
    return table(("step", "loss, one process", "loss, parallel", "difference", "time"), rows)


def _wire(ranks: Sequence[Mapping[str, Any]], predicted: Sequence[int], ring: bool) -> Table:
    rows = [
        (
            str(rank),
            f"{found['sent'][-1]:,} B" if ring else "not seen",
            f"{predicted[rank]:,} B",
            "ring" if ring else f"{found['calls'][-1]} of {found['summed'][-1]:,} B",
        )
        for rank, found in enumerate(ranks)
    ]
    return table(("rank", "sent a step", "predicted from the graph", "all-reduces"), rows)


def verdict(
    job: Job, alone: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]], predicted: Sequence[int]
) -> tuple[bool, str]:
    """Return whether losses and bytes are as they should be, and two lines that say so."""
    allowed, pairs = TOLERANCE[job.dtype], zip(alone["losses"], mean_losses(job, ranks), strict=True)
    worst = max(abs(one - several) / abs(one) for one, several in pairs)
    same = worst <= allowed
    losses = f"losses {_equal(same)} to the single process (largest difference {worst:.1e}, allowed {allowed:g})"
    if not job.ring:
        return same, f"{losses}\ntorch does not say what it sends: --collectives ring counts it"
    sent = all(set(rank["sent"]) == {predicted[place]} for place, rank in enumerate(ranks))
    return same and sent, f"{losses}\nbytes on the wire {_equal(sent)} to the prediction on all ranks"


def _equal(same: bool) -> str:
    return "equal" if same else "NOT EQUAL"


def ring_once(elements: int) -> dict[str, Any]:
    """Sum a tensor both ways as this rank; return bytes sent, seconds of each and the largest difference."""
    random = torch.Generator().manual_seed(dist.get_rank())
    given = torch.randn(elements, generator=random, dtype=TYPES["fp32"])
    sent, ours, theirs = 0, [], []
    for _ in range(_REPEATS):
        mine, other = given.clone(), given.clone()
        dist.barrier()
        start = perf_counter()
        sent = all_reduce(mine)
        middle = perf_counter()
        dist.barrier()
        again = perf_counter()
        dist.all_reduce(other)
        ours.append(middle - start)
        theirs.append(perf_counter() - again)
    return {"sent": sent, "ring": min(ours), "torch": min(theirs), "difference": float((mine - other).abs().max())}


def ring(options: argparse.Namespace, console: Console) -> int:
    """Run the ring beside ``dist.all_reduce``; print bytes, times and bus bandwidth."""
    nbytes = read(options.bytes, "B", "--bytes")
    if nbytes < 4 or nbytes % 4:
        raise UsageError(f"--bytes: a tensor of fp32 has a positive multiple of 4 bytes, got {nbytes}")
    if options.world < 2:
        raise UsageError(f"--world: a ring has at least 2 ranks, got {options.world}")
    found = run_processes(ring_once, options.world, nbytes // 4)
    rows = []
    for rank, each in enumerate(found):
        wanted = sent_bytes(nbytes // 4, 4, options.world, rank)
        rows.append((str(rank), f"{each['sent']:,} B", f"{wanted:,} B", *(f"{1e3 * each[k]:.2f} ms" for k in _WAYS)))
    console.print(f"all-reduce of {binary(nbytes)} over {options.world} processes, best of {_REPEATS}\n")
    console.print(table(("rank", "sent", "predicted", "ring", "torch"), rows))
    bus = {way: 2 * (1 - 1 / options.world) * nbytes / max(each[way] for each in found) for way in _WAYS}
    console.print(
        f"\nbus bandwidth {decimal(bus['ring'], 'B/s')} by the ring, {decimal(bus['torch'], 'B/s')} by torch; "
        f"largest difference {max(each['difference'] for each in found):.1e}"
    )
    return 0


_WAYS = ("ring", "torch")


def volume(options: argparse.Namespace, console: Console) -> int:
    """Print what data and tensor parallelism of a preset send in a step, and the bandwidth that hides it."""
    dp, tp = parallel(options.parallel)
    if dp * tp == 1:
        raise UsageError("--parallel: one rank sends nothing; write, say, dp=8,tp=8")
    peak = read(options.peak, "FLOP/s", "--peak")
    found = [each for each in volumes(options.model, dp, tp, options.batch, options.seq) if each.ranks > 1]
    rows = [
        (
            f"{each.kind} x {each.ranks}",
            decimal(each.paper, "B"),
            decimal(each.payload, "B"),
            decimal(each.sent, "B"),
            decimal(each.bandwidth(peak), "B/s"),
            decimal(each.bandwidth(peak, 0.05), "B/s"),
        )
        for each in found
    ]
    tokens = options.batch * options.seq
    console.print(f"{options.model}, bf16, dp={dp} x tp={tp}, {tokens:,} tokens a replica, chips of {options.peak}\n")
    heads = ("parallel", "reduced, paper", "traced", "a rank sends", "equal time", "5 % of it")
    console.print(table(heads, rows))
    console.print(
        "\nbandwidths of a chip in each direction at which sending takes as long as the FLOP beside it at peak, or 5 % "
        "of that.\nGradients hide behind the backward pass; tensor parallel sums stand between dependent products."
    )
    return 0
