"""Memory of a rank by figure 1 of Korthikanti et al. (arXiv 2205.05198), beside what our shards of its models hold."""

import csv
from dataclasses import dataclass
from pathlib import Path

from frontends import trace_training_step
from simulator.parallel.memory import rank_memory
from simulator.parallel.plan import Plan
from simulator.parallel.schedule import orders
from simulator.parallel.shard import shard
from workloads.megatron.model import config, program

_IN_A_STEP = 8  # microbatches for each stage: more than are ever in flight
_FIGURE_1 = {
    "megatron-22B": config("megatron-22B", 48, 6144, 64, 96, 24576, 2048),
    "gpt3-175B": config("gpt3-175B", 96, 12288, 96, 128, 49152, 2048),
    "turing-530B": config("turing-530B", 105, 20480, 128, 160, 81920, 2048),
    "megatron-1T": config("megatron-1T", 128, 25600, 160, 160, 102400, 2048),
}
_DIVIDED = {"megatron-22B": (1, 1, 4), "gpt3-175B": (8, 3, 1), "turing-530B": (35, 3, 1), "megatron-1T": (64, 1, 1)}


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of figure 1 for one model, printed and counted: parameters with optimizer, and activations, of a rank."""

    name: str
    mode: str
    printed: tuple[float, float]
    counted: tuple[float, float]


def memory_rows(path: Path) -> list[Held]:
    """Rows of ``fig1_memory.csv`` with what our shards of the same models hold.

    The figure leaves embedding and head out, so parameters are those of the second stage; activations are those of the
    first, which has most microbatches in flight.
    """
    with path.open(newline="") as file:
        return [_held(cells) for cells in csv.DictReader(file)]


def _held(cells: dict[str, str]) -> Held:
    model, plan = _FIGURE_1[cells["model"]], _plan_of_figure(cells["model"], cells["mode"])
    made = program(model, plan.microbatch)
    graph = trace_training_step(
        made.module, made.args, made.kwargs, loss=made.loss, optimizer="adamw", workload=made.workload, dtype="bf16"
    )
    stages = shard(graph, plan)
    own, blocks = stages[:: plan.pp], stages[min(1, plan.pp - 1) :: plan.pp]
    microbatches = _IN_A_STEP * plan.pp if plan.pp > 1 else 1
    held = rank_memory(own, orders(plan.schedule, plan.pp, microbatches, plan.interleave)[0], 1)
    printed = float(cells["params_optimizer_gib"]) * 2**30, float(cells["activations_gib"]) * 2**30
    model_state = sum(each.weight_bytes + each.gradient_bytes + each.optimizer_bytes for each in blocks)
    return Held(cells["model"], cells["mode"], printed, (model_state, held.activations))


def _plan_of_figure(name: str, mode: str) -> Plan:
    """Of table 3: tensor parallel 8; pipeline stages, chunks and microbatch by model."""
    pp, chunks, microbatch = _DIVIDED[name]
    selective = mode == "seqsel"
    return Plan(
        tp=8, pp=pp, sp=selective, microbatch=microbatch, schedule="interleaved" if chunks > 1 else "1f1b",
        interleave=chunks, recompute="selective" if selective else "none", precision="mixed",
    )  # fmt: skip
