"""The step as an operator graph: work, bytes by owner, predictions beside the measurements of an H200."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hw_models import load_chip
from simulator.graph import OperatorGraph, OpKind, Phase, Role
from simulator.simulation import simulate
from workloads.gpt.parameters import parameters
from workloads.training.__main__ import main
from workloads.training.compare import TARGETS, Compared, compare, mean_errors, read_measured
from workloads.training.config import Run, checked
from workloads.training.forecast import forecast
from workloads.training.memory import OWNERS, step_memory
from workloads.training.network import Network
from workloads.training.step import accumulate
from workloads.training.tracing import trace_run

MEASURED = Path(__file__).parents[2] / "docs" / "data" / "lab04_h200.json"
RUN = Run(seq=64, batch=4)
P = 867_072  # parameters of tiny with 320 rows of embedding


@cache
def graph(**changes: object) -> OperatorGraph:
    return trace_run(replace(RUN, **changes))  # type: ignore[arg-type]


def counted_flops(run: Run) -> int:
    """FLOP of the products of one real step, as torch counts them."""
    network = Network(checked(run), run.precision, run.checkpointing)
    x = torch.zeros(run.batch, run.seq, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        accumulate(network, [(x, x)] * run.accumulate)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("changes", [{}, {"precision": "bf16"}, {"checkpointing": True}, {"accumulate": 3}], ids=str)
def test_flops_are_those_that_torch_counts(changes: dict[str, object]) -> None:
    traced = graph(**changes)
    run = replace(RUN, **changes)  # type: ignore[arg-type]
    assert sum(op.flops for op in traced if op.kind is OpKind.MATMUL) == counted_flops(run)
    # torch does not count its fused attention on a CPU: two products forwards, five backwards, over the pairs that the
    # mask leaves, in 4 layers of 4 heads of 32
    times = 2 + 5 + (2 if run.checkpointing else 0)
    pairs = 4 * 4 * run.batch * run.accumulate * 64 * 65 // 2
    assert sum(op.flops for op in traced if op.kind is OpKind.ATTENTION) == times * 2 * 32 * pairs


def test_recomputation_is_no_model_flop() -> None:
    kept, again = graph(), graph(checkpointing=True)
    assert again.model_flops == kept.model_flops
    assert sum(op.flops for op in again) > sum(op.flops for op in kept)
    assert {op.phase for op in again} - {op.phase for op in kept} == {Phase.RECOMPUTE}


def test_micro_batches_do_the_same_work_one_after_another() -> None:
    one, three = graph(), graph(accumulate=3)
    assert three.model_flops == 3 * one.model_flops
    phases = Counter(op.phase for op in three)
    assert Phase.RECOMPUTE not in phases
    assert phases[Phase.OPTIMIZER] == 3  # the norm, the factor, AdamW
    # gradients of the second and third are added to those that are there: one kernel for each parameter
    added = [op for op in three if op.phase is Phase.BACKWARD and op.target in ("aten.add", "aten.add_")]
    single = [op for op in one if op.phase is Phase.BACKWARD and op.target in ("aten.add", "aten.add_")]
    assert len(added) - 3 * len(single) == 2 * len(list(Network(checked(RUN)).parameters()))


def test_bytes_of_parameters_gradients_and_optimizer_by_hand() -> None:
    assert parameters(checked(RUN)).total == P
    for precision in ("fp32", "bf16"):  # autocast: everything that lasts is in fp32
        memory = step_memory(graph(precision=precision))
        assert memory.during["parameters"].tolist() == [4 * P] * len(memory.graph)
        assert memory.during["optimizer"].tolist() == [8 * P] * len(memory.graph)
        assert memory.during["gradients"][-1] == 4 * P
        assert memory.resident == 12 * P
        assert memory.during["batch"][0] == 2 * 4 * 64 * 8  # inputs and targets in int64


def test_every_byte_has_one_owner() -> None:
    for changes in ({}, {"checkpointing": True}, {"accumulate": 2}):
        memory = step_memory(graph(**changes))
        assert list(memory.during) == list(OWNERS)
        result = simulate(memory.graph, load_chip("h200", ["overheads.allocation=1 B"]), mode="eager")
        library = 2 * 32 * 2**20  # no storage of the program's
        assert (memory.total + library).tolist() == result.memory.total.tolist()
        assert memory.peak + library == result.peak_memory_bytes


def test_what_a_block_keeps_by_hand() -> None:
    saved = {each.name: each for each in step_memory(graph()).saved}
    tokens, width, ffn, layers = 4 * 64, 128, 512, 4
    # of each block: the input of gelu, and its output, which is that of the second product
    assert saved["blocks.*.ffn.up/aten.addmm"].nbytes == layers * tokens * ffn * 4
    assert saved["blocks.*.ffn/aten.gelu"].nbytes == layers * tokens * ffn * 4
    assert saved["blocks.*.attention.qkv/aten.addmm"].nbytes == layers * tokens * 3 * width * 4
    assert saved["blocks.*.attention.qkv/aten.addmm"].count == layers
    lean = {each.name: each for each in step_memory(graph(checkpointing=True)).saved}
    assert not any(".ffn" in name or ".attention" in name for name in lean)
    assert lean["blocks.*/aten.add"].nbytes == layers * tokens * width * 4  # inputs of the next block or the norm


def test_memory_over_a_step() -> None:
    memory = step_memory(graph())
    moments = memory.moments()
    assert moments["forward"] < moments["loss"] < moments["backward"]
    after = {name: int(memory.after[at]) for name, at in moments.items()}
    # when the backward pass is done, what is left is 16 bytes a parameter, the batch and some numbers
    assert after["backward"] == pytest.approx(16 * P + 2 * 4 * 64 * 8, abs=64)
    # the logits [256, 320] in fp32 are kept by the loss as log-probabilities; the program keeps neither
    assert after["loss"] - after["forward"] == pytest.approx(0, abs=64)


def test_clipping_reads_all_gradients_and_writes_them_once() -> None:
    norm, scale, update = graph().operators[-3:]
    assert (norm.target, scale.target, update.target) == ("clip.norm", "clip.scale", "adamw")
    assert (norm.reads, scale.reads, scale.writes) == (4 * P, 4 * P, 4 * P)
    assert scale.id in update.deps
    assert norm.id in scale.deps
    gradients = {each.id for each in graph().storages if each.role is Role.GRADIENT}
    assert {each.storage for each in norm.inputs} == gradients


def test_autocast_is_traced_as_torch_does_it() -> None:
    """The types of all products of the traced forward pass are those of a real one under torch's autocast."""
    traced = [op for op in graph(precision="bf16") if op.phase is Phase.FORWARD and op.kind is OpKind.MATMUL]
    assert {str(op.dtype) for op in traced} == {"bf16"}
    norms = [op for op in graph(precision="bf16") if op.target == "aten.native_layer_norm"]
    assert {str(op.dtype) for op in norms} == {"fp32"}
    casts = [op for op in graph(precision="bf16") if op.target == "aten._to_copy" and op.phase is Phase.FORWARD]
    weights = {each.id for each in graph(precision="bf16").storages if each.role is Role.WEIGHT}
    # each parameter of a product is cast once: 4 weights and 4 biases a block, and the tied head
    assert sum(op.inputs[0].storage in weights for op in casts) == 4 * 8 + 1


