"""``xpusim run`` as its user types it: what is printed and written, and every wrong input word for word."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from simulator.cli.main import main
from tests.cli.user_programs import mixer

USER = "tests/cli/user_programs.py"
FILE = Path(USER).resolve()


def line_of(text: str) -> str:
    """``file:line`` of the one line of the user's program that contains *text*."""
    (number,) = [n for n, line in enumerate(FILE.read_text().splitlines(), 1) if text in line]
    return f"{FILE}:{number}"


def run_json(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "result.json"
    assert main(["run", *arguments, "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_preset_runs_and_says_what_binds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(tmp_path, "gpt2", "--chip", "h200", "--phase", "decode", "--context", "512", "--batch", "4")
    assert set(found) >= {
        "seconds", "peak_memory_bytes", "energy_joules", "bounds", "operators", "modules", "uncovered", "version",
        "chip", "workload",
    }  # fmt: skip
    assert sum(found["bounds"].values()) == pytest.approx(found["seconds"])
    assert found["workload"] == {
        "name": "gpt2", "phase": "decode", "batch": 4, "tokens": 4, "context": 512, "dtype": "bf16",
    }  # fmt: skip
    # 124,439,808 parameters of 2 bytes, and 12 layers x 2 x 4 sequences x 512 positions x 768 x 2 bytes of cache
    assert found["memory"]["weight"] == 2 * 124_439_808
    assert found["memory"]["cache"] == 12 * 2 * 4 * 512 * 768 * 2
    assert found["uncovered"] == {}
    assert "Bound by" in capsys.readouterr().out


def test_a_program_that_nobody_here_has_seen_runs(tmp_path: Path) -> None:
    found = run_json(tmp_path, f"{USER}:mixer", "--chip", "edge-npu", "--batch", "3", "--dtype", "fp32")
    module, args = mixer(3)
    with FlopCounterMode(display=False) as counter:
        module(*args)
    counted = sum(op["flops"] for op in found["operators"] if op["kind"] in ("matmul", "convolution"))
    assert counted == counter.get_total_flops()
    assert {op["module"] for op in found["operators"]} >= {"conv", "norm", "out"}


def test_page_timeline_and_graph_are_written_and_the_graph_runs_again(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("page.html", "timeline.json", "graph.json")}
    arguments = ["gpt2", "--chip", "h200", "--seq", "64"]
    outputs = ["--html", paths["page.html"], "--timeline", paths["timeline.json"], "--save-graph", paths["graph.json"]]
    first = run_json(tmp_path, *arguments, *outputs)
    assert "<svg" in Path(paths["page.html"]).read_text()
    assert json.loads(Path(paths["timeline.json"]).read_text())["traceEvents"]
    again = run_json(tmp_path, paths["graph.json"], "--chip", "h200")
    assert again == first


def test_a_training_step_has_three_phases(tmp_path: Path) -> None:
    found = run_json(tmp_path, "gpt2", "--chip", "h200", "--phase", "train", "--seq", "64", "--mode", "eager")
    assert {op["phase"] for op in found["operators"]} == {"forward", "backward", "optimizer"}


def test_a_hugging_face_model_runs_from_its_configuration(tmp_path: Path) -> None:
    found = run_json(tmp_path, "hf:qwen2", "--config", "num_hidden_layers=2", "--chip", "h200", "--seq", "32")
    assert found["workload"]["name"] == "hf:qwen2"
    assert {op["module"].split(".")[2] for op in found["operators"] if ".layers." in op["module"]} == {"0", "1"}


def test_a_model_that_does_not_fit_says_by_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(tmp_path, "llama-70b", "--chip", "h100", "--phase", "decode", "--context", "128")
    assert found["bound"] == "capacity"
    # 70.6 B parameters of 2 bytes on 80 GB: 61.1 GB of weights too many, and the little else that lives
    assert found["capacity"]["fits"] is False
    assert found["capacity"]["overflow_bytes"] == found["peak_memory_bytes"] - 80 * 10**9
    assert found["capacity"]["overflow_bytes"] == pytest.approx(2 * 70_553_706_496 - 80e9, rel=0.01)
    assert "does not fit in 80 GB" in capsys.readouterr().out


def test_a_larger_bandwidth_is_set_on_the_command_line(tmp_path: Path) -> None:
    decode = ("llama-1b", "--chip", "h200", "--phase", "decode", "--context", "128")
    base = run_json(tmp_path, *decode)["seconds"]
    assert run_json(tmp_path, *decode, "--set", "memory.hbm.bandwidth=9.6TB/s")["seconds"] < base


BAD = [
    (
        ["gpt3", "--chip", "h200"],
        "unknown target 'gpt3'; did you mean 'gpt2'? TARGET is a preset, path.py:factory, hf:MODEL_TYPE or a saved "
        "graph (.json); presets: gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-1b, llama-3b, llama-8b, llama-70b, "
        "qwen3-0.6b",
    ),
    (
        ["gpt2", "--chip", "h20"],
        "unknown chip 'h20'; did you mean 'h200'? (known: a100, apple-m4, b200, edge-npu, h100, h200, mi300x, "
        "systolic-toy, tpu-v3, tpu-v5e, tpu-v5p; a chip description of your own is given as a path that ends in .yaml)",
    ),
    (
        ["gpt2", "--chip", "h200", "--phase", "decod"],
        "--phase decod: unknown; did you mean 'decode'? (known: prefill, decode, train)",
    ),
    (["gpt2", "--chip", "h200", "--batch", "0"], "--batch 0: must be at least 1"),
    (["gpt2", "--chip", "h200", "--seq", "-4"], "--seq -4: must be at least 1"),
    (
        ["gpt2", "--chip", "h200", "--seq", "4096"],
        "gpt2 prefill: sequence is 4096, longer than the model's context 1024",
    ),
    (
        ["gpt2", "--chip", "h200", "--phase", "decode", "--context", "2000"],
        "gpt2 decode: context is 2000, longer than the model's context 1024",
    ),
    (
        ["gpt2", "--chip", "h200", "--dtype", "bf32"],
        "--dtype bf32: unknown; did you mean 'tf32'? (known: fp64, fp32, tf32, fp16, bf16, fp8, int64, int32, int16, "
        "int8, int4, bool)",
    ),
    (
        ["gpt2", "--chip", "h200", "--mode", "egaer"],
        "unknown mode 'egaer'; did you mean 'eager'? (known: eager, graph, compile)",
    ),
    (
        ["gpt2", "--chip", "h200", "--optimizer", "adam"],
        "--optimizer adam: unknown (known: adamw, sgd, none)",
    ),
    (
        ["gpt2", "--chip", "h200", "--set", "memory.hbm.bandwidth=6"],
        "h200: not a valid chip description:\n  memory.hbm.bandwidth (--set): needs a unit: write '6 B/s' or, say, "
        "'6 GB/s', not a bare 6",
    ),
    (
        ["gpt2", "--chip", "h200", "--set", "memory.hmb.bandwidth=6TB/s"],
        "--set memory.hmb.bandwidth=6TB/s: the description has no memory.hmb; did you mean 'memory.hbm'?",
    ),
    (["gpt2", "--chip", "h200", "--config", "a=1"], "--config sets fields of hf:MODEL_TYPE targets only"),
    (
        ["hf:gpt2", "--chip", "h200", "--config", "layers"],
        "--config layers: expected the form KEY=VALUE, as in num_hidden_layers=4",
    ),
    (["hf:lama", "--chip", "h200"], "unknown Hugging Face model type 'lama'; did you mean 'llama'?"),
    (["missing.json", "--chip", "h200"], "cannot read missing.json: No such file or directory"),
    (
        ["gpt2", "--chip", "h200", "--json", "/nowhere/x.json"],
        "cannot write /nowhere/x.json: there is no folder /nowhere",
    ),
    (["gpt2", "--chip", "h200", "--html", "tests"], "cannot write tests: it is a folder"),
    (["nowhere.py:f", "--chip", "h200"], "nowhere.py:f: there is no file nowhere.py"),
    (
        [f"{USER}:wrong", "--chip", "h200"],
        f"{USER}:wrong must return (module, args) or (module, args, kwargs), got int",
    ),
    (
        [f"{USER}:raises", "--chip", "h200"],
        f"the factory {USER}:raises raised KeyError: 'weights' at "
        f"{line_of('raise KeyError')} in raises: 'raise KeyError(\"weights\")'",
    ),
    (
        [f"{USER}:undecided", "--chip", "h200"],
        f"data-dependent control flow at {line_of('if x.sum')} in forward: 'if x.sum() > 0:' reads "
        "the value of a tensor, which depends on the input; a trace knows shapes, not values",
    ),
    (
        [f"{USER}:mismatched", "--chip", "h200"],
        "the module Mismatched raised RuntimeError: a and b must have same reduction dim, but got [4, 3] X [8, 8]. "
        f"at {line_of('self.up(x')} in forward: 'y: Tensor = self.up(x[:, :3])'",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_wrong_input_is_one_message_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"xpusim: {message}\n"
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["passes", "gpt2"], "xpusim passes: the following arguments are required: --chip (see xpusim passes --help)"),
        (
            ["run", "gpt2", "--chip", "h200", "--seq", "many"],
            "xpusim run: argument --seq: invalid int value: 'many' (see xpusim run --help)",
        ),
    ],
)
def test_what_argparse_refuses_is_one_line_too(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"{message}\n"


def test_the_version_and_the_help_need_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("xpusim 0.1.0\nusage: xpusim")


def test_a_real_module_is_left_as_it_was(tmp_path: Path) -> None:
    module, _ = mixer()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    run_json(tmp_path, f"{USER}:mixer", "--chip", "h200")
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_a_pipe_that_nobody_reads_is_no_failure() -> None:
    command = f"{sys.executable} -m simulator run gpt2 --chip h200 --phase decode"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "gpt2 decode" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux that is always full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "simulator", "chips"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "xpusim: cannot write the output: No space left on device\n")


def test_a_file_without_a_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gpt2", "--chip", "h200", "--timeline", ""]) == 2
    assert capsys.readouterr().err == "xpusim: cannot write a file without a name\n"
