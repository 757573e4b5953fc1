"""Measured training steps of Megatron on A100 clusters, each with its parallel configuration, and what we predict."""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from frontends import trace_training_step
from hw_models import load_chip, load_system
from hw_models.interconnect import Collectives
from simulator.dtypes import DType
from simulator.errors import SpecError
from simulator.graph import Operator, OpKind, Phase, Role, Tensor
from simulator.parallel.plan import Plan, Recompute
from simulator.parallel.played import Network, Prices
from simulator.parallel.result import Run
from simulator.parallel.run import machine, training_run
from simulator.parallel.shard import shard
from simulator.parallel.stage import Stage
from simulator.system import System
from workloads.gpt.config import Config
from workloads.megatron.model import config, program

DATA = Path(__file__).parents[2] / "hw_models" / "data" / "megatron_a100"
SUSTAINED = "1.335 GHz"  # tensor cores in steps of seconds at the 400 W cap: fitted to batch_time.csv; boost is 1.41
_NODE = 8
_RECOMPUTE: dict[str, Recompute] = {"none": "none", "attn_only": "selective", "full": "full"}
_NUMBERS = (
    "layers", "hidden", "ffn", "heads", "head_dim", "seq_len", "gpus", "tp", "pp", "dp", "global_batch", "micro_batch",
    "pp_interleave",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One measured step: its model, its plan, seconds (0 where only memory is known)."""

    name: str
    mode: str
    seconds: float
    config: Config
    plan: Plan
    batch: int


def read_rows(path: Path) -> list[Row]:
    """Rows of a table with the columns of ``batch_time.csv``; SpecError says what is wrong with which line."""
    with path.open(newline="") as file:
        return [_row(path, line, each) for line, each in enumerate(csv.DictReader(file), 2)]


def _row(path: Path, line: int, cells: dict[str, str]) -> Row:
    try:
        number = {name: int(cells[name]) for name in _NUMBERS}
        seconds = float(cells["measured_batch_time_s"])
        recompute = _RECOMPUTE[cells["activation_recompute"]]
        sequence = {"ar": False, "rs_ag": True}[cells["tp_comm"]]
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{path}:{line}: cannot read {error}; expected the columns of batch_time.csv") from None
    chunks = number["pp_interleave"]
    plan = Plan(
        dp=number["dp"], tp=number["tp"], pp=number["pp"], sp=sequence, microbatch=number["micro_batch"],
        schedule="interleaved" if chunks > 1 else "1f1b", interleave=chunks, recompute=recompute, precision="mixed",
    )  # fmt: skip
    model = config(
        cells["model"], number["layers"], number["hidden"], number["heads"], number["head_dim"], number["ffn"],
        number["seq_len"],
    )  # fmt: skip
    return Row(cells["model"], cells["mode"], seconds, model, plan, number["global_batch"])


def predict(row: Row) -> Run:
    """One step of *row* on as many DGX A100 as it has ranks for."""
    made = program(row.config, row.plan.microbatch)
    graph = trace_training_step(
        made.module, made.args, made.kwargs, loss=made.loss, optimizer="adamw", workload=made.workload, dtype="bf16"
    )
    nodes = -(-row.plan.world // _NODE)
    system = load_system(f"dgx-a100x{nodes}" if nodes > 1 else "dgx-a100")
    chip = load_chip(system.chip)
    sustained = load_chip(system.chip, [f"matrix.clock={SUSTAINED}"])
    on = replace(machine(system, chip, network), prices=Prices(sustained), holds=True)
    stages = [_with_gradient_passes(stage) for stage in shard(graph, row.plan)]
    return training_run(stages, row.plan, on, graph.workload, graph.model_flops, row.batch)


def _with_gradient_passes(stage: Stage) -> Stage:
    """*stage* whose optimizer is preceded by Megatron's passes over the fp32 gradients.

    The loss scale is taken out and overflows are looked for (read, write), the norm is taken (read), and the gradients
    are clipped by it (read, write).
    """
    old = stage.optimizer
    if not len(old):
        return stage
    new = replace(old, operators=list(old.operators))
    gradients = new.add_storage("gradients", Role.WORKSPACE, 0)
    size = stage.gradient_bytes
    for name, reads, writes in (("unscale", size, size), ("norm", size, 0), ("clip", size, size)):
        flat = Tensor(gradients.id, (size // 4,), DType.FP32)
        new.add(
            Operator(
                len(new), "", name, OpKind.POINTWISE, Phase.OPTIMIZER, (flat,), (), size // 4, reads, writes, (),
                DType.FP32,
            )
        )  # fmt: skip
    return replace(stage, optimizer=new)


def network(system: System) -> Network:
    """How collectives are priced on *system*."""
    known = Collectives(system)
    return lambda pattern, nbytes, ranks: known.predict(pattern, nbytes, ranks).best.demand
