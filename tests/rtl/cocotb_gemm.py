"""Runs inside the simulator: many GEMMs on one elaboration of a top, results and cycles checked for each.

The settings come from the environment: RTL_TOP (a Top as JSON), RTL_SEED, RTL_CASES, RTL_REPORT (file to write).
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from hw_models.rtl_bench.bench import PHASES, Bench, Duty
from hw_models.rtl_bench.cases import Gemm, Top, extreme_gemms, gemm_of_shape, random_gemm, result_words
from hw_models.systolic.array import Array, Dataflow
from hw_models.systolic.cycles import phases
from hw_models.systolic.stepper import play

TOP = Top(**json.loads(os.environ.get("RTL_TOP", '{"dataflow": "ws", "rows": 2, "columns": 2}')))
SEED = int(os.environ.get("RTL_SEED", "1"))
CASES = int(os.environ.get("RTL_CASES", "1"))
MODEL = Array(
    TOP.rows,
    TOP.columns,
    Dataflow(TOP.dataflow),
    depth=TOP.depth if TOP.dataflow == "ws" else None,
    hides_preload=TOP.hides_preload,
)


async def check(bench: Bench, gemm: Gemm, duty: Duty) -> dict[str, Any]:
    """Run one GEMM; fail on any wrong bit or cycle; return what to report."""
    want = result_words(TOP, gemm)
    run = await bench.run(gemm, duty, len(want))
    what = f"{TOP} m, n, k = {gemm.shape} duty = {duty} seed = {SEED}"
    for index, (got, wanted_word) in enumerate(zip(run.words, want, strict=True)):
        assert got == wanted_word, f"result beat {index} is {got[0]:x}, wanted {wanted_word[0]:x}: {what}"
    assert not int(bench.dut.error_last.value), f"tlast out of place: {what}"
    assert sum(run.counts[name] for name in PHASES) == run.counts["total"], f"counters do not add up: {what}"
    assert [run.trace.count(name) for name in PHASES] == [0, *(run.counts[name] for name in PHASES[1:])], what
    model = phases(MODEL, *gemm.shape)
    wanted = {name: int(getattr(model, name)) for name in ("preload", "fill", "stream", "drain")}
    errors = {name: run.counts[name] - wanted[name] for name in wanted}
    if duty == Duty():
        assert run.counts["stall"] == 0, f"stalled for nothing: {what}"
        assert run.trace == [str(step.phase) for step in play(MODEL, *gemm.shape)], f"wrong order of phases: {what}"
        assert not any(errors.values()), f"wrong cycles {errors}: {what}"
    else:
        assert errors["fill"] == errors["stream"] == 0, f"wrong cycles {errors}: {what}"
        assert errors["preload"] <= 0 and errors["drain"] <= 0, f"wrong cycles {errors}: {what}"  # noqa: PT018
        assert len(run.trace) <= int(model.cycles) + run.waits, f"{len(run.trace)} cycles, {run.waits} waits: {what}"
    return {"shape": gemm.shape, "cycles": len(run.trace), "stall": run.counts["stall"], "errors": errors}


def report(kind: str, rows: list[dict[str, Any]]) -> None:
    """Append the cases that have passed to the report file."""
    with Path(os.environ["RTL_REPORT"]).open("a") as out:
        out.writelines(json.dumps({"kind": kind, **row}) + "\n" for row in rows)


@cocotb.test()
async def random_shapes_take_the_modelled_cycles(dut: Any) -> None:
    rng = random.Random(SEED)
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    report("exact", [await check(bench, random_gemm(rng, TOP), Duty()) for _ in range(CASES)])


@cocotb.test()
async def extremes_do_not_overflow(dut: Any) -> None:
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    gemms = [] if TOP.is_float else list(extreme_gemms(TOP))
    gemms.append(gemm_of_shape(random.Random(SEED), TOP, 1, 1, 1))
    report("extreme", [await check(bench, gemm, Duty()) for gemm in gemms])


@cocotb.test()
async def stalls_change_no_result(dut: Any) -> None:
    rng = random.Random(SEED + 1)
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    duties = [Duty(weights=0.3), Duty(activations=0.3), Duty(results=0.3), Duty(0.5, 0.5, 0.5), Duty(0.9, 0.8, 0.7)]
    duties += [Duty(0.1, 0.9, 0.9), Duty(0.9, 0.1, 0.9), Duty(0.9, 0.9, 0.1)]
    report("stalled", [await check(bench, random_gemm(rng, TOP), duties[i % len(duties)]) for i in range(CASES // 2)])


@cocotb.test()
async def a_size_of_zero_is_refused(dut: Any) -> None:
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    for sizes in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        await _try_to_start(bench, sizes)
        assert int(dut.busy.value) == 0
    assert int(dut.error_size.value) == 1
    await check(bench, random_gemm(random.Random(SEED), TOP), Duty())


async def _try_to_start(bench: Bench, sizes: tuple[int, int, int]) -> None:
    for name, value in zip(("size_m", "size_n", "size_k"), sizes, strict=True):
        getattr(bench.dut, name).value = value
    bench.dut.start.value = 1
    await ClockCycles(bench.dut.clk, 1)
    bench.dut.start.value = 0
    await ClockCycles(bench.dut.clk, 2)


@cocotb.test()
async def a_tlast_out_of_place_is_reported(dut: Any) -> None:
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    source = bench.source("activations", [(0, False)], 1.0)
    weights = bench.source("weights", [(0, True)] * 2, 1.0)
    await _try_to_start(bench, (1, 1, 1))
    for _ in range(4 * (TOP.rows + TOP.columns) + 8):
        await _cycle(bench, [source, weights])
    assert int(dut.error_last.value) == 1, "one row of a tile of one came without tlast, and nobody noticed"


@cocotb.test()
async def a_tlast_of_weights_out_of_place_is_reported(dut: Any) -> None:
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    source = bench.source("activations", [(0, True)], 1.0)
    weights = bench.source("weights", [(0, False)] * 2, 1.0)
    await _try_to_start(bench, (1, 1, 1))
    for _ in range(4 * (TOP.rows + TOP.columns) + 8):
        await _cycle(bench, [source, weights])
    assert int(dut.error_last.value) == 1, "the weights of a tile came without tlast, and nobody noticed"


@cocotb.test()
async def a_start_while_busy_is_ignored(dut: Any) -> None:
    bench = Bench(dut, TOP, SEED)
    await bench.reset()
    await _try_to_start(bench, (1, 1, 1))
    assert int(dut.busy.value) == 1
    await _try_to_start(bench, (2 * TOP.rows, 2 * TOP.columns, 3 * TOP.rows))
    weights = bench.source("weights", [(0, True)], 1.0)
    source = bench.source("activations", [(0, True)], 1.0)
    for _ in range(4 * (TOP.rows + TOP.columns) + 8):
        bench.dut.m_results_tready.value = 1
        await _cycle(bench, [source, weights])
    assert int(dut.busy.value) == 0, "the second start changed the sizes of the run"
    assert int(dut.error_last.value) == 0


async def _cycle(bench: Bench, sources: list[Any]) -> None:
    await RisingEdge(bench.dut.clk)
    for source in sources:
        source.sample()
        source.drive()
