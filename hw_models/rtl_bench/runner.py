"""Builds a module and runs a cocotb module on it, in Icarus or Verilator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from hw_models.rtl_bench.tools import SOURCES, tool, tool_environment

COMMANDS = {"icarus": "iverilog", "verilator": "verilator"}
"""The simulators, and the command that each of them needs."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """One elaborated module, ready to run cocotb modules."""

    runner: Any
    module: str
    folder: Path

    def run(self, test_module: str, environment: Mapping[str, str], log: Path | None = None) -> tuple[int, int]:
        """Run *test_module*; return how many of its tests ran and how many failed.

        What the simulator says goes to *log*, or to standard output.  RuntimeError or SystemExit if it breaks down.
        """
        results = self.folder / f"{test_module}.xml"
        with tool_environment(environment):
            self.runner.test(
                hdl_toplevel=self.module,
                test_module=test_module,
                build_dir=self.folder,
                test_dir=self.folder,
                results_xml=str(results),
                log_file=log,
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
    """Elaborate *module*; a warning of the compiler is an error.  What the compiler says is in *folder*.build.log."""
    tool(COMMANDS[simulator])
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
