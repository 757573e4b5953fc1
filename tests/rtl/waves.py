"""Records the waves of a GEMM on one top, and draws one timing diagram for each phase from them.

python -m tests.rtl.waves ws --rows 3 --cols 3 --gemm 4,3,6 --vcd out/ws.vcd
python -m tests.rtl.waves ws --diagrams rtl/diagrams
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from hw_models.rtl_bench.bench import PHASES
from hw_models.rtl_bench.cases import Top
from hw_models.rtl_bench.runner import build
from hw_models.rtl_bench.tools import ROOT, SOURCES

SIGNALS = {
    "ws": ("s_weights_tvalid", "load", "s_activations_tvalid", "row_valid", "step", "result_valid", "m_results_tready"),
    "os": (
        "s_weights_tvalid",
        "s_activations_tvalid",
        "pair_valid",
        "draining",
        "step",
        "result_valid",
        "m_results_tready",
    ),
}
"""Drawn under ``phase``, from the ports inwards and out again."""
LONGEST = 12  # cycles in one diagram
Samples = list[dict[str, int]]


def record(top: Top, shape: tuple[int, int, int], vcd: Path) -> None:
    """Simulate a GEMM, once without stalls and once with, and keep every signal in *vcd*."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "sim"
        sources = [*SOURCES, ROOT / "tests" / "rtl" / "record_waves.v"]
        extra_root = ["-s", "record_waves", f"-DTOP={top.module}"]
        simulation = build("icarus", top.module, top.parameters, folder, sources, extra_root)
        environment = {"RTL_TOP": json.dumps(asdict(top)), "RTL_SHAPE": json.dumps(shape), "SIM_CMD_SUFFIX": "-vcd"}
        if simulation.run("tests.rtl.cocotb_waves", environment) != (1, 0):
            raise RuntimeError(f"the recording of {shape} on {top} failed")
        vcd.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "waves.vcd", vcd)


def samples(vcd: Path, top: Top) -> Samples:
    """Return the value of each signal of the top just before each rising edge of its clock."""
    wanted = {"clk", "phase", *SIGNALS[top.dataflow]}
    names: dict[str, str] = {}
    values = dict.fromkeys(wanted, 0)
    rows: Samples = []
    for change, level in _changes(vcd, wanted, names):
        if names[change] == "clk" and level and not values["clk"]:
            rows.append(dict(values))
        values[names[change]] = level
    return rows


def _changes(vcd: Path, wanted: set[str], names: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield (code, value) in order of time for the wanted signals of the outermost module; fill in their *names*."""
    depth = 0
    for line in vcd.read_text().splitlines():
        match line.split():
            case ["$scope", *_]:
                depth += 1
            case ["$upscope", *_]:
                depth -= 1
            case ["$var", _, _, code, name, *_] if depth == 1 and name in wanted:
                names[code] = name
            case [bits, code] if bits[0] == "b" and code in names:
                yield code, int(bits[1:].replace("x", "0").replace("z", "0"), 2)
            case [bit] if bit[0] in "01xz" and bit[1:] in names:
                yield bit[1:], int(bit[0] == "1")


def window(rows: Samples, phase: str) -> slice:
    """Return the cycles to draw: one before the first cycle in *phase*, and what follows."""
    code = PHASES.index(phase)
    busy = next(index for index, row in enumerate(rows) if row["phase"])
    first = next(index for index in range(busy - 1, len(rows)) if rows[index]["phase"] == code)
    start = max(first - 2, 0)
    return slice(start, start + LONGEST)


def draw(rows: Samples, signals: tuple[str, ...], title: str) -> str:
    """Return an SVG with a lane for the phase and one for each signal; a bus counts as high if any bit is."""
    cell, lane, left = 62, 26, 170
    width, height = left + cell * len(rows) + 10, lane * (len(signals) + 2) + 14
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" '
        f'font-size="12"><title>{title}</title><rect width="100%" height="100%" fill="white"/>'
    ]
    for index, row in enumerate(rows):
        x = left + cell * index
        colour = COLOURS[PHASES[row["phase"]]]
        out.append(f'<text x="{x + 4}" y="14" fill="#666">{index}</text>')
        out.append(f'<rect x="{x}" y="22" width="{cell}" height="18" fill="{colour}" stroke="#333"/>')
        out.append(f'<text x="{x + 4}" y="35">{PHASES[row["phase"]]}</text>')
    out.append('<text x="6" y="35">phase</text>')
    for number, name in enumerate(signals):
        top = 22 + lane * (number + 1)
        levels = [top + (3 if row[name] else 18) for row in rows]
        edges = (f"{left + cell * i},{y} {left + cell * (i + 1)},{y}" for i, y in enumerate(levels))
        out.append(f'<text x="6" y="{top + 16}">{name}</text>')
        out.append(f'<polyline points="{" ".join(edges)}" fill="none" stroke="#06c" stroke-width="1.5"/>')
    return "\n".join([*out, "</svg>", ""])


COLOURS = {
    "idle": "#eeeeee",
    "preload": "#fde9b8",
    "fill": "#cfe8cf",
    "stream": "#bcd9f5",
    "drain": "#e3d0f0",
    "stall": "#f6c4c0",
}
DRAWN = {"ws": PHASES, "os": ("idle", "fill", "stream", "drain", "stall")}
"""An output-stationary array preloads nothing."""


def diagrams(top: Top, vcd: Path) -> dict[str, str]:
    """Return one SVG for each phase, by file name."""
    rows = samples(vcd, top)
    return {
        f"{top.dataflow}-{phase}.svg": draw(rows[window(rows, phase)], SIGNALS[top.dataflow], f"{top.dataflow} {phase}")
        for phase in DRAWN[top.dataflow]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataflow", choices=["ws", "os"])
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--cols", type=int, default=3)
    parser.add_argument("--gemm", default="4,3,6", help="m,n,k")
    parser.add_argument("--vcd", type=Path, default=Path("out/waves.vcd"))
    parser.add_argument("--diagrams", type=Path, help="folder for one SVG for each phase")
    given = parser.parse_args()
    top = Top(given.dataflow, given.rows, given.cols)
    m, n, k = (int(size) for size in given.gemm.split(","))
    record(top, (m, n, k), given.vcd)
    if given.diagrams:
        given.diagrams.mkdir(parents=True, exist_ok=True)
        for name, text in diagrams(top, given.vcd).items():
            (given.diagrams / name).write_text(text)


if __name__ == "__main__":
    main()
