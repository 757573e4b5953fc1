"""Every module is free of warnings in Icarus and in Verilator, at every kind of size; there are no waivers."""

import os
import subprocess

import pytest

from hw_models.rtl_bench.tools import INSTALL, RTL, SOURCES, MissingToolError, search_path, tool, verilator_root

pytestmark = pytest.mark.rtl

SIZES = [(1, 1, 0), (2, 1, 0), (1, 3, 0), (4, 4, 0), (3, 5, 0), (16, 16, 0), (4, 4, 1)]
ELABORATIONS = [(top, *size) for top in ("ws_top", "os_top") for size in SIZES]


def run(command: list[str]) -> str:
    """Run a command in rtl/ and return all that it says; it must succeed."""
    root = verilator_root()
    environment = os.environ | {"PATH": search_path()} | ({"VERILATOR_ROOT": str(root)} if root else {})
    done = subprocess.run(command, cwd=RTL, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def parameters(rows: int, columns: int, is_float: int) -> dict[str, int]:
    return {"ROWS": rows, "COLS": columns, "FLOAT": is_float, "DATA_W": 16 if is_float else 8}


@pytest.mark.parametrize(("top", "rows", "columns", "is_float"), ELABORATIONS)
def test_verilator_has_nothing_to_say(top: str, rows: int, columns: int, is_float: int) -> None:
    sizes = [f"-G{name}={value}" for name, value in parameters(rows, columns, is_float).items()]
    said = run([tool("verilator"), "--lint-only", "-Wall", "--top-module", top, *sizes, "-y", ".", f"{top}.v"])
    assert "Warning" not in said, said


@pytest.mark.parametrize(("top", "rows", "columns", "is_float"), ELABORATIONS)
def test_icarus_has_nothing_to_say(top: str, rows: int, columns: int, is_float: int) -> None:
    sizes = [f"-P{top}.{name}={value}" for name, value in parameters(rows, columns, is_float).items()]
    sources = [str(path) for path in SOURCES]
    said = run([tool("iverilog"), "-g2005-sv", "-Wall", "-s", top, *sizes, "-o", os.devnull, *sources])
    assert said == ""


def test_one_module_a_file_named_after_it_without_waivers() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert text.count("endmodule") == 1
        assert f"\nmodule {path.stem} " in text
        assert "lint_off" not in text
        assert text.startswith("// "), f"{path.name} does not say what it is"


def test_a_missing_tool_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hw_models.rtl_bench.tools.search_path", lambda: "")
    for name, line in INSTALL.items():
        with pytest.raises(MissingToolError) as caught:
            tool(name)
        assert str(caught.value) == f"{name} is not installed; install it with: {line}"