@cache
def compared() -> list[Compared]:
    return compare(read_measured(MEASURED), load_chip("h200"))


def test_memory_meets_its_target_everywhere() -> None:
    for row in compared():
        for point in row.points:
            if point.group == "memory":
                assert abs(point.error) < TARGETS["memory"], (row.name, point)


def test_time_meets_its_target_where_the_device_is_not_waiting() -> None:
    rows = compared()
    assert [row.name for row in rows if row.host_bound] == ["base, 8 rows", "base, 4 x 8 rows"]
    for row in rows:
        if not row.host_bound:
            assert abs(row.point("step_ms").error) < TARGETS["step time"], row.name
        assert abs(row.busy_predicted / row.busy - 1) < 0.12, row.name
    errors = mean_errors(rows)
    assert errors["step time, host not in the way"] < 0.05
    assert errors["memory"] < 0.01


def test_predicted_utilisation_follows_from_predicted_time() -> None:
    row = compared()[0]
    assert row.mfu_predicted == pytest.approx(row.found.mfu, rel=1e-3)


def test_compare_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = json.loads(MEASURED.read_text())
    name = "base, 8 rows"
    measured["configurations"] = {name: measured["configurations"][name]}
    (tmp_path / "one.json").write_text(json.dumps(measured))
    target = tmp_path / "out.json"
    arguments = ["compare", "--data", str(tmp_path / "one.json"), "--json", str(target), "--plots", str(tmp_path)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "* the device waited for the host: base, 8 rows" in shown
    assert "(target 3%)" in shown
    written = json.loads(target.read_text())
    point = written["configurations"][name]["peak_bytes"]
    assert point["measured"] == measured["configurations"][name]["peak_bytes"]
    assert point["error"] == pytest.approx(point["predicted"] / point["measured"] - 1)
    for picture in ("lab04_memory.png", "lab04_loss.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_predict_as_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.json"
    arguments = ["--seq", "64", "--batch", "4", "--json", str(target), "--plot", str(tmp_path / "out.svg")]
    assert main(["predict", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "tiny on h200, 1 x 4 rows of 64 tokens, fp32: " in shown
    assert "Kept by the forward pass for the backward pass" in shown
    written = json.loads(target.read_text())
    memory, line = written["memory"], written["timeline"]
    assert memory["peak_bytes"] == sum(memory["at_peak"].values())
    totals = [sum(each) for each in zip(*line["bytes"].values(), strict=True)]
    assert max(totals) + 2 * 32 * 2**20 == memory["peak_bytes"]
    assert line["operator"][totals.index(max(totals))] == memory["peak_operator"]
    assert len(line["start_seconds"]) == len(line["operator"]) == len(graph())
    assert "<svg" in (tmp_path / "out.svg").read_text()


def test_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--seq", "64", "--batch", "4", "--set", "memory.hbm.capacity=80MB"]) == 0
    assert "out of memory by " in capsys.readouterr().out
    assert not forecast(RUN, load_chip("h200", ["memory.hbm.capacity=80 MB"])).fits
    assert forecast(RUN, load_chip("h200")).fits
