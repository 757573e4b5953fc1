"""A chip and graphs small enough to work out by hand."""

from dataclasses import replace

from simulator.costs import Cost, Unit, register_model
from simulator.dims import MatmulDims
from simulator.dtypes import DType
from simulator.graph import Operator, OperatorGraph, OpKind, Phase, Role, Storage, Tensor, Workload
from simulator.hardware import Chip, Execution, Link, MatrixUnit, MemoryLevel, Overheads, VectorUnit

SOURCE = "made up for the tests"


def toy_chip(execution: Execution = Execution.STREAM, sram: int | None = None, link: int | None = None) -> Chip:
    """32 GFLOP/s of matrix, 8 GFLOP/s of vector unit, 16 GB/s of memory, 1 KiB of it on demand; 1 GHz."""
    memory = {"dram": MemoryLevel(scope="device", capacity=2**20, bandwidth=16 * 10**9, source=SOURCE)}
    if sram:
        memory["sram"] = MemoryLevel(scope="core", capacity=sram, source=SOURCE)
    return Chip(
        name="toy",
        description="checkable by hand",
        source=SOURCE,
        cores=1,
        execution=execution,
        matrix=MatrixUnit(clock=10**9, macs_per_cycle={DType.BF16: 16}, source=SOURCE),
        vector=VectorUnit(clock=10**9, flops_per_cycle={DType.FP32: 8}, source=SOURCE),
        memory=memory,
        overheads=Overheads(launch=0, source=SOURCE),
        host_link=Link(bandwidth=link, source=SOURCE) if link else None,
    )


def with_overheads(chip: Chip, launch: int = 0, gap: int = 0, host_dispatch: int = 0, host_submit: int = 0) -> Chip:
    overheads = Overheads(launch=launch, gap=gap, host_dispatch=host_dispatch, host_submit=host_submit, source=SOURCE)
    return replace(chip, overheads=overheads)


def cost(unit: Unit = Unit.MATRIX, compute: int = 0, memory: int = 0, launch: int = 0) -> Cost:
    """A cost whose arithmetic and traffic overlap: the slower one decides, after the launch."""
    return Cost(unit, launch + max(compute, memory), launch, compute, memory, traffic=memory)


class GraphMaker:
    """Builds graphs of matmuls and pointwise operators over named storages."""

    def __init__(self, phase: str = "forward", tokens: int = 0) -> None:
        self.graph = OperatorGraph(Workload("toy", phase, tokens=tokens))
        self._storages: dict[str, Storage] = {}

    def storage(self, name: str, role: Role, elements: int) -> Tensor:
        """A vector of *elements* bf16 numbers in a storage of its own."""
        if name not in self._storages:
            self._storages[name] = self.graph.add_storage(name, role, 2 * elements)
        return Tensor(self._storages[name].id, (elements,), DType.BF16)

    def op(
        self,
        inputs: tuple[Tensor, ...] = (),
        outputs: tuple[Tensor, ...] = (),
        deps: tuple[int, ...] = (),
        kind: OpKind = OpKind.POINTWISE,
        flops: int = 0,
        module: str = "",
        dims: MatmulDims | None = None,
        dispatches: int = 1,
        target: str | None = None,
    ) -> Operator:
        number = len(self.graph)
        operator = Operator(
            id=number,
            module=module,
            target=target or f"op{number}",
            kind=kind,
            phase=Phase.FORWARD,
            inputs=inputs,
            outputs=outputs,
            flops=flops,
            reads=sum(tensor.nbytes for tensor in inputs),
            writes=sum(tensor.nbytes for tensor in outputs),
            deps=deps,
            dtype=DType.BF16,
            dims=dims,
            dispatches=dispatches,
        )
        return self.graph.add(operator)

    def matmul(self, m: int, n: int, k: int, deps: tuple[int, ...] = (), module: str = "") -> Operator:
        """y[m,n] = x[m,k] w[k,n], each in a storage of its own."""
        number = len(self.graph)
        x = self.storage(f"x{number}", Role.INPUT, m * k)
        w = self.storage(f"w{number}", Role.WEIGHT, k * n)
        y = self.storage(f"y{number}", Role.ACTIVATION, m * n)
        dims = MatmulDims(m, n, k)
        return self.op((x, w), (y,), deps, OpKind.MATMUL, dims.flops, module, dims)


@register_model("fixed")
class FixedModel:
    """Every operator takes 6 ns of memory time, whatever the chip: for tests of what is around operators."""

    ideal = False

    def __init__(self, chip: Chip) -> None:
        self.chip = chip

    def costs(self, graph: OperatorGraph) -> list[Cost]:
        return [cost(memory=6000)] * len(graph)
