"""Lab 9: what does the compiler do, and what is left to write by hand?"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from simulator.hardware import Chip
from simulator.passes import PassReport
from simulator.passes.reports import as_rows
from simulator.units import PS_PER_SECOND, decimal, seconds
from simulator.variants import Resource
from workloads.compiler.fusion.measure import Measured, measure
from workloads.compiler.levels import ROWS, WIDTHS, Level, levels
from workloads.compiler.passes import CONTEXT, EPILOGUE, SEQ, ModelPasses, every
from workloads.lab import LabAnswer, LabTable

QUESTION = "what does the compiler do, and what is left to write by hand?"


def answer(chip: Chip) -> LabAnswer:
    """Compile gpt2 and llama-8b for *chip*, and measure one fused chain on this machine."""
    found = list(every(chip))
    measured = [measure(), measure(dtype=torch.bfloat16)]
    steps = levels()
    driver = found[-2]
    return LabAnswer(
        question=QUESTION,
        sentence=_sentence(driver, found[-1], measured[0]),
        tables=(_passes_table(found), _rule_table(found), _measured_table(measured), _levels_table(steps)),
        bound=Resource(_default(driver)[-1].after.bound),
        verdict=_verdict(driver, found[-1]),
        data={
            "models": [_data(each) for each in found],
            "measured": [asdict(each) | {"speedup": each.speedup} for each in measured],
            "levels": [asdict(each) for each in steps],
        },
    )


def _default(found: ModelPasses) -> list[PassReport]:
    return [each for each in found.reports if each.name != EPILOGUE]


def _saved(reports: Sequence[PassReport]) -> float:
    return 1 - reports[-1].after.time / reports[0].before.time


def _sentence(prefill: ModelPasses, decode: ModelPasses, measured: Measured) -> str:
    first, last = _default(prefill)[0].before, _default(prefill)[-1].after
    return (
        f"The compiler takes kernels and bytes away between the matrix products: {first.kernels:,} kernels of "
        f"{prefill.model} prefill become {last.kernels:,}, {decimal(first.nbytes, 'B')} become "
        f"{decimal(last.nbytes, 'B')}, and the time falls by {_saved(_default(prefill)):.0%} (decode "
        f"{_saved(_default(decode)):.0%}). What it does not write are matrix products and attention, "
        f"{prefill.by_hand:.0%} of the time that is left (decode {decode.by_hand:.0%}). A chain fused by a rule of our "
        f"own runs {measured.speedup:.1f} times as fast here as kernel by kernel."
    )


def _verdict(prefill: ModelPasses, decode: ModelPasses) -> str:
    epilogue = prefill.reports[-1]
    return (
        f"Compiled, {prefill.model} {_bounds(prefill)} in prefill and {_bounds(decode)} in decode. A SoC needs a "
        f"code generator for vector code with a cost model of its memory: that is rules, such as the {_lines()} lines "
        f"here. By hand remain one matrix product for each shape and type, with a place for an epilogue in it "
        f"({1 - epilogue.after.time / epilogue.before.time:.0%} more of prefill), and attention: "
        f"{prefill.by_hand:.0%} and {decode.by_hand:.0%} of the time, so that is where the engineers go."
    )


def _bounds(found: ModelPasses) -> str:
    before, after = _default(found)[0].before.bound, _default(found)[-1].after.bound
    return f"stays {after} bound" if before == after else f"goes from {before} bound to {after} bound"


def _lines() -> int:
    """Lines of code of the rule."""
    import inspect  # noqa: PLC0415  for this number alone

    from workloads.compiler.fusion import rule  # noqa: PLC0415

    parts = (rule.chains, rule._fused, rule._with_reader)
    return sum(len(inspect.getsource(each).strip().splitlines()) for each in parts)


def _time(report: PassReport, *, after: bool) -> str:
    return seconds((report.after if after else report.before).time)


def _passes_table(found: Sequence[ModelPasses]) -> LabTable:
    rows = []
    idle = {each.name for each in found[0].reports}
    for run in found:
        start = run.reports[0]
        name = f"{run.model} {run.phase}"
        rows.append((name, "as traced", f"{start.before.kernels:,}", decimal(start.before.nbytes, "B"),
                     _time(start, after=False), start.before.bound))  # fmt: skip
        for each in run.reports:
            if each.before != each.after:
                idle.discard(each.name)
                rows.append(("", each.name, f"{each.after.kernels:,}", decimal(each.after.nbytes, "B"),
                             _time(each, after=True), each.after.bound))  # fmt: skip
    return LabTable(
        title="What each pass leaves",
        columns=("", "after pass", ">kernels", ">bytes", ">time", "bound by"),
        rows=rows,
        note=(
            f"prefill of {SEQ} tokens, decode of one at {CONTEXT:,} positions; passes of torch.compile, then "
            f"{EPILOGUE}; nothing to do: {', '.join(sorted(idle)) or 'none'}"
        ),
    )


def _rule_table(found: Sequence[ModelPasses]) -> LabTable:
    rows = [
        (
            f"{run.model} {run.phase}",
            f"{run.rule.before.kernels:,} -> {run.rule.after.kernels:,}",
            f"{decimal(run.rule.before.nbytes, 'B')} -> {decimal(run.rule.after.nbytes, 'B')}",
            f"{_time(run.rule, after=False)} -> {_time(run.rule, after=True)}",
            f"{run.by_hand:.0%}",
        )
        for run in found
    ]
    return LabTable(
        title="Our rule alone, and what no pass writes",
        columns=("", ">kernels", ">bytes", ">time", ">by hand"),
        rows=rows,
        note="by hand: matrix products and attention, of the time of kernels after the passes of torch.compile",
    )


def _measured_table(measured: Sequence[Measured]) -> LabTable:
    rows = [
        (
            f"{each.rows} x {each.columns} {each.dtype}",
            *(seconds(round(value * PS_PER_SECOND)) for value in (each.torch, each.kept, each.fused)),
            f"{each.speedup:.1f}x",
            f"{decimal(each.bytes_before, 'B')} -> {decimal(each.bytes_after, 'B')}",
            f"{each.error:.1e}",
        )
        for each in measured
    ]
    return LabTable(
        title="residual + silu(gate) * up on this CPU: three kernels against the generated one",
        columns=("", ">as written", ">memory kept", ">fused", ">gain", ">bytes", ">error"),
        rows=rows,
        note="one thread, median of 9; gain: over kernels into memory kept for them; error: of 1 + |x|, against fp64",
    )


def _levels_table(steps: Sequence[Level]) -> LabTable:
    rows = [
        (
            each.name,
            str(sum(each.operations.values())),
            ", ".join(f"{count} {name}" for name, count in list(each.operations.items())[:4]),
            f"{each.error:.0e}",
        )
        for each in steps
    ]
    return LabTable(
        title=f"A PyTorch MLP {'-'.join(map(str, WIDTHS))} through the dialect, {ROWS} rows",
        columns=("level", ">operations", "most of them", ">off PyTorch"),
        rows=rows,
    )


def _data(run: ModelPasses) -> dict[str, Any]:
    return {
        "model": run.model,
        "phase": run.phase,
        "passes": as_rows(run.reports),
        "rule": as_rows([run.rule])[0],
        "library_seconds": run.library,
        "generated_seconds": run.generated,
    }
