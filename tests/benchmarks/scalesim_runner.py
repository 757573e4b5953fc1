"""Runs SCALE-Sim 3.0.0 in an environment of its own, as it needs an older numpy, and reads what it found."""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = ("scalesim==3.0.0", "numpy<2.4")
_CONFIG = """\
[general]
run_name = run
[architecture_presets]
ArrayHeight : {rows}
ArrayWidth : {columns}
IfmapSramSzkB : {ifmap_kb}
FilterSramSzkB : {filter_kb}
OfmapSramSzkB : {ofmap_kb}
IfmapOffset : 0
FilterOffset : 10000000
OfmapOffset : 20000000
Dataflow : {dataflow}
Bandwidth : 10
ReadRequestBuffer: 512
WriteRequestBuffer: 512
[layout]
IfmapCustomLayout: False
FilterCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport : false
SparseRep : ellpack_block
OptimizedMapping : false
BlockSize : 8
RandomNumberGeneratorSeed : 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
"""
# Their command line writes every trace to disk; called like this it does not, which is the faster way to run it.
_DRIVER = """\
import contextlib, io, json, resource, sys, time
start = time.perf_counter()
from scalesim.scale_sim import scalesim
config, topology, layout, gemm, results = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    scalesim(save_disk_space=True, verbose=False, config=config, topology=topology, layout=layout,
             input_type_gemm=gemm == "gemm").run_scale(top_path=results)
unit = 1024 if sys.platform == "linux" else 1  # ru_maxrss is in KiB on Linux and in bytes on a Mac
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss * unit]))
"""


@dataclass(frozen=True, slots=True)
class Hardware:
    """An array with scratchpads, in kB of SCALE-Sim (1024 words)."""

    rows: int
    columns: int
    dataflow: str
    ifmap_kb: int = 256
    filter_kb: int = 256
    ofmap_kb: int = 128

    @property
    def config(self) -> str:
        """The configuration file; as much bandwidth as is asked for."""
        names = ("rows", "columns", "dataflow", "ifmap_kb", "filter_kb", "ofmap_kb")
        return _CONFIG.format(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True)
class Report:
    """What one run took, by the clock and of the processor, and the rows of its COMPUTE_REPORT.csv by title."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    layers: list[dict[str, str]]


def environment(folder: Path) -> Path:
    """Return the Python of an environment in *folder* with SCALE-Sim, and make it if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *REQUIREMENTS], check=True)
    return python


def run(python: Path, hardware: Hardware, topology: str, kind: str, folder: Path) -> Report:
    """Run the text of a *topology* file of *kind* gemm or conv; files are left in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / name for name in ("scale.cfg", "topology.csv", "layout.csv")}
    paths["scale.cfg"].write_text(hardware.config)
    paths["topology.csv"].write_text(topology)
    layers = topology.strip().splitlines()[1:]
    # It wants a layout for each layer, even if it uses none.
    layouts = [f"{line.split(',')[0]},{','.join(['1'] * 20)}," for line in layers]
    paths["layout.csv"].write_text("\n".join(["Layer name," + "x," * 20, *layouts, ""]))
    done = subprocess.run(
        [str(python), "-c", _DRIVER, *map(str, paths.values()), kind, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    with (folder / "run" / "COMPUTE_REPORT.csv").open() as file:
        found = [
            {title.strip(): text.strip() for title, text in row.items() if title and title.strip() and text}
            for row in csv.DictReader(file)
        ]
    return Report(seconds, cpu, peak, found)
