"""How much a training step of a preset sends, on paper and traced, and what bandwidth would hide it."""
# mypy: disallow-untyped-calls=False

from dataclasses import dataclass

import torch

from frontends import building, trace_step, world
from simulator.errors import UsageError
from simulator.graph import OperatorGraph
from workloads.distributed import tensor_parallel
from workloads.distributed.comm import Communicator
from workloads.distributed.data_parallel import Buckets
from workloads.distributed.estimates import gradient_payload, ring_share, tensor_payload
from workloads.distributed.predicted import collectives
from workloads.distributed.trainer import DIMENSIONS
from workloads.gpt.config import Config
from workloads.gpt.model import Model
from workloads.gpt.presets import preset
from workloads.gpt.program import next_token_loss


@dataclass(frozen=True, slots=True)
class Volume:
    """What one kind of parallelism sends in a step, seen from one rank.

    payload   bytes that are all-reduced, as traced; *paper* the closed form.
    sent      bytes that the rank puts on the wire for them in a ring.
    hidden    FLOP of the rank that can run meanwhile: data parallelism hides behind the backward pass, two thirds of a
              step; tensor parallelism stands between dependent products, and is compared with all of them.
    """

    kind: str
    ranks: int
    payload: int
    paper: int
    hidden: int

    @property
    def sent(self) -> float:
        """Bytes on the wire: 2 (n - 1) / n of the payload."""
        return 2 * ring_share(self.ranks) * self.payload

    def bandwidth(self, peak: float, share: float = 1.0) -> float:
        """Return the B/s in each direction at which sending takes *share* of the time of the FLOP at *peak*."""
        return self.sent / (share * self.hidden / peak)


def volumes(name: str, dp: int, tp: int, batch: int, seq: int) -> tuple[Volume, Volume]:
    """Return what data and tensor parallelism send in a bf16 step of the preset *name*, *batch* sequences a replica."""
    config = preset(name)
    if config.kv_heads % tp:
        raise UsageError(f"tp={tp} does not divide the {config.kv_heads} key/value heads of {name}")
    graph = traced(config, dp, tp, batch, seq)
    payload = dict.fromkeys(DIMENSIONS, 0)
    for op, dims in collectives(graph):
        # Ranks of one replica are neighbours, those of one shard are tp apart.
        kind = "tp" if tp > 1 and op.group[1] - op.group[0] == 1 else "dp"
        payload[kind] += dims.nbytes
    flops = graph.model_flops
    return (
        Volume("data", dp, payload["dp"], gradient_payload(config, tp) if dp > 1 else 0, flops * 2 // 3),
        Volume("tensor", tp, payload["tp"], tensor_payload(config, batch * seq) if tp > 1 else 0, flops),
    )


def traced(config: Config, dp: int, tp: int, batch: int, seq: int) -> OperatorGraph:
    """Return the graph of rank 0 of dp x tp ranks: forward, backward, and gradients averaged in buckets."""
    with world(dp * tp, 0, {"dp": dp, "tp": tp}) as mesh:
        data, tensor = (Communicator(mesh.get_group(each)) for each in DIMENSIONS)
        with building():
            model = Model(config, context=seq).to(torch.bfloat16).train()
            tensor_parallel.shard(model, tensor)
            buckets = Buckets(model.parameters(), data)
            tokens = torch.zeros(batch, seq, dtype=torch.int64)

        def step(model: torch.nn.Module, tokens: torch.Tensor) -> None:
            next_token_loss(model(tokens), tokens).backward()
            buckets.finish()

        return trace_step(step, model, (tokens,), optimizer=None)
