"""Lab 1: what forward, backward and update of a training step cost, counted on the hand-written engine."""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simulator.dtypes import DType
from simulator.graph import OperatorGraph, OpKind, Phase, Workload
from simulator.hardware import Chip
from simulator.result import Result
from simulator.simulation import simulate
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import Resource
from workloads.autograd.digits import load_digits
from workloads.autograd.export import recording
from workloads.autograd.functional import cross_entropy
from workloads.autograd.law import ROWS, Case, Count, cases, count
from workloads.autograd.modules import MLP
from workloads.autograd.optimizers import AdamW
from workloads.autograd.tensor import Tensor
from workloads.autograd.training import train
from workloads.lab import LabAnswer, LabTable

DIGITS = (64, 128, 10)
DIGITS_BATCH, EPOCHS = 32, 15
WIDE = (2048, 2048, 2048, 2048)
WIDE_BATCH = 2048
_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_UPDATE_BYTES = 7 * DType.BF16.bits // 8  # AdamW reads p, g, m, v and writes p, m, v


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """One phase of one step: FLOP, bytes, seconds of its operators and what binds for most of them."""

    phase: str
    flops: int
    products: int
    nbytes: int
    seconds: float
    bound: Resource


def answer(chip: Chip) -> LabAnswer:
    """Train the digits, record a step of them and of a wide MLP, play both on *chip*, and try the law."""
    started = time.perf_counter()
    reached = _train_digits()
    took = time.perf_counter() - started
    small = simulate(step_graph(DIGITS, DIGITS_BATCH), chip)
    wide = simulate(step_graph(WIDE, WIDE_BATCH), chip)
    tried = [(case, count(graph := case.graph()), simulate(graph, chip).peak_memory_bytes) for case in cases()]
    costs = phase_costs(wide)
    rows, even = update_rows(chip), even_rows(wide)
    return LabAnswer(
        question="what do forward, backward and update of a training step cost?",
        sentence=_sentence(costs, rows, chip, reached, took),
        tables=(_cost_table(small, wide, chip), _law_table(tried)),
        bound=wide.bound,
        verdict=_verdict(wide, costs, rows, even),
        data={
            "digits": {"accuracy": reached, "seconds": took, "epochs": EPOCHS, **_step_data(small)},
            "wide": _step_data(wide),
            "update_outweighs_products_below_rows": {"data_sheet": rows, "simulated": even},
            "law": [_law_data(*each) for each in tried],
        },
    )


def step_graph(sizes: tuple[int, ...], batch: int) -> OperatorGraph:
    """Run one AdamW step of an MLP of these *sizes* in the engine and return what it did, as if in bf16."""
    generator = np.random.default_rng(0)
    model = MLP(sizes, generator).cast(np.float32)
    optimizer = AdamW(model.parameters())
    x = generator.random((batch, sizes[0]), dtype=np.float32)
    labels = generator.integers(0, sizes[-1], batch)
    name = "MLP " + "-".join(str(size) for size in sizes)
    workload = Workload(name, "train", batch, tokens=batch, dtype=DType.BF16)
    with recording(model, optimizer, workload, DType.BF16) as step:
        cross_entropy(model(Tensor(x)), labels).backward()
        optimizer.step()
    return step.graph


def phase_costs(result: Result) -> list[PhaseCost]:
    """Return forward, backward and update of *result*; gaps between operators belong to none of them."""
    return [_phase_cost(result, phase) for phase in _PHASES]


def _phase_cost(result: Result, phase: Phase) -> PhaseCost:
    found = [each for each in result.operators if each.operator.phase is phase]
    bounds = dict.fromkeys(Resource, 0)
    for each in found:
        bounds[each.bound] += each.end - each.start
    return PhaseCost(
        phase="update" if phase is Phase.OPTIMIZER else str(phase),
        flops=sum(each.operator.flops for each in found),
        products=sum(each.operator.flops for each in found if each.operator.kind is OpKind.MATMUL),
        nbytes=sum(each.operator.nbytes for each in found),
        seconds=sum(each.end - each.start for each in found) / PS_PER_SECOND,
        bound=max(bounds, key=lambda resource: bounds[resource]),
    )


def update_rows(chip: Chip) -> float:
    """Rows a step below which AdamW's bytes take longer than all products, by the data sheet.

    Products take 6 P rows / peak, the update 14 P bytes / bandwidth.
    """
    return _UPDATE_BYTES / 6 * chip.peak(DType.BF16) / chip.dram_bandwidth


def _train_digits() -> float:
    """Return the accuracy on the test part after EPOCHS passes."""
    model = MLP(DIGITS, np.random.default_rng(0)).cast(np.float32)
    *_, last = train(model, AdamW(model.parameters(), 3e-3), load_digits(), EPOCHS, DIGITS_BATCH)
    return last.accuracy


