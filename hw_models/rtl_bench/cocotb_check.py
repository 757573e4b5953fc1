"""Runs inside the simulator: one GEMM on one top; what came out goes to a file, to be judged outside.

The settings come from the environment: RTL_TOP (a Top as JSON), RTL_SHAPE (m, n, k as JSON), RTL_SEED, RTL_LIMIT (the
cycles after which to give up), RTL_REPORT (file to write).  A run that breaks a rule of a port reports it as ``fault``.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cocotb

from hw_models.rtl_bench.bench import Bench, Duty
from hw_models.rtl_bench.cases import Top, result_words, seeded_gemm


@cocotb.test()
async def run_one_gemm(dut: Any) -> None:
    top = Top(**json.loads(os.environ["RTL_TOP"]))
    seed = int(os.environ["RTL_SEED"])
    gemm = seeded_gemm(seed, top, *json.loads(os.environ["RTL_SHAPE"]))
    bench = Bench(dut, top, seed)
    await bench.reset()
    try:
        run = await bench.run(gemm, Duty(), len(result_words(top, gemm)), int(os.environ["RTL_LIMIT"]))
        found = asdict(run) | {"fault": "tlast out of place" if int(dut.error_last.value) else ""}
    except AssertionError as error:
        found = {"fault": str(error)}
    Path(os.environ["RTL_REPORT"]).write_text(json.dumps(found))
