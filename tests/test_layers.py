"""The import rules between the top-level packages, kept by a test and not by memory."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "simulator": {"simulator"},
    "hw_models": {"hw_models", "simulator"},
    "frontends": {"frontends", "simulator"},
    "workloads": {"workloads", "simulator", "frontends", "hw_models"},
}
COMPOSES_ALL = (Path("simulator/__main__.py"), Path("simulator/cli"))  # where everything meets


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names & MAY_IMPORT.keys()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_point_down(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        relative = path.relative_to(ROOT)
        if not any(relative.is_relative_to(each) for each in COMPOSES_ALL):
            assert imported_packages(path) <= MAY_IMPORT[package], relative


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import simulator, simulator.simulation, simulator.graph_io", {"torch", "matplotlib", "networkx"}),
        ("import hw_models", {"torch", "matplotlib", "networkx"}),
        ("import simulator.cli.main", {"torch", "numpy", "simpy", "pydantic", "rich", "yaml"}),
    ],
)
def test_what_is_not_needed_is_not_loaded(statement: str, unwanted: set[str]) -> None:
    code = f"{statement}; import sys; print(sorted(set(sys.modules) & {unwanted!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