def _sentence(costs: list[PhaseCost], rows: float, chip: Chip, reached: float, took: float) -> str:
    forward, backward, update = costs
    layers = len(WIDE) - 1
    return (
        f"Backward takes {backward.products / forward.products:.2f} times the products of forward (2 - 1/{layers}: "
        f"the first of {layers} layers needs no gradient of its input), and the update "
        f"{update.flops / forward.flops:.2%} of its FLOP but {update.nbytes / forward.nbytes:.0%} of its bytes: below "
        f"{rows:,.0f} rows a step the data sheet of {chip.name} lets it take longer than all products. "
        f"The same engine reads digits: {reached:.1%} right after {took:.1f} s of training."
    )


def _cost_table(small: Result, wide: Result, chip: Chip) -> LabTable:
    rows = []
    for result in (small, wide):
        name = f"{result.graph.workload.name}, {result.graph.workload.batch} rows"
        for cost in phase_costs(result):
            rows.append((name, *_cost_cells(cost, result)))
            name = ""
        waits = result.time - sum(each.end - each.start for each in result.operators)
        rows.append(("", "gaps", "", "", seconds(waits), f"{waits / result.time:.0%}", "launch"))
    return LabTable(
        title="One AdamW step of the hand-written engine, in bf16",
        columns=("network", "phase", ">FLOP", ">bytes", f">time on {chip.name}", ">share", "bound by"),
        rows=rows,
        note="multiply-add = 2 FLOP; bytes if nothing is cached; the states of AdamW in bf16 as well",
    )


def _cost_cells(cost: PhaseCost, result: Result) -> tuple[str, ...]:
    ps = cost.seconds * PS_PER_SECOND
    return (
        cost.phase, decimal(cost.flops, ""), decimal(cost.nbytes, "B"), seconds(ps), f"{ps / result.time:.0%}",
        str(cost.bound),
    )  # fmt: skip


def _law_table(tried: list[tuple[Case, Count, int]]) -> LabTable:
    rows = []
    for case, found, peak in tried:
        rule = f"{found.total / _rule(case):.2f}" if case.parameters else ""
        rows.append((
            case.name, f"{found.backward / found.forward:.3f}", f"{case.backward:.3f}",
            f"{found.recompute / found.forward:.2f}", f"{found.total / found.forward:.3f}", rule,
            decimal(peak, "B"), case.why,
        ))  # fmt: skip
    return LabTable(
        title="The 3x law and its exceptions: products counted on traced PyTorch steps, in units of forward",
        columns=("program", ">backward", ">formula", ">again", ">step", ">/ 6PT", ">peak", "why"),
        rows=rows,
        note="again: recomputed by checkpoints. 6PT: the rule of thumb, P parameters, T rows. peak: memory, fp32",
    )


def _rule(case: Case) -> int:
    return 6 * case.parameters * ROWS


def _verdict(wide: Result, costs: list[PhaseCost], rows: float, even: float) -> str:
    update = costs[-1]
    binds = "the memory" if update.bound is Resource.BANDWIDTH else "the vector units"
    return (
        f"Of a SoC training asks three things. The products of backward have transposed operands but the sizes of "
        f"forward: the same arrays, busy three times as long. What forward makes has to stay until backward: here "
        f"{decimal(kept_bytes(wide.graph), 'B')}, which recomputing trades for a third more products. The update does "
        f"{update.flops / update.nbytes:.1f} FLOP a byte, so arrays do not help; {binds} would have to, or more rows "
        f"a step: it takes as long as all products at {rows:,.0f} rows if memory alone limits it, at about {even:,.0f} "
        f"as simulated."
    )


def even_rows(wide: Result) -> float:
    """Rows at which the update takes as long as the products, whose time is taken to grow with the rows."""
    products = sum(each.seconds for each in wide.operators if each.operator.kind is OpKind.MATMUL)
    return wide.graph.workload.batch * phase_costs(wide)[-1].seconds / products


def kept_bytes(graph: OperatorGraph) -> int:
    """Return the bytes of results of the forward pass that the backward pass reads."""
    forward, backward = ([op for op in graph if op.phase is phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
    made = {each.storage for op in forward for each in op.outputs}
    read = {each.storage for op in backward for each in op.inputs}
    return sum(storage.nbytes for storage in graph.storages if storage.id in made & read)


def _step_data(result: Result) -> dict[str, Any]:
    return {
        "network": result.graph.workload.name,
        "rows": result.graph.workload.batch,
        "seconds_predicted": result.seconds,
        "bound": str(result.bound),
        "peak_memory_bytes": result.peak_memory_bytes,
        "phases": [asdict(cost) for cost in phase_costs(result)],
    }


def _law_data(case: Case, found: Count, peak: int) -> dict[str, Any]:
    return {
        "program": case.name,
        "forward_flops": found.forward,
        "backward": found.backward / found.forward,
        "backward_formula": case.backward,
        "recompute": found.recompute / found.forward,
        "recompute_formula": case.recompute,
        "over_6pt": found.total / _rule(case) if case.parameters else None,
        "peak_memory_bytes": peak,
        "why": case.why,
    }
