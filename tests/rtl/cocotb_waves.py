"""Runs inside the simulator while waves are recorded: one GEMM without stalls, a pause, and the same with stalls."""

import json
import os
import random
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles

from hw_models.rtl_bench.bench import Bench, Duty
from hw_models.rtl_bench.cases import Top, gemm_of_shape, result_words

TOP = Top(**json.loads(os.environ.get("RTL_TOP", '{"dataflow": "ws", "rows": 2, "columns": 2}')))
SHAPE = tuple(json.loads(os.environ.get("RTL_SHAPE", "[1, 1, 1]")))


@cocotb.test()
async def record(dut: Any) -> None:
    bench = Bench(dut, TOP, seed=1)
    await bench.reset()
    gemm = gemm_of_shape(random.Random(1), TOP, *SHAPE)
    want = result_words(TOP, gemm)
    for duty in (Duty(), Duty(weights=0.8, activations=0.6, results=0.6)):
        run = await bench.run(gemm, duty, len(want))
        assert run.words == want
        await ClockCycles(dut.clk, 4)
