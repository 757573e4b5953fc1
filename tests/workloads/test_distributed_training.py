"""Parallel training for real: losses and weights of the single process, bytes of the traced graph."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from simulator.errors import UsageError
from workloads.distributed.commands import TOLERANCE, mean_losses
from workloads.distributed.job import GPT, HIDDEN, WIDTH, Job
from workloads.distributed.launch import run_processes
from workloads.distributed.predicted import collectives, traced, wire_by_rank
from workloads.distributed.tensor_parallel import cut
from workloads.distributed.trainer import train, train_alone
from workloads.distributed.volume import volumes

JOBS = [
    Job("mlp", dp=2, tp=1, dtype="fp64", ring=True),
    Job("mlp", dp=1, tp=4, steps=2, ring=True),
    Job("gpt", dp=3, tp=1, dtype="fp32", ring=True, batch=3, steps=2),
    Job("gpt", dp=2, tp=2, dtype="fp64", ring=True),
    Job("gpt", dp=2, tp=2, dtype="fp32", ring=False),
]


def close(got: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Relative to the largest weight: single weights may be near zero."""
    return bool((got - wanted).abs().max() <= tolerance * wanted.abs().max())


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.model}-dp{job.dp}-tp{job.tp}-{job.dtype}-{job.ring}")
def test_parallel_training_is_the_single_process_and_sends_what_the_graph_says(job: Job) -> None:
    ranks, alone = run_processes(train, job.world, job), train_alone(job)
    tolerance = TOLERANCE[job.dtype]
    assert mean_losses(job, ranks) == pytest.approx(alone["losses"], rel=tolerance)
    assert alone["losses"][0] > alone["losses"][-1]
    graphs = traced(replace(job, ring=False))
    for rank, found in enumerate(ranks):
        for name, weight in found["weights"].items():
            assert close(weight, cut(name, alone["weights"][name], job.tp, rank % job.tp), tolerance), name
        if job.ring:
            assert set(found["sent"]) == {wire_by_rank(job)[rank]}
            assert set(found["calls"]) == {0}
        else:
            sums = [dims.nbytes for _, dims in collectives(graphs[rank])]
            assert set(found["calls"]) == {len(sums)}
            assert set(found["summed"]) == {sum(sums)}


def test_the_ring_itself_traces_to_the_bytes_that_its_collectives_predict() -> None:
    job = Job("mlp", dp=2, tp=2)
    written_out = traced(replace(job, ring=True))
    sends = [
        sum(dims.nbytes for _, dims in collectives(graph) if dims.pattern == "send") for graph in written_out.values()
    ]
    assert sends == wire_by_rank(job)


def test_tensor_parallelism_divides_matrices_and_reduces_activations() -> None:
    # Two MLPs of 2 W H weights.  Forward a sum of b s W behind each, backward one before the second: the batch itself
    # needs no gradient.
    job = Job("mlp", dp=1, tp=2)
    graph = traced(job)[0]
    assert [dims.nbytes for _, dims in collectives(graph)] == [job.batch * job.seq * WIDTH * 4] * 3
    weights = sum(each.nbytes for each in graph.storages if each.role == "weight")
    assert weights == 2 * 2 * WIDTH * HIDDEN * 4 // 2


def test_data_parallelism_sums_every_gradient_once_and_overlaps_with_the_backward_pass() -> None:
    job = Job("gpt", dp=2, tp=1)
    graph = traced(job)[0]
    weights = sum(each.nbytes for each in graph.storages if each.role == "weight")
    found = collectives(graph)
    assert sum(dims.nbytes for _, dims in found) == weights
    assert len(found) > 1
    later = [op for op in graph if op.id > found[0][0].id and op.kind == "matmul" and op.phase == "backward"]
    assert later
    assert not any(found[0][0].id in op.deps for op in later)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"model": "gtp"}, "unknown model 'gtp'; did you mean 'gpt'? (known: mlp, gpt)"),
        ({"dtype": "fp16"}, "unknown type 'fp16'; did you mean 'fp64'? (known: fp32, fp64)"),
        ({"dp": 0}, "dp is 0, needs at least 1"),
        ({"dp": 3}, "dp=3 does not divide the batch of 8"),
        ({"tp": 3}, "tp=3 does not divide the 4 key/value heads"),
    ],
)
def test_jobs_that_cannot_run(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Job(**wrong)  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_a_width_that_does_not_divide() -> None:
    with pytest.raises(UsageError) as caught:
        traced(Job("mlp", dp=1, tp=3))
    assert str(caught.value) == "tp=3 does not divide the width 256 of layers.0.up"


def test_a_preset_sends_what_the_closed_forms_say() -> None:
    data, tensor = volumes("llama-1b", dp=4, tp=4, batch=2, seq=64)
    # llama-1b: 16 layers of width 2048; 2 x 64 tokens in bf16, four sums a layer.
    assert tensor.payload == tensor.paper == 4 * 16 * 2 * 64 * 2048 * 2
    assert data.payload == data.paper
    assert tensor.sent == 1.5 * tensor.payload
    assert data.bandwidth(peak=1e15, share=0.5) == pytest.approx(2 * data.sent / (data.hidden / 1e15))


def test_the_small_gpt_has_its_heads_divided() -> None:
    graph = traced(Job("gpt", dp=1, tp=4))[0]
    (query,) = {each.nbytes for each in graph.storages if each.name == "blocks.0.attention.q.weight"}
    assert query == GPT.q_width * GPT.width * 4 // 4
    assert torch.Size([GPT.q_width // 4, GPT.width]) == cut("q.weight", torch.empty(64, 64), 4, 1).shape
