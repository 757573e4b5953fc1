"""What the compiler gets to see: the user's model, as ``torch.compile(model)`` does, and not what follows it."""

from simulator.graph import OperatorGraph, Phase


def outside(graph: OperatorGraph) -> frozenset[int]:
    """Ids of operators that run as the program launched them.

    The optimizer's step; and in training the loss: what stands at the top level after the forward pass of the last
    submodule, and its gradients before those of the first.  A program without submodules is compiled as a whole.
    """
    found = {op.id for op in graph if op.phase is Phase.OPTIMIZER}
    if graph.workload.phase != "train":
        return frozenset(found)
    forward = [op.id for op in graph if op.module and op.phase is Phase.FORWARD]
    backward = [op.id for op in graph if op.module and op.phase in (Phase.BACKWARD, Phase.RECOMPUTE)]
    if forward and backward:
        found.update(op.id for op in graph if not op.module and forward[-1] < op.id < backward[0])
    return frozenset(found)
