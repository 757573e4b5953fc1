"""One GEMM on the RTL beside the cycle model: phase by phase, cycle by cycle, and every word of the result."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hw_models.rtl_bench.cases import Top, expected, matrix_of, seeded_gemm
from hw_models.rtl_bench.runner import COMMANDS, build
from hw_models.rtl_bench.tools import RTL, SOURCES, tool
from hw_models.systolic import Array, Dataflow, phases, play
from simulator.errors import SpecError, UsageError

PHASES = ("preload", "fill", "stream", "drain", "stall")
LARGEST = (1 << 16) - 1
"""Of m, n, k and columns: DIM_W is 16 bits.  Rows and depth have one bit less."""
MOST = 50_000_000
"""Cells x cycles that a run may take: half an hour at the 30,000 a second of Icarus."""
Shape = tuple[int, int, int]


class RtlError(SpecError):
    """The Verilog does not compile, or the simulator broke down."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the model says and what the RTL did.

    model, rtl     cycles by phase; the model knows no stall, as no port waits
    in_order       whether each single cycle is in the phase that the model plays
    words, wrong   elements of C, and how many of them differ from *expected*
    fault          a rule of a port that was broken; then nothing else of the RTL is known
    """

    model: dict[str, int]
    rtl: dict[str, int]
    in_order: bool
    words: int
    wrong: int
    fault: str = ""

    @property
    def agrees(self) -> bool:
        """Whether RTL, model and numpy say the same."""
        return not self.fault and self.model == self.rtl and self.in_order and not self.wrong


def check(top: Top, shape: Shape, seed: int, simulator: str = "icarus") -> Outcome:
    """Run C[m, n] = A[m, k] B[k, n] with random operands on the RTL and compare.

    Raises UsageError for sizes that the RTL does not take, MissingToolError for a simulator that is not there, and
    RtlError if the Verilog does not compile or the simulator stops by itself.
    """
    check_sizes(top, shape)
    tool(COMMANDS[simulator])
    array = Array(top.rows, top.columns, Dataflow(top.dataflow), depth=top.depth if top.dataflow == "ws" else None)
    predicted = phases(array, *shape)
    work = array.cells * int(predicted.cycles)
    if work > MOST:
        raise UsageError(f"{work:,} cells x cycles are too many for an HDL simulator, wanted at most {MOST:,}")
    model = {name: int(getattr(predicted, name, 0)) for name in PHASES}
    found = _simulate(top, shape, seed, simulator, limit=4 * int(predicted.cycles) + 1000)
    want = expected(top, seeded_gemm(seed, top, *shape))
    if found["fault"]:
        return Outcome(model, {}, in_order=False, words=want.size, wrong=want.size, fault=found["fault"])
    return Outcome(
        model,
        {name: found["counts"][name] for name in PHASES},
        in_order=found["trace"] == [str(step.phase) for step in play(array, *shape)],
        words=want.size,
        wrong=int((matrix_of(top, shape, [word for word, _ in found["words"]]) != want).sum()),
    )


def check_sizes(top: Top, shape: Shape) -> None:
    """Refuse what the parameters of the RTL cannot hold."""
    small = (1 << 15) - 1
    sizes = [("m", shape[0], LARGEST), ("n", shape[1], LARGEST), ("k", shape[2], LARGEST)]
    sizes += [("rows", top.rows, small), ("columns", top.columns, LARGEST), ("depth", top.depth, small)]
    faults = [f"{name} is {size}, wanted 1 to {largest:,}" for name, size, largest in sizes if not 1 <= size <= largest]
    if faults:
        raise UsageError("; ".join(faults))


def _simulate(top: Top, shape: Shape, seed: int, simulator: str, limit: int) -> dict[str, Any]:
    """Return what ``cocotb_check`` found, with everything that compiler and simulator say kept out of sight."""
    if not SOURCES:
        raise RtlError(f"there is no Verilog in {RTL}; run from a checkout (pip install -e .)")
    with tempfile.TemporaryDirectory(prefix="xpusim-rtl-") as scratch:
        folder, report, log = Path(scratch) / "sim", Path(scratch) / "report.json", Path(scratch) / "run.log"
        environment = {
            "RTL_TOP": json.dumps(asdict(top)),
            "RTL_SHAPE": json.dumps(shape),
            "RTL_SEED": str(seed),
            "RTL_LIMIT": str(limit),
            "RTL_REPORT": str(report),
        }
        try:
            simulation = build(simulator, top.module, top.parameters, folder, SOURCES)
        except (RuntimeError, SystemExit):
            raise RtlError(f"{top.module} does not compile: {_last_line(folder.with_suffix('.build.log'))}") from None
        try:
            simulation.run("hw_models.rtl_bench.cocotb_check", environment, log)
        except (RuntimeError, SystemExit):
            raise RtlError(f"{simulator} stopped by itself: {_last_line(log)}") from None
        if not report.exists():
            raise RtlError(f"{simulator} ran and reported nothing: {_last_line(log)}")
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def _last_line(log: Path) -> str:
    """The last line that says something about an error, or the last one at all."""
    lines = (
        [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
    )
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]
