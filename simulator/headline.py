"""The first lines of every report: what ran on what, how well it used the chip, and what binds it."""

from dataclasses import dataclass

from simulator.costs import Unit
from simulator.dtypes import DType
from simulator.energy import full_clock
from simulator.graph import Workload
from simulator.hardware import Chip
from simulator.program import Mode
from simulator.result import Result
from simulator.units import decimal, joules, seconds
from simulator.variants import Resource

CONVENTIONS = (
    "A multiply-add counts as two FLOP; causal attention counts only the pairs that the mask leaves.",
    "Peaks are dense, without structured sparsity, and are those of the named type.",
    "MFU is FLOP of matrix products and attention, recomputation left out, over time x peak.",
    "Bandwidth use is off-chip bytes moved, re-fetches included and cache hits left out, over time x data-sheet rate.",
    "Bound by: each resource in turn is made infinite and the run is played again; what saves most time binds.",
    "Time by bound follows the critical path, so that its parts add up to the time of the run.",
)
_EXCESS = {  # the sentence "with ... the run would take X less"
    Resource.COMPUTE: "infinitely fast arithmetic",
    Resource.BANDWIDTH: "infinite memory bandwidth",
    Resource.LAUNCH: "no launch and dispatch overheads",
    Resource.CAPACITY: "unlimited on-chip memory",
    Resource.INTERCONNECT: "infinitely fast links",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One number with its unit, and how it is to be read."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader needs in the first five seconds.

    title    the workload; *machine* the chip, the mode and the fidelity.
    facts    time, rates and memory, each with its convention.
    verdict  which resource binds and what its absence would save; *demand* what that asks of the hardware.
    """

    title: str
    machine: str
    facts: tuple[Fact, ...]
    verdict: str
    demand: str


def headline(result: Result) -> Headline:
    """Sum up *result* in words."""
    made = (_time, _rate, _mfu, _bandwidth, _intensity, _memory, _energy)
    facts = [make(result) for make in made]
    return Headline(
        title=workload_title(result.graph.workload),
        machine=f"{result.chip.name}: {result.chip.description}; {result.mode} mode, {result.fidelity} model",
        facts=tuple(fact for fact in facts if fact is not None),
        verdict=verdict(result),
        demand=demand(result),
    )


def workload_title(workload: Workload) -> str:
    """Name, phase and sizes on one line.

    >>> workload_title(Workload("llama-8b", "decode", batch=8, tokens=8, context=4096))
    'llama-8b decode, batch 8, context 4096, bf16'
    >>> workload_title(Workload("gpt2", "train", batch=4, tokens=4096, context=1024))
    'gpt2 train, batch 4 of 1024 tokens, bf16'
    """
    each = workload.tokens // workload.batch if workload.batch else 0
    sizes = f"batch {workload.batch}" + (f" of {each} tokens" if each > 1 else "")
    if workload.context not in (0, each):
        sizes += f", context {workload.context}"
    return f"{workload.name} {workload.phase}, {sizes}, {workload.dtype}"


def verdict(result: Result) -> str:
    """Name the resource that binds, and what the run would gain without that limit."""
    if not result.time:
        return "Nothing to run: the graph has no operator that takes time."
    if result.overflow:
        return _does_not_fit(result)
    bound = result.bound
    saved = result.savings[bound]
    if saved <= 0:
        return f"Bound by {bound}: no single resource would make the run faster; several bind equally."
    text = (
        f"Bound by {bound}: with {_EXCESS[bound]} the run would take {seconds(saved, 3)} less "
        f"({percent(saved / result.time)})"
    )
    second = max((each for each in result.savings if each is not bound), key=lambda each: result.savings[each])
    if result.savings[second] > saved / 2:
        text += f"; with {_EXCESS[second]}, {percent(result.savings[second] / result.time)} less"
    return text + "."


def demand(result: Result) -> str:
    """Say what the verdict asks of the chip or of the program."""
    if not result.time:
        return ""
    return _DEMAND[result.bound](result)


def fits(result: Result) -> str:
    """Whether the run fits in the device memory, and by how much."""
    capacity = result.chip.dram.capacity
    size = decimal(capacity, "B")
    if result.overflow:
        return f"does not fit in {size}: {decimal(result.overflow, 'B')} too much"
    return f"fits in {size}, {decimal(capacity - result.peak_memory_bytes, 'B')} to spare"


def percent(share: float) -> str:
    """Write a share with the digits that it deserves.

    >>> percent(0.6241), percent(0.0512), percent(0.0004), percent(0), percent(1.0)
    ('62 %', '5.1 %', '<0.1 %', '0 %', '100 %')
    """
    value = 100 * share
    if 0 < abs(value) < 0.05:
        return "<0.1 %"
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def change(share: float) -> str:
    """Write a relative change of time.

    >>> change(-0.061), change(0.0), change(0.002)
    ('-6.1 %', '0.0 %', '+0.2 %')
    """
    return f"{100 * share:+.1f} %" if abs(share) >= 0.0005 else "0.0 %"


def number(value: float) -> str:
    """Write a plain number with three digits, and never in exponent form.

    >>> number(7.084), number(1120.4), number(0.0312)
    ('7.08', '1,120', '0.0312')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def peak_name(chip: Chip, dtype: DType) -> str:
    """The peak that utilisation refers to: ``989 TFLOP/s dense bf16``."""
    where = "" if chip.matrix_peak(dtype) else " on the vector units"
    return f"{decimal(chip.peak(dtype), 'FLOP/s')} dense {dtype}{where}"


def ridge(result: Result) -> float:
    """FLOP per byte from which the chip is bound by arithmetic in the workload's type."""
    return result.chip.peak(result.graph.workload.dtype) / result.chip.dram_bandwidth


def _time(result: Result) -> Fact:
    note = f"{len(result.graph):,} operators, one run"
    if result.spill:
        note += f", {seconds(result.spill)} of it for what does not fit"
    return Fact("time", seconds(result.time), note)


def _rate(result: Result) -> Fact | None:
    tokens = result.tokens_per_second
    if tokens is None:
        return None
    count = result.graph.workload.tokens
    note = f"{count:,} token{'s' if count > 1 else ''} a run"
    return Fact("throughput", f"{number(tokens)} tokens/s", note)


def _mfu(result: Result) -> Fact:
    flops = decimal(result.graph.model_flops, "FLOP")
    peak = peak_name(result.chip, result.graph.workload.dtype)
    return Fact("MFU", percent(result.mfu), f"{flops} / time / {peak} (multiply-add = 2)")


def _bandwidth(result: Result) -> Fact:
    rate = decimal(result.chip.dram_bandwidth, "B/s")
    note = f"{decimal(result.traffic, 'B')} moved / time / {rate} (data sheet)"
    return Fact(f"{result.chip.dram_name.upper()} use", percent(result.bandwidth_use), note)


def _intensity(result: Result) -> Fact | None:
    if not result.traffic:
        return None
    intensity = result.graph.flops / result.traffic
    dtype = result.graph.workload.dtype
    note = f"the chip balances at {ridge(result):.3g} FLOP/B ({dtype} peak / {result.chip.dram_name.upper()} bandwidth)"
    return Fact("intensity", f"{number(intensity)} FLOP/B", note)


def _memory(result: Result) -> Fact:
    return Fact("peak memory", decimal(result.peak_memory_bytes, "B"), fits(result))


def _energy(result: Result) -> Fact | None:
    """Energy with mean power and clock, where the description of the chip says what work costs."""
    watts, power = result.average_watts, result.chip.power
    if result.energy is None or watts is None or power is None:
        return None
    note = f"{watts:.0f} W on average of at most {power.cap} W"
    full = full_clock(result.chip)
    if result.clock_hertz < 0.995 * full:
        note += f"; the cap holds the clock at {decimal(result.clock_hertz, 'Hz')} of {decimal(full, 'Hz')}"
    if result.graph.workload.tokens:
        note += f"; {joules(result.energy / result.graph.workload.tokens)} a token"
    return Fact("energy", joules(result.energy), note)


def _does_not_fit(result: Result) -> str:
    excess = decimal(result.overflow, "B")
    text = f"Does not fit: {excess} more than the {decimal(result.chip.dram.capacity, 'B')} of the device memory."
    if result.spill:
        return f"{text} Moving it over the host link takes {seconds(result.spill)} of the {seconds(result.time)}."
    return f"{text} The times are those of the same chip with enough memory."


def _ask_compute(result: Result) -> str:
    busy = {Unit.MATRIX: 0, Unit.VECTOR: 0}
    for each in result.operators:
        if each.bound is Resource.COMPUTE:
            unit = each.cost.unit if each.cost.unit is Unit.MATRIX else Unit.VECTOR
            busy[unit] += each.end - each.start
    if busy[Unit.VECTOR] > busy[Unit.MATRIX]:
        return (
            f"Arithmetic holds up operators that are no matrix products for {seconds(busy[Unit.VECTOR], 3)}, products "
            f"for {seconds(busy[Unit.MATRIX], 3)}. Faster needs more or faster vector lanes, or fusion."
        )
    alone = seconds(result.graph.model_flops * 10**12 / result.chip.peak(result.graph.workload.dtype), 3)
    return (
        f"At full rate the matrix products and attention alone take {alone}. Faster needs more or faster "
        "matrix cells, a narrower type, or fuller tiles."
    )


def _ask_bandwidth(result: Result) -> str:
    alone = seconds(result.traffic * 10**12 / result.chip.dram_bandwidth, 3)
    return (
        f"Moving {decimal(result.traffic, 'B')} at {decimal(result.chip.dram_bandwidth, 'B/s')} alone takes {alone}. "
        "Faster needs a wider memory, or fewer bytes: narrower types, fusion, more on-chip reuse, a larger batch."
    )


def _ask_launch(result: Result) -> str:
    if result.mode is not Mode.GRAPH:
        return "Faster needs a captured graph, fewer and larger operators (fusion), or a faster host and driver."
    return "Faster needs fewer and larger operators (fusion), or a shorter launch path and gap between operators."


def _ask_capacity(result: Result) -> str:
    if not result.overflow:
        return "Faster needs more on-chip memory, so that less is fetched twice, or smaller tiles and batches."
    chips = -(-result.peak_memory_bytes // result.chip.dram.capacity)
    return (
        f"It needs {decimal(result.peak_memory_bytes, 'B')} of device memory: a larger one, {chips} chips or more, "
        "narrower types, or a smaller batch or context."
    )


def _ask_interconnect(result: Result) -> str:
    return "Faster needs wider or more links, or communication that hides behind computation."


_DEMAND = {
    Resource.COMPUTE: _ask_compute,
    Resource.BANDWIDTH: _ask_bandwidth,
    Resource.LAUNCH: _ask_launch,
    Resource.CAPACITY: _ask_capacity,
    Resource.INTERCONNECT: _ask_interconnect,
}
