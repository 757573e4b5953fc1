"""Activations that are kept or done again, against the formulas of Korthikanti et al. 2022, section 4 and 5."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  everybody's name for it

from frontends import building, trace_training_step
from simulator.graph import OperatorGraph, Phase
from simulator.parallel.plan import Plan, Recompute
from simulator.parallel.shard import shard
from tests.frontends.parallel import Stack, inputs
from tests.simulator.shards import calls, small, step

B, S, H, A, LAYERS = 2, 32, 64, 4, 3
SBH, SCORES = B * S * H, A * S * S * B


class Layer(nn.Module):
    """The transformer layer of the paper: GELU, dropout in three places, scores in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(H), nn.LayerNorm(H)
        self.q, self.k, self.v, self.o = (nn.Linear(H, H) for _ in range(4))
        self.up, self.down = nn.Linear(H, 4 * H), nn.Linear(4 * H, H)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n1(x)
        q, k, v = (each(y).view(B, S, A, -1).transpose(1, 2).flatten(0, 1) for each in (self.q, self.k, self.v))
        scores = torch.bmm(q / (H // A) ** 0.5, k.transpose(1, 2))
        weights = F.dropout(scores.softmax(-1), 0.1, self.training)
        mixed = torch.bmm(weights, v).view(B, A, S, -1).transpose(1, 2).flatten(2)
        x = x + F.dropout(self.o(mixed), 0.1, self.training)
        mixed = self.down(F.gelu(self.up(self.n2(x))))
        return x + F.dropout(mixed, 0.1, self.training)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@cache
def paper() -> OperatorGraph:
    with building():
        model, args = Layers(), (torch.empty(B, S, H, requires_grad=True),)
    return trace_training_step(model, args, dtype="bf16")


def kept(mode: Recompute, tp: int, sp: bool) -> int:
    """Activation bytes of a layer: of three, what the middle one adds, so that input and loss do not count."""
    stages = shard(paper(), Plan(tp=tp, sp=sp, pp=3, recompute=mode))
    return stages[1].activation_bytes


# What the paper leaves out: two norms keep mean and 1/deviation of each token in fp32.
STATISTICS = 2 * 2 * 4 * B * S


@pytest.mark.parametrize(
    ("mode", "tp", "sp", "expected"),
    [
        ("none", 1, False, 34 * SBH + 5 * SCORES + STATISTICS),  # equation 1
        ("none", 4, False, (10 + 24 // 4) * SBH + 5 * SCORES // 4 + STATISTICS),  # equation 2
        ("none", 4, True, (34 * SBH + 5 * SCORES + STATISTICS) // 4),  # equation 4
        ("selective", 1, False, 34 * SBH + STATISTICS),
        ("selective", 4, True, (34 * SBH + STATISTICS) // 4),  # equation 6
        ("full", 1, False, 2 * SBH),  # table 2
        ("full", 4, False, 2 * SBH),
    ],
)
def test_a_layer_keeps_what_the_paper_counts(mode: Recompute, tp: int, sp: bool, expected: int) -> None:
    assert kept(mode, tp, sp) == expected


@pytest.mark.parametrize(("tp", "sp"), [(1, False), (4, False), (4, True)])
def test_flash_attention_keeps_no_scores(tp: int, sp: bool) -> None:
    # In fp32 and without dropout: both norms' inputs and outputs, q, k, v, attention's output, up (4), gelu (4): 4 + 12
    # of b s h, a statistic of each norm a token, and one of attention a head and token.
    with building():
        graph = trace_training_step(Stack(3, 32), inputs(B, S, 32))
    stage = shard(graph, Plan(tp=tp, sp=sp, pp=3))[1]
    outside = tp if sp else 1
    assert stage.activation_bytes == 4 * B * S * (4 * 32 + 2) // outside + 4 * B * S * (12 * 32 + 4) // tp


def test_full_recomputation_runs_each_layer_twice() -> None:
    plain, again = (shard(step(small("llama-8b")), Plan(tp=2, recompute=mode))[0] for mode in ("none", "full"))
    layers = [op for op in plain.forward if op.module.startswith("blocks.")]
    done = [op for op in again.backward if op.phase is Phase.RECOMPUTE]
    assert sorted((op.module, op.target, op.flops) for op in layers) == sorted(
        (op.module, op.target, op.flops) for op in done
    )
    assert again.backward.model_flops == plain.backward.model_flops  # not counted
    assert calls(again.backward, Phase.RECOMPUTE) == {("all_reduce", 2 * 32 * 64 * 2): 2 * 4}


def test_selective_recomputation_runs_the_core_of_attention_twice() -> None:
    stage = shard(paper(), Plan(recompute="selective"))[0]
    done = [op for op in stage.backward if op.phase is Phase.RECOMPUTE]
    assert [op.target for op in done[:4]] == ["aten.bmm", "aten._softmax", "aten.native_dropout", "aten.bmm"]
    assert len(done) == 4 * LAYERS
    assert sum(op.flops for op in done if op.target == "aten.bmm") == LAYERS * 4 * B * S * S * H  # section 5


def test_selective_recomputation_has_nothing_to_do_for_a_fused_kernel() -> None:
    stage = shard(step(small("llama-8b")), Plan(recompute="selective"))[0]
    assert stage.notes == ("recompute=selective: attention is one kernel that keeps no scores; nothing to do again",)
    assert not any(op.phase is Phase.RECOMPUTE for op in stage.backward)


def test_a_pass_needs_no_more_than_what_is_kept_and_one_layer() -> None:
    graph = step(small("llama-8b"))
    plain, again = (shard(graph, Plan(recompute=mode))[0] for mode in ("none", "full"))
    assert again.peak_forward_bytes < plain.peak_forward_bytes
    assert again.activation_bytes < again.peak_backward_bytes < plain.peak_backward_bytes
