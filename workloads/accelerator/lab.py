"""Lab 11: given the model, how large should the array of multipliers and the SRAM be?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from frontends import trace
from hw_models.array_model import Axis, Binds, Program, Recommendation, Sweep, recommend, sweep
from simulator.hardware import Chip
from simulator.units import binary, decimal, seconds
from workloads import build
from workloads.accelerator.data import recommendation
from workloads.accelerator.grid import DOUBLINGS, QUADRUPLINGS, axes_around, base_chip, float_type
from workloads.accelerator.words import percent, resource
from workloads.lab import LabAnswer, LabTable

MODELS, PHASES = ("gpt2", "llama-8b"), ("prefill", "decode")
SEQ, CONTEXT = 512, 1024


@dataclass(frozen=True, slots=True)
class Run:
    """One model in one phase: its sweep, and what is enough at each bandwidth, the smallest first."""

    model: str
    phase: str
    sweep: Sweep
    every: list[Recommendation]

    @property
    def given(self) -> Recommendation:
        """What is enough at the bandwidth that the chip has."""
        own = self.sweep.program.chip.dram_bandwidth
        return next(each for each in self.every if each.point.bandwidth == own)


def runs(base: Chip) -> Iterator[Run]:
    """Sweep every model in every phase around *base*."""
    dtype = float_type(base)
    array = base.matrix.array
    assert array is not None  # a base chip has one
    single = base.cores * array.count == 1  # several arrays have many more plans to try
    axes = axes_around(base, dtype, DOUBLINGS if single else QUADRUPLINGS)
    for model in MODELS:
        for phase in PHASES:
            program = build(model, phase, seq=SEQ, context=CONTEXT)
            graph = trace(program.module, program.args, program.kwargs, workload=program.workload, dtype=str(dtype))
            found = sweep(Program(graph, base), axes)
            yield Run(model, phase, found, recommend(found)[1])


def answer(chip: Chip) -> LabAnswer:
    """Size the arrays of *chip*; if it has none, one core of ours."""
    base = base_chip(chip)
    found = list(runs(base))
    driver = next(each for each in found if (each.model, each.phase) == (MODELS[-1], "prefill"))
    return LabAnswer(
        question="given the model, how large should the array of multipliers and the SRAM be?",
        sentence=_sentence(chip, base, found),
        tables=(_sizes_table(base, found), _bandwidth_table(found)),
        bound=resource(driver.given.point),
        verdict=_verdict(base, found),
        data={
            "base": base.name,
            "cores": base.cores,
            "bandwidth_bytes_per_second": base.dram_bandwidth,
            "threshold": driver.given.threshold,
            "runs": [_data(each) for each in found],
        },
    )


def _of(found: Sequence[Run], model: str) -> tuple[Run, Run]:
    prefill, decode = (each for each in found if each.model == model)
    return prefill, decode


def _sentence(chip: Chip, base: Chip, found: Sequence[Run]) -> str:
    prefill, decode = _of(found, MODELS[-1])
    where = f"At the {decimal(base.dram_bandwidth, 'B/s')} of {base.name}"
    if base is not chip:
        where = f"{chip.name} has no systolic array; in its place one core of ours. {where}"
    return (
        f"{where}, {MODELS[-1]} is served by {_short(prefill)} in prefill ({_result(prefill)}) and by {_short(decode)} "
        f"in decode ({_result(decode)}): a step more of either saves less than {percent(prefill.given.threshold)}."
    )


def _short(run: Run) -> str:
    point = run.given.point
    return f"{point.size} cells and {binary(point.sram)}"


def _result(run: Run) -> str:
    point = run.given.point
    return f"{seconds(point.time)}, {percent(point.utilisation)} of the arrays' peak"


def _verdict(base: Chip, found: Sequence[Run]) -> str:
    prefill, decode = _of(found, MODELS[-1])
    one, loss = prefill.given, next(each for each in prefill.given.choices if each.axis is Axis.SRAM)
    waits = percent(one.point.share(Binds.BANDWIDTH, Binds.CAPACITY))
    halved = (
        ""
        if loss.loss is None or loss.before is None
        else f" ({binary(loss.before.sram)} cost {percent(loss.loss)} more time)"
    )
    return (
        f"Bandwidth comes first, array and SRAM follow from it: in prefill {waits} of the time waits for memory, and "
        f"array and SRAM have to grow with it. Prefill sets the SRAM{halved}: what does not fit crosses the memory "
        f"again. Decode uses each weight once, so SRAM is of no use to it and of the array only the weights that enter "
        f"in a cycle count: columns x arrays x clock x bytes of a weight has to reach the bandwidth, here "
        f"{base.dram_bandwidth / weights_a_second(base):,.0f} columns. Doubling the bandwidth saves {_following(one)} "
        f"of prefill and {_following(decode.given)} of decode with sizes to match."
    )


def weights_a_second(base: Chip) -> float:
    """Bytes of weights that enter one column of every array in a second, one weight a cycle."""
    array = base.matrix.array
    assert array is not None  # a base chip has one
    dtype = float_type(base)
    return base.matrix.clock * base.matrix.rate[dtype] * dtype.bits / 8 * base.cores * array.count


def _following(found: Recommendation) -> str:
    return "nothing" if found.following is None else percent(1 - found.following)


def _sizes_table(base: Chip, found: Sequence[Run]) -> LabTable:
    rows = []
    for run in found:
        point = run.given.point
        array, sram, _ = run.given.choices
        rows.append((
            f"{run.model} {run.phase}", str(point.size), binary(point.sram), seconds(point.time),
            percent(point.utilisation), f"{point.again:.2f}", _change(array.loss), _change(sram.loss),
            str(resource(point)),
        ))  # fmt: skip
    return LabTable(
        title=f"Enough at {decimal(base.dram_bandwidth, 'B/s')}, {float_type(base)}, {base.cores} x {base.name} core",
        columns=(
            "", ">array", ">SRAM", ">time", ">used", ">x least", ">smaller array", ">smaller SRAM", "bound by",
        ),
        rows=rows,
        note=(
            f"prefill of {SEQ} tokens, decode of one at {CONTEXT:,} positions; used: of the arrays' peak; x least: "
            "DRAM bytes over the least; smaller: time that the next smaller size adds"
        ),
    )  # fmt: skip


def _change(loss: float | None) -> str:
    return "smallest" if loss is None else f"+{percent(loss)}"


def _bandwidth_table(found: Sequence[Run]) -> LabTable:
    bandwidths = [each.point.bandwidth for each in found[0].every]
    rows = []
    for run in found:
        cells = [f"{each.point.size}, {binary(each.point.sram)}" for each in run.every]
        rows.append((f"{run.model} {run.phase}", *cells))
        rows.append(("", *(f"{seconds(each.point.time, 3)}" for each in run.every)))
    return LabTable(
        title="Array and SRAM that are enough at each bandwidth, and the time with them",
        columns=("", *(f">{decimal(bandwidth, 'B/s')}" for bandwidth in bandwidths)),
        rows=rows,
    )


def _data(run: Run) -> dict[str, Any]:
    every = [recommendation(each, run.sweep) for each in run.every]
    return {"model": run.model, "phase": run.phase, "by_bandwidth": every}
