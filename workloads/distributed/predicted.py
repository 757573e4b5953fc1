"""What a job sends, read off the graphs of its traced ranks: nothing runs, no process is started."""

from dataclasses import replace

from frontends import building, check_ranks, trace_step, world
from simulator.dims import CollectiveDims
from simulator.graph import Operator, OperatorGraph, OpKind
from workloads.distributed.job import Job, make_batch
from workloads.distributed.ring import sent_bytes
from workloads.distributed.trainer import DIMENSIONS, Trainer


def traced(job: Job) -> dict[int, OperatorGraph]:
    """Return the graph of one step of each rank, checked against each other."""
    graphs = {}
    for rank in range(job.world):
        with world(job.world, rank, dict(zip(DIMENSIONS, (job.dp, job.tp), strict=True))) as mesh:
            with building():
                trainer = Trainer(job, mesh)
            batch = tuple(trainer.part(each) for each in make_batch(job, 0))
            graphs[rank] = trace_step(trainer.step, trainer.model, batch, optimizer=None)
    check_ranks(graphs)
    return graphs


def collectives(graph: OperatorGraph) -> list[tuple[Operator, CollectiveDims]]:
    """The collectives of a graph with their sizes."""
    return [(op, op.dims) for op in graph if op.kind is OpKind.COLLECTIVE and isinstance(op.dims, CollectiveDims)]


def wire_bytes(graph: OperatorGraph, rank: int) -> int:
    """Return the bytes that *rank* sends if its all-reduces go around a ring; sends count as they are."""
    total = 0
    for op, dims in collectives(graph):
        if dims.pattern == "all_reduce":
            itemsize = op.inputs[0].dtype.bits // 8
            total += sent_bytes(dims.nbytes // itemsize, itemsize, len(op.group), op.group.index(rank))
        elif dims.pattern == "send":
            total += dims.nbytes
    return total


def wire_by_rank(job: Job) -> list[int]:
    """Return the bytes that each rank sends in one step, whether or not the job writes its ring out."""
    return [wire_bytes(graph, rank) for rank, graph in traced(replace(job, ring=False)).items()]
